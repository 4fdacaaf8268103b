// Package tree gives tests the project's own tree and the programs built from it.
package tree

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Root returns the folder of the project: the first one at or above the working directory, which Go
// makes the package's own for a test, that holds the chart. It panics outside of the project.
func Root() string {
	dir, err := os.Getwd()
	if err != nil {
		panic(err)
	}
	for at := dir; ; at = filepath.Dir(at) {
		if _, err := os.Stat(filepath.Join(at, "charts", "azuredisk", "Chart.yaml")); err == nil {
			return at
		}
		if at == filepath.Dir(at) {
			panic("not within the project: " + dir)
		}
	}
}

// Build builds programs of the project, by the names of their folders in cmd, into a folder, in the
// way `make build` does, so that Go's cache has most of it. A test that builds what it runs never
// runs yesterday's driver.
func Build(into string, programs ...string) error {
	arguments := []string{"build", "-trimpath", "-o", into + string(filepath.Separator)}
	for _, p := range programs {
		arguments = append(arguments, "./cmd/"+p)
	}
	build := exec.Command("go", arguments...)
	build.Dir = Root()
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build %v: %w\n%s", programs, err, out)
	}
	return nil
}
