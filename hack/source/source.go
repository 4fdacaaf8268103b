// Package source reads what the programs in hack measure: Go files, and lists of names with reasons.
package source

import (
	"bufio"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strings"
)

// File is a parsed Go file.
type File struct {
	Text   []byte
	Set    *token.FileSet
	Syntax *ast.File
}

// Read parses a Go file.
func Read(path string) (*File, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	set := token.NewFileSet()
	syntax, err := parser.ParseFile(set, path, text, parser.SkipObjectResolution)
	return &File{Text: text, Set: set, Syntax: syntax}, err
}

// FuncName names a function, or a method as in "Reconciler.fence".
func FuncName(f *ast.FuncDecl) string {
	if f.Recv == nil || len(f.Recv.List) == 0 {
		return f.Name.Name
	}
	of := f.Recv.List[0].Type
	if star, ok := of.(*ast.StarExpr); ok {
		of = star.X
	}
	if generic, ok := of.(*ast.IndexExpr); ok {
		of = generic.X
	}
	if ident, ok := of.(*ast.Ident); ok {
		return ident.Name + "." + f.Name.Name
	}
	return f.Name.Name
}

// Reasons reads a list of names, one a line, each with its reason after " # ".
func Reasons(path string) (map[string]string, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	found := map[string]string{}
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		name, reason, ok := strings.Cut(lines.Text(), " # ")
		if lines.Text() == "" {
			continue
		}
		if !ok || reason == "" {
			return nil, fmt.Errorf("%s: %q has no reason, want one after #", path, lines.Text())
		}
		found[name] = reason
	}
	return found, lines.Err()
}
