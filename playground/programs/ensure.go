package programs

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Builder builds programs into a cache.
type Builder struct {
	// Source is the folder that holds the tool modules (playground/programs).
	Source string
	// Cache is the root of the cache. Programs go to Cache/programs.
	Cache string
	// Progress receives one line per program built and a line every few seconds
	// while one is being built. It may be nil.
	Progress func(format string, args ...any)

	goVersion string
}

// NewBuilder returns a builder for the source tree that this process belongs to.
func NewBuilder(root string, progress func(format string, args ...any)) *Builder {
	return &Builder{
		Source:   filepath.Join(root, "playground", "programs"),
		Cache:    CacheDir(),
		Progress: progress,
	}
}

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
	p, err := Find(name)
	if err != nil {
		return "", err
	}
	dir, err := b.dir(ctx, p.Module)
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, p.Name), nil
}

// Ensure builds those of the named programs that the cache does not hold, all of
// them if none is named, and returns the path of each by its name.
func (b *Builder) Ensure(ctx context.Context, names ...string) (map[string]string, error) {
	if len(names) == 0 {
		for _, p := range Catalogue {
			names = append(names, p.Name)
		}
	}
	paths := make(map[string]string, len(names))
	for _, name := range names {
		p, err := Find(name)
		if err != nil {
			return nil, err
		}
		path, err := b.Path(ctx, name)
		if err != nil {
			return nil, err
		}
		paths[name] = path
		if isExecutable(path) {
			continue
		}
		if err := b.build(ctx, p, path); err != nil {
			return nil, fmt.Errorf("build %s %s: %w", p.Name, p.Version, err)
		}
	}
	return paths, nil
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

func (b *Builder) build(ctx context.Context, p Program, path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	unlock, err := b.lock(ctx, p.Name)
	if err != nil {
		return err
	}
	defer unlock()
	if isExecutable(path) { // another process was faster
		return nil
	}
	partial := fmt.Sprintf("%s.partial.%d", path, os.Getpid())
	defer os.Remove(partial)

	cmd := exec.CommandContext(ctx, "go", "build", "-mod=readonly", "-trimpath",
		"-ldflags", ldflags(p.Module), "-o", partial, p.Package)
	cmd.Dir = filepath.Join(b.Source, p.Module)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-buildvcs=false", "GOWORK=off")
	var output strings.Builder
	cmd.Stdout, cmd.Stderr = &output, &output
	done := b.report(p)
	err = cmd.Run()
	done(err)
	if err != nil {
		return fmt.Errorf("%w\n%s", err, lastLines(output.String(), 30))
	}
	return os.Rename(partial, path)
}

// report prints the progress of one build until the returned function is called.
func (b *Builder) report(p Program) func(error) {
	if b.Progress == nil {
		return func(error) {}
	}
	start, ticker, stop := time.Now(), time.NewTicker(15*time.Second), make(chan struct{})
	b.Progress("building %s %s", p.Name, p.Version)
	go func() {
		for {
			select {
			case <-ticker.C:
				b.Progress("building %s %s, %.0f s so far", p.Name, p.Version, time.Since(start).Seconds())
			case <-stop:
				return
			}
		}
	}()
	return func(err error) {
		ticker.Stop()
		close(stop)
		if err == nil {
			b.Progress("built    %s %s in %.0f s", p.Name, p.Version, time.Since(start).Seconds())
		}
	}
}

// lock takes the lock of all builds: two at once would only fight for the same
// processors and compile the same packages twice.
func (b *Builder) lock(ctx context.Context, name string) (func(), error) {
	file, err := os.OpenFile(filepath.Join(b.Cache, "programs", "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	for waited := false; ; waited = true {
		err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { file.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			file.Close()
			return nil, fmt.Errorf("lock %s: %w", file.Name(), err)
		}
		if !waited && b.Progress != nil {
			b.Progress("waiting to build %s: another process is building programs", name)
		}
		select {
		case <-ctx.Done():
			file.Close()
			return nil, ctx.Err()
		case <-time.After(500 * time.Millisecond):
		}
	}
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
