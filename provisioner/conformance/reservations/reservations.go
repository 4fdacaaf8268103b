// Package reservations is the contract of provisioner.Reservations as a suite of tests, for an
// implementation and for the disks that it works on. The tests write to the disks.
package reservations

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// defaultLimit is how long one test may take.
const defaultLimit = 2 * time.Minute

// Host is a node of a disk under test.
type Host struct {
	provisioner.Reservations
	// Device at which this process has the disk as that node has it.
	Device string
}

// Harness makes the disks under test.
type Harness struct {
	// NewDisk makes a blank disk of at least 16 MiB that is attached to three nodes, until the end
	// of the test.
	NewDisk func(t *testing.T) []Host
	// Restart restarts what keeps the reservations of the disks that NewDisk made last, as a loss
	// of power would, and returns its nodes. nil: it cannot be restarted.
	Restart func(t *testing.T) []Host
	// Detach removes the disk from the first of the nodes.
	Detach func(t *testing.T)
	// Unsupported is a device without reservations.
	Unsupported func(t *testing.T) Host
	// Rounds of pre-emptions under load; 200 if it is 0.
	Rounds int
	// Limit is how long one test may take; 2 minutes if it is 0.
	Limit time.Duration
}

// run is one test on one disk.
type run struct {
	*testing.T
	ctx   context.Context
	hosts []Host
}

// Run checks that an implementation of provisioner.Reservations keeps its contract, and that its
// disks do.
func Run(t *testing.T, h Harness) {
	for _, test := range []struct {
		name string
		play func(r *run)
	}{
		{"a blank disk has no reservations", (*run).blank},
		{"registrations", (*run).registrations},
		{"the holder writes and others read", (*run).oneWriter},
		{"a reservation of another node", (*run).conflicts},
		{"release and unregister", (*run).release},
		{"pre-emption", (*run).preemption},
		{"pre-emption of a node that does not hold the reservation", (*run).bystander},
		{"pre-emption without an abort", (*run).plainPreemption},
		{"whether the disk has PREEMPT AND ABORT", (*run).aborts},
		{"a key that a former path has registered", (*run).formerPath},
		{"clear", (*run).clear},
		{"keys that are 0", (*run).noKey},
		{"a context that has ended", (*run).ended},
	} {
		t.Run(test.name, func(t *testing.T) { test.play(h.newRun(t, h.NewDisk(t))) })
	}
	if h.Restart != nil {
		t.Run("a restart of the disk", func(t *testing.T) { h.newRun(t, h.NewDisk(t)).restart(h.Restart) })
	}
	if h.Detach != nil {
		t.Run("a device that is gone", func(t *testing.T) { h.newRun(t, h.NewDisk(t)).gone(h.Detach) })
	}
	if h.Unsupported != nil {
		t.Run("a device without reservations", func(t *testing.T) {
			h.newRun(t, []Host{h.Unsupported(t)}).unsupported()
		})
	}
	t.Run("no write after a pre-emption", func(t *testing.T) {
		h.newRun(t, h.NewDisk(t)).fences(cmp.Or(h.Rounds, defaultRounds))
	})
}

func (h Harness) newRun(t *testing.T, hosts []Host) *run {
	ctx, cancel := context.WithTimeout(t.Context(), cmp.Or(h.Limit, defaultLimit))
	t.Cleanup(cancel)
	return &run{t, ctx, hosts}
}

// key is the key of a node under an epoch.
func (r *run) key(epoch int64, host int) provisioner.ReservationKey {
	r.Helper()
	key, err := provisioner.NewReservationKey(1, epoch, fmt.Sprintf("node-%d", host), "disk")
	r.ok(err)
	return key
}

func (r *run) ok(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

// refused expects an error of the kind.
func (r *run) refused(what string, err error, want provisioner.Kind) {
	r.Helper()
	if !errors.Is(err, want) {
		r.Fatalf("%s: got error %v, want one of the kind %s", what, err, want)
	}
}

// conflict expects a conflict that names the holder.
func (r *run) conflict(what string, err error, holder provisioner.ReservationKey) {
	r.Helper()
	r.refused(what, err, provisioner.Conflict)
	var conflict *provisioner.ReservationConflict
	if !errors.As(err, &conflict) || conflict.State.Holder != holder {
		r.Fatalf("%s: got error %v, want a conflict with the holder %s", what, err, holder)
	}
}

// expect compares the state that every node reads.
func (r *run) expect(holder provisioner.ReservationKey, keys ...provisioner.ReservationKey) provisioner.ReservationState {
	r.Helper()
	var state provisioner.ReservationState
	for i, host := range r.hosts {
		var err error
		state, err = host.Read(r.ctx, host.Device)
		r.ok(err)
		want := provisioner.NoReservation
		if holder != 0 {
			want = provisioner.WriteExclusive
		}
		slices.Sort(state.Keys)
		slices.Sort(keys)
		if state.Holder != holder || state.Type != want || !slices.Equal(state.Keys, keys) {
			r.Fatalf("node %d reads %s, want reservation %s of key %s, registered keys %v", i, state, want, holder, keys)
		}
	}
	return state
}

// take registers the node and reserves the disk for it.
func (r *run) take(host int, key provisioner.ReservationKey) {
	r.Helper()
	h := r.hosts[host]
	r.ok(h.Register(r.ctx, h.Device, key))
	r.ok(h.Reserve(r.ctx, h.Device, key))
}

// mayWrite tries a direct write, and expects that it succeeds or is refused as a fenced node's
// writes are.
func (r *run) mayWrite(host int, want bool) {
	r.Helper()
	err := writeDirect(r.hosts[host].Device, 0, r.block(int64(host)))
	switch {
	case want && err != nil:
		r.Fatalf("a write of node %d: got error %v, want success", host, err)
	case !want && !isFenced(err):
		r.Fatalf("a write of node %d: got error %v, want EBADE or EIO", host, err)
	}
}

// isFenced reports whether a write ended as the writes of a fenced node do.
func isFenced(err error) bool { return errors.Is(err, unix.EBADE) || errors.Is(err, unix.EIO) }

func (r *run) blank() {
	r.expect(0)
	for host := range r.hosts {
		r.mayWrite(host, true)
	}
}

func (r *run) registrations() {
	a, b := r.hosts[0], r.hosts[1]
	before := r.expect(0)
	r.ok(a.Register(r.ctx, a.Device, r.key(1, 0)))
	after := r.expect(0, r.key(1, 0))
	if after.Generation == before.Generation {
		r.Errorf("the generation after a registration is %d, want another one than before", after.Generation)
	}
	r.ok(a.Register(r.ctx, a.Device, r.key(1, 0)))
	r.ok(b.Register(r.ctx, b.Device, r.key(2, 1)))
	r.expect(0, r.key(1, 0), r.key(2, 1))
	r.ok(a.Register(r.ctx, a.Device, r.key(3, 0)))
	r.expect(0, r.key(3, 0), r.key(2, 1))
	r.mayWrite(2, true) // without a reservation every node writes
	r.ok(a.Unregister(r.ctx, a.Device, r.key(1, 0)))
	r.expect(0, r.key(3, 0), r.key(2, 1)) // the node has another key
	r.ok(a.Unregister(r.ctx, a.Device, r.key(3, 0)))
	r.ok(a.Unregister(r.ctx, a.Device, r.key(3, 0)))
	r.expect(0, r.key(2, 1))
}

func (r *run) oneWriter() {
	r.take(0, r.key(1, 0))
	r.ok(r.hosts[1].Register(r.ctx, r.hosts[1].Device, r.key(1, 1).FenceOnly()))
	r.expect(r.key(1, 0), r.key(1, 0), r.key(1, 1).FenceOnly())
	r.mayWrite(0, true)
	r.mayWrite(1, false)
	r.mayWrite(2, false)
	for i, host := range r.hosts {
		if _, err := readDirect(host.Device, 0, blockBytes); err != nil {
			r.Errorf("a read of node %d: %v", i, err)
		}
	}
	r.take(0, r.key(1, 0)) // again
	r.take(0, r.key(2, 0)) // under another key
	r.expect(r.key(2, 0), r.key(2, 0), r.key(1, 1).FenceOnly())
	r.mayWrite(0, true)
}

func (r *run) conflicts() {
	a, b := r.hosts[0], r.hosts[1]
	own, other := r.key(1, 0), r.key(2, 1)
	r.conflict("reserve without a registration", b.Reserve(r.ctx, b.Device, other), 0)
	r.take(0, own)
	r.conflict("reserve without a registration what another node holds", b.Reserve(r.ctx, b.Device, other), own)
	r.ok(b.Register(r.ctx, b.Device, other))
	r.conflict("reserve what another node holds", b.Reserve(r.ctx, b.Device, other), own)
	r.conflict("reserve with the key of another node", b.Reserve(r.ctx, b.Device, own), own)
	r.conflict("reserve with a former key", a.Reserve(r.ctx, a.Device, r.key(9, 0)), own)
	r.conflict("clear with a key that is not registered", b.Clear(r.ctx, b.Device, r.key(9, 1)), own)
	r.expect(own, own, other)
}

func (r *run) release() {
	a, b := r.hosts[0], r.hosts[1]
	own, other := r.key(1, 0), r.key(2, 1)
	r.ok(a.Release(r.ctx, a.Device, own)) // nothing is held
	r.take(0, own)
	r.ok(b.Register(r.ctx, b.Device, other))
	r.ok(b.Release(r.ctx, b.Device, other)) // it is another node's
	r.expect(own, own, other)
	r.ok(a.Release(r.ctx, a.Device, own))
	r.ok(a.Release(r.ctx, a.Device, own))
	r.expect(0, own, other)
	r.mayWrite(1, true)
	r.ok(b.Reserve(r.ctx, b.Device, other))
	r.mayWrite(0, false)
	r.ok(b.Unregister(r.ctx, b.Device, other)) // and with it the reservation
	r.expect(0, own)
	r.mayWrite(2, true)
}

func (r *run) preemption() {
	a, b := r.hosts[0], r.hosts[1]
	victim, own := r.key(1, 0), r.key(1, 1).FenceOnly()
	r.take(0, victim)
	r.conflict("pre-empt without a registration", b.PreemptAndAbort(r.ctx, b.Device, own, victim), victim)
	r.ok(b.Register(r.ctx, b.Device, own))
	r.conflict("pre-empt a key that is not registered", b.PreemptAndAbort(r.ctx, b.Device, own, r.key(7, 0)), victim)
	r.mayWrite(0, true)
	r.ok(b.PreemptAndAbort(r.ctx, b.Device, own, victim))
	r.expect(own, own)
	r.mayWrite(0, false)
	r.mayWrite(1, true)
	r.conflict("pre-empt again", b.PreemptAndAbort(r.ctx, b.Device, own, victim), own)
	r.conflict("reserve as the node that was pre-empted", a.Reserve(r.ctx, a.Device, victim), own)
	r.ok(a.Register(r.ctx, a.Device, r.key(2, 0))) // a later epoch of the same node
	r.mayWrite(0, false)
	r.ok(a.PreemptAndAbort(r.ctx, a.Device, r.key(2, 0), own))
	r.expect(r.key(2, 0), r.key(2, 0))
	r.mayWrite(0, true)
	r.mayWrite(1, false)
}

func (r *run) bystander() {
	a, b, c := r.hosts[0], r.hosts[1], r.hosts[2]
	r.take(0, r.key(1, 0))
	r.ok(b.Register(r.ctx, b.Device, r.key(2, 1)))
	r.ok(c.Register(r.ctx, c.Device, r.key(3, 2)))
	r.ok(a.PreemptAndAbort(r.ctx, a.Device, r.key(1, 0), r.key(2, 1)))
	r.expect(r.key(1, 0), r.key(1, 0), r.key(3, 2))
	r.ok(c.PreemptAndAbort(r.ctx, c.Device, r.key(3, 2), r.key(1, 0)))
	r.expect(r.key(3, 2), r.key(3, 2))
}

func (r *run) plainPreemption() {
	b := r.hosts[1]
	victim, own := r.key(1, 0), r.key(2, 1)
	r.take(0, victim)
	r.conflict("pre-empt without a registration", b.Preempt(r.ctx, b.Device, own, victim), victim)
	r.ok(b.Register(r.ctx, b.Device, own))
	r.ok(b.Preempt(r.ctx, b.Device, own, victim))
	r.expect(own, own)
	r.mayWrite(1, true)
	r.conflict("pre-empt again", b.Preempt(r.ctx, b.Device, own, victim), own)
}

func (r *run) aborts() {
	a, b := r.hosts[0], r.hosts[1]
	_, err := b.Aborts(r.ctx, b.Device, r.key(1, 1))
	r.conflict("ask without a registration", err, 0)
	r.take(0, r.key(1, 0))
	r.ok(b.Register(r.ctx, b.Device, r.key(1, 1).FenceOnly()))
	before := r.expect(r.key(1, 0), r.key(1, 0), r.key(1, 1).FenceOnly())
	for i, own := range []provisioner.ReservationKey{r.key(1, 0), r.key(1, 1).FenceOnly()} {
		if aborts, err := r.hosts[i].Aborts(r.ctx, r.hosts[i].Device, own); err != nil || !aborts {
			r.Fatalf("node %d asks whether the disk has PREEMPT AND ABORT: got %t, %v, want that it has", i, aborts, err)
		}
	}
	if after := r.expect(r.key(1, 0), r.key(1, 0), r.key(1, 1).FenceOnly()); after.Generation != before.Generation {
		r.Errorf("the generation was %d before the question and is %d after it, want no change", before.Generation,
			after.Generation)
	}
	r.mayWrite(0, true)
	_, err = a.Aborts(r.ctx, a.Device, r.key(9, 0))
	r.conflict("ask with a key that is not registered", err, r.key(1, 0))
}

// formerPath plays a node that has the disk by another path than the one by which its key was
// registered. The second host is the new path.
func (r *run) formerPath() {
	path, own := r.hosts[1], r.key(1, 0)
	r.take(0, own)
	r.conflict("reserve by a path that is not registered", path.Reserve(r.ctx, path.Device, own), own)
	r.refused("unregister by a path that is not registered", path.Unregister(r.ctx, path.Device, own), provisioner.Conflict)
	r.ok(path.Register(r.ctx, path.Device, own))
	if state := r.expect(own, own, own); state.Registrations(own) != 2 {
		r.Fatalf("got %d registrations of the key, want one for each path", state.Registrations(own))
	}
	r.conflict("reserve what the former path holds", path.Reserve(r.ctx, path.Device, own), own)
	r.mayWrite(1, false)
	r.ok(path.PreemptAndAbort(r.ctx, path.Device, own, own))
	r.expect(own, own)
	r.mayWrite(0, false)
	r.mayWrite(1, true)
	r.ok(path.Reserve(r.ctx, path.Device, own)) // it is the holder's path now
	r.ok(path.Unregister(r.ctx, path.Device, own))
	r.expect(0)
}

func (r *run) clear() {
	a, b := r.hosts[0], r.hosts[1]
	r.ok(a.Clear(r.ctx, a.Device, r.key(1, 0))) // nothing is registered
	r.take(0, r.key(1, 0))
	r.ok(b.Register(r.ctx, b.Device, r.key(2, 1)))
	r.ok(b.Clear(r.ctx, b.Device, r.key(2, 1)))
	r.ok(b.Clear(r.ctx, b.Device, r.key(2, 1)))
	r.expect(0)
	r.mayWrite(2, true)
}

func (r *run) noKey() {
	a := r.hosts[0]
	r.take(0, r.key(1, 0))
	for what, err := range map[string]error{
		"register":            a.Register(r.ctx, a.Device, 0),
		"unregister":          a.Unregister(r.ctx, a.Device, 0),
		"reserve":             a.Reserve(r.ctx, a.Device, 0),
		"release":             a.Release(r.ctx, a.Device, 0),
		"pre-empt with key 0": a.PreemptAndAbort(r.ctx, a.Device, 0, r.key(1, 0)),
		"pre-empt without an abort and with key 0": a.Preempt(r.ctx, a.Device, 0, r.key(1, 0)),
		"pre-empt the victim 0 without an abort":   a.Preempt(r.ctx, a.Device, r.key(1, 0), 0),
		"ask with key 0":                           func() error { _, err := a.Aborts(r.ctx, a.Device, 0); return err }(),
		"pre-empt the victim 0":                    a.PreemptAndAbort(r.ctx, a.Device, r.key(1, 0), 0),
		"clear":                                    a.Clear(r.ctx, a.Device, 0),
	} {
		r.refused(what, err, provisioner.InvalidArgument)
	}
	r.expect(r.key(1, 0), r.key(1, 0))
}

func (r *run) ended() {
	ctx, cancel := context.WithCancel(r.ctx)
	cancel()
	for r.Context().Err() == nil { // the disk may be faster than the end
		if _, err := r.hosts[0].Read(ctx, r.hosts[0].Device); err != nil {
			r.refused("read after the end of the context", err, provisioner.Unavailable)
			return
		}
	}
}

func (r *run) restart(restart func(t *testing.T) []Host) {
	r.take(0, r.key(1, 0))
	r.ok(r.hosts[1].Register(r.ctx, r.hosts[1].Device, r.key(2, 1)))
	before := r.expect(r.key(1, 0), r.key(1, 0), r.key(2, 1))
	r.hosts = restart(r.T)
	if after := r.expect(r.key(1, 0), r.key(1, 0), r.key(2, 1)); after.Generation != before.Generation {
		// SPC-4 lets the generation begin again.
		r.Logf("the generation after the restart is %d, before it was %d", after.Generation, before.Generation)
	}
	r.mayWrite(0, true)
	r.mayWrite(1, false)
	r.mayWrite(2, false)
}

func (r *run) gone(detach func(t *testing.T)) {
	a := r.hosts[0]
	open, err := os.Open(a.Device)
	r.ok(err)
	defer open.Close()
	detach(r.T)
	_, err = a.Read(r.ctx, a.Device)
	r.refused("read after a detach", err, provisioner.NotFound)
	r.refused("register after a detach", a.Register(r.ctx, a.Device, r.key(1, 0)), provisioner.NotFound)
	_, err = a.Read(r.ctx, a.Device+"-none")
	r.refused("read of a device that never was", err, provisioner.NotFound)
	r.hosts = r.hosts[1:]
	r.expect(0)
}

func (r *run) unsupported() {
	h := r.hosts[0]
	_, err := h.Read(r.ctx, h.Device)
	r.refused("read", err, provisioner.Unsupported)
	for what, call := range map[string]func() error{
		"register":                  func() error { return h.Register(r.ctx, h.Device, r.key(1, 0)) },
		"unregister":                func() error { return h.Unregister(r.ctx, h.Device, r.key(1, 0)) },
		"reserve":                   func() error { return h.Reserve(r.ctx, h.Device, r.key(1, 0)) },
		"release":                   func() error { return h.Release(r.ctx, h.Device, r.key(1, 0)) },
		"pre-empt":                  func() error { return h.PreemptAndAbort(r.ctx, h.Device, r.key(1, 0), r.key(2, 1)) },
		"pre-empt without an abort": func() error { return h.Preempt(r.ctx, h.Device, r.key(1, 0), r.key(2, 1)) },
		"ask":                       func() error { _, err := h.Aborts(r.ctx, h.Device, r.key(1, 0)); return err },
		"clear":                     func() error { return h.Clear(r.ctx, h.Device, r.key(1, 0)) },
	} {
		r.refused(what, call(), provisioner.Unsupported)
	}
}
