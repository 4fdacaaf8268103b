package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"
)

// result is what the tests say of a mutant.
type result string

// The results.
const (
	// killedByOwn: a test of the mutant's own package fails, or does not end, within ownTime.
	killedByOwn result = "own tests"
	// killedByImporter: a test of a package that imports it does, or of its own if they take longer.
	killedByImporter result = "importers' tests"
	survived         result = "survived"
	// notViable: it does not compile, or the compiled code is the same.
	notViable result = "not viable"
)

// ownTime is how long the tests of a mutant's own package may take, without compilation.
const ownTime = 10 * time.Second

// importersTime is how long those of another package may.
const importersTime = 2 * time.Minute

// lab compiles and runs tests of one module.
type lab struct {
	root string
	// importers of each package: those whose tests are run for a mutant that its own tests miss.
	importers map[string][]string
	dirs      map[string]string // of packages
	// slow are the packages whose own tests take longer than ownTime.
	slow map[string]bool
}

type outcome int

const (
	passed outcome = iota
	failed
	late
	broken
)

// try runs the tests that may notice a mutant.
func (l *lab) try(ctx context.Context, m mutant) (result, error) {
	dir, err := os.MkdirTemp("", "mutant")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	overlay, err := l.overlay(dir, m)
	if err != nil {
		return "", err
	}
	ended, err := l.test(ctx, dir, overlay, m.Package, ownTime)
	switch {
	case err != nil:
		return "", err
	case ended == broken:
		return notViable, nil
	case ended == failed || ended == late && !l.slow[m.Package]:
		return killedByOwn, nil
	}
	if ended == late {
		if ended, err = l.test(ctx, dir, overlay, m.Package, importersTime); err != nil {
			return "", err
		} else if ended != passed {
			return killedByImporter, nil
		}
	}
	for _, importer := range l.importers[m.Package] {
		ended, err := l.test(ctx, dir, overlay, importer, importersTime)
		if err != nil {
			return "", err
		}
		if ended == failed || ended == late {
			return killedByImporter, nil
		}
	}
	return survived, nil
}

// overlay writes the changed file, and the file by which the compiler finds it.
func (l *lab) overlay(dir string, m mutant) (string, error) {
	path := filepath.Join(l.root, m.File)
	source, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	changed := filepath.Join(dir, "mutant.go")
	if err := os.WriteFile(changed, m.apply(source), 0o600); err != nil {
		return "", err
	}
	text, err := json.Marshal(map[string]any{"Replace": map[string]string{path: changed}})
	if err != nil {
		return "", err
	}
	overlay := filepath.Join(dir, "overlay.json")
	return overlay, os.WriteFile(overlay, text, 0o600)
}

// test compiles the tests of a package with an overlay, and runs them.
func (l *lab) test(ctx context.Context, dir, overlay, pkg string, within time.Duration) (outcome, error) {
	binary := filepath.Join(dir, "tests")
	args := []string{"test", "-vet=off", "-c", "-o", binary}
	if overlay != "" {
		args = append(args, "-overlay", overlay)
	}
	compile := exec.CommandContext(ctx, "go", append(args, pkg)...)
	compile.Dir = l.root
	if text, err := compile.CombinedOutput(); err != nil {
		if ctx.Err() != nil {
			return broken, ctx.Err()
		}
		if overlay == "" {
			return broken, fmt.Errorf("compile the tests of %s: %w\n%s", pkg, err, text)
		}
		return broken, nil
	}
	if _, err := os.Stat(binary); err != nil { // a package without tests
		return passed, nil
	}
	defer os.Remove(binary)
	return l.run(ctx, binary, l.dirs[pkg], within)
}

func (l *lab) run(ctx context.Context, binary, dir string, within time.Duration) (outcome, error) {
	limited, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	run := exec.CommandContext(limited, binary, "-test.failfast", "-test.timeout", within.String())
	run.Dir = dir
	run.WaitDelay = time.Second
	var text bytes.Buffer
	run.Stdout, run.Stderr = &text, &text
	err := run.Run()
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return broken, ctx.Err()
	case limited.Err() != nil:
		return late, nil
	case err == nil:
		return passed, nil
	case errors.As(err, &exit):
		return failed, nil
	}
	return broken, fmt.Errorf("run the tests in %s: %w", dir, err)
}

// list asks go list about packages.
func list(root string, patterns ...string) ([]listed, error) {
	command := exec.Command("go", append([]string{"list", "-json=ImportPath,Dir,GoFiles,Imports,TestImports,XTestImports,TestGoFiles,XTestGoFiles"},
		patterns...)...)
	command.Dir, command.Stderr = root, os.Stderr
	text, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("go list %s: %w", strconv.Quote(fmt.Sprint(patterns)), err)
	}
	var all []listed
	for decoder := json.NewDecoder(bytes.NewReader(text)); decoder.More(); {
		var p listed
		if err := decoder.Decode(&p); err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}

// listed is what go list says of a package.
type listed struct {
	ImportPath, Dir                             string
	GoFiles, Imports, TestImports, XTestImports []string
	TestGoFiles, XTestGoFiles                   []string
}

func (p listed) hasTests() bool { return len(p.TestGoFiles)+len(p.XTestGoFiles) > 0 }
