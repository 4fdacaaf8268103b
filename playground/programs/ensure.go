package programs

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/azuredisk-csi/azuredisk/playground/cache"
)

// Builder builds programs into a cache.
type Builder struct {
	// Source is the folder that holds the tool modules (playground/programs).
	Source string
	// Cache is the root of the cache. Programs go to Cache/programs.
	Cache string
	// Kubernetes is the version of Kubernetes whose programs are built.
	Kubernetes Kubernetes
	// Progress receives a line when the programs of a tool module begin to be built, when they are,
	// and every few seconds in between. It may be nil.
	Progress func(format string, args ...any)

	goVersion string
}

// NewBuilder returns a builder for the source tree that this process belongs to, and for that minor
// version of Kubernetes. It fails if there is no such version.
func NewBuilder(root, kubernetes string, progress func(format string, args ...any)) (*Builder, error) {
	version, err := FindKubernetes(kubernetes)
	return &Builder{
		Source:     filepath.Join(root, "playground", "programs"),
		Cache:      CacheDir(),
		Kubernetes: version,
		Progress:   progress,
	}, err
}

// Catalogue lists every program that the builder can build.
func (b *Builder) Catalogue() []Program { return Catalogue(b.Kubernetes) }

// Find returns the named program, or an error that lists the names there are.
func (b *Builder) Find(name string) (Program, error) { return find(b.Catalogue(), name) }

// CacheDir is $AZUREDISK_CACHE, or azuredisk in the user's cache directory.
func CacheDir() string {
	if dir := os.Getenv("AZUREDISK_CACHE"); dir != "" {
		return dir
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "/var/cache/azuredisk"
	}
	return filepath.Join(dir, "azuredisk")
}

// Path returns where the named program is or will be. It does not build.
func (b *Builder) Path(ctx context.Context, name string) (string, error) {
	p, err := b.Find(name)
	if err != nil {
		return "", err
	}
	dir, err := b.dir(ctx, p.Module)
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, p.Name), nil
}

// Ensure builds those of the named programs that the cache does not hold, all of them if none is
// named, and returns the path of each by its name. The programs of a tool module are built
// together, while the sources of the next one are fetched.
func (b *Builder) Ensure(ctx context.Context, names ...string) (map[string]string, error) {
	if len(names) == 0 {
		for _, p := range b.Catalogue() {
			names = append(names, p.Name)
		}
	}
	paths := make(map[string]string, len(names))
	var missing []toolBuild
	for _, name := range names {
		p, err := b.Find(name)
		if err != nil {
			return nil, err
		}
		path, err := b.Path(ctx, name)
		if err != nil {
			return nil, err
		}
		paths[name] = path
		if !isExecutable(path) {
			missing = withProgram(missing, p, filepath.Dir(path))
		}
	}
	if len(missing) > 1 {
		defer b.fetch(ctx, missing[1:])()
	}
	for _, build := range missing {
		if err := b.build(ctx, build); err != nil {
			return nil, fmt.Errorf("build %s: %w", build, err)
		}
	}
	return paths, nil
}

// fetch has Go fetch the sources of what is built later, until the returned function is called.
// Where that fails, the build says why.
func (b *Builder) fetch(ctx context.Context, builds []toolBuild) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	fetched := make(chan struct{})
	go func() {
		defer close(fetched)
		for _, build := range builds {
			_ = b.goTool(ctx, build.module, "list",
				append([]string{"-deps", "-f", "{{/* only to have them */}}"}, build.packages()...)...).Run()
		}
	}()
	return func() {
		cancel()
		<-fetched
	}
}

// toolBuild is what is built of a tool module, into a folder.
type toolBuild struct {
	module   string
	dir      string
	programs []Program
}

func withProgram(builds []toolBuild, p Program, dir string) []toolBuild {
	i := slices.IndexFunc(builds, func(t toolBuild) bool { return t.module == p.Module })
	if i < 0 {
		i, builds = len(builds), append(builds, toolBuild{module: p.Module, dir: dir})
	}
	builds[i].programs = append(builds[i].programs, p)
	return builds
}

func (t toolBuild) packages() []string {
	var packages []string
	for _, p := range t.programs {
		packages = append(packages, p.Package)
	}
	return packages
}

// String lists the programs and their versions.
func (t toolBuild) String() string {
	var list []string
	for _, p := range t.programs {
		list = append(list, p.Name+" "+p.Version)
	}
	return strings.Join(list, ", ")
}

// goTool is a command of Go's in the folder of a tool module.
func (b *Builder) goTool(ctx context.Context, module, command string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", append([]string{command, "-mod=readonly"}, args...)...)
	cmd.Dir = filepath.Join(b.Source, module)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS="+GoFlags, "GOWORK=off")
	return cmd
}

// Sources returns the folder with the sources of a Go module at the version that a tool
// module pins. They are fetched unless Go has them.
func (b *Builder) Sources(ctx context.Context, tools, module string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "mod", "download", "-json", module)
	cmd.Dir = filepath.Join(b.Source, tools)
	cmd.Env = append(os.Environ(), "GOFLAGS=-mod=readonly", "GOWORK=off")
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("find the sources of %s: %w\n%s", module, err, lastLines(string(out), 10))
	}
	var found struct{ Dir string }
	if err := json.Unmarshal(out, &found); err != nil {
		return "", fmt.Errorf("find the sources of %s: %w", module, err)
	}
	return found.Dir, nil
}

// build builds what is missing of a tool module with one call of Go, which compiles what the
// programs share once and links several at a time.
func (b *Builder) build(ctx context.Context, t toolBuild) error {
	if err := os.MkdirAll(t.dir, 0o755); err != nil {
		return err
	}
	unlock, err := b.lock(ctx, t.String())
	if err != nil {
		return err
	}
	defer unlock()
	// Another process may have been faster.
	t.programs = slices.DeleteFunc(t.programs, func(p Program) bool { return isExecutable(filepath.Join(t.dir, p.Name)) })
	if len(t.programs) == 0 {
		return nil
	}
	partial, err := os.MkdirTemp(filepath.Dir(t.dir), "partial-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(partial)
	cmd := b.goTool(ctx, t.module, "build",
		append([]string{"-ldflags", ldflags(t.module), "-o", partial + "/"}, t.packages()...)...)
	var output strings.Builder
	cmd.Stdout, cmd.Stderr = &output, &output
	done := b.report(t)
	err = cmd.Run()
	done(err)
	if err != nil {
		return fmt.Errorf("%w\n%s", err, lastLines(output.String(), 30))
	}
	for _, p := range t.programs {
		if err := os.Rename(filepath.Join(partial, p.builtAs()), filepath.Join(t.dir, p.Name)); err != nil {
			return err
		}
	}
	return nil
}

// report prints the progress of one build until the returned function is called.
func (b *Builder) report(t toolBuild) func(error) {
	if b.Progress == nil {
		return func(error) {}
	}
	start, ticker, stop := time.Now(), time.NewTicker(15*time.Second), make(chan struct{})
	b.Progress("building %s", t)
	go func() {
		for {
			select {
			case <-ticker.C:
				b.Progress("building the %s programs, %.0f s so far", t.module, time.Since(start).Seconds())
			case <-stop:
				return
			}
		}
	}()
	return func(err error) {
		ticker.Stop()
		close(stop)
		if err == nil {
			b.Progress("built    the %s programs in %.0f s", t.module, time.Since(start).Seconds())
		}
	}
}

// lock takes the lock of all builds: two at once would only fight for the same
// processors and compile the same packages twice.
func (b *Builder) lock(ctx context.Context, name string) (func(), error) {
	return cache.Lock(ctx, filepath.Join(b.Cache, "programs", "lock"), func() {
		if b.Progress != nil {
			b.Progress("waiting to build %s: another process is building programs", name)
		}
	})
}

// dir is the folder of the programs of one tool module.
func (b *Builder) dir(ctx context.Context, module string) (string, error) {
	if b.goVersion == "" {
		out, err := exec.CommandContext(ctx, "go", "env", "GOVERSION", "GOOS", "GOARCH").Output()
		if err != nil {
			return "", fmt.Errorf("ask Go for its version (is it installed?): %w", err)
		}
		b.goVersion = strings.Join(strings.Fields(string(out)), " ")
	}
	hash := sha256.New()
	fmt.Fprintln(hash, b.goVersion, ldflags(module))
	files, err := filepath.Glob(filepath.Join(b.Source, module, "*"))
	if err != nil {
		return "", err
	}
	for _, name := range files {
		if err := hashFile(hash, name); err != nil {
			return "", fmt.Errorf("hash the tool module %s: %w", module, err)
		}
	}
	if len(files) == 0 {
		return "", fmt.Errorf("no tool module in %s", filepath.Join(b.Source, module))
	}
	key := hex.EncodeToString(hash.Sum(nil))[:12]
	return filepath.Join(b.Cache, "programs", module+"-"+key, "bin"), nil
}

func hashFile(hash io.Writer, name string) error {
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	defer file.Close()
	fmt.Fprintln(hash, filepath.Base(name))
	_, err = io.Copy(hash, file)
	return err
}

func isExecutable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
