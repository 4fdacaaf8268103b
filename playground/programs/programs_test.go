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
	dir := filepath.Join(b.Source, "coredns")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"go.mod":  "module github.com/azuredisk-csi/azuredisk/playground/programs/coredns\n\ngo 1.26.0\n",
		"main.go": "package main\n\nfunc main() {}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return b
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

func TestABuildThatFailsSaysWhyAndLeavesNothing(t *testing.T) {
	b := newTestBuilder(t)
	if err := os.WriteFile(filepath.Join(b.Source, "coredns", "main.go"), []byte("package main\n\nfunc main() { nonsense }\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	_, err := b.Ensure(t.Context(), "coredns")
	if err == nil || !strings.Contains(err.Error(), "nonsense") {
		t.Errorf("error %v", err)
	}
	left, _ := filepath.Glob(filepath.Join(b.Cache, "programs", "*", "bin", "*"))
	if len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func TestAnUnknownProgramIsRefusedWithTheNamesThereAre(t *testing.T) {
	_, err := (&Builder{}).Ensure(t.Context(), "kubeproxy")
	if err == nil || !strings.Contains(err.Error(), "kube-proxy") {
		t.Errorf("error %v", err)
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
