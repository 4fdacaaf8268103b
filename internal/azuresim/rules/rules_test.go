package rules_test

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/azuredisk-csi/azuredisk/internal/azuresim/rules"
)

var update = flag.Bool("update", false, "write the table of rules into RULES.md")

// functions are azuresim's functions by name, and whether they make an error of Azure.
func functions(t *testing.T) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		for _, decl := range file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && f.Body != nil {
				found[file.Name.Name+"."+nameOf(f)] = refuses(f)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func nameOf(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return f.Name.Name
	}
	of := f.Recv.List[0].Type
	if pointer, ok := of.(*ast.StarExpr); ok {
		of = pointer.X
	}
	if generic, ok := of.(*ast.IndexExpr); ok {
		of = generic.X
	}
	return of.(*ast.Ident).Name + "." + f.Name.Name
}

func refuses(f *ast.FuncDecl) (found bool) {
	makers := []string{"New", "BadRequest", "InvalidParameter", "NotAllowed", "Conflict"}
	ast.Inspect(f.Body, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok && slices.Contains(makers, s.Sel.Name) {
			from, ok := s.X.(*ast.Ident)
			found = found || ok && from.Name == "armerror"
		}
		return true
	})
	return found
}

func TestEveryRefusalHasARuleAndEveryRuleHasCode(t *testing.T) {
	known := functions(t)
	covered := map[string]bool{}
	for _, name := range rules.Own {
		covered[name] = true
	}
	seen := map[string]bool{}
	for _, r := range rules.All {
		if seen[r.ID] || r.Says == "" || len(r.Code) == 0 {
			t.Errorf("rule %q is there twice, says nothing or has no code", r.ID)
		}
		seen[r.ID] = true
		for _, name := range r.Code {
			covered[name] = true
			if _, ok := known[name]; !ok {
				t.Errorf("rule %s names %s, which is not a function of azuresim", r.ID, name)
			}
		}
	}
	for name, refuses := range known {
		part, _, _ := strings.Cut(name, ".")
		if refuses && !covered[name] && part != "admin" && part != "faults" && part != "armerror" {
			t.Errorf("%s refuses calls, and no rule names it", name)
		}
	}
}

func TestEverySourceIsAnAddressARecordOrNone(t *testing.T) {
	for _, r := range rules.All {
		if r.Source != "" && !strings.HasPrefix(r.Source, "https://") && !strings.HasPrefix(r.Source, "recorded: ") {
			t.Errorf("the source of rule %s is %q, want an address, a recorded call, or none for an assumption", r.ID, r.Source)
		}
	}
}

const first, last = "<!-- generated -->\n", "<!-- end of generated -->\n"

func table() string {
	var b strings.Builder
	b.WriteString("\n| rule | what Azure does | source |\n|---|---|---|\n")
	for _, r := range rules.All {
		source := r.Source
		switch {
		case source == "":
			source = "assumption"
		case strings.HasPrefix(source, "https://"):
			source = fmt.Sprintf("[%s](%s)", kindOf(r.Source), r.Source)
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", r.ID, r.Says, source)
	}
	return b.String() + "\n"
}

// kindOf is what an address is evidence of.
func kindOf(address string) string {
	switch {
	case strings.Contains(address, "/recordings") || strings.Contains(address, "/testdata/") ||
		strings.Contains(address, "/pkg/azclient"):
		return "recorded"
	case strings.Contains(address, "azure-rest-api-specs/tree"):
		return "specification"
	case strings.HasPrefix(address, "https://learn.microsoft.com/"):
		return "documentation"
	case strings.Contains(address, "/issues/") || strings.Contains(address, "/pull/"):
		return "reported"
	}
	return "code of a client"
}

func TestTheTableOfRules(t *testing.T) {
	const file = "../../../azuresim/RULES.md"
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(raw), first)
	_, after, ended := strings.Cut(rest, last)
	if !ok || !ended {
		t.Fatalf("%s has no part between %q and %q", file, first, last)
	}
	want := before + first + table() + last + after
	if want == string(raw) {
		return
	}
	if !*update {
		t.Fatalf("the table of rules in %s is out of date: run make update", file)
	}
	if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
		t.Fatal(err)
	}
}
