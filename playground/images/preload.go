package images

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/azuredisk-csi/azuredisk/playground/cache"
	"github.com/azuredisk-csi/azuredisk/playground/poll"
)

// Preload returns a folder that is the state of a containerd which has the images,
// unpacked. Install gives a node a copy of it, which takes a moment, where importing
// the images on every node would take most of the time of bringing a playground up.
//
// programs is the folder of containerd and ctr. The folder is cached by what is in it.
func (s *Store) Preload(ctx context.Context, programs, snapshotter string, list []Image) (string, error) {
	hash := sha256.New()
	fmt.Fprintln(hash, layout, programs, snapshotter)
	for _, image := range list {
		fmt.Fprintln(hash, image.Ref, filepath.Base(image.Tar))
	}
	dir := s.path("preloaded-" + hex.EncodeToString(hash.Sum(nil))[:keyLength])
	return dir, s.once(ctx, dir, func() error { return s.preload(ctx, programs, snapshotter, list, dir) })
}

func (s *Store) preload(ctx context.Context, programs, snapshotter string, list []Image, dir string) error {
	start := time.Now()
	s.progress("unpacking %d images for the nodes", len(list))
	partial, err := os.MkdirTemp(filepath.Dir(dir), "preloading-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(partial)
	if err := unpack(ctx, programs, snapshotter, partial, list); err != nil {
		return fmt.Errorf("unpack images: %w", err)
	}
	if err := os.Rename(filepath.Join(partial, "root"), dir); err != nil {
		return err
	}
	s.progress("unpacked them in %.0f s", time.Since(start).Seconds())
	return cache.Prune(s.path("preloaded-*"), 2)
}

// unpack runs a containerd for as long as it takes to import the images. Its state
// goes to dir/root.
func unpack(ctx context.Context, programs, snapshotter, dir string, list []Image) error {
	socket, config, log := filepath.Join(dir, "sock"), filepath.Join(dir, "config.toml"), filepath.Join(dir, "log")
	text := fmt.Sprintf(`version = 3
root = %q
state = %q
disabled_plugins = ["io.containerd.grpc.v1.cri", "io.containerd.cri.v1.images", "io.containerd.cri.v1.runtime"]
[grpc]
  address = %q
`, filepath.Join(dir, "root"), filepath.Join(dir, "state"), socket)
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		return err
	}
	out, err := os.Create(log)
	if err != nil {
		return err
	}
	defer out.Close()
	daemon := exec.Command(filepath.Join(programs, "containerd"), "--config", config)
	daemon.Stdout, daemon.Stderr = out, out
	// It mounts for unpacking in a mount namespace of its own, which ends with it.
	daemon.SysProcAttr = &syscall.SysProcAttr{
		Setpgid:      true,
		Unshareflags: syscall.CLONE_NEWNS,
		Pdeathsig:    syscall.SIGKILL,
	}
	if err := daemon.Start(); err != nil {
		return err
	}
	defer func() {
		_ = daemon.Process.Signal(syscall.SIGTERM)
		_ = daemon.Wait()
	}()
	if err := poll.Socket(ctx, socket, "containerd"); err != nil {
		text, _ := os.ReadFile(log)
		return fmt.Errorf("%w\n%s", err, tail(string(text), 10))
	}
	for _, image := range list {
		cmd := exec.CommandContext(ctx, filepath.Join(programs, "ctr"), "--address", socket, "-n", "k8s.io",
			"images", "import", "--snapshotter", snapshotter, image.Tar)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("import %s: %w: %s", image.Ref, err, out)
		}
	}
	return nil
}

// Install copies a preloaded folder to a node's, which must not exist. Files are
// linked and not copied where that can be: containerd never writes to a file of an
// image again, and a container that does gets a copy from its filesystem. Databases
// are copied.
func Install(preloaded, to string) error {
	return filepath.WalkDir(preloaded, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(preloaded, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, relative)
		switch {
		case entry.IsDir():
			return copyFolder(path, target)
		case entry.Type()&fs.ModeSymlink != 0:
			return copyLink(path, target)
		case !entry.Type().IsRegular():
			return nil // a socket or the like is made again
		case strings.HasSuffix(path, ".db"):
			return copyContent(path, target)
		}
		if err := os.Link(path, target); err != nil && !errors.Is(err, syscall.EXDEV) && !errors.Is(err, syscall.EPERM) {
			return err
		} else if err == nil {
			return nil
		}
		return copyContent(path, target)
	})
}

func copyFolder(from, to string) error {
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(to, 0o700); err != nil {
		return err
	}
	return copyMode(info, to)
}

func copyLink(from, to string) error {
	link, err := os.Readlink(from)
	if err != nil {
		return err
	}
	info, err := os.Lstat(from)
	if err != nil {
		return err
	}
	if err := os.Symlink(link, to); err != nil {
		return err
	}
	owner := info.Sys().(*syscall.Stat_t)
	return os.Lchown(to, int(owner.Uid), int(owner.Gid))
}

func copyContent(from, to string) error {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer source.Close()
	info, err := source.Stat()
	if err != nil {
		return err
	}
	target, err := os.Create(to)
	if err != nil {
		return err
	}
	defer target.Close()
	if _, err := io.Copy(target, source); err != nil {
		return err
	}
	return copyMode(info, to)
}

// copyMode gives a file the owner and then the permissions, in this order, since a
// change of owner clears some.
func copyMode(info fs.FileInfo, to string) error {
	owner := info.Sys().(*syscall.Stat_t)
	if err := os.Chown(to, int(owner.Uid), int(owner.Gid)); err != nil {
		return err
	}
	return syscall.Chmod(to, owner.Mode&0o7777)
}

func tail(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
