package chart_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/apiserver"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/tree"
)

// v1Has is what V1's chart and AKS have that only one driver can have:
// shared/reference/azuredisk-v1.md, and the templates of charts/latest in
// kubernetes-sigs/azuredisk-csi-driver.
var v1Has = []string{
	"CSIDriver disk.csi.azure.com", "socket plugins/disk.csi.azure.com", "host port 29603", "host port 29605",
	"taint disk.csi.azure.com/agent-not-ready",
	"ClusterRole azuredisk-external-provisioner-role", "ClusterRole azuredisk-external-attacher-role",
	"ClusterRole azuredisk-external-snapshotter-role",
	"ClusterRole azuredisk-external-resizer-role", "ClusterRole csi-azuredisk-controller-secret-role",
	"ClusterRole csi-azuredisk-node-role",
	"ClusterRoleBinding azuredisk-csi-provisioner-binding", "ClusterRoleBinding azuredisk-csi-attacher-binding",
	"ClusterRoleBinding azuredisk-csi-snapshotter-binding", "ClusterRoleBinding azuredisk-csi-resizer-role",
	"ClusterRoleBinding csi-azuredisk-controller-secret-binding", "ClusterRoleBinding csi-azuredisk-node-secret-binding",
	"Deployment kube-system/csi-azuredisk-controller", "DaemonSet kube-system/csi-azuredisk-node", "StorageClass default",
	"StorageClass managed",
	"StorageClass managed-premium", "StorageClass managed-csi", "StorageClass managed-csi-premium",
	"VolumeSnapshotClass csi-azuredisk-vsc",
	"lease kube-system/disk-csi-azure-com",
}

func profiles(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(chartDir(), "values-*.yaml"))
	if err != nil || len(files) != 3 {
		t.Fatalf("found the profiles %v, want 3: %v", files, err)
	}
	return files
}

func TestTheProfilesAreValid(t *testing.T) {
	t.Parallel()
	for _, file := range profiles(t) {
		if output, err := helm(t, "lint", "--strict", "--kube-version", kubeVersion, "-f", file, chartDir()); err != nil {
			t.Errorf("%s: %v\n%s", file, err, output)
		}
		if list := objects(t, render(t, "-f", file)); len(list) == 0 {
			t.Errorf("%s renders no objects", file)
		}
	}
}

// exclusive lists what only one driver of a cluster can have, in the objects of a release.
func exclusive(t *testing.T, manifest, releaseNamespace string) []string {
	t.Helper()
	var list []string
	for _, o := range objects(t, manifest) {
		name := o.GetName()
		if namespaced := !slices.Contains([]string{
			"Namespace", "CSIDriver", "ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition", "StorageClass",
			"VolumeSnapshotClass",
			"VolumeAttributesClass", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding",
			"MutatingWebhookConfiguration",
		}, o.GetKind()); namespaced {
			namespace := o.GetNamespace()
			if namespace == "" {
				namespace = releaseNamespace
			}
			name = namespace + "/" + name
		}
		list = append(list, o.GetKind()+" "+name)
		if o.GetKind() == "CSIDriver" {
			// The sidecars name their leases by the driver, and the start-up taint has its name.
			list = append(list, "lease "+releaseNamespace+"/"+strings.ReplaceAll(name, ".", "-"),
				"taint "+name+"/agent-not-ready")
		}
		if o.GetKind() == "Deployment" || o.GetKind() == "DaemonSet" {
			list = append(list, onNodes(t, o)...)
		}
	}
	return list
}

// onNodes lists ports and sockets that a workload has on its nodes.
func onNodes(t *testing.T, o *unstructured.Unstructured) []string {
	t.Helper()
	if host, _, _ := unstructured.NestedBool(o.Object, "spec", "template", "spec", "hostNetwork"); !host {
		return nil
	}
	containers, _, err := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
	must(t, err)
	var list []string
	for _, c := range containers {
		container := c.(map[string]any)
		ports, _, _ := unstructured.NestedSlice(container, "ports")
		for _, p := range ports {
			list = append(list, fmt.Sprintf("host port %v", p.(map[string]any)["containerPort"]))
		}
		args, _, _ := unstructured.NestedStringSlice(container, "args")
		for _, arg := range args {
			if at := strings.Index(arg, "plugins/"); strings.HasPrefix(arg, "--endpoint=") && at > 0 {
				list = append(list, "socket "+strings.TrimSuffix(arg[at:], "/csi.sock"))
			}
		}
	}
	return list
}

func common(a, b []string) []string {
	var both []string
	for _, x := range a {
		if slices.Contains(b, x) {
			both = append(both, x)
		}
	}
	return both
}

// taken returns the host ports that AKS's add-ons, and drivers of the same family, have on every
// node: the table of the playground's profile of AKS, where the ports are taken for real.
func taken(t *testing.T) map[string]string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(tree.Root(), "playground", "aks", "README.md"))
	must(t, err)
	ports := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([0-9]+)` \\| ([^|]+) \\|").FindAllStringSubmatch(string(page), -1) {
		ports[row[1]] = row[2]
	}
	if len(ports) < 15 {
		t.Fatalf("ports in the table: got %v, want 15 or more", ports)
	}
	return ports
}

// A second listener on a port of the host fails, and the plug-in with it.
func TestNoHostPortIsTakenOnAKS(t *testing.T) {
	t.Parallel()
	table := taken(t)
	for _, arguments := range append([][]string{nil}, files(t)...) {
		found := 0
		for _, thing := range exclusive(t, render(t, arguments...), namespace) {
			port, is := strings.CutPrefix(thing, "host port ")
			if !is {
				continue
			}
			found++
			if who := table[port]; who != "" || strings.HasPrefix(port, "296") {
				t.Errorf("%v: host port %s belongs to another driver: %s", arguments, port, who)
			}
		}
		if found < 2 {
			t.Errorf("%v: found %d host ports, want those of the node plug-in", arguments, found)
		}
	}
}

func files(t *testing.T) [][]string {
	t.Helper()
	var all [][]string
	for _, file := range profiles(t) {
		all = append(all, []string{"-f", file})
	}
	return all
}

func TestATrialSharesNothingWithV1NorWithAnotherRelease(t *testing.T) {
	t.Parallel()
	trialFile := filepath.Join(chartDir(), "values-aks-trial.yaml")
	trial := exclusive(t, render(t, "-f", trialFile), namespace)
	if both := common(trial, v1Has); len(both) > 0 {
		t.Errorf("the trial and V1 share %v", both)
	}
	// The replacement does share them: the check sees what it is to see.
	full := exclusive(t, render(t), namespace)
	want := []string{"CSIDriver disk.csi.azure.com", "socket plugins/disk.csi.azure.com",
		"taint disk.csi.azure.com/agent-not-ready"}
	if both := common(v1Has, full); !slices.Equal(both, want) {
		t.Errorf("V1 and a release of its name share %v, want %v", both, want)
	}
	second, err := helm(t, "template", "azuredisk-trial", chartDir(), "-n", "trial", "--kube-version", kubeVersion, "-f",
		trialFile,
		"--set", "driverNamespace=trial,crds.install=false")
	must(t, err)
	if both := common(exclusive(t, second, "trial"), full); len(both) > 0 {
		t.Errorf("two releases share %v", both)
	}
}

// The steps share one cluster.
func TestATrialAtARealAPIServer(t *testing.T) {
	kube, config := apiserver.Client(t), apiserver.Kubeconfig(t)
	trialFile := filepath.Join(chartDir(), "values-aks-trial.yaml")
	run := func(name, namespace string, args ...string) error {
		_, err := helm(t, append([]string{"upgrade", "--install", name, chartDir(), "-n", namespace, "--create-namespace",
			"--kubeconfig", config}, args...)...)
		return err
	}
	must(t, run(release, namespace, "--take-ownership", "-f", trialFile))
	t.Cleanup(func() {
		if _, err := helm(t, "uninstall", release, "-n", namespace, "--no-hooks", "--kubeconfig", config); err != nil {
			t.Error(err)
		}
	})
	for name, c := range map[string]struct {
		release, namespace, set, says string
	}{
		"the namespace of another release's objects": {"second", "second", "driverName=second.csi,crds.install=false",
			"driverNamespace: the release azuredisk in the namespace azure-disk-csi uses"},
		"the namespace of another release": {"second", namespace,
			"driverName=second.csi,crds.install=false,driverNamespace=second", "driverNamespace: the release azuredisk"},
		"the name of another release's driver": {"second", "second",
			"driverName=trial.disk.csi.azure.com,crds.install=false,driverNamespace=second",
			"driverName: trial.disk.csi.azure.com is the driver of the release azuredisk"},
		"another name in an upgrade": {release, namespace, "driverName=disk.csi.azure.com",
			"Uninstall the release"},
		"the CRDs of another release": {"second", "second", "driverName=second.csi,driverNamespace=second",
			"disk.csi.azure.com"},
	} {
		if err := run(c.release, c.namespace, "--set", c.set); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: got %v, want a refusal that says %q", name, err, c.says)
		}
	}
	refusesV1(t, kube)
}

// refusesV1 checks that Kubernetes attaches no volume of V1 to a node with this driver, and does
// everywhere else.
func refusesV1(t *testing.T, kube client.Client) {
	t.Helper()
	node := &apiv1.AzDriverNode{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "trial-node"},
		Spec:       apiv1.AzDriverNodeSpec{VMID: "/vm"},
	}
	must(t, kube.Create(t.Context(), node))
	t.Cleanup(func() { _ = kube.Delete(context.Background(), node) })
	attach := func(driver, node string) error {
		volume := "pv"
		a := &storagev1.VolumeAttachment{
			ObjectMeta: metav1.ObjectMeta{Name: "va"},
			Spec: storagev1.VolumeAttachmentSpec{
				Attacher: driver,
				NodeName: node,
				Source:   storagev1.VolumeAttachmentSource{PersistentVolumeName: &volume},
			},
		}
		if err := kube.Create(t.Context(), a); err != nil {
			return err
		}
		return kube.Delete(t.Context(), a)
	}
	eventually(t, "V1 is refused", func() error {
		if err := attach("disk.csi.azure.com", "trial-node"); !apierrors.IsForbidden(err) ||
			!strings.Contains(err.Error(), "node.refusedDrivers") {
			return fmt.Errorf("got %w, want Forbidden with the name of the value", err)
		}
		return nil
	})
	for driver, node := range map[string]string{"disk.csi.azure.com": "other-node", "file.csi.azure.com": "trial-node"} {
		if err := attach(driver, node); err != nil {
			t.Errorf("a volume of %s at %s: %v", driver, node, err)
		}
	}
}
