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

// addTools makes a tool module that pins a Go module, with programs that do nothing in folders of that.
func addTools(t *testing.T, b *Builder, tools, module, version string, folders ...string) {
	t.Helper()
	sources := t.TempDir()
	write(t, filepath.Join(sources, "go.mod"), "module "+module+"\n\ngo 1.26.0\n")
	for _, folder := range folders {
		write(t, filepath.Join(sources, folder, "main.go"), program)
	}
	write(t, filepath.Join(b.Source, tools, "go.mod"),
		"module tools\n\ngo 1.26.0\n\nrequire "+module+" "+version+"\n\nreplace "+module+" => "+sources+"\n")
}

func TestProgramsOfSeveralModulesHaveTheirOwnNames(t *testing.T) {
	b := newTestBuilder(t)
	addTools(t, b, "etcd", "go.etcd.io/etcd/server/v3", "v3.7.3", ".")
	addTools(t, b, "containerd", "github.com/containernetworking/plugins", "v1.9.1", "plugins/main/ptp", "plugins/ipam/host-local")
	names := []string{"ptp", "etcd", "coredns", "host-local"}
	built, err := b.Ensure(t.Context(), names...)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if path := built[name]; filepath.Base(path) != name || !isExecutable(path) {
			t.Errorf("%s: got %s, want the path of a program", name, path)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(b.Cache, "programs", "*", "partial-*")); len(left) > 0 {
		t.Errorf("got %v left, want nothing", left)
	}
	before, err := os.Stat(built["ptp"])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(built["host-local"]); err != nil {
		t.Fatal(err)
	}
	if _, err = b.Ensure(t.Context(), names...); err != nil {
		t.Fatal(err)
	}
	after, err := os.Stat(built["ptp"])
	if err != nil || !os.SameFile(before, after) || !isExecutable(built["host-local"]) {
		t.Errorf("only what is missing is to be built: %v", err)
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

func TestABuildThatFailsSaysWhyAndLeavesNothing(t *testing.T) {
	b := newTestBuilder(t)
	if err := os.WriteFile(filepath.Join(b.Source, "coredns", "main.go"), []byte("package main\n\nfunc main() { nonsense }\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	_, err := b.Ensure(t.Context(), "coredns")
	if err == nil || !strings.Contains(err.Error(), "nonsense") {
		t.Errorf("got the error %v, want one that names the cause", err)
	}
	left, _ := filepath.Glob(filepath.Join(b.Cache, "programs", "*", "bin", "*"))
	partial, _ := filepath.Glob(filepath.Join(b.Cache, "programs", "*", "partial-*"))
	left = append(left, partial...)
	if len(left) > 0 {
		t.Errorf("got %v left, want nothing", left)
	}
}

func TestAnUnknownProgramIsRefusedWithTheNamesThereAre(t *testing.T) {
	_, err := (&Builder{}).Ensure(t.Context(), "kubeproxy")
	if err == nil || !strings.Contains(err.Error(), "kube-proxy") {
		t.Errorf("got the error %v, want one that names the cause", err)
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
