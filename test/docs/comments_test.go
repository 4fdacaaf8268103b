package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/azuredisk-csi/azuredisk/internal/testkit/tree"
)

// TestACommentBeginsWithTheNameItDocuments checks the comments of functions, types, constants and
// variables. The comment of a field may begin with any word but the name of something else.
func TestACommentBeginsWithTheNameItDocuments(t *testing.T) {
	set := token.NewFileSet()
	packages := map[string][]*ast.File{}
	for _, file := range goFiles(t) {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(set, filepath.Join(tree.Root(), file), nil,
			parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatalf("parse %s: %v", file, err)
		}
		if !ast.IsGenerated(parsed) {
			folder := filepath.Dir(file)
			packages[folder] = append(packages[folder], parsed)
		}
	}
	comments := 0
	for _, files := range packages {
		declared := declaredNames(files)
		for _, file := range files {
			for _, d := range documented(file) {
				comments++
				if !d.fits(declared) {
					at := set.Position(d.doc.Pos())
					t.Errorf("%s:%d: got a comment that begins with %q, want the name that it documents: %q", at.Filename,
						at.Line,
						d.first(), d.names)
				}
			}
		}
	}
	if comments < 1000 {
		t.Errorf("comments: got %d, want at least 1000", comments)
	}
}

// documentation is a comment, and what it stands on.
type documentation struct {
	doc   *ast.CommentGroup
	names []string
	field bool
	// kind is the name of a field's type; "" if the type has none.
	kind string
}

// first is the first word of the comment.
func (d documentation) first() string {
	word, _, _ := strings.Cut(strings.TrimSpace(d.doc.Text()), " ")
	word, _, _ = strings.Cut(word, "\n")
	word, _, _ = strings.Cut(word, "'")
	return strings.Trim(word, ".,:;()`\"")
}

func (d documentation) fits(declared map[string]bool) bool {
	word := d.first()
	if slices.Contains(d.names, word) || word == "" || word == "Deprecated" {
		return true
	}
	return d.field && !declared[word] && word != d.kind
}

// documented returns the comments of a file's declarations, and of the fields and methods of its
// types.
func documented(file *ast.File) []documentation {
	var found []documentation
	add := func(doc *ast.CommentGroup, field bool, kind string, names ...*ast.Ident) {
		if doc == nil || len(names) == 0 {
			return
		}
		d := documentation{
			doc:   doc,
			field: field,
			kind:  kind,
		}
		for _, name := range names {
			d.names = append(d.names, name.Name)
		}
		found = append(found, d)
	}
	for _, decl := range file.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			add(d.Doc, false, "", d.Name)
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch s := spec.(type) {
				case *ast.TypeSpec:
					add(s.Doc, false, "", s.Name)
					if !d.Lparen.IsValid() {
						add(d.Doc, false, "", s.Name)
					}
				case *ast.ValueSpec:
					add(s.Doc, false, "", s.Names...)
					if !d.Lparen.IsValid() {
						add(d.Doc, false, "", s.Names...)
					}
				}
			}
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if f, ok := n.(*ast.Field); ok {
			add(f.Doc, true, typeName(f.Type), f.Names...)
		}
		return true
	})
	return found
}

func typeName(e ast.Expr) string {
	switch x := e.(type) {
	case *ast.Ident:
		return x.Name
	case *ast.StarExpr:
		return typeName(x.X)
	case *ast.ArrayType:
		return typeName(x.Elt)
	case *ast.SelectorExpr:
		return x.Sel.Name
	}
	return ""
}

// declaredNames are the names of a package's functions, types, constants and variables.
func declaredNames(files []*ast.File) map[string]bool {
	names := map[string]bool{}
	for _, file := range files {
		for _, decl := range file.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				names[d.Name.Name] = true
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					switch s := spec.(type) {
					case *ast.TypeSpec:
						names[s.Name.Name] = true
					case *ast.ValueSpec:
						for _, name := range s.Names {
							names[name.Name] = true
						}
					}
				}
			}
		}
	}
	return names
}

var testName = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)\w+)\(`)

// TestNamesOfTestsAreShort: what a test shows in a sentence belongs into its table or its comment.
func TestNamesOfTestsAreShort(t *testing.T) {
	const most = 60
	names := 0
	for _, file := range goFiles(t) {
		if !strings.HasSuffix(file, "_test.go") {
			continue
		}
		for _, m := range testName.FindAllStringSubmatch(read(t, file), -1) {
			names++
			if len(m[1]) > most {
				t.Errorf("%s: got the name %s of %d characters, want at most %d", file, m[1], len(m[1]), most)
			}
		}
	}
	if names < 1000 {
		t.Errorf("names of tests: got %d, want at least 1000", names)
	}
}
