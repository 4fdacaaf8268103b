package compatibility

import (
	"encoding/json"
	"flag"
	"fmt"
	"go/types"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/go/packages"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/azuredisk-csi/azuredisk/internal/testkit/expect"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/tree"
)

var release = flag.Bool("release", false, "record what is here as what the release has")

// TestTheCustomResourcesStayCompatible compares the CustomResourceDefinitions with those of the last
// release; until there is one, with those that were reviewed for the first.
func TestTheCustomResourcesStayCompatible(t *testing.T) {
	now := map[string]apiextensionsv1.JSONSchemaProps{}
	files, err := filepath.Glob(filepath.Join(tree.Root(), "charts/azuredisk/files/crds/*.yaml"))
	expect.Must(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		expect.Must(t, err)
		var crd apiextensionsv1.CustomResourceDefinition
		expect.Must(t, yaml.Unmarshal(text, &crd))
		for _, version := range crd.Spec.Versions {
			now[crd.Spec.Names.Kind+" "+version.Name] = bare(*version.Schema.OpenAPIV3Schema)
		}
	}
	const recorded = "resources.json"
	if *release {
		text, err := json.MarshalIndent(now, "", " ")
		expect.Must(t, err)
		expect.Must(t, os.WriteFile(recorded, append(text, '\n'), 0o600))
	}
	var old map[string]apiextensionsv1.JSONSchemaProps
	text, err := os.ReadFile(recorded)
	expect.Must(t, err)
	expect.Must(t, json.Unmarshal(text, &old))
	for name, schema := range old {
		current, is := now[name]
		if !is {
			t.Errorf("%s is gone", name)
			continue
		}
		for _, problem := range schemaBreaks(name, schema, current) {
			t.Error(problem)
		}
	}
}

func TestWhatBreaksASchema(t *testing.T) {
	field := func(change func(*apiextensionsv1.JSONSchemaProps)) apiextensionsv1.JSONSchemaProps {
		s := apiextensionsv1.JSONSchemaProps{Type: "string", MaxLength: ptr.To(int64(8)), Enum: []apiextensionsv1.JSON{
			{Raw: []byte(`"a"`)}, {Raw: []byte(`"b"`)}}}
		change(&s)
		return apiextensionsv1.JSONSchemaProps{Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"f": s}}
	}
	same := func(*apiextensionsv1.JSONSchemaProps) {}
	gone := apiextensionsv1.JSONSchemaProps{Type: "object"}
	required := field(same)
	required.Required = []string{"f"}
	for name, test := range map[string]struct {
		old, now apiextensionsv1.JSONSchemaProps
		want     string
	}{
		"nothing":                  {field(same), field(same), ""},
		"a new field":              {gone, field(same), ""},
		"a field that is gone":     {field(same), gone, "f is gone"},
		"a new required field":     {gone, required, "f is new and required"},
		"a field that is required": {field(same), required, "f has become required"},
		"a field that is optional": {required, field(same), ""},
		"a type": {field(same), field(func(s *apiextensionsv1.JSONSchemaProps) { s.Type = "integer" }),
			".f: is integer"},
		"a value more": {field(same), field(func(s *apiextensionsv1.JSONSchemaProps) {
			s.Enum = append(s.Enum, apiextensionsv1.JSON{Raw: []byte(`"c"`)})
		}), ""},
		"a value less": {field(same), field(func(s *apiextensionsv1.JSONSchemaProps) { s.Enum = s.Enum[:1] }),
			`the value "b" is gone`},
		"an open list of values": {field(same), field(func(s *apiextensionsv1.JSONSchemaProps) { s.Enum = nil }), ""},
		"a list of values": {field(func(s *apiextensionsv1.JSONSchemaProps) { s.Enum = nil }), field(same),
			"has got a list of values"},
		"a tighter bound": {field(same), field(func(s *apiextensionsv1.JSONSchemaProps) { s.MaxLength = ptr.To(int64(7)) }),
			"maxLength is 7, was 8"},
		"a wider bound": {field(same), field(func(s *apiextensionsv1.JSONSchemaProps) { s.MaxLength = ptr.To(int64(9)) }), ""},
		"a bound": {field(func(s *apiextensionsv1.JSONSchemaProps) { s.MaxLength = nil }), field(same),
			"maxLength is 8, was unbounded"},
		"a higher least": {field(same), field(func(s *apiextensionsv1.JSONSchemaProps) { s.MinLength = ptr.To(int64(1)) }),
			"minLength is 1, was unbounded"},
		"a pattern": {field(same), field(func(s *apiextensionsv1.JSONSchemaProps) { s.Pattern = "^a$" }),
			"has the pattern ^a$"},
		"another way to merge": {field(same), field(func(s *apiextensionsv1.JSONSchemaProps) { s.XListType = ptr.To("map") }),
			"is merged as map"},
	} {
		got := strings.Join(schemaBreaks("", test.old, test.now), "; ")
		if (got == "") != (test.want == "") || !strings.Contains(got, test.want) {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
}

// TestTheGoPackagesStayCompatible compares what the public packages export with the list of the last
// release. golang.org/x/exp/apidiff would need the compiled packages of that release. A line that is gone
// or reads differently is a change that an importer may not compile with; a new line is not.
func TestTheGoPackagesStayCompatible(t *testing.T) {
	config := &packages.Config{
		Dir:  tree.Root(),
		Mode: packages.NeedName | packages.NeedTypes | packages.NeedImports | packages.NeedDeps | packages.NeedSyntax,
	}
	found, err := packages.Load(config, "./api/v1", "./provisioner")
	expect.Must(t, err)
	var now []string
	for _, p := range found {
		for _, problem := range p.Errors {
			t.Fatal(problem)
		}
		now = append(now, exported(p.Types)...)
	}
	const recorded = "packages.txt"
	if *release {
		expect.Must(t, os.WriteFile(recorded, []byte(strings.Join(now, "\n")+"\n"), 0o600))
	}
	text, err := os.ReadFile(recorded)
	expect.Must(t, err)
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSuffix(line, "\n"); !slices.Contains(now, line) {
			t.Errorf("is gone or has changed: %s", line)
		}
	}
}

// exported returns a line for each exported name, field and method of a package.
func exported(p *types.Package) (lines []string) {
	name := func(other *types.Package) string { return other.Name() }
	for _, n := range p.Scope().Names() {
		o := p.Scope().Lookup(n)
		if !o.Exported() {
			continue
		}
		kind, isType := o.(*types.TypeName)
		if !isType {
			lines = append(lines, types.ObjectString(o, name))
			continue
		}
		in := fmt.Sprintf("type %s.%s", p.Name(), n)
		switch of := kind.Type().Underlying().(type) {
		case *types.Struct:
			lines = append(lines, in+" struct")
			for i := range of.NumFields() {
				if f := of.Field(i); f.Exported() {
					lines = append(lines, fmt.Sprintf("%s field %s %s %s", in, f.Name(), types.TypeString(f.Type(),
						name), of.Tag(i)))
				}
			}
		case *types.Interface:
			lines = append(lines, in+" interface")
			for m := range of.Methods() {
				lines = append(lines, fmt.Sprintf("%s method %s", in, types.ObjectString(m, name)))
			}
		default:
			lines = append(lines, fmt.Sprintf("%s %s", in, types.TypeString(of, name)))
		}
		methods := types.NewMethodSet(types.NewPointer(kind.Type()))
		for i := range methods.Len() {
			if m := methods.At(i).Obj(); m.Exported() && m.Pkg() == p && !types.IsInterface(kind.Type()) {
				lines = append(lines, fmt.Sprintf("%s method %s", in, types.ObjectString(m, name)))
			}
		}
	}
	return lines
}
