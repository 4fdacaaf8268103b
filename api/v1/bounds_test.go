package v1_test

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/charts"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/apiserver"
)

type props = apiextensionsv1.JSONSchemaProps

// schemas are the generated schemas of spec and status, by the kind.
func schemas(t *testing.T) map[string]props {
	t.Helper()
	found := map[string]props{}
	err := fs.WalkDir(charts.CRDs, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := charts.CRDs.ReadFile(path)
		if err != nil {
			return err
		}
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.UnmarshalStrict(text, crd); err != nil {
			return err
		}
		root := *crd.Spec.Versions[0].Schema.OpenAPIV3Schema
		for _, field := range []string{"apiVersion", "kind", "metadata"} { // the API server bounds them
			delete(root.Properties, field)
		}
		found[crd.Spec.Names.Kind] = root
		return nil
	})
	if err != nil || len(found) != 3 {
		t.Fatalf("got %d definitions and %v, want 3", len(found), err)
	}
	return found
}

// unbounded are the fields without a bound in the schema, with the reason.
var unbounded = map[string]string{
	"AzVolume.spec.disk.tags{}":      "the values of a map of strings cannot have one; a rule bounds them, and the names",
	"AzVolume.status.applied.tags{}": "the values of a map of strings cannot have one; a rule bounds them, and the names",
	"AzVolume.status.size":           "a quantity, which the API server parses",
}

// An unbounded field makes each rule over it too expensive for the API server, and a bound cannot be
// added once objects are stored.
func TestEveryFieldHasABound(t *testing.T) {
	t.Parallel()
	found := map[string]bool{}
	var check func(path string, s props)
	check = func(path string, s props) {
		switch {
		case s.XIntOrString, s.Type == "string" && s.MaxLength == nil && len(s.Enum) == 0 && s.Format != "date-time",
			s.Type == "array" && s.MaxItems == nil,
			s.AdditionalProperties != nil && s.MaxProperties == nil:
			found[path] = true
		}
		for name, property := range s.Properties {
			check(path+"."+name, property)
		}
		if s.Items != nil {
			check(path+"[]", *s.Items.Schema)
		}
		if s.AdditionalProperties != nil {
			check(path+"{}", *s.AdditionalProperties.Schema)
		}
	}
	for kind, root := range schemas(t) {
		check(kind, root)
	}
	if got, want := slices.Sorted(maps.Keys(found)), slices.Sorted(maps.Keys(unbounded)); !slices.Equal(got, want) {
		t.Errorf("fields without a bound:\ngot  %v\nwant %v", got, want)
	}
}

// widest is the character that takes most bytes in the JSON that is stored: six.
const widest = "<"

// fillers are characters that the patterns of the fields take, of the most bytes.
var fillers = map[string]string{
	`^[A-Za-z0-9_]+$`:                          "A",
	`^[A-Za-z0-9_]*$`:                          "A",
	`^[A-Za-z][A-Za-z0-9_]*$`:                  "R",
	`^[A-Za-z0-9 .,:;/_()='*~-]*$`:             "a",
	`^[A-Za-z0-9]*$`:                           "a",
	`^[A-Za-z0-9-]*$`:                          "u",
	`^[0-9]*$`:                                 "1",
	`^[a-z0-9.-]+$`:                            "n",
	`^[a-z0-9-]+$`:                             "n",
	`^[A-Za-z0-9_][A-Za-z0-9_.-]*$`:            "d",
	`^[\p{L}\p{N}_()-][\p{L}\p{N}_().-]*$`:     "𠜎",
	`^[^<>%&?/\\]+$`:                           "𠜎",
	`^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$`: "R",
	`^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$`: "T",
}

const longestMessage = 1024 // of a condition; a rule of the list

// largest returns the largest value that a schema allows. key makes it differ from others of a list.
func largest(t *testing.T, name string, s props, key int) any {
	t.Helper()
	switch {
	case s.XIntOrString:
		return "9223372036854775807"
	case len(s.Enum) > 0:
		return longestOf(t, s.Enum)
	case s.Type == "object" && s.AdditionalProperties != nil:
		tags := map[string]any{}
		for i := range *s.MaxProperties {
			tags[numbered(int(i), strings.Repeat(widest, 512))] = strings.Repeat(widest, 256)
		}
		return tags
	case s.Type == "object":
		all := map[string]any{}
		for field, property := range s.Properties {
			all[field] = largest(t, field, property, key)
		}
		return all
	case s.Type == "array":
		var all []any
		for i := range *s.MaxItems {
			all = append(all, largest(t, name, *s.Items.Schema, int(i)))
		}
		return all
	case s.Type == "boolean":
		return false
	case s.Type == "integer":
		return largestInteger(s)
	}
	return longestText(t, name, s, key)
}

func longestOf(t *testing.T, values []apiextensionsv1.JSON) any {
	t.Helper()
	longest := slices.MaxFunc(values, func(a, b apiextensionsv1.JSON) int { return len(a.Raw) - len(b.Raw) })
	var value any
	if err := json.Unmarshal(longest.Raw, &value); err != nil {
		t.Fatal(err)
	}
	if number, ok := value.(float64); ok {
		return int64(number)
	}
	return value
}

func largestInteger(s props) int64 {
	switch {
	case s.Maximum != nil:
		return int64(*s.Maximum)
	case s.Format == "int32":
		return 1<<31 - 1
	default:
		return 1<<63 - 1
	}
}

func longestText(t *testing.T, name string, s props, key int) any {
	t.Helper()
	length := 0
	if s.MaxLength != nil {
		length = int(*s.MaxLength)
	}
	filler, known := fillers[s.Pattern]
	switch {
	case s.Format == "date-time" && (strings.HasPrefix(name, "lastTransition") || name == "startTime"):
		return "2026-11-28T17:00:00Z"
	case s.Format == "date-time":
		return "2026-11-28T17:00:00.123456Z"
	case name == "subscriptionID":
		return "00000000-0000-0000-0000-000000000001"
	case name == "tier":
		return "P999"
	case name == "message":
		length = min(length, longestMessage)
	}
	if s.Pattern != "" && !known {
		t.Fatalf("no characters are known for the pattern %s of %s: add them to fillers", s.Pattern, name)
	}
	if s.Pattern == "" {
		filler = widest
	}
	return numbered(key, strings.Repeat(filler, length))
}

// numbered returns a text with a number at its end, as long as it was.
func numbered(n int, text string) string {
	characters, digits := []rune(text), []rune(fmt.Sprintf("%03d", n))
	if len(characters) < len(digits) {
		return text
	}
	return string(append(characters[:len(characters)-len(digits)], digits...))
}

// The largest objects that the bounds allow fit into etcd, which takes 1.5 MiB: a bound that is raised
// too far fails here, and not when a node reports its last disk.
func TestTheLargestObjectsAreWrittenListedAndWatched(t *testing.T) {
	t.Parallel()
	namespace := apiserver.Namespace(t)
	config := apiserver.Config(t)
	c, err := client.NewWithWatch(config, client.Options{Scheme: apiserver.Scheme(t)})
	if err != nil {
		t.Fatal(err)
	}
	for kind, root := range schemas(t) {
		t.Run(kind, func(t *testing.T) {
			o := &unstructured.Unstructured{Object: largest(t, "", root, 0).(map[string]any)}
			o.SetGroupVersionKind(apiv1.GroupVersion.WithKind(kind))
			o.SetNamespace(namespace)
			o.SetName("largest")
			obeyUnions(o)
			status, _, _ := unstructured.NestedMap(o.Object, "status")
			if err := c.Create(t.Context(), o); err != nil {
				t.Fatal(err)
			}
			seen, err := c.Watch(t.Context(), listOf(kind), client.InNamespace(namespace))
			if err != nil {
				t.Fatal(err)
			}
			defer seen.Stop()
			for _, step := range []string{"written", "written again"} {
				if err := unstructured.SetNestedMap(o.Object, status, "status"); err != nil {
					t.Fatal(err)
				}
				if err := c.Status().Update(t.Context(), o); err != nil {
					t.Fatalf("%s: %v", step, err)
				}
				o.SetLabels(map[string]string{"step": strings.Fields(step)[len(strings.Fields(step))-1]})
				if err := c.Update(t.Context(), o); err != nil {
					t.Fatalf("%s: %v", step, err)
				}
			}
			stored, err := o.MarshalJSON()
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%d bytes are stored", len(stored))
			list := listOf(kind)
			if err := c.List(t.Context(), list, client.InNamespace(namespace)); err != nil || len(list.Items) != 1 {
				t.Errorf("listed %d and %v, want 1", len(list.Items), err)
			}
			awaitVersion(t, seen, o.GetResourceVersion())
		})
	}
}

func listOf(kind string) *unstructured.UnstructuredList {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(schema.GroupVersionKind{Group: apiv1.GroupName, Version: "v1", Kind: kind + "List"})
	return list
}

func awaitVersion(t *testing.T, events watch.Interface, version string) {
	t.Helper()
	for {
		select {
		case event, open := <-events.ResultChan():
			o, ok := event.Object.(*unstructured.Unstructured)
			if !open || !ok {
				t.Fatalf("the watch ended with %v", event.Object)
			}
			if o.GetResourceVersion() == version {
				return
			}
		case <-t.Context().Done():
			t.Fatal("the watch did not show the last write")
		}
	}
}

// obeyUnions removes the fields that the rules exclude beside those that are longer.
func obeyUnions(o *unstructured.Unstructured) {
	unstructured.RemoveNestedField(o.Object, "spec", "source", "snapshotID")
	results, found, _ := unstructured.NestedSlice(o.Object, "status", "fenceResults")
	for _, result := range results {
		delete(result.(map[string]any), "key")
	}
	if found {
		_ = unstructured.SetNestedSlice(o.Object, results, "status", "fenceResults")
	}
}

// A client of a language that does not drop zero values, or a person, may store them. Go clients drop
// them with the next write, and a rule of immutability must not take that for a change.
func TestObjectsWithExplicitZeroValuesCanBeUpdatedByATypedClient(t *testing.T) {
	c, namespace := apiserver.Client(t), apiserver.Namespace(t)
	zeros := map[string]any{"string": "", "boolean": false, "integer": int64(0)}
	disk := schemas(t)["AzVolume"].Properties["spec"].Properties["disk"]
	paths := [][]string{}
	for field, property := range disk.Properties {
		if _, ok := zeros[property.Type]; ok && !slices.Contains(disk.Required, field) {
			paths = append(paths, []string{"spec", "disk", field})
		}
	}
	paths = append(paths, []string{"spec", "deletionPolicy"})
	stored := 0
	for _, path := range paths {
		name := strings.ToLower(path[len(path)-1])
		t.Run(name, func(t *testing.T) {
			raw := &unstructured.Unstructured{}
			text, err := json.Marshal(newVolume(namespace, name))
			if err == nil {
				err = json.Unmarshal(text, &raw.Object)
			}
			if err != nil {
				t.Fatal(err)
			}
			raw.SetGroupVersionKind(apiv1.GroupVersion.WithKind("AzVolume"))
			zero := zeros["string"]
			if path[1] == "disk" {
				zero = zeros[disk.Properties[path[2]].Type]
			}
			if err := unstructured.SetNestedField(raw.Object, zero, path...); err != nil {
				t.Fatal(err)
			}
			switch err := c.Create(t.Context(), raw); {
			case apierrors.IsInvalid(err):
				return // it can never be stored
			case err != nil:
				t.Fatal(err)
			}
			stored++
			v := &apiv1.AzVolume{}
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(raw), v); err != nil {
				t.Fatal(err)
			}
			v.Spec.CapacityBytes *= 2
			if err := c.Update(t.Context(), v); err != nil {
				t.Errorf("stored with %v: %v", zero, err)
			}
		})
	}
	if stored < 15 {
		t.Errorf("%d fields were stored with their zero value, want at least 15: the others are refused", stored)
	}
}
