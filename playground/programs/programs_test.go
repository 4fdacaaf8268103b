package programs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// newTestBuilder has a tool module that builds in a moment and needs nothing from elsewhere.
func newTestBuilder(t *testing.T) *Builder {
	t.Helper()
	b := &Builder{Source: t.TempDir(), Cache: t.TempDir()}
	write(t, filepath.Join(b.Source, "coredns", "go.mod"), "module github.com/azuredisk-csi/azuredisk/playground/programs/coredns\n\ngo 1.26.0\n")
	write(t, filepath.Join(b.Source, "coredns", "main.go"), program)
	return b
}

// program is one that does nothing.
const program = "package main\n\nfunc main() {}\n"

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestAProgramIsBuiltOnceAndAgainWhenItsModuleChanges(t *testing.T) {
	b := newTestBuilder(t)
	first, err := b.Ensure(t.Context(), "coredns")
	if err != nil {
		t.Fatal(err)
	}
	before, err := os.Stat(first["coredns"])
	if err != nil {
		t.Fatal(err)
	}
	second, err := b.Ensure(t.Context(), "coredns")
	if err != nil {
		t.Fatal(err)
	}
	after, err := os.Stat(second["coredns"])
	if err != nil {
		t.Fatal(err)
	}
	if !os.SameFile(before, after) || !before.ModTime().Equal(after.ModTime()) {
		t.Error("the program was built twice")
	}
	main := filepath.Join(b.Source, "coredns", "main.go")
	if err := os.WriteFile(main, []byte("package main\n\nfunc main() { println() }\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	third, err := b.Ensure(t.Context(), "coredns")
	if err != nil {
		t.Fatal(err)
	}
	if third["coredns"] == first["coredns"] {
		t.Error("a changed module gives the same path")
	}
}

func TestNamesAreUniqueAndEveryModuleIsThere(t *testing.T) {
	seen := map[string]bool{}
	for _, p := range Catalogue {
		if seen[p.Name] {
			t.Errorf("%s is listed twice", p.Name)
		}
		seen[p.Name] = true
		if _, err := os.Stat(filepath.Join(p.Module, "go.mod")); err != nil {
			t.Error(err)
		}
	}
}

func TestOneSetOfFlagsIsUsedEverywhere(t *testing.T) {
	for file, line := range map[string]string{
		"Makefile":       "export GOFLAGS := " + GoFlags + "\n",
		"hack/stages.sh": "GOFLAGS=\"" + GoFlags + "\"\n",
	} {
		data, err := os.ReadFile(filepath.Join("..", "..", file))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(data), line) {
			t.Errorf("%s does not hold %q: Go would compile everything once more", file, line)
		}
	}
}
