package testvm

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/cavaliergopher/cpio"

	"github.com/azuredisk-csi/azuredisk/image/debian"
	"github.com/azuredisk-csi/azuredisk/image/rootfs"
)

func TestTheArchiveHasEachFolderBeforeWhatIsInIt(t *testing.T) {
	tree := rootfs.Tree{"bin": {File: debian.File{Path: "bin", Link: "usr/bin"}}}
	tree.Put("usr/bin/tool", 0o755, "a program")
	tree.Put("usr-file", 0o644, "text")
	var buffer bytes.Buffer
	if err := WriteCPIO(&buffer, tree); err != nil {
		t.Fatal(err)
	}
	var got []string
	reader := cpio.NewReader(&buffer)
	for {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(reader)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, strings.TrimSpace(
			strings.Join([]string{header.FileInfo().Mode().String(), header.Name, header.Linkname, string(content)}, " ")))
	}
	want := []string{"Lrwxrwxrwx bin usr/bin", "drwxr-xr-x usr", "-rw-r--r-- usr-file  text", "drwxr-xr-x usr/bin",
		"-rwxr-xr-x usr/bin/tool  a program"}
	if !slices.Equal(got, want) {
		t.Errorf("the archive has\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestModulesThatAreMissingOrBrokenAreNamed(t *testing.T) {
	all := rootfs.Tree{}
	all.Put("usr/lib/modules/6/kernel/virtio-scsi.ko", 0o644, "not a module")
	for name, want := range map[string]string{"nvme": "no module nvme", "virtio_scsi": "virtio-scsi.ko"} {
		if got, err := withDependencies(all, []string{name}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %q, %v, want an error with %q", name, got, err, want)
		}
	}
}

func TestTheLockFileHasTheKernel(t *testing.T) {
	lock, err := debian.ParseLock(LockText)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(lock.Packages[Architecture],
		func(p debian.Package) bool { return strings.HasPrefix(p.Name, "linux-image-") }) {
		t.Errorf("the lock file has the packages %+v, want a kernel among them", lock.Packages[Architecture])
	}
}
