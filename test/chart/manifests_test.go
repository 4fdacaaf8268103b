package chart_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/apiserver"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/tree"
)

// made is the folder of the manifests for kustomize that `make manifests` makes from the chart.
var made = sync.OnceValues(func() (string, error) {
	dir := filepath.Join(tree.Root(), "out", "test", "manifests")
	if err := os.RemoveAll(dir); err != nil {
		return "", err
	}
	cmd := exec.Command("go", "run", "./hack/manifests", chartDir(), dir)
	cmd.Dir = tree.Root()
	output, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("make the manifests: %w: %s", err, output)
	}
	return dir, nil
})

func manifests(t testing.TB, folder ...string) string {
	t.Helper()
	dir, err := made()
	must(t, err)
	return filepath.Join(append([]string{dir}, folder...)...)
}

func kubectl(t testing.TB, args ...string) (string, error) {
	t.Helper()
	cmd := exec.Command(program(t, "kubectl"), args...)
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir())
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), errors.New(stderr.String())
	}
	return stdout.String(), nil
}

// overlays are the names of the overlays, which are those of the profiles.
func overlays(t testing.TB) []string {
	t.Helper()
	entries, err := os.ReadDir(manifests(t, "overlays"))
	if err != nil || len(entries) < 2 {
		t.Fatalf("overlays: got %v, %v, want at least 2", entries, err)
	}
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

// comparable are objects by kind and name, without what only Helm or only kubectl needs.
func comparable(list []*unstructured.Unstructured) map[string]any {
	found := map[string]any{}
	for _, object := range list {
		object.SetNamespace(strings.TrimPrefix(object.GetNamespace(), namespace))
		for _, labels := range [][]string{{"metadata", "labels"}, {"spec", "template", "metadata", "labels"}} {
			for _, label := range []string{"helm.sh/chart", "app.kubernetes.io/managed-by"} {
				unstructured.RemoveNestedField(object.Object, append(slices.Clone(labels), label)...)
			}
		}
		unstructured.RemoveNestedField(object.Object, "metadata", "annotations", "helm.sh/resource-policy")
		for _, field := range []string{"annotations", "namespace"} {
			if value, _, _ := unstructured.NestedFieldNoCopy(object.Object, "metadata", field); value == nil ||
				cmp.Equal(value, map[string]any{}) {
				unstructured.RemoveNestedField(object.Object, "metadata", field)
			}
		}
		found[object.GetKind()+" "+object.GetNamespace()+" "+object.GetName()] = object.Object
	}
	return found
}

func TestTheManifestsAreWhatTheChartRenders(t *testing.T) {
	t.Parallel()
	for _, overlay := range overlays(t) {
		t.Run(overlay, func(t *testing.T) {
			t.Parallel()
			var built []*unstructured.Unstructured
			for _, folder := range []string{manifests(t, "crds"), manifests(t, "overlays", overlay)} {
				output, err := kubectl(t, "kustomize", folder)
				must(t, err)
				built = append(built, objects(t, output)...)
			}
			got := comparable(built)
			want := comparable(objects(t,
				render(t, "--no-hooks", "--values", filepath.Join(chartDir(), "values-"+overlay+".yaml"))))
			// `helm install --create-namespace` makes it.
			delete(got, "Namespace  "+namespace)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("overlay %s differs from the chart (-chart +manifests):\n%s", overlay, diff)
			}
		})
	}
}

// It follows the TestARealAPIServerTakesTheChart, which leaves the namespace and the CRDs.
func TestARealAPIServerTakesTheManifests(t *testing.T) {
	kube, config := apiserver.Client(t), apiserver.Kubeconfig(t)
	run := func(t *testing.T, args ...string) {
		t.Helper()
		if output, err := kubectl(t, append(args, "--kubeconfig", config)...); err != nil {
			t.Fatalf("kubectl %v: %v\n%s", args, err, output)
		}
	}
	for _, overlay := range overlays(t) {
		t.Run(overlay, func(t *testing.T) {
			run(t, "apply", "-k", manifests(t, "crds"))
			run(t, "apply", "-k", manifests(t, "overlays", overlay))
			kept := &apiv1.AzDriverNode{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "kept-" + overlay},
				Spec:       apiv1.AzDriverNodeSpec{VMID: "/vm"},
			}
			must(t, kube.Create(t.Context(), kept))
			t.Cleanup(func() { _ = kube.Delete(t.Context(), kept) })
			again := func() { run(t, "apply", "-k", manifests(t, "overlays", overlay)) }
			webhook := &corev1.Secret{}
			switch err := kube.Get(t.Context(), client.ObjectKey{
				Namespace: namespace,
				Name:      release + "-scheduler-webhook",
			}, webhook); {
			case err == nil:
				keepsWebhookData(t, kube, webhook, again)
			case apierrors.IsNotFound(err):
				again()
			default:
				t.Fatal(err)
			}
			run(t, "delete", "-k", manifests(t, "overlays", overlay))
			if err := kube.Get(t.Context(), client.ObjectKeyFromObject(kept), kept); err != nil {
				t.Errorf("after the deletion of the overlay: got %v, want the records of the disks to stay", err)
			}
			var roles corev1.ServiceAccountList
			if err := kube.List(t.Context(), &roles, client.InNamespace(namespace),
				client.MatchingLabels{"app.kubernetes.io/instance": release}); err != nil || len(roles.Items) != 0 {
				t.Errorf("after the deletion of the overlay: got %d service accounts, %v, want none", len(roles.Items), err)
			}
		})
	}
}

var withoutHelm = regexp.MustCompile("(?s)\n## Without Helm\n.*?\n```\n(.*?)```\n")

// TestARealAPIServerTakesTheOverlayOfTheGuide runs the commands of
// docs/guides/install-self-managed.md for those without Helm.
func TestARealAPIServerTakesTheOverlayOfTheGuide(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(tree.Root(), "docs", "guides", "install-self-managed.md"))
	must(t, err)
	commands := withoutHelm.FindStringSubmatch(string(text))
	if commands == nil {
		t.Fatal("install-self-managed.md: got no commands under the heading Without Helm")
	}
	kube, config, dir := apiserver.Client(t), apiserver.Kubeconfig(t), t.TempDir()
	must(t, os.Symlink(manifests(t), filepath.Join(dir, "azuredisk-manifests-0.1.0")))
	cmd := exec.Command("bash", "-euo", "pipefail", "-c", commands[1])
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "KUBECONFIG="+config, "PATH="+filepath.Dir(program(t, "kubectl"))+":"+os.Getenv("PATH"))
	if output, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("run\n%s%v\n%s", commands[1], err, output)
	}
	var node appsv1.DaemonSet
	must(t, kube.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: release + "-node"}, &node))
	if got, want := node.Spec.Template.Spec.Containers[0].Image, "registry.example.com/azuredisk:0.1.0"; got != want {
		t.Errorf("image of the node plug-in: got %s, want %s as in the overlay", got, want)
	}
	if output, err := kubectl(t, "delete", "-k", filepath.Join(dir, "my-azuredisk"), "--kubeconfig", config); err != nil {
		t.Errorf("delete the overlay: %v\n%s", err, output)
	}
}

// keepsWebhookData checks that `kubectl apply` leaves the certificate alone that the pods of the
// webhook write.
func keepsWebhookData(t *testing.T, kube client.Client, secret *corev1.Secret, apply func()) {
	t.Helper()
	want := map[string][]byte{"ca.crt": []byte("authority")}
	secret.Data = maps.Clone(want)
	must(t, kube.Update(t.Context(), secret))
	apply()
	must(t, kube.Get(t.Context(), client.ObjectKeyFromObject(secret), secret))
	if diff := cmp.Diff(want, secret.Data); diff != "" {
		t.Errorf("the certificate of the webhook after another apply (-want +got):\n%s", diff)
	}
}
