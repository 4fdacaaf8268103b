//go:build vm

package vm

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/azuredisk-csi/azuredisk/internal/testkit/expect"
	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/host"
	"github.com/azuredisk-csi/azuredisk/provisioner/host/hosttest"
	"github.com/azuredisk-csi/azuredisk/provisioner/host/reservation"
	"github.com/azuredisk-csi/azuredisk/test/vm/kernel"
)

// remote is Linux's own NVMe target, which is connected over the loopback interface. It says that
// it is Azure's controller of remote disks. QEMU's controller cannot.
type remote struct{ subsystem string }

const (
	nvmetRoot = "/sys/kernel/config/nvmet"
	nqn       = "nqn.2014-08.org.nvmexpress:test"
)

func newRemote(t *testing.T) *remote {
	t.Helper()
	r := &remote{filepath.Join(nvmetRoot, "subsystems", nqn)}
	expect.Must(t, os.Mkdir(r.subsystem, 0o755))
	kernel.Write(t, filepath.Join(r.subsystem, "attr_model"), "MSFT NVMe Accelerator v1.0")
	kernel.Write(t, filepath.Join(r.subsystem, "attr_allow_any_host"), "1")
	port := filepath.Join(nvmetRoot, "ports/1")
	expect.Must(t, os.Mkdir(port, 0o755))
	for name, value := range map[string]string{
		"addr_trtype":  "tcp",
		"addr_adrfam":  "ipv4",
		"addr_traddr":  "127.0.0.1",
		"addr_trsvcid": "4420",
	} {
		kernel.Write(t, filepath.Join(port, name), value)
	}
	link := filepath.Join(port, "subsystems", nqn)
	expect.Must(t, os.Symlink(r.subsystem, link))
	t.Cleanup(func() {
		for _, name := range []string{link, port, r.subsystem} {
			if err := os.Remove(name); err != nil {
				t.Error(err)
			}
		}
	})
	return r
}

// connect connects the machine to the target until the end of the test.
func (r *remote) connect(t *testing.T) {
	t.Helper()
	fabrics, err := os.OpenFile("/dev/nvme-fabrics", os.O_RDWR, 0)
	expect.Must(t, err)
	defer fabrics.Close()
	_, err = fabrics.WriteString("transport=tcp,traddr=127.0.0.1,trsvcid=4420,nqn=" + nqn)
	expect.Must(t, err)
	answer := make([]byte, 100)
	n, err := fabrics.Read(answer)
	expect.Must(t, err)
	var instance int
	if _, err := fmt.Sscanf(string(answer[:n]), "instance=%d", &instance); err != nil {
		t.Fatalf("the kernel answers %q: %v", answer[:n], err)
	}
	t.Cleanup(func() { kernel.Write(t, fmt.Sprintf("/sys/class/nvme/nvme%d/delete_controller", instance), "1") })
}

// namespace adds a namespace over a file until the end of the test.
func (r *remote) namespace(t *testing.T, number int, size int64) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "namespace")
	expect.Must(t, os.WriteFile(file, nil, 0o600))
	expect.Must(t, os.Truncate(file, size))
	dir := filepath.Join(r.subsystem, "namespaces", fmt.Sprint(number))
	expect.Must(t, os.Mkdir(dir, 0o755))
	t.Cleanup(func() { expect.Must(t, os.Remove(dir)) })
	kernel.Write(t, filepath.Join(dir, "buffered_io"), "1") // tmpfs has no other
	kernel.Write(t, filepath.Join(dir, "device_path"), file)
	kernel.Write(t, filepath.Join(dir, "enable"), "1")
	return file
}

// blockOf waits until the kernel has a namespace of the model, and returns its device node.
func blockOf(t *testing.T, model string, number int) string {
	t.Helper()
	var found string
	expect.Eventually(t, fmt.Sprintf("namespace %d of a controller %q", number, model), func() bool {
		blocks, _ := filepath.Glob("/sys/class/block/nvme*n*") // the pattern is good
		for _, block := range blocks {
			if kernel.Attribute(block, "hidden") != "1" && kernel.Attribute(block, "device/model") == model &&
				kernel.Attribute(block, "nsid") == fmt.Sprint(number) {
				found = "/dev/" + filepath.Base(block)
				_, err := os.Stat(found)
				return err == nil
			}
		}
		return false
	})
	return found
}

func TestNamespacesOfARemoteController(t *testing.T) {
	r := newRemote(t)
	r.namespace(t, 1, small) // the disk of the operating system
	r.connect(t)
	const model = "MSFT NVMe Accelerator v1.0"
	blockOf(t, model, 1)
	findNone(t, 5)
	file := r.namespace(t, 7, small)
	find(t, 5, blockOf(t, model, 7), small)
	paths, err := filepath.Glob("/sys/class/block/nvme*c*n*")
	expect.Must(t, err)
	if len(paths) == 0 {
		t.Error("the kernel shows no hidden paths to the namespaces, want some: without them the test shows less")
	}

	expect.Must(t, os.Truncate(file, 2*small))
	kernel.Write(t, filepath.Join(r.subsystem, "namespaces/7/revalidate_size"), "1")
	var got provisioner.Device
	expect.Eventually(t, "the new size of the namespace", func() bool {
		got, err = host.New(host.Options{}).Devices().Rescan(t.Context(), blockOf(t, model, 7))
		expect.Must(t, err)
		return got.SizeBytes == 2*small
	})
	withoutReservations(t, got.Path)
}

func TestANamespaceOfALocalController(t *testing.T) {
	const number = 7
	node := image(t, small)
	command(t, "device_add", arguments{
		"driver": "nvme",
		"id":     "local",
		"serial": "local",
		"drive":  node,
	})
	t.Cleanup(func() { command(t, "device_del", arguments{"id": "local"}) })
	device := blockOf(t, "QEMU NVMe Ctrl", 1)
	findNone(t, -1)
	expect.Must(t, host.New(host.Options{}).Devices().Read(t.Context(), device))
	withoutReservations(t, device)

	udevRules(t, fmt.Sprintf(`KERNEL==%q, SYMLINK+="disk/azure/data/by-lun/%d"`, filepath.Base(device), number))
	hosttest.Run(t, "udevadm", "trigger", "--settle", device)
	find(t, number, device, small)
}

// withoutReservations expects that the namespace has no reservations: NVMe targets of Linux have
// them from Linux 6.13 on, and QEMU's have none.
func withoutReservations(t *testing.T, device string) {
	t.Helper()
	const key = 0xad1d54000001243a
	r := reservation.Reservations{NVMe: true}
	_, read := r.Read(t.Context(), device)
	for what, err := range map[string]error{
		"read": read, "register": r.Register(t.Context(), device, key), "unregister": r.Unregister(t.Context(), device, key),
		"reserve": r.Reserve(t.Context(), device, key), "pre-empt": r.PreemptAndAbort(t.Context(), device, key, key+1),
	} {
		if !errors.Is(err, provisioner.Unsupported) {
			t.Errorf("%s on %s: got %v, want Unsupported", what, device, err)
		}
	}
}
