package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/azuredisk-csi/azuredisk/internal/testkit/tree"
)

const architecture = "docs/explanation/architecture.md"

var codeLink = regexp.MustCompile("\\[`([A-Za-z]+)`\\]\\(([^)]+\\.go)\\)")

// codeLinks are the links of a page to declarations, as the folder and the name of each.
func codeLinks(t *testing.T, page string) (links map[string]bool) {
	t.Helper()
	links = map[string]bool{}
	for _, m := range codeLink.FindAllStringSubmatch(read(t, page), -1) {
		name, file := m[1], filepath.Join(filepath.Dir(page), m[2])
		text, err := os.ReadFile(filepath.Join(tree.Root(), file))
		if err != nil {
			t.Errorf("%s: link to `%s`: %v", page, name, err)
			continue
		}
		if !regexp.MustCompile(`(?m)^(func (\([^)]*\) )?|type |var |const |\t)` + name + `\b`).Match(text) {
			t.Errorf("%s: got a link to `%s` in %s, want a declaration that is there", page, name, file)
		}
		links[file+" "+name] = true
	}
	return links
}

// TestLinksToDeclarationsLeadThere checks links such as
// [`Failover`](../../internal/plan/lostnode.go) on all pages.
func TestLinksToDeclarationsLeadThere(t *testing.T) {
	for _, page := range pages(t) {
		codeLinks(t, page)
	}
}

var protocolWrite = regexp.MustCompile(`(?m)^\d+\. (?:.+\n)(?:   .+\n)*`)

// TestEveryWriteOfTheProtocolNamesItsFunction: codeLinks finds out that the function exists.
func TestEveryWriteOfTheProtocolNamesItsFunction(t *testing.T) {
	const page = "docs/explanation/protocol.md"
	writes := protocolWrite.FindAllString(read(t, page), -1)
	for _, w := range writes {
		_, by, _ := strings.Cut(strings.Join(strings.Fields(w), " "), " By ")
		if !codeLink.MatchString(by) || !strings.Contains(by, "*Dies after it:*") {
			t.Errorf("%s: got %q, want the function that makes the write, and what is true after it", page, w)
		}
	}
	if len(writes) < 20 {
		t.Errorf("%s: got %d writes, want at least 20", page, len(writes))
	}
}

// TestEveryWriterIsInATable finds the functions that create or patch an object, or write its status
// (law 6).
func TestEveryWriterIsInATable(t *testing.T) {
	links := codeLinks(t, architecture)
	writers := 0
	for _, file := range goFiles(t) {
		if !strings.HasPrefix(file, "internal/") || strings.HasPrefix(file, "internal/testkit/") ||
			strings.HasPrefix(file, "internal/kube/") || strings.HasPrefix(file, "internal/volumetest/") ||
			strings.HasPrefix(file, "internal/webhookcert/") || strings.HasSuffix(file, "_test.go") {
			continue
		}
		for _, name := range writesStatus(t, file) {
			writers++
			if !links[file+" "+name] {
				t.Errorf("%s: got no row for %s in %s, which writes a spec or a status", architecture, name, file)
			}
		}
	}
	if writers < 30 {
		t.Errorf("functions that write an object: got %d, want at least 30", writers)
	}
}

// ofStatus are the functions that write the status that they are given.
var ofStatus = []string{"PatchStatus", "WriteStatus", "RecordProof"}

// writesStatus are the functions of a file that call Status().Update, Status().Patch or a function
// of ofStatus.
func writesStatus(t *testing.T, file string) []string {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join(tree.Root(), file), nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatalf("parse %s: %v", file, err)
	}
	var found []string
	for _, d := range parsed.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || slices.Contains(ofStatus, f.Name.Name) {
			continue
		}
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.SelectorExpr:
				write := n.Sel.Name == "Patch" || n.Sel.Name == "Update" || n.Sel.Name == "Create"
				if write && (isStatusCall(n.X) || slices.Contains(clients, lastName(n.X))) {
					found = append(found, f.Name.Name)
				}
			case *ast.CallExpr:
				if slices.Contains(ofStatus, calledName(n)) {
					found = append(found, f.Name.Name)
				}
			}
			return true
		})
	}
	return slices.Compact(found)
}

// clients are the names of what objects are created and patched through.
var clients = []string{"kube", "c", "Client", "Writer"}

func lastName(e ast.Expr) string { return calledName(&ast.CallExpr{Fun: e}) }

func calledName(call *ast.CallExpr) string {
	switch f := call.Fun.(type) {
	case *ast.SelectorExpr:
		return f.Sel.Name
	case *ast.Ident:
		return f.Name
	}
	return ""
}

func isStatusCall(e ast.Expr) bool {
	call, ok := e.(*ast.CallExpr)
	if !ok || len(call.Args) > 0 {
		return false
	}
	s, ok := call.Fun.(*ast.SelectorExpr)
	return ok && s.Sel.Name == "Status"
}

// TestOnlyTheKeeperMakesAttachments finds an AzVolumeAttachment with metadata, which is one that is
// created.
func TestOnlyTheKeeperMakesAttachments(t *testing.T) {
	made := regexp.MustCompile(`apiv1\.AzVolumeAttachment\{\s*ObjectMeta:`)
	for _, file := range goFiles(t) {
		if strings.HasPrefix(file, "internal/controller/") && !strings.HasSuffix(file, "_test.go") &&
			made.MatchString(read(t, file)) != (file == keeper) {
			t.Errorf("%s: got an AzVolumeAttachment made here: %t, want them made in %s alone", file, file != keeper, keeper)
		}
	}
}

const keeper = "internal/controller/keeper/keeper.go"
