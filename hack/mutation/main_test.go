package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// module is a module whose tests make three of five statements, one of them in another package.
var module = map[string]string{
	"go.mod": "module example.org/azuredisk\n\ngo 1.26\n",
	"internal/a/a.go": `package a

func Positive(n int) bool { return n > 0 }

func Both(x, y bool) string {
	if x && y {
		return "both"
	}
	return ""
}

func Limit(n int) int {
	if n < 10 {
		return n
	}
	return 10
}
`,
	"internal/a/a_test.go": `package a

import "testing"

func TestPositive(t *testing.T) {
	if !Positive(1) || Positive(0) {
		t.Error("wrong")
	}
}
`,
	"internal/b/b.go": `package b

import "example.org/azuredisk/internal/a"

func Name() string { return a.Both(true, true) }
`,
	"internal/b/b_test.go": `package b

import "testing"

func TestName(t *testing.T) {
	if Name() != "both" {
		t.Error("wrong")
	}
}
`,
	"equivalent.txt": "internal/a/a.go Limit: boundary: n < 10 => n <= 10 # 10 is returned in both cases\n",
}

func TestTheResultsOfAModule(t *testing.T) {
	t.Setenv("GOFLAGS", "-buildvcs=false")
	root := t.TempDir()
	for name, text := range module {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r, err := measure(t.Context(), options{root: root, patterns: []string{"./internal/a"}, seed: 1, workers: 2,
		equivalent: "equivalent.txt"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range r.tried {
		_, name, _ := strings.Cut(m.name(), ": ")
		got = append(got, string(m.result)+": "+name)
	}
	slices.Sort(got)
	want := []string{
		"importers' tests: negated: x && y => !(x && y)",
		"importers' tests: never taken: x && y => false && (x && y)",
		"own tests: boundary: n > 0 => n >= 0",
		"own tests: negated: n > 0 => !(n > 0)",
		"survived: boundary: n < 10 => n <= 10",
		"survived: negated: n < 10 => !(n < 10)",
		"survived: never taken: n < 10 => false && (n < 10)",
		"survived: one side: x && y => (x)",
		"survived: one side: x && y => (y)",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	var text bytes.Buffer
	r.print(&text)
	if row := "| **all** | 8 | 25.0 % | 50.0 % | 4 | 1 |"; !strings.Contains(text.String(), row) {
		t.Errorf("got:\n%s\nwant a row %q", text.String(), row)
	}
}

func TestAnEquivalentMutantNeedsAReason(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "list")
	if err := os.WriteFile(path, []byte("a.go F: negated: x => !(x)\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readEquivalent(path); err == nil || !strings.Contains(err.Error(), "has no reason") {
		t.Errorf("got error %v, want one about the reason", err)
	}
}
