package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"sigs.k8s.io/yaml"

	"github.com/azuredisk-csi/azuredisk/internal/plan/problem"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/expect"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/tree"
)

const (
	errorsPage  = "docs/reference/errors.md"
	errorsTable = "test/docs/errors.yaml"
)

// errorRows are the rows of a page or a table: the code, and in a table also the test, by RPC and by
// condition.
type errorRows map[string]map[string]string

// The third column is the cause with which a node reports the failure.
var errorRow = regexp.MustCompile("^\\| ([^|]+) \\| `([A-Za-z]+)` \\|(?: (.*)\\|)?$")

// pageOfErrors returns the rows of the page.
func pageOfErrors(t *testing.T) errorRows {
	t.Helper()
	rows, rpc := errorRows{}, ""
	for _, line := range strings.Split(read(t, errorsPage), "\n") {
		if name, ok := strings.CutPrefix(line, "### "); ok {
			rpc = name
			rows[rpc] = map[string]string{}
		}
		m := errorRow.FindStringSubmatch(line)
		switch {
		case m == nil && strings.HasPrefix(line, "| ") && !strings.HasPrefix(line, "| when | code |"):
			t.Errorf("%s: got the line %q, want a condition and a code", errorsPage, line)
		case m != nil && rows[rpc][m[1]] != "":
			t.Errorf("%s: got the row %q of %s twice, want it once", errorsPage, m[1], rpc)
		case m != nil:
			rows[rpc][m[1]] = m[2]
		}
	}
	return rows
}

func TestThePageOnErrorsHasTheRowsOfTheTable(t *testing.T) {
	var table errorRows
	expect.Must(t, yaml.UnmarshalStrict([]byte(read(t, errorsTable)), &table))
	page := pageOfErrors(t)
	var rpcs []string
	for _, service := range []grpc.ServiceDesc{csi.Identity_ServiceDesc, csi.Controller_ServiceDesc, csi.Node_ServiceDesc} {
		for _, method := range service.Methods {
			rpcs = append(rpcs, method.MethodName)
			if len(page[method.MethodName]) == 0 {
				t.Errorf("%s: got no row of %s, want one", errorsPage, method.MethodName)
			}
		}
	}
	for rpc, rows := range page {
		if !slices.Contains(rpcs, rpc) {
			t.Errorf("%s: got the section %s, want only RPCs of the services", errorsPage, rpc)
		}
		for when, code := range rows {
			if got, _, _ := strings.Cut(table[rpc][when], " "); got != code {
				t.Errorf("%s: got %s if %q: %q, want %s as on the page", errorsTable, rpc, when, got, code)
			}
		}
	}
	for rpc, rows := range table {
		for when, row := range rows {
			if page[rpc][when] == "" {
				t.Errorf("%s: got no row of %s with %q, want the one of the table", errorsPage, rpc, when)
			}
			code, test, _ := strings.Cut(row, " ")
			if wrong := unproved(t, code, test); wrong != "" {
				t.Errorf("%s: %s if %q: %s", errorsTable, rpc, when, wrong)
			}
		}
	}
}

// TestThePageOnErrorsHasTheReportedCauses compares the last column with the causes that nodes report.
func TestThePageOnErrorsHasTheReportedCauses(t *testing.T) {
	page := read(t, errorsPage)
	for _, line := range strings.Split(page, "\n") {
		m := errorRow.FindStringSubmatch(line)
		if m == nil || strings.TrimSpace(m[3]) == "" {
			continue
		}
		if got := strings.Trim(m[3], "` "); !slices.Contains(problem.Reasons, got) {
			t.Errorf("%s: got the reported cause %s if %q, want one of %v", errorsPage, got, m[1], problem.Reasons)
		}
	}
	for _, reason := range problem.Reasons {
		if !strings.Contains(page, "`"+reason+"`") {
			t.Errorf("%s: got nothing about %s, want who reports it", errorsPage, reason)
		}
	}
}

var errorTest = regexp.MustCompile(`^([a-z0-9/]+)\.(Test[A-Za-z0-9]+)(?:/(.+))?$`)

// unproved says why a test does not show a code, or "". A test that exists shows OK. Any other code is
// in the source of the case, or else of the test: its function, and what that uses of its file.
func unproved(t *testing.T, code, test string) string {
	t.Helper()
	m := errorTest.FindStringSubmatch(test)
	if m == nil || !known(code) {
		return "got " + code + " of " + test + ", want a code, and a test as FOLDER.TEST or FOLDER.TEST/CASE"
	}
	source := sourceOf(t, m[1], m[2])
	if source == nil {
		return "got the test " + m[2] + ", want one that exists in " + m[1]
	}
	if m[3] != "" {
		part := caseOf(source, m[3])
		if part == nil {
			return "got the case " + strconv.Quote(m[3]) + ", want one that " + m[2] + " has"
		}
		if len(codesIn(part)) > 0 {
			source = []ast.Node{part}
		}
	}
	if code != codes.OK.String() && !slices.Contains(codesIn(source...), code) {
		return "got no codes." + code + " in " + test + ", want it"
	}
	return ""
}

// known reports whether gRPC has the code.
func known(code string) bool {
	for c := codes.OK; c <= codes.Unauthenticated; c++ {
		if c.String() == code {
			return true
		}
	}
	return false
}

// sourceOf returns the declaration of a test, and those of its file that it uses; nil if there is no
// such test.
func sourceOf(t *testing.T, folder, test string) []ast.Node {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(tree.Root(), folder, "*_test.go"))
	expect.Must(t, err)
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		expect.Must(t, err)
		declared := map[string]ast.Node{}
		for _, d := range parsed.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				declared[d.Name.Name] = d
			case *ast.GenDecl:
				for _, s := range d.Specs {
					if v, ok := s.(*ast.ValueSpec); ok {
						for _, name := range v.Names {
							declared[name.Name] = v
						}
					}
				}
			}
		}
		if declared[test] != nil {
			return used(declared, test)
		}
	}
	return nil
}

// used returns a declaration and those that it uses, directly or not.
func used(declared map[string]ast.Node, name string) (found []ast.Node) {
	node := declared[name]
	if node == nil {
		return nil
	}
	delete(declared, name)
	found = append(found, node)
	ast.Inspect(node, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok {
			found = append(found, used(declared, id.Name)...)
		}
		return true
	})
	return found
}

// caseOf returns the case of a table test: the value of a map, or the struct that has the name in a
// field; nil if there is no such case.
func caseOf(source []ast.Node, name string) (found ast.Node) {
	is := func(e ast.Expr) bool {
		literal, ok := e.(*ast.BasicLit)
		return ok && literal.Value == strconv.Quote(name)
	}
	for _, node := range source {
		ast.Inspect(node, func(n ast.Node) bool {
			literal, ok := n.(*ast.CompositeLit)
			if !ok {
				return found == nil
			}
			for _, element := range literal.Elts {
				pair, ok := element.(*ast.KeyValueExpr)
				switch {
				case ok && is(pair.Key):
					found = pair.Value
				case ok && is(pair.Value):
					found = literal
				}
			}
			return found == nil
		})
	}
	return found
}

// codesIn returns the codes of gRPC that sources name.
func codesIn(sources ...ast.Node) (found []string) {
	for _, source := range sources {
		ast.Inspect(source, func(n ast.Node) bool {
			s, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if x, ok := s.X.(*ast.Ident); ok && x.Name == "codes" {
				found = append(found, s.Sel.Name)
			}
			return true
		})
	}
	return found
}
