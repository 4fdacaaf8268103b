// Package programs builds and caches the third-party programs that the
// playground and the test suites run: Kubernetes, etcd, containerd, the CSI
// sidecars, CoreDNS and Helm. Each is built from a Go module at a version
// pinned by a tool module in a folder of this one. Kubernetes itself can be built
// in several versions.
//
// Programs live outside the tree, under
// <cache>/programs/<module>-<hash>/bin/<program>, where the hash covers the tool
// module's files, the build flags and the Go version. A path returned by this
// package is therefore never rewritten, only superseded. All functions may be
// called concurrently, also by several processes: builds are serialised by a
// lock file.
package programs

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

const (
	containerdVersion = "v2.4.2"
	helmVersion       = "v3.21.4"
)

// Program is one executable that can be built.
type Program struct {
	// Name is the file name of the executable.
	Name string
	// Module is the folder of the tool module that pins it.
	Module string
	// Package is the import path of its main package.
	Package string
	// Version is the released version that the tool module pins.
	Version string
}

// builtAs is the name that Go gives the program: the last element of its package that is not a
// major version.
func (p Program) builtAs() string {
	name := path.Base(p.Package)
	if len(name) > 1 && name[0] == 'v' && strings.Trim(name[1:], "0123456789") == "" {
		name = path.Base(path.Dir(p.Package))
	}
	return name
}

// Catalogue lists every program, with those of that version of Kubernetes, in the order in which
// they are best built.
func Catalogue(version Kubernetes) []Program {
	return slices.Concat([]Program{{"etcd", "etcd", "go.etcd.io/etcd/server/v3", "v3.7.3"}}, version.programs(), []Program{
		{"containerd", "containerd", "github.com/containerd/containerd/v2/cmd/containerd", containerdVersion},
		{"containerd-shim-runc-v2", "containerd", "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2",
			containerdVersion},
		{"ctr", "containerd", "github.com/containerd/containerd/v2/cmd/ctr", containerdVersion},
		cni("ptp", "main"), cni("loopback", "main"), cni("host-local", "ipam"), cni("portmap", "meta"),
		{"coredns", "coredns", "github.com/azuredisk-csi/azuredisk/playground/programs/coredns", "v1.14.7"},
		{"helm", "helm", "helm.sh/helm/v3/cmd/helm", helmVersion},
		{"csi-provisioner", "kubernetes", "github.com/kubernetes-csi/external-provisioner/v6/cmd/csi-provisioner", "v6.4.0"},
		{"csi-attacher", "kubernetes", "github.com/kubernetes-csi/external-attacher/v4/cmd/csi-attacher", "v4.13.0"},
		{"csi-resizer", "kubernetes", "github.com/kubernetes-csi/external-resizer/v2/cmd/csi-resizer", "v2.3.0"},
		{"csi-snapshotter", "kubernetes", "github.com/kubernetes-csi/external-snapshotter/v8/cmd/csi-snapshotter", "v8.7.0"},
		{"snapshot-controller", "kubernetes", "github.com/kubernetes-csi/external-snapshotter/v8/cmd/snapshot-controller",
			"v8.7.0"},
	})
}

func cni(name, kind string) Program {
	return Program{name, "containerd", "github.com/containernetworking/plugins/plugins/" + kind + "/" + name, "v1.9.1"}
}

// find returns the named program, or an error that lists the names there are.
func find(catalogue []Program, name string) (Program, error) {
	var names []string
	for _, p := range catalogue {
		if p.Name == name {
			return p, nil
		}
		names = append(names, p.Name)
	}
	slices.Sort(names)
	return Program{}, fmt.Errorf("no program %q; there are: %v", name, names)
}

// ldflags returns the linker flags of a tool module. Versions are given to the
// linker because a program built from another module does not know its own.
func ldflags(module string) string {
	flags := "-s -w"
	set := func(name, value string) { flags += " -X " + name + "=" + value }
	if k, ok := kubernetesModule(module); ok {
		const version = "k8s.io/component-base/version."
		set(version+"gitVersion", k.Version)
		set(version+"gitMajor", "1")
		set(version+"gitMinor", strings.TrimPrefix(k.Minor, "1."))
		set(version+"gitCommit", "playground")
		set(version+"gitTreeState", "clean")
		set(version+"buildDate", "1970-01-01T00:00:00Z")
	}
	switch module {
	case "containerd":
		set("github.com/containerd/containerd/v2/version.Version", containerdVersion)
		set("github.com/containernetworking/plugins/pkg/utils/buildversion.BuildVersion", "v1.9.1")
	case "helm":
		set("helm.sh/helm/v3/internal/version.version", helmVersion)
		// Helm takes the Kubernetes version of its default capabilities from here.
		set("helm.sh/helm/v3/pkg/chartutil.k8sVersionMajor", "1")
		set("helm.sh/helm/v3/pkg/chartutil.k8sVersionMinor", strings.TrimPrefix(Versions[0].Minor, "1."))
	}
	return flags
}
