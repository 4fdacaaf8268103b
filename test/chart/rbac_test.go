package chart_test

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/azuredisk-csi/azuredisk/internal/testkit/tree"
)

// markers are where the code of each part of the driver says what it needs.
var markers = map[string][]string{
	"controller": {"internal/controller", "internal/csi/controller", "cmd/azuredisk/controller.go", "cmd/azuredisk/attachrequired.go"},
	"node":       {"internal/csi/node", "internal/nodereport", "internal/registrar", "internal/imds", "cmd/azuredisk/node.go"},
	"scheduler":  {"internal/scheduler", "internal/webhookcert", "cmd/azuredisk/scheduler.go"},
}

func TestEachPartHasTheRightsThatItsCodeAsksForAndNoOthers(t *testing.T) {
	t.Parallel()
	list := objects(t, render(t))
	for component, paths := range markers {
		wanted := markedRights(t, paths)
		given := renderedRights(t, list, release+"-"+component)
		for _, right := range slices.Sorted(maps.Keys(wanted)) {
			if !given[right] {
				t.Errorf("%s: the code asks for %q and the chart does not give it", component, right)
			}
		}
		for _, right := range slices.Sorted(maps.Keys(given)) {
			if !wanted[right] {
				t.Errorf("%s: the chart gives %q and no code asks for it", component, right)
			}
		}
	}
}

// A right reads "scope group/resource verb", with the names that it is limited to where there are any.
func right(namespaced bool, group, resource, verb string, names []string) string {
	scope := "cluster"
	if namespaced {
		scope = "namespace"
	}
	text := scope + " " + group + "/" + resource + " " + verb
	if len(names) > 0 {
		text += " " + strings.Join(names, ",")
	}
	return text
}

func markedRights(t *testing.T, paths []string) map[string]bool {
	t.Helper()
	rights := map[string]bool{}
	for _, path := range paths {
		err := filepath.WalkDir(filepath.Join(tree.Root(), path), func(file string, entry os.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(file, ".go") {
				return err
			}
			raw, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			for line := range strings.Lines(string(raw)) {
				if marker, is := strings.CutPrefix(strings.TrimSpace(line), "// +kubebuilder:rbac:"); is {
					addMarked(rights, marker)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(rights) == 0 {
		t.Fatalf("no marker in %v", paths)
	}
	return rights
}

func addMarked(rights map[string]bool, marker string) {
	fields := map[string][]string{}
	for part := range strings.SplitSeq(marker, ",") {
		key, value, _ := strings.Cut(part, "=")
		fields[key] = strings.Split(strings.Trim(value, `"`), ";")
	}
	for _, group := range fields["groups"] {
		for _, resource := range fields["resources"] {
			for _, verb := range fields["verbs"] {
				rights[right(fields["namespace"] != nil, group, resource, verb, fields["resourceNames"])] = true
			}
		}
	}
}

// renderedRights are those of the roles of a component; not those of the sidecars, which share the controller's account.
func renderedRights(t *testing.T, list []*unstructured.Unstructured, prefix string) map[string]bool {
	t.Helper()
	rights := map[string]bool{}
	for _, object := range list {
		kind := object.GetKind()
		if kind != "Role" && kind != "ClusterRole" || !strings.HasPrefix(object.GetName(), prefix) || strings.HasSuffix(object.GetName(), "-sidecars") {
			continue
		}
		rules, _, err := unstructured.NestedSlice(object.Object, "rules")
		if err != nil {
			t.Fatal(err)
		}
		for _, item := range rules {
			rule := item.(map[string]any)
			names, _, _ := unstructured.NestedStringSlice(rule, "resourceNames")
			for _, group := range texts(rule, "apiGroups") {
				for _, resource := range texts(rule, "resources") {
					for _, verb := range texts(rule, "verbs") {
						rights[right(kind == "Role", group, resource, verb, names)] = true
					}
				}
			}
		}
	}
	return rights
}

func texts(rule map[string]any, field string) []string {
	list, _, _ := unstructured.NestedStringSlice(rule, field)
	return list
}
