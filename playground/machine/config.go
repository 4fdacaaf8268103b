package machine

import (
	"crypto/sha256"
	"fmt"
	"sort"
	"strings"

	"github.com/azuredisk-csi/azuredisk/playground/controlplane"
	"github.com/azuredisk-csi/azuredisk/playground/topology"
)

// configs are the configuration files of the machine, by their path on its disk.
func (s Spec) configs(plan topology.Plan) map[string]string {
	return map[string]string{
		"etc/hostname":                      s.Name + "\n",
		"etc/hosts":                         fmt.Sprintf("127.0.0.1 localhost\n%s %s\n", s.Address, s.Name),
		"etc/resolv.conf":                   "# a node of the playground resolves no names of the world\n",
		"etc/machine-id":                    fmt.Sprintf("%x\n", sha256.Sum256([]byte(s.Name)))[:32] + "\n",
		"etc/containerd/config.toml":        s.containerdConfig(),
		"etc/cni/net.d/10-pods.conflist":    s.cniConfig(),
		kubernetesConfigs + "/kubelet.yaml": s.kubeletConfig(),
		kubernetesConfigs + "/kube-proxy.yaml": controlplane.ProxyConfig("/"+kubernetesConfigs+"/kube-proxy.conf",
			s.Name, plan, s.Address.String()),
	}
}

// containerdConfig: oom_score_adj is restricted because a process without
// CAP_SYS_RESOURCE may not lower it, and no pod here needs it.
func (s Spec) containerdConfig() string {
	return fmt.Sprintf(`version = 3
root = "/var/lib/containerd"
state = "/run/containerd"

[grpc]
  address = %q

[plugins."io.containerd.cri.v1.images"]
  snapshotter = %q
  [plugins."io.containerd.cri.v1.images".pinned_images]
    sandbox = %q

[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = true
  [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
      SystemdCgroup = false
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = [%q]
    conf_dir = "/etc/cni/net.d"
`, containerdSocket, s.Snapshotter, s.PauseImage, containerdBin)
}

// cniConfig gives every pod a cable of its own to the machine. There is no bridge
// between the pods of a machine on purpose: what crosses one is seen by the
// machine's packet filter only if the kernel has br_netfilter, and Services need it.
// Addresses in use are kept in /run, because no pod outlives a power cut.
func (s Spec) cniConfig() string {
	return fmt.Sprintf(`{
  "cniVersion": "1.0.0",
  "name": "pods",
  "plugins": [
    {
      "type": "ptp",
      "mtu": 1500,
      "ipMasq": false,
      "ipam": {
        "type": "host-local",
        "dataDir": "/run/cni/networks",
        "ranges": [[{"subnet": %q}]],
        "routes": [{"dst": "0.0.0.0/0"}]
      }
    },
    {"type": "portmap", "capabilities": {"portMappings": true}}
  ]
}
`, s.PodNet)
}

// kubeletConfig: nodes share this machine's memory and disk, so limits of the node
// as a whole, evictions and image clean-up would only get in each other's way.
func (s Spec) kubeletConfig() string {
	var taints []string
	for _, t := range s.Taints {
		taints = append(taints, fmt.Sprintf("{key: %q, value: %q, effect: %q}", t.Key, t.Value, t.Effect))
	}
	return fmt.Sprintf(`apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: %[1]s
authentication:
  anonymous: {enabled: false}
  webhook: {enabled: true}
  x509: {clientCAFile: /%[2]s/pki/ca.crt}
authorization: {mode: Webhook}
cgroupDriver: cgroupfs
cgroupRoot: /
cgroupsPerQOS: false
enforceNodeAllocatable: []
failCgroupV1: false
failSwapOn: false
containerRuntimeEndpoint: unix://%[3]s
clusterDNS: [%[4]q]
clusterDomain: %[5]s
evictionHard:
  memory.available: 100Mi
  nodefs.available: 0%%
  nodefs.inodesFree: 0%%
  imagefs.available: 0%%
  imagefs.inodesFree: 0%%
healthzBindAddress: 127.0.0.1
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
makeIPTablesUtilChains: false
providerID: %[6]s
registerWithTaints: [%[8]s]
resolvConf: /etc/resolv.conf
rotateCertificates: false
volumePluginDir: %[7]s/volume-plugins
`, s.Address, kubernetesConfigs, containerdSocket, s.DNS, topology.ClusterDomain, s.ProviderID, kubeletDir,
		strings.Join(taints, ", "))
}

func (s Spec) labels() string {
	var pairs []string
	for key, value := range s.Labels {
		pairs = append(pairs, key+"="+value)
	}
	sort.Strings(pairs)
	return strings.Join(pairs, ",")
}
