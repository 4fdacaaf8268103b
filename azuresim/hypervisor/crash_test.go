package hypervisor_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/azuredisk-csi/azuredisk/azuresim/hypervisor"
)

// model is what the machine must look like after the operations so far.
type model struct {
	disks    map[string]string // the word that was written to the disk last, by UID
	attached map[string]string // disk UID by "vm/lun"
	off      map[string]bool
}

// step is one random operation: what to ask of the hypervisor, repeatable, and what it does to the model.
type step struct {
	name  string
	ask   func(context.Context, *hypervisor.Client) error
	apply func()
}

func (m *model) next(random *rand.Rand, serial int) step {
	vm, lun := fmt.Sprintf("vm%d", random.IntN(3)), random.IntN(4)
	slot := fmt.Sprintf("%s/%d", vm, lun)
	switch choice := random.IntN(10); {
	case choice < 2 || len(m.disks) == 0:
		return m.create(random, fmt.Sprintf("d%d", serial))
	case choice == 2:
		return step{"off " + vm, func(ctx context.Context, c *hypervisor.Client) error { return c.PowerOff(ctx, vm) }, func() { m.off[vm] = true }}
	case choice == 3:
		return step{"on " + vm, func(ctx context.Context, c *hypervisor.Client) error { return c.PowerOn(ctx, vm) }, func() { delete(m.off, vm) }}
	case m.attached[slot] != "":
		uid := m.attached[slot]
		return step{"detach " + slot, func(ctx context.Context, c *hypervisor.Client) error { return c.Detach(ctx, vm, lun, uid) }, func() { delete(m.attached, slot) }}
	}
	uid := m.pick(random)
	for l := range 4 {
		if m.attached[fmt.Sprintf("%s/%d", vm, l)] == uid {
			return m.delete(uid)
		}
	}
	return step{"attach " + slot, func(ctx context.Context, c *hypervisor.Client) error { return c.Attach(ctx, vm, lun, uid) }, func() { m.attached[slot] = uid }}
}

func (m *model) pick(random *rand.Rand) string {
	uids := slices.Sorted(maps.Keys(m.disks))
	return uids[random.IntN(len(uids))]
}

func (m *model) create(random *rand.Rand, uid string) step {
	source := ""
	if len(m.disks) > 0 && random.IntN(2) == 0 {
		source = m.pick(random)
	}
	return step{
		"create " + uid + " from " + source,
		func(ctx context.Context, c *hypervisor.Client) error { return c.CreateDisk(ctx, uid, 4*mib, source) },
		func() { m.disks[uid] = m.disks[source] },
	}
}

// delete deletes the disk, which an attachment forbids.
func (m *model) delete(uid string) step {
	return step{
		"delete " + uid,
		func(ctx context.Context, c *hypervisor.Client) error {
			if err := c.DeleteDisk(ctx, uid); !errors.Is(err, hypervisor.ErrConflict) {
				return fmt.Errorf("delete of an attached disk: %w", errors.Join(err, hypervisor.ErrUnavailable))
			}
			return nil
		},
		func() {},
	}
}

func TestNoAcknowledgedStepIsLostAndNothingLeaksWhenTheHypervisorIsKilledAtRandom(t *testing.T) {
	requireMachine(t)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	ctx, dir := t.Context(), stateDir(t)
	m := &model{disks: map[string]string{}, attached: map[string]string{}, off: map[string]bool{}}
	p, c := startHypervisor(t, dir)
	const steps = 200
	kills := 0
	for serial := range steps {
		next := m.next(random, serial)
		if random.IntN(8) == 0 {
			kills++
			timer := time.AfterFunc(time.Duration(random.IntN(4000))*time.Microsecond, func() { _ = p.Process.Signal(unix.SIGKILL) })
			err := next.ask(ctx, c)
			if err != nil && !errors.Is(err, hypervisor.ErrUnavailable) {
				t.Fatalf("%s while being killed: %v", next.name, err)
			}
			timer.Stop()
			p.end(t, unix.SIGKILL)
			if err == nil {
				// Acknowledged: it must be there without being asked for again.
				next.apply()
				p, c = startHypervisor(t, dir)
				m.check(t, dir, c)
				continue
			}
			p, c = startHypervisor(t, dir)
		}
		if err := next.ask(ctx, c); err != nil {
			t.Fatalf("step %d, %s: %v", serial, next.name, err)
		}
		next.apply()
		if random.IntN(4) == 0 {
			m.write(t, dir, random, serial)
		}
		if serial%10 == 0 {
			m.check(t, dir, c)
		}
	}
	m.check(t, dir, c)
	t.Logf("%d steps, %d kills, %d disks, %d attachments in the end", steps, kills, len(m.disks), len(m.attached))
}

// write writes a word to a disk through one of its devices.
func (m *model) write(t *testing.T, dir string, random *rand.Rand, serial int) {
	t.Helper()
	slots := slices.Sorted(maps.Keys(m.attached))
	if len(slots) == 0 {
		return
	}
	vm, lun := split(slots[random.IntN(len(slots))])
	if m.off[vm] {
		return
	}
	uid := m.attached[fmt.Sprintf("%s/%d", vm, lun)]
	word := fmt.Sprintf("word-%06d", serial)
	writeAt(t, device(dir, vm, lun), []byte(word), 0)
	m.disks[uid] = word
}

func split(slot string) (vm string, lun int) {
	_, err := fmt.Sscanf(slot, "vm%1s/%d", &vm, &lun)
	if err != nil {
		panic(err)
	}
	return "vm" + vm, lun
}

// check compares the machine with the model.
func (m *model) check(t *testing.T, dir string, c *hypervisor.Client) {
	t.Helper()
	list, err := c.List(t.Context())
	must(t, err)
	got := map[string]string{}
	powered := 0
	for _, a := range list {
		slot := fmt.Sprintf("%s/%d", a.VM, a.LUN)
		got[slot] = a.DiskUID
		if m.off[a.VM] {
			if _, err := os.Lstat(device(dir, a.VM, a.LUN)); a.Device != "" || !errors.Is(err, os.ErrNotExist) {
				t.Errorf("%s of a VM that is off has device %q, link: %v", slot, a.Device, err)
			}
			continue
		}
		powered++
		if real := realDevice(t, dir, a.VM, a.LUN); real != a.Device {
			t.Errorf("%s: link to %s, device %s", slot, real, a.Device)
		}
	}
	if !maps.Equal(got, m.attached) {
		t.Errorf("attachments %v, want %v", got, m.attached)
	}
	if loops := boundLoops(t, dir); len(loops) != powered {
		t.Errorf("%d attachments of VMs that are on, but loop devices %v", powered, loops)
	}
	disks, err := c.ListDisks(t.Context())
	must(t, err)
	if want := slices.Sorted(maps.Keys(m.disks)); !slices.Equal(slices.Sorted(slices.Values(disks)), want) {
		t.Errorf("disks %v, want %v", disks, want)
	}
	for uid, word := range m.disks {
		if data := read(t, image(dir, uid))[:len(word)]; data != word {
			t.Errorf("disk %s has %q, want %q", uid, data, word)
		}
	}
}
