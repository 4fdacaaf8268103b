package hypervisor_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/azuredisk-csi/azuredisk/internal/azuresim/hypervisor"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/reservations"
)

// vmDisk is a disk at LUN 0 of a VM.
type vmDisk struct {
	*testing.T
	client *hypervisor.Client
	dir    string
	vm     string
}

// reserve sends PERSISTENT RESERVE OUT with the type Write Exclusive.
func (d vmDisk) reserve(action byte, key, other uint64, want reservations.Status) {
	d.Helper()
	list := binary.BigEndian.AppendUint64(nil, key)
	list = binary.BigEndian.AppendUint64(list, other)
	list = append(list, 0, 0, 0, 0, 1, 0, 0, 0)
	cdb := []byte{reservations.OpOut, action, byte(reservations.WriteExclusive), 0, 0, 0, 0, 0, 24, 0}
	answer, err := d.client.Execute(d.Context(), realDevice(d, d.dir, d.vm, 0), cdb, list)
	if err != nil || answer.Status != want {
		d.Fatalf("service action %#x of %s: got status %#x, %v, want %#x", action, d.vm, answer.Status, err, want)
	}
}

// write writes a block past the cache.
func (d vmDisk) write(content string) error {
	file, err := os.OpenFile(device(d.dir, d.vm, 0), os.O_WRONLY|unix.O_DIRECT, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	block := alignedBlock(d, 4096)
	copy(block, content)
	_, err = file.WriteAt(block, 0)
	return err
}

// read reads a block past the cache.
func (d vmDisk) read() {
	d.Helper()
	file, err := os.OpenFile(device(d.dir, d.vm, 0), os.O_RDONLY|unix.O_DIRECT, 0)
	must(d, err)
	defer file.Close()
	_, err = file.ReadAt(alignedBlock(d, 4096), mib)
	must(d, err)
}

// sharedDisk is one disk at two VMs.
func sharedDisk(t *testing.T, dir string, c *hypervisor.Client) (first, second vmDisk) {
	t.Helper()
	must(t, c.CreateDisk(t.Context(), "d1", 16*mib, ""))
	must(t, c.SetShared(t.Context(), "d1", true))
	must(t, c.Attach(t.Context(), "vm1", 0, "d1"))
	must(t, c.Attach(t.Context(), "vm2", 0, "d1"))
	return vmDisk{t, c, dir, "vm1"}, vmDisk{t, c, dir, "vm2"}
}

func describe(ctx context.Context, t *testing.T, c *hypervisor.Client) string {
	t.Helper()
	states, err := c.ListReservations(ctx)
	must(t, err)
	state := states["d1"]
	return fmt.Sprintf("%v %d %s", state.Registrations, state.Type, state.Holder)
}

func TestReservationsHoldOverRestartsDetachesAndDeletedVMs(t *testing.T) {
	requireMachine(t)
	ctx, dir := t.Context(), stateDir(t)
	p, c := startHypervisor(t, dir)
	first, second := sharedDisk(t, dir, c)
	first.reserve(reservations.RegisterAndIgnore, 0, 1, reservations.Good)
	first.reserve(reservations.Reserve, 1, 0, reservations.Good)
	refused := func(when string) {
		t.Helper()
		if err := second.write("other"); !errors.Is(err, unix.EBADE) && !errors.Is(err, unix.EIO) {
			t.Errorf("%s: a write of another VM than the holder ended with %v, want EBADE or EIO", when, err)
		}
		if err := first.write("holder"); err != nil {
			t.Errorf("%s: a write of the holder ended with %v", when, err)
		}
	}
	refused("after the reservation")

	p.end(t, unix.SIGKILL)
	_, c = startHypervisor(t, dir)
	first.client, second.client = c, c
	refused("after a restart")

	must(t, c.Detach(ctx, "vm1", 0, "d1"))
	must(t, c.Attach(ctx, "vm1", 0, "d1"))
	refused("after a detach and an attach")

	must(t, c.RemoveVM(ctx, "vm1"))
	must(t, c.Attach(ctx, "vm1", 0, "d1"))
	if err := first.write("a new VM"); !errors.Is(err, unix.EBADE) && !errors.Is(err, unix.EIO) {
		t.Errorf("a VM with the name of the deleted holder wrote, want EBADE or EIO; got %v", err)
	}
	if got := describe(ctx, t, c); !strings.Contains(got, "vm1, deleted at") {
		t.Errorf("after the holder was deleted the reservations are %s, want them held by the deleted VM", got)
	}
	second.reserve(reservations.RegisterAndIgnore, 0, 2, reservations.Good)
	second.reserve(reservations.PreemptAndAbort, 2, 1, reservations.Good)
	if got, want := describe(ctx, t, c), "[{vm2 2}] 1 vm2"; got != want {
		t.Errorf("after the pre-emption the reservations are %s, want %s", got, want)
	}

	must(t, c.LoseReservations(ctx, "vm1", "d1")) // has none
	if got, want := describe(ctx, t, c), "[{vm2 2}] 1 vm2"; got != want {
		t.Errorf("after another VM has lost its reservations they are %s, want %s", got, want)
	}
	must(t, c.LoseReservations(ctx, "vm2", "d1"))
	if got, want := describe(ctx, t, c), "[] 0 "; got != want {
		t.Errorf("after the holder has lost its reservations they are %s, want %s", got, want)
	}
	if err := first.write("not excluded"); err != nil {
		t.Errorf("after the holder has lost its reservations a write of another VM ended with %v", err)
	}
	second.reserve(reservations.RegisterAndIgnore, 0, 2, reservations.Good)

	must(t, c.Detach(ctx, "vm1", 0, "d1"))
	must(t, c.Detach(ctx, "vm2", 0, "d1"))
	must(t, c.DeleteDisk(ctx, "d1"))
	if got, want := describe(ctx, t, c), "[] 0 "; got != want {
		t.Errorf("after the deletion of the disk the reservations are %s, want %s", got, want)
	}
}

func TestADiskThatIsNotSharedHasNoReservations(t *testing.T) {
	requireMachine(t)
	ctx, dir := t.Context(), stateDir(t)
	c := start(t, dir)
	first, _ := sharedDisk(t, dir, c)
	must(t, c.SetShared(ctx, "d1", false))
	first.reserve(reservations.RegisterAndIgnore, 0, 1, reservations.CheckCondition)
	if _, err := c.Execute(ctx, "/dev/loop-none", []byte{reservations.OpIn, 0, 0, 0, 0, 0, 0, 0, 8, 0}, nil); !errors.Is(err,
		hypervisor.ErrNotFound) {
		t.Errorf("a command for a device that no VM has: got %v, want ErrNotFound", err)
	}
}

// TestAWriteInFlight has a write of the holder in flight in the storage while another VM takes the
// reservation: PREEMPT AND ABORT ends the write, and after PREEMPT it reaches the disk.
func TestAWriteInFlight(t *testing.T) {
	for name, c := range map[string]struct {
		action    byte
		completes bool
	}{
		"pre-empted and aborted": {reservations.PreemptAndAbort, false},
		"pre-empted":             {reservations.Preempt, true},
	} {
		t.Run(name, func(t *testing.T) {
			requireMachine(t)
			ctx, dir := t.Context(), stateDir(t)
			client := start(t, dir)
			first, second := sharedDisk(t, dir, client)
			first.reserve(reservations.RegisterAndIgnore, 0, 1, reservations.Good)
			first.reserve(reservations.Reserve, 1, 0, reservations.Good)
			second.reserve(reservations.RegisterAndIgnore, 0, 2, reservations.Good)
			must(t, client.SetFaults(ctx, "vm1", hypervisor.Faults{HangWrites: true}))
			result := make(chan error, 1)
			go func() { result <- first.write("late") }()
			inFlight := filepath.Join("/sys/block", filepath.Base(realDevice(t, dir, "vm1", 0)), "inflight")
			eventually(t, "the write is in flight", func() bool { return strings.Fields(read(t, inFlight))[1] != "0" })
			first.read() // what was sent after the write has been answered, so the write has arrived

			second.reserve(c.action, 2, 1, reservations.Good)
			must(t, client.SetFaults(ctx, "vm1", hypervisor.Faults{}))
			err := <-result
			if done := strings.HasPrefix(read(t, image(dir, "d1")), "late"); done != c.completes || (err == nil) != c.completes {
				t.Errorf("the write ended with %v, and is on the disk: %t; want %t", err, done, c.completes)
			}
			if err := first.write("later"); !errors.Is(err, unix.EBADE) && !errors.Is(err, unix.EIO) {
				t.Errorf("a new write of the VM that was pre-empted ended with %v, want EBADE or EIO", err)
			}
		})
	}
}

// TestAFilesystemOfAVMThatWasPreempted has a filesystem mounted on the VM that loses the
// reservation.
func TestAFilesystemOfAVMThatWasPreempted(t *testing.T) {
	for _, fsType := range []string{"ext4", "xfs"} {
		t.Run(fsType, func(t *testing.T) {
			requireMachine(t, "mkfs."+fsType)
			dir := stateDir(t)
			c := start(t, dir)
			must(t, c.CreateDisk(t.Context(), "d1", 512*mib, "")) // sharedDisk leaves a disk that exists
			first, second := sharedDisk(t, dir, c)
			first.reserve(reservations.RegisterAndIgnore, 0, 1, reservations.Good)
			first.reserve(reservations.Reserve, 1, 0, reservations.Good)
			run(t, "mkfs."+fsType, "-q", device(dir, "vm1", 0))
			old := mount(t, device(dir, "vm1", 0), fsType)
			must(t, writeSynced(filepath.Join(old, "acknowledged"), "one"))

			second.reserve(reservations.RegisterAndIgnore, 0, 2, reservations.Good)
			second.reserve(reservations.PreemptAndAbort, 2, 1, reservations.Good)
			err := writeSynced(filepath.Join(old, "late"), "two")
			if err == nil {
				t.Error("the VM that was pre-empted wrote a file with fsync")
			}
			t.Logf("a write with fsync ended with: %v", err)
			takesOver(t, mount(t, device(dir, "vm2", 0), fsType))
		})
	}
}
