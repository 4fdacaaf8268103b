// Package controlplane runs etcd and the control plane of Kubernetes in a network
// namespace of their own. Keys and credentials are made by kubeadm's phases.
package controlplane

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/azuredisk-csi/azuredisk/playground/topology"
)

// APIPort is the port of the API server at the control plane's address.
const APIPort = 6443

// Credentials are the keys, certificates and kubeconfigs of a cluster.
type Credentials struct {
	// Dir holds pki/ and the kubeconfigs *.conf.
	Dir     string
	Kubeadm string
	// Version is that of Kubernetes, like "v1.37.2". kubeadm refuses newer ones than its own.
	Version string
	Plan    topology.Plan
}

// PKI is the path of a key or certificate.
func (c Credentials) PKI(name string) string { return filepath.Join(c.Dir, "pki", name) }

// Kubeconfig is the path of the kubeconfig of that user: admin, super-admin,
// controller-manager, scheduler, kube-proxy or a node's name.
func (c Credentials) Kubeconfig(user string) string { return filepath.Join(c.Dir, user+".conf") }

// Make makes all that is not there yet.
func (c Credentials) Make(ctx context.Context) error {
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return err
	}
	config := filepath.Join(c.Dir, "kubeadm.yaml")
	if err := os.WriteFile(config, []byte(c.config()), 0o600); err != nil {
		return err
	}
	if err := c.run(ctx, nil, "init", "phase", "certs", "all", "--config", config); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(2)
	for _, user := range []string{"admin", "super-admin", "controller-manager", "scheduler"} {
		group.Go(func() error {
			return c.run(ctx, nil, "init", "phase", "kubeconfig", user, "--config", config, "--kubeconfig-dir", c.Dir)
		})
	}
	group.Go(func() error { return c.user(ctx, config, "kube-proxy", "system:kube-proxy", "") })
	for _, node := range c.Plan.Nodes {
		group.Go(func() error {
			return c.user(ctx, config, node.Name, "system:node:"+node.Name, "system:nodes")
		})
	}
	return group.Wait()
}

// user makes the kubeconfig of one user.
func (c Credentials) user(ctx context.Context, config, file, name, organisation string) error {
	path := c.Kubeconfig(file)
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	args := []string{"kubeconfig", "user", "--config", config, "--client-name", name}
	if organisation != "" {
		args = append(args, "--org", organisation)
	}
	var out strings.Builder
	if err := c.run(ctx, &out, args...); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(out.String()), 0o600)
}

func (c Credentials) run(ctx context.Context, out *strings.Builder, args ...string) error {
	cmd := exec.CommandContext(ctx, c.Kubeadm, args...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	if out != nil {
		cmd.Stdout = out
	}
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("kubeadm %s: %w: %s", strings.Join(args[:min(4, len(args))], " "), err,
			strings.TrimSpace(stderr.String()))
	}
	return nil
}

// config is kubeadm's configuration. Only what certificates and kubeconfigs are
// made from matters: kubeadm starts nothing here.
func (c Credentials) config() string {
	return fmt.Sprintf(`apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
nodeRegistration:
  name: control-plane
  criSocket: unix:///nowhere
localAPIEndpoint:
  advertiseAddress: %[1]s
  bindPort: %[2]d
---
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
clusterName: playground
kubernetesVersion: %[7]s
certificatesDir: %[3]s
controlPlaneEndpoint: %[1]s:%[2]d
networking:
  serviceSubnet: %[4]s
  podSubnet: %[5]s
  dnsDomain: %[6]s
apiServer:
  certSANs: ["127.0.0.1", "localhost", "control-plane"]
`, c.Plan.ControlPlane(), APIPort, filepath.Join(c.Dir, "pki"), c.Plan.ServiceNet, c.Plan.PodNet, topology.ClusterDomain,
		c.Version)
}
