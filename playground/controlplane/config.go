package controlplane

import (
	"fmt"
	"os"

	"sigs.k8s.io/yaml"

	"github.com/azuredisk-csi/azuredisk/playground/topology"
)

func (c *ControlPlane) etcdArgs() []string {
	return []string{
		"--name=playground",
		"--data-dir=" + c.file("etcd"),
		"--listen-client-urls=http://127.0.0.1:2379",
		"--advertise-client-urls=http://127.0.0.1:2379",
		"--listen-peer-urls=http://127.0.0.1:2380",
		"--initial-advertise-peer-urls=http://127.0.0.1:2380",
		"--initial-cluster=playground=http://127.0.0.1:2380",
		"--log-level=warn",
	}
}

func (c *ControlPlane) apiServerArgs() []string {
	pki, plan := c.opts.Credentials.PKI, c.opts.Plan
	return []string{
		"--advertise-address=" + plan.ControlPlane().String(),
		fmt.Sprintf("--secure-port=%d", APIPort),
		"--etcd-servers=http://127.0.0.1:2379",
		"--allow-privileged=true",
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		"--service-cluster-ip-range=" + plan.ServiceNet.String(),
		"--service-account-issuer=https://kubernetes.default.svc." + topology.ClusterDomain,
		"--service-account-key-file=" + pki("sa.pub"),
		"--service-account-signing-key-file=" + pki("sa.key"),
		"--client-ca-file=" + pki("ca.crt"),
		"--tls-cert-file=" + pki("apiserver.crt"),
		"--tls-private-key-file=" + pki("apiserver.key"),
		"--kubelet-client-certificate=" + pki("apiserver-kubelet-client.crt"),
		"--kubelet-client-key=" + pki("apiserver-kubelet-client.key"),
		"--kubelet-preferred-address-types=InternalIP",
		"--proxy-client-cert-file=" + pki("front-proxy-client.crt"),
		"--proxy-client-key-file=" + pki("front-proxy-client.key"),
		"--requestheader-client-ca-file=" + pki("front-proxy-ca.crt"),
		"--requestheader-allowed-names=front-proxy-client",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-username-headers=X-Remote-User",
		"--profiling=false",
	}
}

func (c *ControlPlane) controllerManagerArgs() []string {
	credentials, plan := c.opts.Credentials, c.opts.Plan
	kubeconfig := credentials.Kubeconfig("controller-manager")
	return []string{
		"--kubeconfig=" + kubeconfig,
		"--authentication-kubeconfig=" + kubeconfig,
		"--authorization-kubeconfig=" + kubeconfig,
		"--bind-address=127.0.0.1",
		"--client-ca-file=" + credentials.PKI("ca.crt"),
		"--requestheader-client-ca-file=" + credentials.PKI("front-proxy-ca.crt"),
		"--cluster-signing-cert-file=" + credentials.PKI("ca.crt"),
		"--cluster-signing-key-file=" + credentials.PKI("ca.key"),
		"--root-ca-file=" + credentials.PKI("ca.crt"),
		"--service-account-private-key-file=" + credentials.PKI("sa.key"),
		"--service-cluster-ip-range=" + plan.ServiceNet.String(),
		"--cluster-cidr=" + plan.PodNet.String(),
		"--use-service-account-credentials=true",
		"--leader-elect=false",
		"--controllers=*,-node-ipam-controller",
	}
}

// Extender is a scheduler extender, as the default scheduler is to call it.
type Extender struct {
	// URL is the prefix of the extender's verbs. The scheduler does not resolve names
	// of Services: use the Service's address.
	URL            string `json:"url"`
	FilterVerb     string `json:"filterVerb"`
	PrioritizeVerb string `json:"prioritizeVerb"`
	// Weight is that of the extender's scores.
	Weight int64 `json:"weight"`
	// Ignorable means that pods are scheduled without the extender while it fails.
	Ignorable bool `json:"ignorable"`
	// NodeCacheCapable means that the extender takes names of nodes only.
	NodeCacheCapable bool `json:"nodeCacheCapable"`
	// Timeout of a call, like "5s".
	Timeout string `json:"timeout"`
	// CAFile verifies an https URL; without it such a URL is not verified.
	CAFile string `json:"caFile,omitempty"`
	HTTPS  bool   `json:"https,omitempty"`
}

func (c *ControlPlane) writeSchedulerConfig(extender *Extender) error {
	data, err := schedulerConfig(c.opts.Credentials.Kubeconfig("scheduler"), extender)
	if err != nil {
		return err
	}
	return os.WriteFile(c.file("kube-scheduler.yaml"), data, 0o644)
}

func schedulerConfig(kubeconfig string, extender *Extender) ([]byte, error) {
	type object = map[string]any
	config := object{
		"apiVersion":       "kubescheduler.config.k8s.io/v1",
		"kind":             "KubeSchedulerConfiguration",
		"clientConnection": object{"kubeconfig": kubeconfig},
		"leaderElection":   object{"leaderElect": false},
	}
	if extender != nil {
		e := object{
			"urlPrefix":        extender.URL,
			"filterVerb":       extender.FilterVerb,
			"prioritizeVerb":   extender.PrioritizeVerb,
			"weight":           extender.Weight,
			"ignorable":        extender.Ignorable,
			"nodeCacheCapable": extender.NodeCacheCapable,
			"enableHTTPS":      extender.HTTPS,
		}
		if extender.Timeout != "" {
			e["httpTimeout"] = extender.Timeout
		}
		if extender.HTTPS {
			e["tlsConfig"] = object{"insecure": extender.CAFile == "", "caFile": extender.CAFile}
		}
		config["extenders"] = []any{e}
	}
	return yaml.Marshal(config)
}

// proxyConfig configures the kube-proxy beside the control plane. It goes by the name
// of the first node, since it would wait long for a Node that does not exist; it takes
// only the zone from it.
func (c *ControlPlane) proxyConfig() string {
	name := c.opts.Plan.Nodes[0].Name
	return ProxyConfig(c.opts.Credentials.Kubeconfig("kube-proxy"), name, c.opts.Plan, c.opts.Plan.ControlPlane().String())
}

// ProxyConfig is the configuration of a kube-proxy on a machine with that name and
// address. Settings of the whole machine (conntrack's) are left as they are.
func ProxyConfig(kubeconfig, name string, plan topology.Plan, address string) string {
	return fmt.Sprintf(`apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
hostnameOverride: %s
bindAddress: %s
healthzBindAddress: 127.0.0.1:10256
metricsBindAddress: 127.0.0.1:10249
clientConnection:
  kubeconfig: %s
clusterCIDR: %s
conntrack:
  maxPerCore: 0
  min: 0
  tcpEstablishedTimeout: 0s
  tcpCloseWaitTimeout: 0s
nftables:
  minSyncPeriod: 200ms
`, name, address, kubeconfig, plan.PodNet)
}
