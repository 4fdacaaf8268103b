package rootfs

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/azuredisk-csi/azuredisk/image/debian"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// tree is a tree of one package. A content that begins with -> is a symbolic link.
func tree(t *testing.T, files map[string]string) Tree {
	t.Helper()
	var list []debian.File
	for name, content := range files {
		file := debian.File{
			Path: name,
			Mode: 0o644,
			Data: []byte(content),
		}
		if link, ok := strings.CutPrefix(content, "->"); ok {
			file.Data, file.Link = nil, link
		}
		list = append(list, file)
	}
	out := Tree{}
	must(t, out.Add("package", list))
	return out
}

func TestASelectionHasAllThatItsFilesNeed(t *testing.T) {
	from := map[string]string{
		"bin/dash": "the shell", "bin/sh": "->dash", "sbin/fsck.xfs": "#!/bin/sh -f\n", "sbin/mkfs.ext4": "->mke2fs",
		"sbin/mke2fs":   "a tool",
		"usr/bin/other": "not asked for", "usr/share/doc/libgcc": "->gcc", "usr/share/doc/gcc/copyright": "text",
		"etc/absolute": "->/bin/sh",
		"etc/loop":     "->loop", "etc/dangling": "->nothing", "etc/lost": "#!/usr/bin/perl\n", "etc/empty": "#!\n",
	}
	for name, c := range map[string]struct {
		pattern string
		want    []string
		err     string
	}{
		"a file": {"usr/bin/other", []string{"usr/bin/other"}, ""},
		"a script with its shell": {"usr/*bin/fsck.xfs", []string{"usr/bin/dash", "usr/bin/sh", "usr/sbin/fsck.xfs"},
			""},
		"a link with its target":      {"usr/sbin/mkfs.*", []string{"usr/sbin/mke2fs", "usr/sbin/mkfs.ext4"}, ""},
		"an absolute link":            {"etc/absolute", []string{"etc/absolute", "usr/bin/dash", "usr/bin/sh"}, ""},
		"nothing":                     {"usr/bin/x*", nil, `matches "usr/bin/x*"`},
		"a bad pattern":               {"[", nil, "syntax error"},
		"a link to itself":            {"etc/loop", nil, "symbolic links"},
		"a link to what is not there": {"etc/dangling", nil, "leads to etc/nothing"},
		"a script whose shell is not there": {"etc/lost", nil,
			"etc/lost of package package needs a file that is missing: usr/bin/perl"},
		"a script that names no shell": {"etc/empty", nil, "names no interpreter"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := tree(t, from).Select(Platforms[0], []string{c.pattern})
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Errorf("got the error %v, want one with %q", err, c.err)
				}
				return
			}
			must(t, err)
			if names := slices.Sorted(maps.Keys(got)); !slices.Equal(names, c.want) {
				t.Errorf("got %q, want %q", names, c.want)
			}
		})
	}
	passed, err := tree(t, from).follow("/usr/share/doc/libgcc/copyright")
	must(t, err)
	if want := []string{"usr/share/doc/libgcc", "usr/share/doc/gcc/copyright"}; !slices.Equal(passed, want) {
		t.Errorf("through a folder that is a link: got %q, want %q", passed, want)
	}
}

func TestAFileInTwoPackagesMustBeTheSame(t *testing.T) {
	into := Tree{}
	must(t, into.Add("one", []debian.File{{Path: "bin/a", Data: []byte("x")}}))
	if err := into.Add("two", []debian.File{{Path: "usr/bin/a", Data: []byte("x")}}); err != nil {
		t.Errorf("the same content: got the error %v, want none", err)
	}
	err := into.Add("three", []debian.File{{Path: "usr/bin/a", Data: []byte("y")}})
	if err == nil || !strings.Contains(err.Error(), "usr/bin/a") || !strings.Contains(err.Error(), "three") {
		t.Errorf("other content: got the error %v, want one that names file and package", err)
	}
}

func TestAProgramOfAnotherArchitectureIsRefused(t *testing.T) {
	program, err := os.ReadFile("/proc/self/exe")
	must(t, err)
	fits := 0
	for _, platform := range Platforms {
		switch _, err := Needs(platform, program); {
		case err == nil:
			fits++
		case !strings.Contains(err.Error(), "want "+platform.Machine.String()):
			t.Errorf("got the error %v, want one that names %s", err, platform.Machine)
		}
	}
	if fits != 1 {
		t.Errorf("this program fits %d platforms, want 1", fits)
	}
}

func TestTheSystemHasCertificatesLicencesAndUsers(t *testing.T) {
	from := tree(t, map[string]string{
		"usr/share/ca-certificates/mozilla/B.crt": "b\n\n", "usr/share/ca-certificates/mozilla/A.crt": "a",
		"usr/share/ca-certificates/README": "no",
		"usr/share/doc/package/copyright":  "licence", "usr/share/doc/ca-certificates/copyright": "licence", "bin/tool": "tool",
	})
	got, err := from.Select(Platforms[0], []string{"usr/bin/tool"})
	must(t, err)
	must(t, got.AddSystem(from, map[string][]byte{"package": []byte("Package: package\nVersion: 1\n\n")}))
	for name, want := range map[string]string{
		"etc/ssl/certs/ca-certificates.crt": "a\nb\n",
		"usr/share/doc/package/copyright":   "licence",
		"var/lib/dpkg/status.d/package":     "Package: package\nStatus: install ok installed\nVersion: 1\n",
		"etc/group":                         "root:x:0:\nnonroot:x:65532:\n",
	} {
		if string(got[name].Data) != want {
			t.Errorf("%s: got %q, want %q", name, got[name].Data, want)
		}
	}
	if got["bin"].Link != "usr/bin" {
		t.Errorf("bin: got a link to %q, want usr/bin", got["bin"].Link)
	}
	if err := (Tree{}).AddSystem(Tree{}, nil); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("without certificates: got the error %v, want one that says so", err)
	}
}

func TestATarIsTheSameEachTimeAndBelongsToRoot(t *testing.T) {
	files := map[string]string{"bin/b": "b", "bin/a": "->b", "etc/deep/er/c": "c"}
	var first, second bytes.Buffer
	must(t, tree(t, files).WriteTar(&first, true))
	must(t, tree(t, files).WriteTar(&second, true))
	if !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Error("two tars of the same files differ")
	}
	var names []string
	for r := tar.NewReader(&first); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		must(t, err)
		names = append(names, header.Name)
		if header.Uid != 0 || header.Gid != 0 || !header.ModTime.Equal(epoch) {
			t.Errorf("%s: got owner %d:%d and time %v, want root and the epoch", header.Name, header.Uid, header.Gid,
				header.ModTime)
		}
		if header.Name == "tmp/" && header.Mode != 0o1777 {
			t.Errorf("tmp: got the mode %o, want 1777", header.Mode)
		}
	}
	want := []string{"dev/", "etc/", "etc/deep/", "etc/deep/er/", "etc/deep/er/c", "proc/", "root/", "run/", "sys/", "tmp/",
		"usr/", "usr/bin/", "usr/bin/a", "usr/bin/b"}
	if !slices.Equal(names, want) {
		t.Errorf("got %q, want %q", names, want)
	}
}
