package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"

	"github.com/azuredisk-csi/azuredisk/internal/testkit/tree"
)

func goFiles(t *testing.T) []string {
	t.Helper()
	return files(t, ".go", 100)
}

// goPassages are the comments, the string literals and the declared names of a file that is not
// generated.
func goPassages(t *testing.T, file string) []passage {
	t.Helper()
	set := token.NewFileSet()
	parsed, err := parser.ParseFile(set, filepath.Join(tree.Root(), file), nil, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		t.Fatalf("parse %s: %v", file, err)
	}
	if ast.IsGenerated(parsed) {
		return nil
	}
	r := &reader{file: file, set: set}
	for _, group := range parsed.Comments {
		r.comment(group)
	}
	ast.Inspect(parsed, r.visit)
	return r.found
}

type reader struct {
	file  string
	set   *token.FileSet
	found []passage
}

func (r *reader) add(at token.Pos, text string, name bool) {
	r.found = append(r.found, passage{
		file:  r.file,
		text:  text,
		lines: []int{r.set.Position(at).Line},
		name:  name,
	})
}

// comment adds a group of comments as one text, because a phrase may continue on the next line.
func (r *reader) comment(group *ast.CommentGroup) {
	p := passage{file: r.file}
	for _, c := range group.List {
		line := r.set.Position(c.Pos()).Line
		for n, text := range strings.Split(c.Text, "\n") {
			p.lines = append(p.lines, line+n)
			if p.text != "" {
				p.text += "\n"
			}
			p.text += strings.TrimSpace(strings.TrimPrefix(text, "//"))
		}
	}
	r.found = append(r.found, p)
}

func (r *reader) visit(node ast.Node) bool {
	switch n := node.(type) {
	case *ast.ImportSpec:
		return false
	case *ast.BasicLit:
		if n.Kind == token.STRING {
			r.add(n.Pos(), unquoted(n.Value), false)
		}
	case *ast.FuncDecl:
		r.name(n.Name)
	case *ast.TypeSpec:
		r.name(n.Name)
	case *ast.ValueSpec:
		r.name(n.Names...)
	case *ast.Field:
		r.name(n.Names...)
	case *ast.AssignStmt:
		if n.Tok == token.DEFINE {
			for _, left := range n.Lhs {
				if name, ok := left.(*ast.Ident); ok {
					r.name(name)
				}
			}
		}
	}
	return true
}

func (r *reader) name(names ...*ast.Ident) {
	for _, n := range names {
		if len(n.Name) > 2 {
			r.add(n.Pos(), inWords(n.Name), true)
		}
	}
}
