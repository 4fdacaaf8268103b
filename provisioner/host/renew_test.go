package host_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	utilexec "k8s.io/utils/exec"

	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/host"
	"github.com/azuredisk-csi/azuredisk/provisioner/host/hosttest"
)

// mkfs has filesystems as they come, with checksums that start from the UUID and without.
var copiedFilesystems = map[string]struct {
	fsType string
	args   []string
}{
	"ext4":                               {"ext4", nil},
	"ext4 whose checksums hold the UUID": {"ext4", []string{"-O", "metadata_csum,^metadata_csum_seed"}},
	"ext4 without checksums":             {"ext4", []string{"-O", "^metadata_csum"}},
	"ext3":                               {"ext3", nil},
	"ext2":                               {"ext2", nil},
	"xfs":                                {"xfs", nil},
}

func TestSourceAndCopyAreMountedOnOneNode(t *testing.T) {
	for name, c := range copiedFilesystems {
		t.Run(name, func(t *testing.T) {
			h := host.New(host.Options{})
			source, want := madeBy(t, h, c.fsType, c.args)
			dir := hosttest.MountDir(t)
			mount(t, h, source, filepath.Join(dir, "source"), c.fsType)
			if err := os.WriteFile(filepath.Join(dir, "source", "file"), []byte("data of the source"), 0o600); err != nil {
				t.Fatal(err)
			}
			hosttest.Run(t, "sync", "-f", filepath.Join(dir, "source"))
			// As a snapshot sees it: the journal holds what is not yet in its place.
			duplicate := duplicateOf(t, source)

			fss := h.Filesystems()
			if err := fss.Renew(t.Context(), duplicate.Device, want, otherUUID); err != nil {
				t.Fatal(err)
			}
			renewed := provisioner.Filesystem{Type: c.fsType, UUID: otherUUID}
			assertProbe(t, fss, duplicate, renewed, false)
			assertProbe(t, fss, source, want, false)
			if err := fss.Renew(t.Context(), duplicate.Device, renewed, otherUUID); err != nil {
				t.Errorf("a second Renew: %v", err)
			}
			if err := fss.Check(t.Context(), duplicate.Device, renewed); err != nil {
				t.Errorf("Check: %v", err)
			}
			mount(t, h, duplicate, filepath.Join(dir, "copy"), c.fsType)
			if got, err := os.ReadFile(filepath.Join(dir, "copy", "file")); err != nil || string(got) != "data of the source" {
				t.Errorf("the copy holds %q, %v", got, err)
			}
			for _, target := range []string{"source", "copy"} {
				if err := h.Mounts().Unmount(t.Context(), filepath.Join(dir, target)); err != nil {
					t.Error(err)
				}
			}
			sound(t, duplicate, c.fsType)
		})
	}
}

// duplicateOf copies what is not zero.
func duplicateOf(t *testing.T, source *hosttest.Disk) *hosttest.Disk {
	t.Helper()
	duplicate, zeroes := hosttest.NewDisk(t, diskSize), make([]byte, hosttest.MiB)
	offset := int64(0)
	for chunk := range slices.Chunk(source.Content(t), hosttest.MiB) {
		if !bytes.Equal(chunk, zeroes) {
			duplicate.WriteAt(t, chunk, offset)
		}
		offset += int64(len(chunk))
	}
	return duplicate
}

func madeBy(t *testing.T, h *host.Host, fsType string, args []string) (*hosttest.Disk, provisioner.Filesystem) {
	t.Helper()
	disk, fs := hosttest.NewDisk(t, diskSize), provisioner.Filesystem{Type: fsType, UUID: uuid}
	if len(args) > 0 {
		hosttest.Run(t, "mkfs."+fsType, append(args, "-q", "-U", uuid, disk.Device)...)
	} else if err := h.Filesystems().Make(t.Context(), disk.Device, fs, provisioner.FilesystemOptions{}); err != nil {
		t.Fatal(err)
	}
	return disk, fs
}

// mount mounts without nouuid: xfs refuses a UUID that is mounted already.
func mount(t *testing.T, h *host.Host, disk *hosttest.Disk, target, fsType string) {
	t.Helper()
	if err := h.Mounts().Mount(t.Context(), disk.Device, target, fsType, nil); err != nil {
		t.Fatal(err)
	}
}

// sound has the filesystem's own program look at every block.
func sound(t *testing.T, disk *hosttest.Disk, fsType string) {
	t.Helper()
	if fsType == "xfs" {
		hosttest.Run(t, "xfs_repair", "-n", disk.Device)
		return
	}
	hosttest.Run(t, "e2fsck", "-f", "-n", disk.Device)
}

func TestRenewLeavesWhatItIsNotForAlone(t *testing.T) {
	for _, fsType := range []string{"ext4", "xfs"} {
		for name, prepare := range map[string]func(*testing.T, *host.Host, *hosttest.Disk) (want error){
			"another UUID than expected": func(t *testing.T, h *host.Host, d *hosttest.Disk) error {
				hosttest.Run(t, "wipefs", "-q", "-a", d.Device)
				d.WriteAt(t, make([]byte, hosttest.MiB), 0)
				hosttest.Run(t, "mkfs."+fsType, "-q", d.Device)
				return provisioner.FailedPrecondition
			},
			"nothing at all": func(t *testing.T, _ *host.Host, d *hosttest.Disk) error {
				hosttest.Run(t, "wipefs", "-q", "-a", d.Device)
				return provisioner.FailedPrecondition
			},
			"a filesystem that is mounted": func(t *testing.T, h *host.Host, d *hosttest.Disk) error {
				target := filepath.Join(hosttest.MountDir(t), "mnt")
				// Read-only: a filesystem that may write does so by itself, at any time.
				if err := h.Mounts().Mount(t.Context(), d.Device, target, fsType, []string{"ro"}); err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { hosttest.Run(t, "umount", target) })
				return provisioner.Conflict
			},
		} {
			t.Run(fsType+", "+name, func(t *testing.T) {
				h := host.New(host.Options{})
				disk, fs := madeBy(t, h, fsType, nil)
				want := prepare(t, h, disk)
				before := disk.Content(t)
				if err := h.Filesystems().Renew(t.Context(), disk.Device, fs, otherUUID); !errors.Is(err, want) {
					t.Errorf("Renew = %v, want %v", err, want)
				}
				if !bytes.Equal(before, disk.Content(t)) {
					t.Error("the device was written to")
				}
			})
		}
	}
	err := host.New(host.Options{}).Filesystems().Renew(t.Context(), "/dev/not-there", provisioner.Filesystem{
		Type: "ntfs",
		UUID: uuid,
	}, otherUUID)
	if !errors.Is(err, provisioner.InvalidArgument) {
		t.Errorf("Renew of ntfs: %v, want InvalidArgument", err)
	}
}

// cutting kills the n-th command before it does anything, and all after it, as a kill of the whole
// node does.
type cutting struct {
	utilexec.Interface
	left int
}

func (c *cutting) CommandContext(ctx context.Context, command string, args ...string) utilexec.Cmd {
	if c.left--; c.left < 0 {
		return c.Interface.CommandContext(ctx, "sh", "-c", "kill -9 $$")
	}
	return c.Interface.CommandContext(ctx, command, args...)
}

func TestLaw5ARenewalThatIsCutOffAnywhereIsFinishedByTheNext(t *testing.T) {
	for name, c := range map[string]struct {
		fsType string
		args   []string
	}{"ext4 whose checksums hold the UUID": {"ext4", []string{"-O", "metadata_csum,^metadata_csum_seed"}}, "xfs": {"xfs", nil}} {
		t.Run(name, func(t *testing.T) {
			for n := 0; ; n++ {
				whole := host.New(host.Options{})
				disk, source := madeBy(t, whole, c.fsType, c.args)
				cut := &cutting{Interface: utilexec.New(), left: n}
				err := host.New(host.Options{Exec: cut}).Filesystems().Renew(t.Context(), disk.Device, source, otherUUID)
				found, _, probeErr := whole.Filesystems().Probe(t.Context(), disk.Device)
				if probeErr != nil || found.Type != c.fsType || found.UUID != uuid && found.UUID != otherUUID {
					t.Fatalf("cut at command %d (%v): the device carries %+v, %v", n, err, found, probeErr)
				}
				sound(t, disk, c.fsType)
				if err := whole.Filesystems().Renew(t.Context(), disk.Device, found, otherUUID); err != nil {
					t.Fatalf("cut at command %d: the next: %v", n, err)
				}
				assertProbe(t, whole.Filesystems(), disk, provisioner.Filesystem{Type: c.fsType, UUID: otherUUID}, false)
				sound(t, disk, c.fsType)
				if err == nil {
					if n < 4 {
						t.Errorf("a renewal has only %d commands: the test does not reach it", n)
					}
					return
				}
			}
		})
	}
}
