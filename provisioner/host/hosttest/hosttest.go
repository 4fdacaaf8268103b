// Package hosttest gives tests real block devices and watches that nothing of
// them is left over. It needs root and loop devices, and fails the test with a
// sentence that says so where it has not.
package hosttest

import (
	"encoding/binary"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	mountutils "k8s.io/mount-utils"

	"golang.org/x/sys/unix"
)

// MiB in bytes.
const MiB = 1 << 20

const (
	clearTimeout = 10 * time.Second
	lookEvery    = 20 * time.Millisecond
)

// Disk is a file with a loop device over it.
type Disk struct {
	// Device as in "/dev/loop3".
	Device string
	file   string
}

// NewDisk returns a blank disk that is removed at the end of the test. The test fails if the disk
// is still mounted then.
func NewDisk(t *testing.T, sizeBytes int64) *Disk {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("this test mounts filesystems on loop devices and must run as root")
	}
	file := filepath.Join(t.TempDir(), "disk.img")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(file, sizeBytes); err != nil {
		t.Fatal(err)
	}
	disk := &Disk{file: file, Device: strings.TrimSpace(Run(t, "losetup", "--show", "-f", file))}
	// The kernel keeps a write protection with the device's number, whatever file comes under it.
	Run(t, "blockdev", "--setrw", disk.Device)
	t.Cleanup(func() {
		for _, mount := range mountsOf(t, disk.Device) {
			t.Errorf("%s is still mounted at %s", disk.Device, mount)
			_ = exec.Command("umount", mount).Run()
		}
		Run(t, "losetup", "-d", disk.Device)
		awaitCleared(t, file)
	})
	return disk
}

// SetSectorSize changes the size of the logical sectors of a disk.
func (d *Disk) SetSectorSize(t *testing.T, bytes int) {
	t.Helper()
	Run(t, "losetup", "--sector-size", strconv.Itoa(bytes), d.Device)
}

// awaitCleared waits until the loop device over file is removed. The kernel removes it when its
// last user closes it, and a read whose caller has given up may still be running.
func awaitCleared(t *testing.T, file string) {
	t.Helper()
	deadline := time.Now().Add(clearTimeout)
	for {
		out := Run(t, "losetup", "-j", file)
		if out == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Errorf("the loop device is left over: %s", out)
			return
		}
		time.Sleep(lookEvery)
	}
}

// Grow makes the disk larger, as the platform does; the device shows it.
func (d *Disk) Grow(t *testing.T, sizeBytes int64) {
	t.Helper()
	if err := os.Truncate(d.file, sizeBytes); err != nil {
		t.Fatal(err)
	}
	Run(t, "losetup", "-c", d.Device)
}

// WriteAt writes to the disk behind the back of the kernel's cache of the
// device, as another node does that has the same disk.
func (d *Disk) WriteAt(t *testing.T, data []byte, offset int64) {
	t.Helper()
	file, err := os.OpenFile(d.file, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.WriteAt(data, offset); err != nil {
		t.Fatal(err)
	}
}

// Content returns the disk's content, past the kernel's cache of the device.
func (d *Disk) Content(t *testing.T) []byte {
	t.Helper()
	var content []byte
	d.read(t, func(size int64) { content = make([]byte, size) }, func(data []byte, offset int64) { copy(content[offset:], data) })
	return content
}

// CopyTo writes the disk's content to a blank disk, as WriteAt does.
func (d *Disk) CopyTo(t *testing.T, other *Disk) {
	t.Helper()
	d.read(t, func(int64) {}, func(data []byte, offset int64) { other.WriteAt(t, data, offset) })
}

// read reads the parts of the file that are not holes: most of a disk is.
func (d *Disk) read(t *testing.T, begin func(size int64), part func(data []byte, offset int64)) {
	t.Helper()
	file, err := os.Open(d.file)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	size, err := file.Seek(0, io.SeekEnd)
	if err != nil {
		t.Fatal(err)
	}
	begin(size)
	for offset := int64(0); ; {
		from, err := file.Seek(offset, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return // the rest is a hole
		}
		if err != nil {
			t.Fatal(err)
		}
		if offset, err = file.Seek(from, unix.SEEK_HOLE); err != nil {
			t.Fatal(err)
		}
		data := make([]byte, offset-from)
		if _, err := file.ReadAt(data, from); err != nil {
			t.Fatal(err)
		}
		part(data, from)
	}
}

// Partition writes a partition table with Linux partitions of the sizes, which are whole MiB, one
// after the other from the first MiB on, and has the kernel show them. At most four.
func (d *Disk) Partition(t *testing.T, sizes ...int64) {
	t.Helper()
	const sector = 512
	table := make([]byte, 64)
	start := int64(MiB)
	for i, size := range sizes {
		entry := table[16*i:]
		entry[4] = 0x83
		binary.LittleEndian.PutUint32(entry[8:], uint32(start/sector))
		binary.LittleEndian.PutUint32(entry[12:], uint32(size/sector))
		start += size
	}
	d.WriteAt(t, table, 446)
	d.WriteAt(t, []byte{0x55, 0xaa}, 510)
	// Kernels without support for partition tables get the partitions from partx.
	Run(t, "partx", "-u", d.Device)
	t.Cleanup(func() { Run(t, "partx", "-d", d.Device) })
}

// Link makes a link to the disk as Azure's udev rules do below /dev/disk/azure: data/by-lun/N.
func (d *Disk) Link(t *testing.T, links string, lun int32) {
	t.Helper()
	link := filepath.Join(links, "data/by-lun", strconv.Itoa(int(lun)))
	if err := os.MkdirAll(filepath.Dir(link), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(d.Device, link); err != nil {
		t.Fatal(err)
	}
}

// MountDir returns a directory for mount points. At the end of the test nothing may be mounted
// below it.
func MountDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	t.Cleanup(func() {
		infos, err := mountutils.ParseMountInfo("/proc/self/mountinfo")
		if err != nil {
			t.Error(err)
		}
		for i := len(infos) - 1; i >= 0; i-- {
			if strings.HasPrefix(infos[i].MountPoint, dir+"/") {
				t.Errorf("a mount is left over at %s", infos[i].MountPoint)
				_ = exec.Command("umount", infos[i].MountPoint).Run()
			}
		}
	})
	return dir
}

// Run runs a command that has to succeed and returns what it printed.
func Run(t *testing.T, command string, args ...string) string {
	t.Helper()
	cmd := exec.Command(command, args...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %s: %v: %s%s", command, strings.Join(args, " "), err, out, stderr.String())
	}
	return string(out)
}

func mountsOf(t *testing.T, device string) []string {
	t.Helper()
	infos, err := mountutils.ParseMountInfo("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	var targets []string
	for _, info := range infos {
		if info.Source == device {
			targets = append(targets, info.MountPoint)
		}
	}
	return targets
}

// MayGrowMounted reports whether the kernel lets this process grow an ext filesystem that is
// mounted; some sandboxes take that away even from root. Where it does not, the filesystem has to
// grow when it is staged next.
func MayGrowMounted(t *testing.T) bool {
	t.Helper()
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		t.Fatal(err)
	}
	return data[0].Effective&(1<<unix.CAP_SYS_RESOURCE) != 0
}
