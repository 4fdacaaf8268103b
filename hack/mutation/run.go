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
	"sync"
	"time"

	"github.com/azuredisk-csi/azuredisk/hack/source"
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
)

// ownTime is how long the tests of a mutant's own package may take, without compilation.
const ownTime = 10 * time.Second

// stuckTime is how long tests may take that are known to end within ownTime without a mutant.
const stuckTime = time.Minute

// importersTime is how long those of another package may.
const importersTime = 2 * time.Minute

// lab knows the packages of one module.
type lab struct {
	root string
	// importers of each package: those whose tests are run for a mutant that its own tests miss.
	importers map[string][]string
	dirs      map[string]string // of packages
	// random are the packages with tests by rapid.
	random map[string]bool
}

// bench has the tests of one package and of those that import it, compiled with all its mutants.
type bench struct {
	*lab
	pkg, dir, overlay string
	// slow is true if the package's own tests take longer than ownTime.
	slow bool

	mu       sync.Mutex
	compiled map[string]func() (string, error) // the tests by package: the path of the program
}

type outcome int

const (
	passed outcome = iota
	failed
	late
)

// prepare compiles the tests of a package. It is an error if they fail without a mutant: every mutant
// would count as killed.
func (l *lab) prepare(ctx context.Context, pkg string, mutants []mutant) (*bench, error) {
	dir, err := os.MkdirTemp("", "mutant")
	if err != nil {
		return nil, err
	}
	b := &bench{lab: l, pkg: pkg, dir: dir, compiled: map[string]func() (string, error){}}
	if b.overlay, err = l.writeOverlay(dir, pkg, mutants); err != nil {
		return nil, err
	}
	ended, err := b.test(ctx, pkg, 0, ownTime)
	if err == nil && ended == late {
		b.slow = true
		ended, err = b.test(ctx, pkg, 0, importersTime)
	}
	if err == nil && ended != passed {
		err = fmt.Errorf("the tests of %s fail, or take more than %s", pkg, importersTime)
	}
	return b, err
}

// try runs the tests that may notice a mutant.
func (b *bench) try(ctx context.Context, m mutant) (result, error) {
	ended, err := b.test(ctx, b.pkg, m.Number, ownTime)
	if err == nil && ended == late && !b.slow {
		// The machine may be busy: only tests that do not end have noticed it.
		if ended, err = b.test(ctx, b.pkg, m.Number, stuckTime); ended == late {
			ended = failed
		}
	}
	switch {
	case err != nil:
		return "", err
	case ended == failed:
		return killedByOwn, nil
	}
	others := b.importers[b.pkg]
	if ended == late {
		others = append([]string{b.pkg}, others...)
	}
	for _, other := range others {
		ended, err := b.test(ctx, other, m.Number, importersTime)
		if err != nil {
			return "", err
		}
		if ended != passed {
			return killedByImporter, nil
		}
	}
	return survived, nil
}

// The variables that say which mutant is in force: of the environment, and in the package.
const (
	numberInEnvironment = "MUTANT"
	numberInPackage     = "mutantInForce"
)

// number is the file that a package with mutants has more.
const number = `package %s

import (
	"os"
	"strconv"
)

var ` + numberInPackage + ` = func() int {
	n, _ := strconv.Atoi(os.Getenv("` + numberInEnvironment + `"))
	return n
}()
`

// writeOverlay writes the files with the mutants of a package, and the file by which the compiler finds
// them.
func (l *lab) writeOverlay(dir, pkg string, mutants []mutant) (string, error) {
	ofFile := map[string][]mutant{}
	for _, m := range mutants {
		if m.Package == pkg {
			ofFile[m.File] = append(ofFile[m.File], m)
		}
	}
	replaced := map[string]string{}
	write := func(path string, text []byte) error {
		replaced[path] = filepath.Join(dir, filepath.Base(path))
		return os.WriteFile(replaced[path], text, 0o600)
	}
	var name string
	for file, of := range ofFile {
		path := filepath.Join(l.root, file)
		read, err := source.Read(path)
		if err != nil {
			return "", err
		}
		name = read.Syntax.Name.Name
		if err := write(path, switched(read.Text, of, numberInPackage)); err != nil {
			return "", err
		}
	}
	if err := write(filepath.Join(l.dirs[pkg], "mutant_in_force.go"), fmt.Appendf(nil, number, name)); err != nil {
		return "", err
	}
	text, err := json.Marshal(map[string]any{"Replace": replaced})
	if err != nil {
		return "", err
	}
	overlay := filepath.Join(dir, "overlay.json")
	return overlay, os.WriteFile(overlay, text, 0o600)
}

// test runs the tests of a package, of its own or of another, with the mutant with this number in force.
func (b *bench) test(ctx context.Context, pkg string, number int, within time.Duration) (outcome, error) {
	b.mu.Lock()
	if b.compiled[pkg] == nil {
		program := filepath.Join(b.dir, strconv.Itoa(len(b.compiled))+".test")
		b.compiled[pkg] = sync.OnceValues(func() (string, error) { return b.compile(ctx, pkg, program) })
	}
	compiled := b.compiled[pkg]
	b.mu.Unlock()
	program, err := compiled()
	if err != nil || program == "" {
		return passed, err
	}
	var args []string
	if b.random[pkg] {
		// A failure that is kept is repeated with the next mutant: it would notice what chance does not.
		args = []string{"-rapid.nofailfile"}
	}
	return run(ctx, program, b.dirs[pkg], number, within, args...)
}

// compile returns the path of a package's tests, and none if it has none.
func (b *bench) compile(ctx context.Context, pkg, program string) (string, error) {
	compile := exec.CommandContext(ctx, "go", "test", "-vet=off", "-c", "-o", program, "-overlay", b.overlay, pkg)
	compile.Dir = b.root
	if text, err := compile.CombinedOutput(); err != nil {
		return "", fmt.Errorf("compile the tests of %s with the mutants of %s: %w\n%s", pkg, b.pkg, err, text)
	}
	if _, err := os.Stat(program); err != nil {
		return "", nil //nolint:nilerr // a package without tests
	}
	return program, nil
}

func run(ctx context.Context, program, dir string, number int, within time.Duration, args ...string) (outcome, error) {
	limited, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	run := exec.CommandContext(limited, program, append(args, "-test.failfast", "-test.timeout", within.String())...)
	run.Dir, run.Env = dir, append(os.Environ(), numberInEnvironment+"="+strconv.Itoa(number))
	run.WaitDelay = time.Second
	var text bytes.Buffer
	run.Stdout, run.Stderr = &text, &text
	err := run.Run()
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return failed, ctx.Err()
	case limited.Err() != nil:
		return late, nil
	case err == nil:
		return passed, nil
	case errors.As(err, &exit):
		return failed, nil
	}
	return failed, fmt.Errorf("run the tests in %s: %w", dir, err)
}

// list asks go list about packages.
func list(root string, patterns ...string) ([]listed, error) {
	command := exec.Command("go", append([]string{"list",
		"-json=ImportPath,Dir,GoFiles,Imports,TestImports,XTestImports,TestGoFiles,XTestGoFiles"},
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
