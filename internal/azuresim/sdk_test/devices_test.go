package sdk_test

import (
	"bytes"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7"
	"golang.org/x/sys/unix"

	"github.com/azuredisk-csi/azuredisk/internal/azuresim/hypervisor"
)

// rig is azuresim in two processes, with real block devices.
type rig struct {
	*simulator
	front *process
	dir   string
}

func startRig(t *testing.T) *rig {
	t.Helper()
	if err := hypervisor.CheckMachine(); err != nil {
		t.Fatalf("this test needs root, /dev/fuse and loop devices: %v", err)
	}
	dir := shortDir(t)
	cmd := exec.Command(os.Args[0])
	cmd.Env, cmd.Stderr = append(os.Environ(), hypervisorEnv+"="+dir), os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(unix.SIGTERM)
		_ = cmd.Wait()
	})
	client := hypervisor.NewClient(filepath.Join(dir, "hypervisor.sock"))
	r := &rig{front: &process{t: t, dir: dir}, dir: dir}
	r.simulator = r.front.client()
	r.eventually("the hypervisor answers", func() bool {
		_, err := client.List(t.Context())
		return err == nil
	})
	r.front.start()
	t.Cleanup(func() {
		admin := &http.Client{Transport: unixTransport(filepath.Join(dir, "admin.sock"))}
		r.eventually("all is consistent with the devices", func() bool { return checked(t, admin) })
		r.front.kill()
	})
	return r
}

func (r *rig) device(vm string, lun int) string {
	return filepath.Join(hypervisor.DeviceDir(r.dir, vm), "data", "by-lun", strconv.Itoa(lun))
}

func (r *rig) open(vm string, lun int) *os.File {
	r.t.Helper()
	f, err := os.OpenFile(r.device(vm, lun), os.O_RDWR, 0)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = f.Close() })
	return f
}

func writeSynced(f *os.File, text string) error {
	if _, err := f.WriteAt([]byte(text), 0); err != nil {
		return err
	}
	return f.Sync()
}

func (r *rig) expectContent(vm string, lun int, want string) {
	r.t.Helper()
	got := make([]byte, len(want))
	if _, err := r.open(vm, lun).ReadAt(got, 0); err != nil || !bytes.Equal(got, []byte(want)) {
		r.t.Errorf("LUN %d of %s holds %q, %v; want %q", lun, vm, got, err, want)
	}
}

func TestDataFollowsTheDiskFromVMToVM(t *testing.T) {
	r := startRig(t)
	d := r.disk("a")
	r.vm("n1", "Standard_D4s_v5")
	r.vm("n2", "Standard_D4s_v5")
	r.attach("n1", "a")
	old := r.open("n1", 0)
	if err := writeSynced(old, "written on n1"); err != nil {
		t.Fatal(err)
	}
	sn := r.snapshot("s", *d.ID, armcompute.DiskCreateOptionCopy)

	// The front end is not a part of the data path.
	r.front.kill()
	if err := writeSynced(old, "while it was down"); err != nil {
		t.Errorf("write while the front end is down: %v", err)
	}
	r.front.start()
	if err := writeSynced(old, "after it is back!"); err != nil {
		t.Errorf("write after the front end is back: %v", err)
	}

	r.detach("n1", "a")
	if err := writeSynced(old, "by a ghost"); !errors.Is(err, unix.EIO) {
		t.Errorf("write after detach: %v, want EIO", err)
	}
	if exists(r.device("n1", 0)) {
		t.Error("the device is still shown")
	}
	r.attach("n2", "a")
	r.expectContent("n2", 0, "after it is back!")
	r.disk("restored", func(d *armcompute.Disk) {
		d.Properties.DiskSizeGB = nil
		d.Properties.CreationData = &armcompute.CreationData{
			CreateOption:     to.Ptr(armcompute.DiskCreateOptionCopy),
			SourceResourceID: sn.ID,
		}
	})
	r.attach("n2", "restored")
	r.expectContent("n2", 1, "written on n1")
}

func TestDeallocatedVMLosesItsDevicesAndGetsThemBack(t *testing.T) {
	r := startRig(t)
	r.disk("a")
	r.disk("b")
	r.vm("n1", "Standard_D4s_v5")
	r.attach("n1", "a")
	f := r.open("n1", 0)
	if err := writeSynced(f, "kept"); err != nil {
		t.Fatal(err)
	}
	off, err := r.vms.BeginDeallocate(t.Context(), group, "n1", nil)
	finish(t, off, err)
	if err := writeSynced(f, "lost"); !errors.Is(err, unix.EIO) {
		t.Errorf("write after power off: %v, want EIO", err)
	}
	r.attach("n1", "b")
	on, err := r.vms.BeginStart(t.Context(), group, "n1", nil)
	finish(t, on, err)
	r.expectContent("n1", 0, "kept")
	if !exists(r.device("n1", 1)) {
		t.Error("a disk that was attached while the VM was off is not shown")
	}
	del, err := r.vms.BeginDelete(t.Context(), group, "n1", nil)
	finish(t, del, err)
	r.vm("n1", "Standard_D4s_v5") // the same name again is a fresh machine
	r.attach("n1", "b")
	if !exists(r.device("n1", 0)) {
		t.Error("the new VM of the old name does not show its disk")
	}
}
