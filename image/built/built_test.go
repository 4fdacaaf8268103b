package built

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestModulesOfTheRepositoryAreNotAmongThem builds a program, because the program of a test does not
// record its modules.
func TestModulesOfTheRepositoryAreNotAmongThem(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{
		"go.mod": "module example.com/program\ngo 1.26.0\nrequire example.com/part v0.0.0\nrequire golang.org/x/sync v0.24.0\n" +
			"replace example.com/part => ./part\n",
		"main.go": "package main\nimport (\n\t_ \"example.com/part\"\n\t_ \"golang.org/x/sync/errgroup\"\n)\n" +
			"func main() {}\n",
		"part/go.mod":  "module example.com/part\ngo 1.26.0\n",
		"part/part.go": "package part\n",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	build := exec.Command("go", "build", "-mod=mod", "-o", "program", ".")
	build.Dir = dir
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	program, err := os.ReadFile(filepath.Join(dir, "program"))
	if err != nil {
		t.Fatal(err)
	}
	goVersion, modules, err := Modules(program)
	if err != nil || !strings.HasPrefix(goVersion, "go1.") || len(modules) != 1 || modules[0].Path != "golang.org/x/sync" {
		t.Errorf("got %s, %v, %v; want golang.org/x/sync", goVersion, modules, err)
	}
	if _, _, err := Modules([]byte("#!/bin/sh\n")); err == nil || !strings.Contains(err.Error(), "modules of the program") {
		t.Errorf("no Go program: got the error %v, want one about its modules", err)
	}
}
