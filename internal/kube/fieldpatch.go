package kube

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// FieldPatch is a JSON patch (RFC 6902) of the fields in which a custom resource differs from Before,
// which was read from the API server. It holds for the version that was read only.
type FieldPatch struct{ Before client.Object }

// Type implements client.Patch.
func (p *FieldPatch) Type() types.PatchType { return types.JSONPatchType }

// Data implements client.Patch.
func (p *FieldPatch) Data(changed client.Object) ([]byte, error) {
	before, err := fields(p.Before)
	if err != nil {
		return nil, err
	}
	after, err := fields(changed)
	if err != nil {
		return nil, err
	}
	d := diff{{"replace", "/metadata/resourceVersion", p.Before.GetResourceVersion()}}
	d.object("", before, after)
	return json.Marshal(d)
}

// fields is an object as JSON has it, with exact numbers.
func fields(o client.Object) (map[string]any, error) {
	text, err := json.Marshal(o)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", o.GetName(), err)
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var found map[string]any
	if err := decoder.Decode(&found); err != nil {
		return nil, fmt.Errorf("decode %s: %w", o.GetName(), err)
	}
	if metadata, ok := found["metadata"].(map[string]any); ok {
		delete(metadata, "resourceVersion")
	}
	return found, nil
}

// diff is a JSON patch.
type diff []change

type change struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// remove is a change whose value the API server ignores.
func (d *diff) remove(path string) { *d = append(*d, change{Op: "remove", Path: path}) }

// add sets a member of an object, which may have it or not, or inserts an entry into a list.
func (d *diff) add(path string, value any) { *d = append(*d, change{"add", path, value}) }

func (d *diff) object(path string, before, after map[string]any) {
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if _, stays := after[name]; !stays {
			d.remove(member(path, name))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(after)) {
		d.value(member(path, name), name, before[name], after[name])
	}
}

func (d *diff) value(path, name string, before, after any) {
	if reflect.DeepEqual(before, after) {
		return
	}
	switch before := before.(type) {
	case map[string]any:
		// An empty object may be absent at the API server.
		if after, ok := after.(map[string]any); ok && len(before) > 0 {
			d.object(path, before, after)
			return
		}
	case []any:
		if after, ok := after.([]any); ok && d.list(path, listKeys[name], before, after) {
			return
		}
	}
	d.add(path, after)
}

// listKeys are the lists that have keys, by their names, as the schemas of the custom resources say.
var listKeys = map[string]string{
	"conditions":     "type",
	"events":         "eventID",
	"fenceResults":   "volumeName",
	"fences":         "volumeName",
	"lostWrites":     "volumeName",
	"stagedVolumes":  "volumeName",
	"volumeProblems": "volumeName",
}

// list changes the entries of a list, and reports false if it has no keys, or if entries change
// places.
func (d *diff) list(path, key string, before, after []any) bool {
	have, is := keysOf(key, before)
	want, will := keysOf(key, after)
	if !is || !will {
		return false
	}
	var changes diff
	for i := len(have) - 1; i >= 0; i-- {
		if !slices.Contains(want, have[i]) {
			changes.remove(entry(path, i))
			have, before = slices.Delete(have, i, i+1), slices.Delete(slices.Clone(before), i, i+1)
		}
	}
	for i, k := range want {
		switch {
		case i < len(have) && have[i] == k:
			changes.value(entry(path, i), "", before[i], after[i])
		case slices.Contains(have, k):
			return false
		default:
			changes.add(entry(path, i), after[i])
			have, before = slices.Insert(have, i, k), slices.Insert(slices.Clone(before), i, after[i])
		}
	}
	*d = append(*d, changes...)
	return true
}

// keysOf returns the keys of a list's entries, if each has one of its own.
func keysOf(key string, list []any) ([]string, bool) {
	var keys []string
	for _, e := range list {
		object, _ := e.(map[string]any)
		k, _ := object[key].(string)
		if k == "" || slices.Contains(keys, k) {
			return nil, false
		}
		keys = append(keys, k)
	}
	return keys, key != ""
}

func member(path, name string) string {
	return path + "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
}

func entry(path string, i int) string { return path + "/" + strconv.Itoa(i) }
