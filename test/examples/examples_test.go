// Package examples_test applies the manifests of examples/ to a real API server.
package examples_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"

	"github.com/azuredisk-csi/azuredisk/internal/parameters/volumeparams"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/apiserver"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/expect"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/programs"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/tree"
)

var must = expect.Must

func TestMain(m *testing.M) { os.Exit(apiserver.Run(m)) }

// operators are the examples whose kinds an operator brings. The API server of the test has none.
var operators = map[string]bool{"cloudnative-pg.yaml": true}

// examples returns the manifests by name.
func examples(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(tree.Root(), "examples", "*.yaml"))
	must(t, err)
	found := map[string]string{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		must(t, err)
		found[filepath.Base(file)] = string(text)
	}
	if len(found) < 6 {
		t.Fatalf("examples: got %d, want 6 or more", len(found))
	}
	return found
}

// objects reads a manifest. A key that is there twice is an error.
func objects(t *testing.T, manifest string) []*unstructured.Unstructured {
	t.Helper()
	var list []*unstructured.Unstructured
	for document := range strings.SplitSeq(manifest, "\n---\n") {
		object := &unstructured.Unstructured{}
		must(t, yaml.UnmarshalStrict([]byte(document), &object.Object))
		list = append(list, object)
	}
	return list
}

// The API server refuses unknown fields, and what its validation refuses.
func TestARealAPIServerTakesTheExamples(t *testing.T) {
	installSnapshotCRDs(t)
	kubectl, err := programs.Find("kubectl")
	must(t, err)
	for name, text := range examples(t) {
		if operators[name] {
			continue
		}
		command := exec.CommandContext(t.Context(), kubectl, "--kubeconfig", apiserver.Kubeconfig(t), "apply", "--server-side",
			"--validate=strict", "--namespace", apiserver.Namespace(t), "--filename", "-")
		command.Stdin = strings.NewReader(text)
		output, err := command.CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v\n%s", name, err, output)
		}
		if got, want := strings.Count(string(output), "serverside-applied"), len(objects(t, text)); got != want {
			t.Errorf("%s: got %d objects, want %d\n%s", name, got, want, output)
		}
	}
}

// snapshotModule has the definitions of snapshots.
const snapshotModule = "github.com/kubernetes-csi/external-snapshotter/client/v8"

// installSnapshotCRDs installs the definitions that the playground's clusters have.
func installSnapshotCRDs(t *testing.T) {
	t.Helper()
	list := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", snapshotModule)
	list.Dir = filepath.Join(tree.Root(), "playground", "programs", "kubernetes")
	output, err := list.Output()
	must(t, err)
	var module struct{ Dir string }
	must(t, yaml.Unmarshal(output, &module))
	files, err := filepath.Glob(filepath.Join(module.Dir, "config", "crd", "snapshot.storage.k8s.io_*.yaml"))
	must(t, err)
	if len(files) != 3 {
		t.Fatalf("definitions of snapshots: got %v, want 3", files)
	}
	_, err = envtest.InstallCRDs(apiserver.Config(t), envtest.CRDInstallOptions{Paths: files, ErrorIfPathMissing: true})
	must(t, err)
}

// chart has the classes that the chart creates.
type chart struct {
	StorageClasses        map[string]struct{ Parameters map[string]string }
	VolumeSnapshotClasses map[string]any
}

// Each class that an example names is in the example, or is one of the chart, and the driver takes
// its parameters for the size that is asked for.
func TestTheClassesOfTheExamplesExist(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(tree.Root(), "charts", "azuredisk", "values.yaml"))
	must(t, err)
	var of chart
	must(t, yaml.Unmarshal(text, &of))
	named := 0
	for name, text := range examples(t) {
		classes, changes := map[string]map[string]string{}, map[string]bool{}
		for class, c := range of.StorageClasses {
			classes[class] = c.Parameters
		}
		list := objects(t, text)
		for _, o := range list {
			parameters, _, _ := unstructured.NestedStringMap(o.Object, "parameters")
			switch o.GetKind() {
			case "StorageClass":
				classes[o.GetName()] = parameters
			case "VolumeAttributesClass":
				changes[o.GetName()] = true
				if _, err := volumeparams.ParseChange(parameters); err != nil {
					t.Errorf("%s: VolumeAttributesClass %s: %v", name, o.GetName(), err)
				}
			}
		}
		for _, claim := range claims(list) {
			named++
			parameters, is := classes[claim.class]
			if !is || claim.change != "" && !changes[claim.change] {
				t.Errorf("%s: got the classes %q and %q, want those of the chart or of the example", name, claim.class, claim.change)
			}
			check(t, name, claim, parameters)
		}
		for _, o := range list {
			class, _, _ := unstructured.NestedString(o.Object, "spec", "volumeSnapshotClassName")
			if _, is := of.VolumeSnapshotClasses[class]; class != "" && !is {
				t.Errorf("%s: got the VolumeSnapshotClass %q, want one of the chart", name, class)
			}
		}
	}
	if named < 7 {
		t.Errorf("claims of the examples: got %d, want 7 or more", named)
	}
}

func check(t *testing.T, name string, claim claim, parameters map[string]string) {
	t.Helper()
	if _, err := volumeparams.Parse(parameters); err != nil {
		t.Errorf("%s: StorageClass %s: %v", name, claim.class, err)
	}
	shares, _ := strconv.Atoi(parameters["maxShares"])
	size := resource.MustParse(claim.size)
	if most := volumeparams.MaxShares(parameters["skuName"], size.Value()); int32(shares) > most {
		t.Errorf("%s: %s of %s has %d shares, want at most %d", name, claim.class, claim.size, shares, most)
	}
}

// claim is what asks for a disk: a claim, a template of claims, or a storage of CloudNativePG.
type claim struct{ class, change, size string }

func claims(list []*unstructured.Unstructured) []claim {
	var found []claim
	add := func(spec map[string]any) {
		class, _, _ := unstructured.NestedString(spec, "storageClassName")
		change, _, _ := unstructured.NestedString(spec, "volumeAttributesClassName")
		size, _, _ := unstructured.NestedString(spec, "resources", "requests", "storage")
		found = append(found, claim{class, change, size})
	}
	for _, o := range list {
		switch o.GetKind() {
		case "PersistentVolumeClaim":
			add(o.Object["spec"].(map[string]any))
		case "StatefulSet":
			templates, _, _ := unstructured.NestedSlice(o.Object, "spec", "volumeClaimTemplates")
			for _, template := range templates {
				add(template.(map[string]any)["spec"].(map[string]any))
			}
		case "Cluster":
			for _, field := range []string{"storage", "walStorage"} {
				class, _, _ := unstructured.NestedString(o.Object, "spec", field, "storageClass")
				size, _, _ := unstructured.NestedString(o.Object, "spec", field, "size")
				found = append(found, claim{class, "", size})
			}
		}
	}
	return found
}
