package reservation_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/azuredisk-csi/azuredisk/internal/node/csi/reservation"
	"github.com/azuredisk-csi/azuredisk/internal/plan/fencing"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/expect"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/faulty"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/sharedisk"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

const (
	path     = "/dev/sdc"
	thisNode = "node-b"
	cluster  = provisioner.ClusterIdentity(0x1d54)
)

func key(node string, epoch int64) provisioner.ReservationKey {
	k, err := provisioner.NewReservationKey(cluster, epoch, node, "disk")
	if err != nil {
		panic(err)
	}
	return k
}

var own, before, victim = key(thisNode, 7), key("node-a", 6), key("node-a", 7)

func on(disk *sharedisk.Disk, node string) provisioner.Reservations {
	return sharedisk.Node{Name: node, Disk: func(context.Context, string) (*sharedisk.Disk, error) { return disk, nil }}
}

// held lets a node hold the reservation with a key.
func held(node string, by provisioner.ReservationKey) func(*testing.T, *sharedisk.Disk) {
	return func(t *testing.T, disk *sharedisk.Disk) {
		expect.Must(t, errors.Join(on(disk, node).Register(t.Context(), path, by), on(disk, node).Reserve(t.Context(), path, by)))
	}
}

// refusing are the reservations of a disk that does not know some commands.
type refusing struct {
	provisioner.Reservations
	preempt, register bool
	// late: with the registration arrives the RESERVE of a process of this node that was killed.
	late bool
}

func (r refusing) Register(ctx context.Context, device string, k provisioner.ReservationKey) error {
	if r.register {
		return provisioner.Errorf(provisioner.Unsupported, "register: invalid argument")
	}
	if err := r.Reservations.Register(ctx, device, k); err != nil || !r.late {
		return err
	}
	return r.Reservations.Reserve(ctx, device, k)
}

func (r refusing) Preempt(ctx context.Context, device string, k, of provisioner.ReservationKey) error {
	if r.preempt {
		return provisioner.Errorf(provisioner.Unsupported, "pre-empt: invalid argument")
	}
	return r.Reservations.Preempt(ctx, device, k, of)
}

func (r refusing) PreemptAndAbort(ctx context.Context, device string, k, of provisioner.ReservationKey) error {
	if r.preempt {
		return provisioner.Errorf(provisioner.Unsupported, "pre-empt: invalid argument")
	}
	return r.Reservations.PreemptAndAbort(ctx, device, k, of)
}

// outcome is what a call returns, beside its error.
type outcome struct {
	found   fencing.Found
	why     string
	changed bool
}

type call func(ctx context.Context, r reservation.Reserver, f *faulty.Faults, disk *sharedisk.Disk) (outcome, error)

func reserve(ctx context.Context, r reservation.Reserver, _ *faulty.Faults, disk *sharedisk.Disk) (outcome, error) {
	found, why, err := r.Reserve(ctx, path, disk.State(), fencing.Owner{Key: own})
	return outcome{found: found, why: why}, err
}

func leave(ctx context.Context, r reservation.Reserver, _ *faulty.Faults, _ *sharedisk.Disk) (outcome, error) {
	return outcome{}, r.Leave(ctx, path, own)
}

func keep(ctx context.Context, r reservation.Reserver, _ *faulty.Faults, _ *sharedisk.Disk) (outcome, error) {
	return outcome{}, r.Keep(ctx, path, own, own.FenceOnly())
}

func clearAll(ctx context.Context, r reservation.Reserver, _ *faulty.Faults, _ *sharedisk.Disk) (outcome, error) {
	return outcome{}, r.Clear(ctx, path, own)
}

func fence(recorded bool) call {
	return func(ctx context.Context, r reservation.Reserver, f *faulty.Faults, disk *sharedisk.Disk) (outcome, error) {
		proof, changed, err := r.Fence(ctx, path, reservation.Takeover{
			Own: own.FenceOnly(), Victim: victim, Recorded: recorded, Record: func() error { return f.Access("record") },
		})
		if err == nil && (proof.Holder != own.FenceOnly() || proof.Generation != disk.State().Generation) {
			err = fmt.Errorf("the proof is %s, want the state of the disk, %s", proof, disk.State())
		}
		return outcome{changed: changed}, err
	}
}

// Each case is a call and the disk after it. The call fails if any of its commands does.
func TestTheCommandsOfACall(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		call   call
		before func(*testing.T, *sharedisk.Disk)
		// disk does not know some commands.
		disk refusing
		want outcome
		// holder and keys of the disk after the call.
		holder provisioner.ReservationKey
		keys   int
		fails  provisioner.Kind
		says   string
		// survived are the accesses without which the result is the same.
		survived []string
	}{
		"a free disk is reserved": {call: reserve, want: outcome{found: fencing.FoundNone}, holder: own, keys: 1},
		"a disk that this node holds stays reserved": {call: reserve, before: held(thisNode, own),
			want: outcome{found: fencing.FoundOwn}, holder: own, keys: 1},
		"a disk that this node keeps with its fence-only key": {call: reserve, before: held(thisNode, own.FenceOnly()),
			want: outcome{found: fencing.FoundOwn}, holder: own, keys: 1},
		"a disk that the former path of this node holds": {call: reserve, before: held("former path", own),
			want: outcome{found: fencing.FoundOwn}, holder: own, keys: 1},
		"a disk that is held under an earlier epoch": {call: reserve, before: held("node-a", before),
			want: outcome{found: fencing.FoundOther}, holder: own, keys: 1},
		"a disk that is held under a later epoch": {call: reserve, before: held("node-a", key("node-a", 8)),
			want: outcome{found: fencing.FoundOther}, holder: key("node-a", 8), keys: 1, fails: provisioner.FailedPrecondition},
		"a disk that another program holds": {call: reserve, before: held("node-a", 0x1234),
			want: outcome{found: fencing.FoundOther}, holder: 0x1234, keys: 1, fails: provisioner.FailedPrecondition},
		"a free disk without PREEMPT AND ABORT": {call: reserve,
			before: func(_ *testing.T, d *sharedisk.Disk) { d.NoAbort = true },
			want:   outcome{found: fencing.FoundNone, why: "it has no PREEMPT AND ABORT"}},
		"a disk of an earlier epoch without PREEMPT AND ABORT": {call: reserve,
			before: func(t *testing.T, d *sharedisk.Disk) { held("node-a", before)(t, d); d.NoAbort = true },
			want:   outcome{found: fencing.FoundOther, why: "it has no PREEMPT AND ABORT"}},
		"a disk that takes both nodes for one initiator": {call: reserve, before: held(thisNode, before),
			want: outcome{found: fencing.FoundOther, why: "it takes different nodes for the same initiator"}},
		"a disk that this node holds under an earlier epoch": {call: reserve, before: held(thisNode, key(thisNode, 6)),
			want: outcome{found: fencing.FoundOther}, holder: own, keys: 1},
		"a free disk that takes no registration": {call: reserve, disk: refusing{register: true},
			want:     outcome{found: fencing.FoundNone, why: "register: invalid argument"},
			survived: []string{"read the reservation 1"}},
		"a reserved disk that takes no pre-emption": {call: reserve, disk: refusing{preempt: true}, before: held("node-a",
			before),
			want: outcome{found: fencing.FoundOther, why: "pre-empt: invalid argument"}, holder: before, keys: 1,
			fails: provisioner.FailedPrecondition, says: before.String(),
			survived: []string{"read the reservation 2", "unregister 1", "read the reservation 3"}},
		"a free disk that a killed process of this node reserves late": {call: reserve, disk: refusing{late: true},
			want: outcome{found: fencing.FoundNone}, holder: own, keys: 1},
		"this node leaves": {call: leave, before: held(thisNode, own)},
		"this node leaves, and its former path holds": {call: leave, before: held("former path", own)},
		"this node leaves, and another one holds":     {call: leave, before: held("node-a", before), holder: before, keys: 1},
		"this node keeps the reservation": {call: keep, before: held(thisNode, own), holder: own.FenceOnly(),
			keys: 1},
		"this node keeps the reservation of a former path": {call: keep, before: held("former path", own),
			holder: own.FenceOnly(), keys: 1},
		"another node holds what this one is to keep": {call: keep, before: held("node-a", before), holder: before, keys: 1},
		"everything is cleared":                       {call: clearAll, before: held("node-a", before)},
		"a lost node is fenced": {call: fence(false), before: held("node-a", victim), holder: own.FenceOnly(), keys: 1,
			want: outcome{changed: true}},
		"a lost node was fenced before": {call: fence(true), before: held(thisNode, own.FenceOnly()), holder: own.FenceOnly(),
			keys: 1},
		"a fence that has pre-empted nothing": {call: fence(false), before: held(thisNode, own.FenceOnly()),
			holder: own.FenceOnly(), keys: 1, fails: provisioner.FailedPrecondition},
		"a fence by a disk that takes both nodes for one initiator": {call: fence(false), before: held(thisNode, victim),
			want: outcome{changed: true}, holder: own.FenceOnly(), keys: 1, fails: provisioner.FailedPrecondition},
		"a lost node that holds no reservation": {call: fence(false), fails: provisioner.FailedPrecondition},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			prepare := func(t *testing.T) (*faulty.Faults, *sharedisk.Disk, func() (outcome, error)) {
				f, disk := &faulty.Faults{}, &sharedisk.Disk{}
				if test.before != nil {
					test.before(t, disk)
				}
				under := test.disk
				under.Reservations = on(disk, thisNode)
				r := reservation.Reserver{Disk: faulty.Reservations{Reservations: under, Faults: f}}
				return f, disk, func() (outcome, error) { return test.call(t.Context(), r, f, disk) }
			}
			_, disk, call := prepare(t)
			got, err := call()
			if got != test.want || (err != nil) != (test.fails != "") || err != nil &&
				(!errors.Is(err, test.fails) || !strings.Contains(err.Error(), test.says)) {
				t.Errorf("got %+v, %v; want %+v, error %q with %q", got, err, test.want, test.fails, test.says)
			}
			if state := disk.State(); state.Holder != test.holder || len(state.Keys) != test.keys {
				t.Errorf("the disk has %s, want holder %s and %d keys", state, test.holder, test.keys)
			}
			faulty.EachAccess(t, func(t *testing.T) (*faulty.Faults, func() error) {
				f, _, call := prepare(t)
				return f, func() error { _, err := call(); return err }
			}, test.survived...)
		})
	}
}

// The key may be registered if the fence has failed after it was sent.
func TestAFenceThatFailsSaysWhetherTheDiskMayHaveItsKey(t *testing.T) {
	t.Parallel()
	for at, want := range map[string]bool{
		"read the reservation 1": false, "register 1": true, "read the reservation 2": true, "record 1": true, "pre-empt 1": true,
		"read the reservation 3": true,
	} {
		for n := 1; ; n++ {
			f, disk := &faulty.Faults{}, &sharedisk.Disk{}
			held("node-a", victim)(t, disk)
			r := reservation.Reserver{Disk: faulty.Reservations{Reservations: on(disk, thisNode), Faults: f}}
			f.Arm(n)
			got, err := fence(false)(t.Context(), r, f, disk)
			if f.Failed() == "" {
				t.Fatalf("the fence makes no access %q", at)
			}
			if f.Failed() == at {
				if err == nil || got.changed != want {
					t.Errorf("%s failed: got changed %t, %v; want %t, and an error", at, got.changed, err, want)
				}
				break
			}
		}
	}
}

// conflicting is a disk whose state changes before each command.
type conflicting struct {
	provisioner.Reservations
	commands int
}

func (c *conflicting) Register(context.Context, string, provisioner.ReservationKey) error {
	c.commands++
	return provisioner.Errorf(provisioner.Conflict, "the key has changed")
}

func TestADiskThatRefusesEveryCommandIsNotAskedForEver(t *testing.T) {
	t.Parallel()
	disk := &sharedisk.Disk{}
	c := &conflicting{Reservations: on(disk, thisNode)}
	_, _, err := reservation.Reserver{Disk: c}.Reserve(t.Context(), path, disk.State(), fencing.Owner{Key: own})
	if !errors.Is(err, provisioner.Unavailable) || c.commands < 2 {
		t.Errorf("got %v after %d commands, want Unavailable after several", err, c.commands)
	}
}
