package programs

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// newTestBuilder has a tool module that builds in a moment and needs nothing from elsewhere.
func newTestBuilder(t *testing.T) *Builder {
	t.Helper()
	b := &Builder{
		Source:     t.TempDir(),
		Cache:      t.TempDir(),
		Kubernetes: Versions[0],
	}
	write(t, filepath.Join(b.Source, "coredns", "go.mod"),
		"module github.com/azuredisk-csi/azuredisk/playground/programs/coredns\n\ngo 1.26.0\n")
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
	for _, version := range Versions {
		seen := map[string]bool{}
		for _, p := range Catalogue(version) {
			if seen[p.Name] {
				t.Errorf("Kubernetes %s: %s is listed twice", version.Minor, p.Name)
			}
			seen[p.Name] = true
			if _, err := os.Stat(filepath.Join(p.Module, "go.mod")); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestTheModulesPinTheVersionsOfKubernetes(t *testing.T) {
	for _, version := range Versions {
		file := filepath.Join(version.module, "go.mod")
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		staging := strings.Replace(version.Version, "v1.", "v0.", 1)
		for _, line := range []string{"\tk8s.io/kubernetes " + version.Version + " // indirect\n",
			"\tk8s.io/api => k8s.io/api " + staging + "\n"} {
			if !strings.Contains(string(data), line) {
				t.Errorf("%s does not have the line %q", file, line)
			}
		}
		if !strings.HasPrefix(version.Version, "v"+version.Minor+".") {
			t.Errorf("Kubernetes %s is pinned at %s", version.Minor, version.Version)
		}
	}
}

func TestAnUnknownVersionOfKubernetesIsAnError(t *testing.T) {
	for _, minor := range []string{"", "1.33", "v1.37", "1.37.2", "newest"} {
		_, err := FindKubernetes(minor)
		if err == nil || !strings.Contains(err.Error(), strconv.Quote(minor)) ||
			!strings.Contains(err.Error(), "1.34, 1.35, 1.36, 1.37") {
			t.Errorf("FindKubernetes(%q): got %v, want an error that names it and the versions there are", minor, err)
		}
	}
}

// inTree fails the test unless a file of the tree, by its path from the root, has that text.
func inTree(t *testing.T, file, text, why string) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "..", file))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(data), text) {
		t.Errorf("%s does not have %q: %s", file, text, why)
	}
}

func TestOneSetOfFlagsIsUsedEverywhere(t *testing.T) {
	const why = "Go would compile everything once more"
	inTree(t, "Makefile", "export GOFLAGS := "+GoFlags+"\n", why)
	inTree(t, "hack/stages.sh", "GOFLAGS=\""+GoFlags+"\"\n", why)
}

func TestTheSupportedVersionsOfKubernetesAreThoseOfThePlayground(t *testing.T) {
	oldest := Versions[len(Versions)-1].Minor
	inTree(t, "charts/azuredisk/Chart.yaml", "kubeVersion: \">="+oldest+".0-0\"\n", "it is the oldest that is tested")
	inTree(t, "hack/manifests/main.go", "kubeVersion = \""+oldest+".0\"\n", "it is the oldest that the chart installs on")
	for _, version := range Versions {
		inTree(t, "SUPPORT.md", "| "+version.Minor+" | "+strings.TrimPrefix(version.Version, "v")+" |",
			"the table has the tested releases")
	}
}
