package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/token"
	"slices"
	"strings"

	"github.com/azuredisk-csi/azuredisk/hack/source"
)

// mutant is one change of one file.
type mutant struct {
	// Number is above 0, and belongs to one mutant of its package.
	Number int
	// Package is the import path, File relative to the root of the module.
	Package, File string
	Line          int
	// Func is the function or method, as in "Reconciler.fence".
	Func string
	// Kind is what is done: see the kinds.
	Kind kind
	// Was and Is are the text of the changed code.
	Was, Is string

	begin, end int // of the changed text in the file
}

// kind is a kind of change.
type kind string

// The kinds of changes.
const (
	negated  kind = "negated"      // a condition is the opposite
	oneSide  kind = "one side"     // one side of && or || decides
	boundary kind = "boundary"     // < is <=, and so on
	never    kind = "never taken"  // the body of an if or a case is not run
	dropped  kind = "call dropped" // a call whose results are not used is not made
)

// name identifies a mutant across changes of other lines: it has no line.
func (m mutant) name() string {
	return fmt.Sprintf("%s %s: %s: %s => %s", m.File, m.Func, m.Kind, oneLine(m.Was), oneLine(m.Is))
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// switched returns the text of a file with all its mutants. The one whose number the variable with this
// name has is in force.
func switched(text []byte, mutants []mutant, variable string) []byte {
	mutants = slices.Clone(mutants)
	slices.SortStableFunc(mutants, func(a, b mutant) int {
		return cmp.Or(cmp.Compare(a.begin, b.begin), cmp.Compare(b.end, a.end))
	})
	return switchedIn(text, 0, len(text), mutants, variable)
}

// switchedIn does it with a part of the text. The mutants are sorted by where they begin, the longest
// first.
func switchedIn(text []byte, begin, end int, mutants []mutant, variable string) []byte {
	var out []byte
	for len(mutants) > 0 {
		first := mutants[0]
		same := slices.IndexFunc(mutants, func(m mutant) bool { return m.begin != first.begin || m.end != first.end })
		if same < 0 {
			same = len(mutants)
		}
		inside := slices.IndexFunc(mutants, func(m mutant) bool { return m.begin >= first.end })
		if inside < 0 {
			inside = len(mutants)
		}
		out = append(out, text[begin:first.begin]...)
		within := mutants[same:inside]
		if first.Kind == dropped {
			out = fmt.Appendf(out, "if %s != %d { ", variable, first.Number)
			out = append(append(out, switchedIn(text, first.begin, first.end, within, variable)...), " }"...)
		} else {
			out = append(out, '(')
			for _, m := range mutants[:same] {
				out = fmt.Appendf(out, "%s == %d && (%s) || ", variable, m.Number, m.Is)
			}
			for _, m := range mutants[:same] {
				out = fmt.Appendf(out, "%s != %d && ", variable, m.Number)
			}
			out = append(append(append(out, '('), switchedIn(text, first.begin, first.end, within, variable)...), "))"...)
		}
		begin, mutants = first.end, mutants[inside:]
	}
	return append(out, text[begin:end]...)
}

// enumerate returns the mutants of a file.
func enumerate(pkg, path, file string) ([]mutant, error) {
	read, err := source.Read(path)
	if err != nil {
		return nil, err
	}
	e := enumerator{set: read.Set, source: read.Text, base: mutant{Package: pkg, File: file}, initial: map[ast.Stmt]bool{}}
	for _, d := range read.Syntax.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Body != nil {
			e.base.Func = source.FuncName(f)
			ast.Inspect(f.Body, e.visit)
		}
	}
	return e.found, nil
}

// enumerator collects the mutants of a file.
type enumerator struct {
	set    *token.FileSet
	source []byte
	base   mutant
	found  []mutant
	// initial are the statements before the conditions of if and switch.
	initial map[ast.Stmt]bool
}

func (e *enumerator) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.IfStmt:
		e.initial[n.Init] = true
		e.replace(n.Cond, negated, "!("+e.text(n.Cond)+")")
		e.replace(n.Cond, never, "false && ("+e.text(n.Cond)+")")
	case *ast.SwitchStmt:
		e.initial[n.Init] = true
		if n.Tag == nil {
			e.cases(n)
		}
	case *ast.ReturnStmt:
		for _, result := range n.Results {
			if isCondition(result) {
				e.replace(result, negated, "!("+e.text(result)+")")
			}
		}
	case *ast.BinaryExpr:
		e.binary(n)
	case *ast.ExprStmt:
		if e.initial[n] {
			break // of an if or a switch, where no other statement can stand
		}
		if call, ok := n.X.(*ast.CallExpr); ok && !isPanic(call) {
			e.replace(n, dropped, "")
		}
	}
	return true
}

// cases are the conditions of a switch without a tag.
func (e *enumerator) cases(s *ast.SwitchStmt) {
	for _, clause := range s.Body.List {
		c, ok := clause.(*ast.CaseClause)
		if !ok || len(c.List) != 1 {
			continue
		}
		e.replace(c.List[0], negated, "!("+e.text(c.List[0])+")")
		e.replace(c.List[0], never, "false && ("+e.text(c.List[0])+")")
	}
}

// boundaries are the operators with their neighbours.
var boundaries = map[token.Token]token.Token{token.LSS: token.LEQ, token.LEQ: token.LSS, token.GTR: token.GEQ,
	token.GEQ: token.GTR}

func (e *enumerator) binary(n *ast.BinaryExpr) {
	switch n.Op {
	case token.LAND, token.LOR:
		e.replace(n, oneSide, "("+e.text(n.X)+")")
		e.replace(n, oneSide, "("+e.text(n.Y)+")")
	default:
		if other, ok := boundaries[n.Op]; ok {
			e.replace(n, boundary, e.text(n.X)+" "+other.String()+" "+e.text(n.Y))
		}
	}
}

// isCondition reports whether an expression is certainly a bool.
func isCondition(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.BinaryExpr:
		switch e.Op {
		case token.LAND, token.LOR, token.EQL, token.NEQ, token.LSS, token.LEQ, token.GTR, token.GEQ:
			return true
		}
	case *ast.UnaryExpr:
		return e.Op == token.NOT
	case *ast.ParenExpr:
		return isCondition(e.X)
	}
	return false
}

func isPanic(call *ast.CallExpr) bool {
	f, ok := call.Fun.(*ast.Ident)
	return ok && f.Name == "panic"
}

func (e *enumerator) text(n ast.Node) string {
	return string(e.source[e.set.Position(n.Pos()).Offset:e.set.Position(n.End()).Offset])
}

func (e *enumerator) replace(n ast.Node, as kind, by string) {
	m := e.base
	m.begin, m.end = e.set.Position(n.Pos()).Offset, e.set.Position(n.End()).Offset
	m.Line, m.Kind, m.Is = e.set.Position(n.Pos()).Line, as, by
	m.Was = e.text(n)
	e.found = append(e.found, m)
}
