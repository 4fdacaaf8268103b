// Package machine is a worker node: a machine made of namespaces, with a root of
// its own, on which containerd, a kubelet and a kube-proxy run.
//
// The files that a machine keeps across a power cut are in Spec.Disk; everything
// else (its /run, its mounts, its processes) is gone when its first process is
// killed. The package has two halves: Machine is used by the supervisor outside,
// and Boot, Init and Run are what happens inside.
package machine

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"

	"github.com/azuredisk-csi/azuredisk/playground/host"
	"github.com/azuredisk-csi/azuredisk/playground/topology"
)

// Spec is all that a machine needs to know to boot.
type Spec struct {
	Name string `json:"name"`
	// Address is the node's address on the switch.
	Address netip.Addr `json:"address"`
	// PodNet are the addresses of its pods.
	PodNet netip.Prefix `json:"podNet"`
	// ClusterNet is the network of all pods.
	ClusterNet netip.Prefix `json:"clusterNet"`
	// ServiceNet is the network of all Services.
	ServiceNet netip.Prefix      `json:"serviceNet"`
	DNS        netip.Addr        `json:"dns"`
	ProviderID string            `json:"providerID"`
	Labels     map[string]string `json:"labels"`
	// Taints are those with which the node registers.
	Taints []corev1.Taint `json:"taints,omitempty"`
	// Root is an empty folder on which the machine's root is mounted.
	Root string `json:"root"`
	// Disk is the folder that holds what the machine keeps: etc, var, opt, root.
	Disk string `json:"disk"`
	// Logs is the folder, on the host, for the logs of the machine's programs.
	Logs string `json:"logs"`
	// AzureDisks is the folder that the machine sees as /dev/disk/azure.
	AzureDisks string `json:"azureDisks"`
	// Azuresim is the program, and GuestSocket where it answers the ioctls of SCSI
	// reservations.
	Azuresim    string `json:"azuresim"`
	GuestSocket string `json:"guestSocket"`
	// Programs are folders of programs: the kubelet and kube-proxy, and containerd
	// with its shim and the CNI plug-ins.
	KubernetesPrograms string `json:"kubernetesPrograms"`
	ContainerdPrograms string `json:"containerdPrograms"`
	// Kubeconfig and ProxyKubeconfig are the credentials; CA is the cluster's.
	Kubeconfig      string       `json:"kubeconfig"`
	ProxyKubeconfig string       `json:"proxyKubeconfig"`
	CA              string       `json:"ca"`
	Cgroups         host.Cgroups `json:"cgroups"`
	Snapshotter     string       `json:"snapshotter"`
	// PauseImage is the image of the process that holds a pod's namespaces.
	PauseImage string `json:"pauseImage"`
}

const (
	specFile          = "etc/playground/machine.json"
	containerdSocket  = "/run/containerd/containerd.sock"
	kubernetesBin     = "/opt/playground/kubernetes"
	containerdBin     = "/opt/cni/bin"
	logDir            = "/var/log/playground"
	kubeletDir        = "/var/lib/kubelet"
	kubernetesConfigs = "etc/kubernetes"
)

// Write writes the machine's configuration to its disk, as an installer would.
func (s Spec) Write(plan topology.Plan) error {
	for _, dir := range []string{"etc/playground", "etc/containerd", "etc/cni/net.d", kubernetesConfigs + "/pki",
		"var/lib/kubelet", "var/log/pods", "var/tmp", "opt", "root", "home"} {
		if err := os.MkdirAll(filepath.Join(s.Disk, dir), 0o755); err != nil {
			return err
		}
	}
	for _, dir := range []string{s.Root, s.Logs, s.AzureDisks} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	if err := copyHostEtc(filepath.Join(s.Disk, "etc")); err != nil {
		return fmt.Errorf("install /etc: %w", err)
	}
	for from, to := range map[string]string{
		s.Kubeconfig:      "kubelet.conf",
		s.ProxyKubeconfig: "kube-proxy.conf",
		s.CA:              "pki/ca.crt",
	} {
		if err := copyFile(from, filepath.Join(s.Disk, kubernetesConfigs, to)); err != nil {
			return err
		}
	}
	self, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	files := s.configs(plan)
	files[specFile] = string(self)
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(s.Disk, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// ContainerdState is the folder, on the host, of what the machine's containerd keeps.
func (s Spec) ContainerdState() string { return filepath.Join(s.Disk, "var/lib/containerd") }

// ReadSpec reads the specification of the machine whose disk that is.
func ReadSpec(disk string) (Spec, error) {
	var s Spec
	data, err := os.ReadFile(filepath.Join(disk, specFile))
	if err != nil {
		return s, err
	}
	return s, json.Unmarshal(data, &s)
}

// hostEtc is what a machine needs of the host's /etc: the users, how libraries
// are found, which of several variants of a program is meant, certificates.
var hostEtc = []string{"passwd", "group", "nsswitch.conf", "protocols", "services", "ld.so.cache", "ld.so.conf",
	"ld.so.conf.d", "alternatives", "mke2fs.conf", "ssl/certs/ca-certificates.crt", "modprobe.d", "os-release", "debian_version"}

func copyHostEtc(to string) error {
	for _, name := range hostEtc {
		if err := copyTree(filepath.Join("/etc", name), filepath.Join(to, name)); err != nil {
			return err
		}
	}
	return nil
}

// copyTree copies a file, a symbolic link or a folder of those. What is not there
// is not copied.
func copyTree(from, to string) error {
	info, err := os.Lstat(from)
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		return err
	}
	switch {
	case info.IsDir():
		entries, err := os.ReadDir(from)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if err := copyTree(filepath.Join(from, e.Name()), filepath.Join(to, e.Name())); err != nil {
				return err
			}
		}
		return nil
	case info.Mode()&os.ModeSymlink != 0 && isRelative(from):
		return copyFile(from, to)
	case info.Mode()&os.ModeSymlink != 0:
		target, err := os.Readlink(from)
		if err != nil {
			return err
		}
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		_ = os.Remove(to)
		return os.Symlink(target, to)
	}
	return copyFile(from, to)
}

func isRelative(link string) bool {
	target, err := os.Readlink(link)
	return err == nil && !filepath.IsAbs(target)
}

func copyFile(from, to string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return os.WriteFile(to, data, 0o644)
}
