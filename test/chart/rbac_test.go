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
	"controller": {"internal/controller", "cmd/azuredisk/controller.go", "cmd/azuredisk/attachrequired.go"},
	"node":       {"internal/node", "cmd/azuredisk/node.go"},
	"scheduler":  {"internal/scheduler", "internal/webhookcert", "cmd/azuredisk/scheduler.go"},
}

func TestEachPartHasTheRightsThatItsCodeAsksForAndNoOthers(t *testing.T) {
	t.Parallel()
	list := objects(t, render(t, "--set", "snapshot.enabled=true,controller.maintenance.preempt=move"))
	list = append(list, objects(t, render(t, "--set", "snapshot.enabled=true,csiDriver.attachRequired=true"))...)
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

// A right reads "scope group/resource verb", with the names that it is limited to where there are
// any.
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
		must(t, err)
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

// The rights follow the features: what is switched off is not allowed.
func TestRightsFollowTheFeatures(t *testing.T) {
	t.Parallel()
	const (
		deletePods  = "cluster /pods delete"
		failPods    = "cluster /pods/status patch"
		taint       = "cluster /nodes patch"
		prune       = "cluster /nodes/status patch"
		needs       = "cluster storage.k8s.io/volumeattachments get"
		snapshots   = "cluster snapshot.storage.k8s.io/volumesnapshotcontents list"
		withoutFail = "controller.failover.enabled=false"
	)
	cases := map[string]struct {
		set  string
		want []string // of these rights
	}{
		"failover, without VolumeAttachments": {"snapshot.enabled=true",
			[]string{deletePods, failPods, taint, prune, snapshots}},
		"failover, with VolumeAttachments and without snapshots": {"csiDriver.attachRequired=true",
			[]string{deletePods, taint, prune, needs}},
		"no failover, without VolumeAttachments": {withoutFail, []string{failPods, taint}},
		"no failover, with VolumeAttachments": {withoutFail + ",csiDriver.attachRequired=true",
			[]string{taint, prune, needs}},
		"no failover and no start-up taint": {withoutFail + ",node.removeNotReadyTaint=false",
			[]string{failPods}},
		"no failover and no start-up taint, with VolumeAttachments": {withoutFail +
			",node.removeNotReadyTaint=false,csiDriver.attachRequired=true", []string{prune, needs}},
		"failover without the start-up taint and with VolumeAttachments": {"node.removeNotReadyTaint=false,csiDriver.attachRequired=true", []string{deletePods, taint, prune, needs}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			given := renderedRights(t, objects(t, render(t, "--set", c.set)), release+"-controller")
			for _, right := range []string{deletePods, failPods, taint, prune, needs, snapshots} {
				if want := slices.Contains(c.want, right); given[right] != want {
					t.Errorf("%s: %q: got %t, want %t", c.set, right, given[right], want)
				}
			}
		})
	}
}

// Each sidecar has a token of its own, and with it no more than its own rights.
func TestEachSidecarHasOnlyItsOwnRights(t *testing.T) {
	t.Parallel()
	list := objects(t, render(t, "--set", "snapshot.enabled=true,csiDriver.attachRequired=true"))
	writes := map[string][]string{
		"provisioner": {"cluster /persistentvolumes create", "cluster /persistentvolumes delete",
			"cluster /persistentvolumeclaims update"},
		"attacher": {"cluster storage.k8s.io/volumeattachments patch",
			"cluster storage.k8s.io/volumeattachments/status patch"},
		"resizer": {"cluster /persistentvolumeclaims/status patch"},
		"snapshotter": {"cluster snapshot.storage.k8s.io/volumesnapshotcontents update",
			"cluster snapshot.storage.k8s.io/volumesnapshotcontents/status patch"},
	}
	pod := find(t, list, "Deployment", release+"-controller")
	for sidecar := range writes {
		name := release + "-csi-" + sidecar
		given := renderedRights(t, list, name)
		for owner, rights := range writes {
			for _, right := range rights {
				if want := owner == sidecar; given[right] != want {
					t.Errorf("%s: %q: got %t, want %t", sidecar, right, given[right], want)
				}
			}
		}
		for right := range given {
			if strings.Contains(right, "/pods delete") || strings.Contains(right, "/nodes") && !strings.HasSuffix(right, "get") &&
				!strings.HasSuffix(right, "list") && !strings.HasSuffix(right, "watch") ||
				strings.Contains(right, "disk.csi.azure.com/") || strings.Contains(right, "leases update") &&
				!strings.HasSuffix(right, "disk-csi-azure-com") {
				t.Errorf("%s: got the right %q, which only the controller needs", sidecar, right)
			}
		}
		secret := find(t, list, "Secret", name)
		if got := secret.GetAnnotations()["kubernetes.io/service-account.name"]; got != name ||
			find(t, list, "ServiceAccount", name) == nil {
			t.Errorf("%s: got the token of %q, want that of %s", sidecar, got, name)
		}
		for _, container := range nested(t, pod, "spec", "template", "spec", "containers") {
			if container["name"] == "csi-"+sidecar &&
				mounts(container)["token-"+sidecar] != "/var/run/secrets/kubernetes.io/serviceaccount" {
				t.Errorf("%s: got mounts %v, want its token where the pod's would be", sidecar, mounts(container))
			}
		}
	}
	for _, container := range nested(t, pod, "spec", "template", "spec", "containers") {
		for volume := range mounts(container) {
			if sidecar, is := strings.CutPrefix(volume, "token-"); is && container["name"] != "csi-"+sidecar {
				t.Errorf("%v: got the token of %s", container["name"], sidecar)
			}
		}
	}
	shared := objects(t, render(t, "--set", "sidecars.ownServiceAccounts=false"))
	if got := nested(t, find(t, shared, "ClusterRoleBinding", release+"-csi-resizer"), "subjects")[0]["name"]; got != release+
		"-controller" {
		t.Errorf("without accounts of their own: got the rights of csi-resizer for %v, want %s-controller", got, release)
	}
}

// nested is a list of maps within an object.
func nested(t *testing.T, object *unstructured.Unstructured, path ...string) []map[string]any {
	t.Helper()
	list, found, err := unstructured.NestedSlice(object.Object, path...)
	if err != nil || !found {
		t.Fatalf("%s: no %v: %v", object.GetName(), path, err)
	}
	items := make([]map[string]any, len(list))
	for i := range list {
		items[i] = list[i].(map[string]any)
	}
	return items
}

// renderedRights are those of the roles of a component.
func renderedRights(t *testing.T, list []*unstructured.Unstructured, prefix string) map[string]bool {
	t.Helper()
	rights := map[string]bool{}
	for _, object := range list {
		kind := object.GetKind()
		if kind != "Role" && kind != "ClusterRole" || !strings.HasPrefix(object.GetName(), prefix) {
			continue
		}
		rules, _, err := unstructured.NestedSlice(object.Object, "rules")
		must(t, err)
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
