package images

import (
	"archive/tar"
	"bufio"
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
	"runtime"
	"strings"
	"time"
)

// debianPackages are what the node plug-in needs besides a minimal system.
var debianPackages = []string{"e2fsprogs", "xfsprogs", "util-linux", "mount"}

// notNeeded are folders of a Debian that no container reads.
var notNeeded = []string{
	"var/cache", "var/lib/apt/lists", "var/log", "usr/share/doc", "usr/share/man", "usr/share/locale",
	"usr/share/info", "usr/share/i18n", "usr/share/lintian", "usr/share/bug", "usr/lib/locale", "usr/share/zoneinfo",
	"usr/share/perl5", "usr/share/common-licenses", "usr/share/pixmaps", "usr/share/menu", "boot", "dev", "proc", "sys", "run", "tmp",
}

func goarch() string { return runtime.GOARCH }

// debian returns a tar of the root filesystem of a small Debian of the host's own
// release. It is made once, by debootstrap.
func (s *Store) debian(ctx context.Context) (string, error) {
	suite, err := hostSuite()
	if err != nil {
		return "", err
	}
	hash := sha256.New()
	fmt.Fprintln(hash, "1", suite, debianPackages, notNeeded, goarch())
	path := s.path("debian-" + hex.EncodeToString(hash.Sum(nil))[:12] + ".rootfs.tar")
	return path, s.once(ctx, path, func() error { return s.bootstrap(ctx, suite, path) })
}

func (s *Store) bootstrap(ctx context.Context, suite, path string) error {
	dir, err := os.MkdirTemp(filepath.Dir(path), "debian-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	start := time.Now()
	s.progress("making a small %s with debootstrap (about a minute, once)", suite)
	cmd := exec.CommandContext(ctx, "debootstrap", "--variant=minbase", "--include="+strings.Join(debianPackages, ","), suite, dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("debootstrap %s (is it installed? run hack/install-packages.sh): %w\n%s", suite, err, tail(string(out), 10))
	}
	if err := writeTree(path, dir); err != nil {
		return fmt.Errorf("pack the root filesystem: %w", err)
	}
	s.progress("made a small %s in %.0f s", suite, time.Since(start).Seconds())
	return nil
}

// hostSuite is the code name of the host's release, which debootstrap takes.
func hostSuite() (string, error) {
	file, err := os.Open("/etc/os-release")
	if err != nil {
		return "", err
	}
	defer file.Close()
	scanner := bufio.NewScanner(file)
	for scanner.Scan() {
		if name, ok := strings.CutPrefix(scanner.Text(), "VERSION_CODENAME="); ok {
			return strings.Trim(name, `"`), nil
		}
	}
	return "", errors.New("/etc/os-release names no VERSION_CODENAME: images are made from Debian or Ubuntu packages, on Debian or Ubuntu")
}

// writeTree packs the folder, in order of names and without times.
func writeTree(path, dir string) error {
	partial := fmt.Sprintf("%s.partial.%d", path, os.Getpid())
	defer os.Remove(partial)
	file, err := os.Create(partial)
	if err != nil {
		return err
	}
	defer file.Close()
	w := tar.NewWriter(file)
	err = filepath.WalkDir(dir, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(dir, name)
		if err != nil || relative == "." {
			return err
		}
		if err := writeEntry(w, name, relative, entry); err != nil {
			return err
		}
		for _, skip := range notNeeded {
			if relative == skip && entry.IsDir() {
				return fs.SkipDir
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	if err := file.Close(); err != nil {
		return err
	}
	return os.Rename(partial, path)
}

func writeEntry(w *tar.Writer, name, relative string, entry fs.DirEntry) error {
	info, err := entry.Info()
	if err != nil {
		return err
	}
	link := ""
	switch {
	case info.Mode()&os.ModeSymlink != 0:
		if link, err = os.Readlink(name); err != nil {
			return err
		}
	case !info.IsDir() && !info.Mode().IsRegular():
		return nil // devices, sockets and pipes come from the runtime
	}
	header, err := tar.FileInfoHeader(info, link)
	if err != nil {
		return err
	}
	header.Name, header.ModTime, header.Format = relative, epoch, tar.FormatPAX
	header.AccessTime, header.ChangeTime = time.Time{}, time.Time{}
	header.Uname, header.Gname = "", ""
	if info.IsDir() {
		header.Name += "/"
	}
	if err := w.WriteHeader(header); err != nil || !info.Mode().IsRegular() {
		return err
	}
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = io.Copy(w, file)
	return err
}

func tail(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
