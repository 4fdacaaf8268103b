package reservation_test

import (
	"context"
	"errors"
	"testing"

	"pgregory.net/rapid"

	"github.com/azuredisk-csi/azuredisk/internal/plan/reservation"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/sharedisk"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

func key(t rapid.TB, epoch int64, node string) provisioner.ReservationKey {
	k, err := provisioner.NewReservationKey(1, epoch, node, "disk")
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestAtStage(t *testing.T) {
	t.Parallel()
	own, before, after := key(t, 7, "node-1"), key(t, 6, "node-2"), key(t, 8, "node-2")
	fencedBy := key(t, 7, "node-3").FenceOnly()
	const foreign = provisioner.ReservationKey(0x6f3a0001)
	for name, test := range map[string]struct {
		state provisioner.ReservationState
		want  reservation.Command
	}{
		"a disk that was never reserved":                  {provisioner.ReservationState{}, reservation.Register},
		"keys of others, no reservation":                  {free(before, foreign), reservation.Register},
		"registered":                                      {free(own), reservation.Reserve},
		"reserved":                                        {held(own, own), reservation.Done},
		"reserved by this key, and not registered":        {held(own), reservation.Register},
		"reserved under the epoch before":                 {held(before, before), reservation.Register},
		"reserved under the epoch before, and registered": {held(before, before, own), reservation.Preempt},
		"reserved by the node that fenced the one before": {held(before.FenceOnly(), before.FenceOnly(), own), reservation.Preempt},
		"reserved under a later epoch":                    {held(after, after), ""},
		"reserved by the node that fences this one":       {held(fencedBy, fencedBy, own), ""},
		"reserved by another program":                     {held(foreign, foreign), ""},
		"reserved for all registrants":                    {provisioner.ReservationState{Type: provisioner.WriteExclusiveAllRegistrants, Keys: []provisioner.ReservationKey{own}}, ""},
		"reserved by this key for registrants only":       {provisioner.ReservationState{Type: provisioner.WriteExclusiveRegistrantsOnly, Holder: own, Keys: []provisioner.ReservationKey{own}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := reservation.AtStage(test.state, own)
			if got.Command != test.want || (err != nil) != (test.want == "") || err != nil && !errors.Is(err, provisioner.FailedPrecondition) {
				t.Errorf("got %+v, %v; want %q, and FailedPrecondition without a command", got, err, test.want)
			}
		})
	}
}

func TestAtFence(t *testing.T) {
	t.Parallel()
	victim, own, next := key(t, 7, "node-1"), key(t, 7, "node-2").FenceOnly(), key(t, 8, "node-3")
	for name, test := range map[string]struct {
		state provisioner.ReservationState
		want  reservation.Command
	}{
		"the lost node holds it":                              {held(victim, victim), reservation.Register},
		"the lost node holds it, and this one is registered":  {held(victim, victim, own), reservation.Preempt},
		"this node has taken it":                              {held(own, own), reservation.Done},
		"this node has it, and the lost one registered again": {held(own, own, victim), ""},
		"no reservation":                                      {free(own), ""},
		"no reservation, and the lost node is registered":     {free(own, victim), ""},
		"the next owner has it":                               {held(next, next), ""},
		"another node has taken it":                           {held(key(t, 7, "node-4").FenceOnly()), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := reservation.AtFence(test.state, own, victim)
			if got.Command != test.want || (err != nil) != (test.want == "") || err != nil && !errors.Is(err, provisioner.FailedPrecondition) {
				t.Errorf("got %+v, %v; want %q, and FailedPrecondition without a command", got, err, test.want)
			}
		})
	}
}

func free(keys ...provisioner.ReservationKey) provisioner.ReservationState {
	return provisioner.ReservationState{Keys: keys}
}

func held(holder provisioner.ReservationKey, keys ...provisioner.ReservationKey) provisioner.ReservationState {
	return provisioner.ReservationState{Type: provisioner.WriteExclusive, Holder: holder, Keys: keys}
}

// TestAFencedNodeNeverWrites interleaves a node that stages and writes, one that fences it, and the next owner. Each reads in one step and
// sends the command in a later one.
func TestAFencedNodeNeverWrites(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		disk := &sharedisk.Disk{}
		before := &actor{node: "before", key: key(t, 1, "before")}
		before.stages()
		old := &actor{node: "old", key: key(t, 2, "old")}
		old.stages()
		fencer := &actor{node: "fencer", key: key(t, 2, "fencer").FenceOnly()}
		fencer.decide = func(s provisioner.ReservationState) (reservation.Step, error) {
			return reservation.AtFence(s, fencer.key, old.key)
		}
		nextNode := rapid.SampledFrom([]string{"fencer", "other"}).Draw(t, "next owner")
		next := &actor{node: nextNode, key: key(t, 3, nextNode)}
		next.stages()
		if rapid.Bool().Draw(t, "the first owner left its reservation behind") {
			before.run(t, disk)
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			turn := []*actor{old, fencer}
			if fencer.done() {
				turn = append(turn, next) // the proof was recorded, and the next node owns the volume
			}
			a := rapid.SampledFrom(turn).Draw(t, "turn")
			if a.ended && a != fencer && rapid.Bool().Draw(t, "again") {
				a.ended = false // its plug-in was restarted, or the kubelet repeats the call
			}
			a.step(t, disk)
			if fencer.done() && disk.Allows(old.node, true) {
				t.Fatalf("after the proof the disk takes writes of the fenced node: %s", disk.State())
			}
			if next.done() && !disk.Allows(next.node, true) {
				t.Fatalf("the disk refuses the writes of its owner: %s", disk.State())
			}
		}
		if !fencer.done() {
			return
		}
		if next.ended = false; !next.run(t, disk) {
			t.Fatalf("the next owner could not stage: %v; the disk has %s", next.failed, disk.State())
		}
		if !next.leaves().run(t, disk) || disk.State().Type != provisioner.NoReservation || len(disk.State().Keys) > 1 {
			t.Fatalf("after the owner left, the disk has %s, want no reservation and no key but the fenced node's", disk.State())
		}
	})
}

// actor is a node that follows a decision.
type actor struct {
	node   string
	key    provisioner.ReservationKey
	decide func(provisioner.ReservationState) (reservation.Step, error)
	next   reservation.Step
	ended  bool
	failed error
}

func (a *actor) stages() *actor {
	a.decide = func(s provisioner.ReservationState) (reservation.Step, error) { return reservation.AtStage(s, a.key) }
	return a
}

func (a *actor) leaves() *actor {
	a.ended = false
	a.decide = func(s provisioner.ReservationState) (reservation.Step, error) {
		return reservation.AtUnstage(s, a.key), nil
	}
	return a
}

func (a *actor) done() bool { return a.ended && a.failed == nil }

// run lets the node finish without another one in between, and says whether it is done.
func (a *actor) run(t *rapid.T, disk *sharedisk.Disk) bool {
	for range 20 {
		if a.step(t, disk); a.ended {
			return a.done()
		}
	}
	t.Fatalf("%s does not end: %s", a.node, disk.State())
	return false
}

// step reads and decides, or sends what was decided.
func (a *actor) step(t *rapid.T, disk *sharedisk.Disk) {
	if a.next.Command == "" {
		next, err := a.decide(disk.State())
		a.failed, a.ended = err, err != nil || next.Command == reservation.Done
		if !a.ended {
			a.next = next
		}
		return
	}
	var err error
	device := sharedisk.Node{Name: a.node, Disk: func(context.Context, string) (*sharedisk.Disk, error) { return disk, nil }}
	switch a.next.Command {
	case reservation.Register:
		err = device.Register(t.Context(), "", a.key)
	case reservation.Unregister:
		err = device.Unregister(t.Context(), "", a.key)
	case reservation.Reserve:
		err = device.Reserve(t.Context(), "", a.key)
	case reservation.Preempt:
		err = device.PreemptAndAbort(t.Context(), "", a.key, a.next.Victim)
	default:
		t.Fatalf("unknown command %q", a.next.Command)
	}
	if err != nil && !errors.Is(err, provisioner.Conflict) { // a conflict changes nothing
		t.Fatalf("%s of %s: %v", a.next.Command, a.node, err)
	}
	a.next = reservation.Step{}
}
