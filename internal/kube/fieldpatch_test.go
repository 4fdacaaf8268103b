package kube_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/charts"
	"github.com/azuredisk-csi/azuredisk/internal/kube"
)

// later is a field that only a later version of the driver knows.
const later = "aLaterField"

// nodeWith is a node with entries in its lists, in this order. An entry of the same name differs with the
// revision.
func nodeWith(revision int, names ...string) *apiv1.AzDriverNode {
	n := &apiv1.AzDriverNode{ObjectMeta: metav1.ObjectMeta{Name: "n", ResourceVersion: "7"}}
	n.Spec.VMID = "vm"
	n.Status.BootID = fmt.Sprint(revision)
	n.Status.Capacity = &apiv1.NodeCapacity{VMSize: "s", MaxDataDisks: int32(revision)}
	for _, name := range names {
		n.Status.StagedVolumes = append(n.Status.StagedVolumes, apiv1.StagedVolume{VolumeName: name, Epoch: int64(revision),
			Filesystem: &apiv1.FilesystemRecord{Type: "ext4", UUID: fmt.Sprint(revision)}})
		n.Status.Conditions = append(n.Status.Conditions, metav1.Condition{Type: name, Reason: fmt.Sprint(revision)})
	}
	return n
}

// patched applies a patch to an object that has a later field in each of its parts.
func patched(t *testing.T, before, after *apiv1.AzDriverNode) map[string]any {
	t.Helper()
	stored := map[string]any{}
	decode(t, before, &stored)
	plant(stored)
	patch, err := (&kube.FieldPatch{Before: before}).Data(after)
	if err != nil {
		t.Fatal(err)
	}
	operations, err := jsonpatch.DecodePatch(patch)
	if err != nil {
		t.Fatalf("%s: %v", patch, err)
	}
	text, err := json.Marshal(stored)
	if err != nil {
		t.Fatal(err)
	}
	if text, err = operations.Apply(text); err != nil {
		t.Fatalf("%s: %v", patch, err)
	}
	var result map[string]any
	if err := json.Unmarshal(text, &result); err != nil {
		t.Fatal(err)
	}
	return result
}

func decode(t *testing.T, from, to any) {
	t.Helper()
	text, err := json.Marshal(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, to); err != nil {
		t.Fatal(err)
	}
}

// plant adds the later field to an object and to every object in it.
func plant(value any) {
	switch value := value.(type) {
	case map[string]any:
		for _, v := range value {
			plant(v)
		}
		value[later] = "is here"
	case []any:
		for _, v := range value {
			plant(v)
		}
	}
}

// check compares a value with what is wanted: it has the later field where before had an object with the
// same key.
func check(path string, got, want, before any) error {
	switch want := want.(type) {
	case map[string]any:
		got, _ := got.(map[string]any)
		was, known := before.(map[string]any)
		if has := got[later] != nil; has != known {
			return fmt.Errorf("%s: has the later field: %t, want %t", path, has, known)
		}
		delete(got, later)
		if len(got) != len(want) {
			return fmt.Errorf("%s: got %v, want %v", path, got, want)
		}
		for name := range want {
			if err := check(path+"."+name, got[name], want[name], was[name]); err != nil {
				return err
			}
		}
	case []any:
		got, _ := got.([]any)
		if len(got) != len(want) {
			return fmt.Errorf("%s: got %d entries, want %d", path, len(got), len(want))
		}
		was, _ := before.([]any)
		for i := range want {
			same := slices.IndexFunc(was, func(w any) bool { return key(w) == key(want[i]) })
			var entry any
			if same >= 0 {
				entry = was[same]
			}
			if err := check(fmt.Sprintf("%s[%d]", path, i), got[i], want[i], entry); err != nil {
				return err
			}
		}
	default:
		if !reflect.DeepEqual(got, want) {
			return fmt.Errorf("%s: got %v, want %v", path, got, want)
		}
	}
	return nil
}

func key(entry any) string {
	object, _ := entry.(map[string]any)
	return fmt.Sprint(object["volumeName"], object["type"])
}

func TestAPatchLeavesWhatItDoesNotKnow(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 0))
	some := func() (names []string) {
		for _, name := range []string{"a", "b", "c", "d", "e"} {
			if random.IntN(2) == 0 {
				names = append(names, name)
			}
		}
		return names
	}
	for range 500 {
		before, after := nodeWith(1, some()...), nodeWith(1+random.IntN(2), some()...)
		var want, was map[string]any
		decode(t, after, &want)
		decode(t, before, &was)
		if err := check("", patched(t, before, after), want, was); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAPatchKeepsTheOrderOfTheChangedObject(t *testing.T) {
	t.Parallel()
	got := patched(t, nodeWith(1, "a", "b", "c"), nodeWith(1, "c", "a"))
	entries, _ := got["status"].(map[string]any)["stagedVolumes"].([]any)
	if len(entries) != 2 || !strings.HasPrefix(key(entries[0]), "c") || !strings.HasPrefix(key(entries[1]), "a") {
		t.Errorf("got %v, want c and a", entries)
	}
}

func TestAPatchHoldsForOneVersion(t *testing.T) {
	t.Parallel()
	patch, err := (&kube.FieldPatch{Before: nodeWith(1)}).Data(nodeWith(1))
	if want := `[{"op":"replace","path":"/metadata/resourceVersion","value":"7"}]`; err != nil || string(patch) != want {
		t.Errorf("got %s, %v, want %s", patch, err, want)
	}
}

func TestNamesWithASlashAreEscaped(t *testing.T) {
	t.Parallel()
	before, after := nodeWith(1), nodeWith(1)
	before.Annotations = map[string]string{"a/b": "1", "x~y": "1", "gone": "1"}
	after.Annotations = map[string]string{"a/b": "2", "x~y": "2"}
	metadata, _ := patched(t, before, after)["metadata"].(map[string]any)
	annotations, _ := metadata["annotations"].(map[string]any)
	if annotations["a/b"] != "2" || annotations["x~y"] != "2" || annotations["gone"] != nil {
		t.Errorf("got %v", annotations)
	}
}

// TestEveryListWithKeysIsPatchedByThem compares the lists with the schemas.
func TestEveryListWithKeysIsPatchedByThem(t *testing.T) {
	t.Parallel()
	files, err := charts.CRDs.ReadDir("azuredisk/files/crds")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, f := range files {
		text, err := charts.CRDs.ReadFile("azuredisk/files/crds/" + f.Name())
		if err != nil {
			t.Fatal(err)
		}
		var crd map[string]any
		if err := yaml.Unmarshal(text, &crd); err != nil {
			t.Fatal(err)
		}
		collect("", crd, found)
	}
	if got := kube.ListKeys; !reflect.DeepEqual(got, found) {
		t.Errorf("got %v, and the schemas have %v", got, found)
	}
}

// collect notes the lists of a schema that have keys.
func collect(name string, value any, into map[string]string) {
	switch value := value.(type) {
	case map[string]any:
		if keys, ok := value["x-kubernetes-list-map-keys"].([]any); ok {
			into[name] = fmt.Sprint(keys...)
		}
		for name, v := range value {
			collect(name, v, into)
		}
	case []any:
		for _, v := range value {
			collect("", v, into)
		}
	}
}
