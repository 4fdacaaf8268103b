package programs

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"
)

// Kubernetes is a version of Kubernetes that the playground can run. All versions run with the same
// etcd, containerd, CoreDNS, Helm and CSI sidecars: those of the chart, which a user gets on every
// version.
type Kubernetes struct {
	// Minor is the version as it is given to commands, like "1.37".
	Minor string
	// Version is the release that is built, like "v1.37.2". The tool module pins it.
	Version string
	// module is the folder of the tool module. Folders of older versions are one level deeper, so
	// that what looks for the newest build of a program in the cache (internal/testkit/programs)
	// does not find theirs.
	module string
}

// Versions are the versions of Kubernetes that the playground can run, the newest first. It is the
// default.
var Versions = []Kubernetes{
	{"1.37", "v1.37.2", "kubernetes"},
	{"1.36", "v1.36.3", "1.36/kubernetes"},
	{"1.35", "v1.35.4", "1.35/kubernetes"},
	{"1.34", "v1.34.4", "1.34/kubernetes"},
}

// FromEnvironment is $PLAYGROUND_KUBERNETES, or the newest minor version.
func FromEnvironment() string {
	return cmp.Or(os.Getenv("PLAYGROUND_KUBERNETES"), Versions[0].Minor)
}

// FindKubernetes returns the version with that minor version, or an error that lists those there
// are.
func FindKubernetes(minor string) (Kubernetes, error) {
	var minors []string
	for _, k := range Versions {
		if k.Minor == minor {
			return k, nil
		}
		minors = append(minors, k.Minor)
	}
	slices.Reverse(minors)
	return Kubernetes{}, fmt.Errorf("no Kubernetes %q in the playground (--kubernetes or $PLAYGROUND_KUBERNETES); there are: %s",
		minor, strings.Join(minors, ", "))
}

// kubernetesModule returns the version that a tool module pins.
func kubernetesModule(module string) (Kubernetes, bool) {
	i := slices.IndexFunc(Versions, func(k Kubernetes) bool { return k.module == module })
	if i < 0 {
		return Kubernetes{}, false
	}
	return Versions[i], true
}

// programs are those that the version itself has.
func (k Kubernetes) programs() []Program {
	var list []Program
	for _, name := range []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubeadm", "kubectl", "kubelet",
		"kube-proxy"} {
		list = append(list, Program{name, k.module, "k8s.io/kubernetes/cmd/" + name, k.Version})
	}
	return list
}
