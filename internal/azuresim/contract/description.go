package contract

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// module is the SDK whose source is the description.
const module = "github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7"

// clients are the files of the SDK whose calls are described.
var clients = []string{
	"disks_client.go", "snapshots_client.go", "virtualmachines_client.go", "virtualmachinescalesets_client.go",
	"virtualmachinescalesetvms_client.go", "resourceskus_client.go", "usage_client.go", "diskencryptionsets_client.go",
	"diskaccesses_client.go",
}

// Description is what Azure says of its calls.
type Description struct {
	models map[string]map[string]member // by name, and by the member's name in JSON
	texts  map[string]bool              // types whose values are strings
	calls  []call
}

// member is a member of a model.
type member struct {
	shape              ast.Expr // its Go type
	required, readOnly bool
}

// call is one kind of request.
type call struct {
	name     string // such as DisksClient.createOrUpdate
	method   string
	path     []string // segments; one in braces matches anything
	version  string   // the api-version that the SDK sends
	statuses []string // of answers that are no refusal
	request  string   // the model of the body; "" for none
	answer   string
}

// Describe reads the description from the source of the SDK in the module cache. It reads it once.
var Describe = sync.OnceValues(func() (*Description, error) {
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		return nil, fmt.Errorf("find the source of %s: %w", module, err)
	}
	return describe(strings.TrimSpace(string(dir)))
})

func describe(dir string) (*Description, error) {
	d := &Description{models: map[string]map[string]member{}, texts: map[string]bool{}}
	files := map[string]*ast.File{}
	for _, name := range append([]string{"models.go", "models_serde.go", "constants.go", "responses.go"}, clients...) {
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(dir, name), nil,
			parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		files[name] = f
	}
	names, constants := jsonNames(files["models_serde.go"])
	for model, s := range structs(files["models.go"]) {
		if names[model] == nil {
			continue
		}
		d.models[model] = members(s, names[model])
		for _, name := range constants[model] {
			d.models[model][name] = member{shape: ast.NewIdent("any")}
		}
	}
	d.readTexts(files["constants.go"])
	responses := structs(files["responses.go"])
	for _, name := range clients {
		d.readCalls(files[name], responses)
	}
	if len(d.calls) == 0 || len(d.models["Disk"]) == 0 {
		return nil, fmt.Errorf("%s has not the form of an SDK's source: %d calls and %d models found", dir, len(d.calls),
			len(d.models))
	}
	return d, nil
}

// structs are the struct types of a file.
func structs(f *ast.File) map[string]*ast.StructType {
	found := map[string]*ast.StructType{}
	ast.Inspect(f, func(n ast.Node) bool {
		if spec, ok := n.(*ast.TypeSpec); ok {
			if s, ok := spec.Type.(*ast.StructType); ok {
				found[spec.Name.Name] = s
			}
		}
		return true
	})
	return found
}

// jsonNames are the names of fields in JSON, by model, from the calls of populate in MarshalJSON, and
// the members that always have the same value.
func jsonNames(f *ast.File) (names map[string]map[string]string, constants map[string][]string) {
	names, constants = map[string]map[string]string{}, map[string][]string{}
	for _, decl := range f.Decls {
		fn, ok := decl.(*ast.FuncDecl)
		if !ok || fn.Name.Name != "MarshalJSON" || fn.Recv == nil {
			continue
		}
		model := typeName(fn.Recv.List[0].Type)
		names[model] = map[string]string{}
		ast.Inspect(fn, func(n ast.Node) bool {
			if set, ok := n.(*ast.AssignStmt); ok {
				if at, ok := set.Lhs[0].(*ast.IndexExpr); ok {
					constants[model] = append(constants[model], text(at.Index))
				}
			}
			c, ok := n.(*ast.CallExpr)
			if !ok || len(c.Args) != 3 || !strings.HasPrefix(typeName(c.Fun), "populate") {
				return true
			}
			if field, ok := c.Args[2].(*ast.SelectorExpr); ok {
				names[model][field.Sel.Name] = text(c.Args[1])
			}
			return true
		})
	}
	return names, constants
}

func members(s *ast.StructType, names map[string]string) map[string]member {
	all := map[string]member{}
	for _, field := range s.Fields.List {
		doc := field.Doc.Text()
		for _, name := range field.Names {
			if in, ok := names[name.Name]; ok {
				all[in] = member{
					shape:    field.Type,
					required: strings.HasPrefix(doc, "REQUIRED;"),
					readOnly: strings.HasPrefix(strings.TrimPrefix(doc, "REQUIRED; "), "READ-ONLY;"),
				}
			}
		}
	}
	return all
}

// readTexts reads the string types. Azure may take other values than the constants of the SDK: they
// are extensible.
func (d *Description) readTexts(f *ast.File) {
	ast.Inspect(f, func(n ast.Node) bool {
		if spec, ok := n.(*ast.TypeSpec); ok && typeName(spec.Type) == "string" {
			d.texts[spec.Name.Name] = true
		}
		return true
	})
}

// readCalls reads the calls of a client: a method xCreateRequest makes the request of method x, or of
// the pager of x.
func (d *Description) readCalls(f *ast.File, responses map[string]*ast.StructType) {
	statuses := map[string][]string{}
	for _, decl := range f.Decls {
		if fn, ok := decl.(*ast.FuncDecl); ok {
			statuses[strings.ToLower(fn.Name.Name)] = statusesOf(fn)
		}
	}
	for _, decl := range f.Decls {
		fn, ok := decl.(*ast.FuncDecl)
		if !ok || !strings.HasSuffix(fn.Name.Name, "CreateRequest") {
			continue
		}
		client, name := typeName(fn.Recv.List[0].Type), strings.TrimSuffix(fn.Name.Name, "CreateRequest")
		c := requestOf(fn)
		c.name, c.statuses = client+"."+name, statuses[strings.ToLower(name)]
		if c.statuses == nil {
			c.statuses = statuses[strings.ToLower(name)+"operation"] // delete is a word of Go
		}
		if c.statuses == nil {
			c.statuses = []string{"OK"} // a pager
		}
		if r := responses[client+strings.ToUpper(name[:1])+name[1:]+"Response"]; r != nil {
			for _, field := range r.Fields.List {
				if len(field.Names) == 0 {
					c.answer = typeName(field.Type)
				}
			}
		}
		d.calls = append(d.calls, c)
	}
}

// requestOf reads method, path, version and body of a function that makes a request.
func requestOf(fn *ast.FuncDecl) call {
	var c call
	ast.Inspect(fn.Body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			if len(n.Lhs) == 1 && typeName(n.Lhs[0]) == "urlPath" && n.Tok == token.DEFINE {
				c.path = strings.Split(strings.Trim(text(n.Rhs[0]), "/"), "/")
			}
		case *ast.CallExpr:
			switch name := typeName(n.Fun); {
			case name == "NewRequest":
				c.method = strings.ToUpper(strings.TrimPrefix(typeName(n.Args[1]), "Method"))
			case name == "Set" && text(n.Args[0]) == "api-version":
				c.version = text(n.Args[1])
			case name == "MarshalAsJSON":
				c.request = parameter(fn, typeName(n.Args[1]))
			}
		}
		return true
	})
	return c
}

// parameter is the type of a parameter.
func parameter(fn *ast.FuncDecl, name string) string {
	for _, p := range fn.Type.Params.List {
		if slices.ContainsFunc(p.Names, func(n *ast.Ident) bool { return n.Name == name }) {
			return typeName(p.Type)
		}
	}
	return ""
}

// statusesOf are the names of the HTTP statuses that a method takes for success.
func statusesOf(fn *ast.FuncDecl) (names []string) {
	ast.Inspect(fn, func(n ast.Node) bool {
		if c, ok := n.(*ast.CallExpr); ok && typeName(c.Fun) == "HasStatusCode" {
			for _, a := range c.Args[1:] {
				names = append(names, strings.TrimPrefix(typeName(a), "Status"))
			}
		}
		return true
	})
	return names
}

// typeName is the last identifier of an expression, without pointer and package.
func typeName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.StarExpr:
		return typeName(e.X)
	case *ast.SelectorExpr:
		return e.Sel.Name
	case *ast.IndexExpr:
		return typeName(e.X)
	}
	return ""
}

// text is the value of a string literal, "" for anything else.
func text(e ast.Expr) string {
	lit, ok := e.(*ast.BasicLit)
	if !ok {
		return ""
	}
	s, err := strconv.Unquote(lit.Value)
	if err != nil {
		return ""
	}
	return s
}
