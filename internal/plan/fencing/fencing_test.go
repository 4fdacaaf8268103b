package fencing_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/azuredisk-csi/azuredisk/internal/plan/fencing"
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
	const otherProgram = provisioner.ReservationKey(0x6f3a0001)
	asked := fencing.Call{Registered: true, Asked: true, Aborts: true}
	noAbort := fencing.Call{Registered: true, Asked: true}
	refused := fencing.Call{Refused: true}
	refusedAgain := fencing.Call{Refused: true, Registered: true}
	elsewhere, err := provisioner.NewReservationKey(2, 3, "node-2", "disk")
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		state     provisioner.ReservationState
		call      fencing.Call
		exclusive bool
		want      fencing.Command
	}{
		"a disk that was never reserved":                {want: fencing.Register},
		"keys of others, no reservation":                {state: free(before, otherProgram), want: fencing.Register},
		"registered, and what it supports is not known": {state: free(own), want: fencing.Ask},
		"registered":                       {state: free(own), call: asked, want: fencing.Reserve},
		"registered, and it has no abort":  {state: free(own), call: noAbort, want: fencing.GiveUp},
		"registered by a former path":      {state: free(own), call: refused, want: fencing.Register},
		"registered again after a refusal": {state: free(own), call: refusedAgain, want: fencing.Ask},
		"reserved in this call": {state: held(own, own), call: fencing.Call{Held: true, Asked: true, Aborts: true},
			want: fencing.Done},
		"reserved in this call, and it has no abort": {state: held(own, own), call: fencing.Call{Held: true, Asked: true},
			want: fencing.GiveUp},
		"reserved in this call, after a restart": {
			state: held(own, own), call: fencing.Call{Held: true}, want: fencing.Ask},
		"reserved by this key, and by which path is open": {state: held(own, own), want: fencing.Reserve},
		"reserved by this key, and this path is refused":  {state: held(own, own), call: refused, want: fencing.Register},
		"reserved by this key by a former path": {
			state: held(own, own, own), call: refusedAgain, want: fencing.Preempt},
		"reserved by this key, registered again after a refusal": {
			state: held(own, own), call: refusedAgain, want: fencing.Reserve},
		"reserved in this call, and a former path is registered": {
			state: held(own, own, own), call: fencing.Call{Held: true}, want: fencing.Ask},
		"the registration has replaced another node's": {state: held(own, own),
			call: fencing.Call{Registered: true, Replaced: true}, want: fencing.GiveUp},
		"reserved under the epoch before": {state: held(before, before), want: fencing.Register},
		"the same, registered":            {state: held(before, before, own), want: fencing.Ask},
		"the same, registered and asked":  {state: held(before, before, own), call: asked, want: fencing.PreemptAndAbort},
		"the same, and it has no abort":   {state: held(before, before, own), call: noAbort, want: fencing.Preempt},
		"reserved by the node that fenced the one before": {state: held(before.FenceOnly(), before.FenceOnly(), own), call: asked,
			want: fencing.PreemptAndAbort},
		"reserved under a later epoch":                {state: held(after, after)},
		"reserved by the node that fences this one":   {state: held(fencedBy, fencedBy, own)},
		"kept by this node after it has unstaged":     {state: held(own.FenceOnly(), own.FenceOnly()), want: fencing.Register},
		"reserved by another node with the same hash": {state: held(own.FenceOnly(), own.FenceOnly(), own), call: asked},
		"reserved by a node of another cluster":       {state: held(elsewhere, elsewhere)},
		"the same, and no VM outside of this one has it": {state: held(elsewhere, elsewhere, own), call: asked, exclusive: true,
			want: fencing.PreemptAndAbort},
		"a later epoch, and no VM outside of this one": {state: held(after, after), exclusive: true},
		"reserved by another program":                  {state: held(otherProgram, otherProgram), exclusive: true},
		"reserved for all registrants": {
			state: provisioner.ReservationState{Type: provisioner.WriteExclusiveAllRegistrants,
				Keys: []provisioner.ReservationKey{own}}},
		"reserved by this key for registrants only": {state: forRegistrants(own)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := fencing.AtStage(test.state, fencing.Owner{Key: own, Exclusive: test.exclusive}, test.call)
			if got.Command != test.want || (err != nil) != (test.want == "") || err != nil &&
				!errors.Is(err, provisioner.FailedPrecondition) {
				t.Errorf("got %+v, %v; want %q, and FailedPrecondition without a command", got, err, test.want)
			}
		})
	}
}

func TestARefusalSaysWhetherThisNodeIsFenced(t *testing.T) {
	t.Parallel()
	own, other := key(t, 7, "node-1"), key(t, 7, "node-2")
	for holder, want := range map[provisioner.ReservationKey]string{
		other.FenceOnly(): "another node has fenced this one",
		other:             "it is reserved under epoch 7",
	} {
		_, err := fencing.AtStage(held(holder, holder), fencing.Owner{Key: own}, fencing.Call{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("reserved with key %s: got error %v, want one with %q", holder, err, want)
		}
	}
}

func TestAtUnstage(t *testing.T) {
	t.Parallel()
	own, other := key(t, 7, "node-1"), key(t, 7, "node-2")
	refused, refusedAgain := fencing.Call{Refused: true}, fencing.Call{Refused: true, Registered: true}
	for name, test := range map[string]struct {
		state provisioner.ReservationState
		call  fencing.Call
		want  fencing.Command
	}{
		"this node holds it":                    {state: held(own, own), want: fencing.Unregister},
		"this node is registered":               {state: held(other, other, own), want: fencing.Unregister},
		"this node is not registered":           {state: held(other, other), want: fencing.Done},
		"this path is refused":                  {state: held(own, own), call: refused, want: fencing.Register},
		"a former path holds it":                {state: held(own, own, own), call: refusedAgain, want: fencing.Preempt},
		"only the path that was refused has it": {state: held(own, own), call: refusedAgain, want: fencing.Unregister},
	} {
		if got := fencing.AtUnstage(test.state, own, test.call); got.Command != test.want {
			t.Errorf("%s: got %+v, want %s", name, got, test.want)
		}
	}
}

func TestAtKeep(t *testing.T) {
	t.Parallel()
	own, other := key(t, 7, "node-1"), key(t, 7, "node-2").FenceOnly()
	keep, registered := own.FenceOnly(), fencing.Call{Registered: true}
	for name, test := range map[string]struct {
		state provisioner.ReservationState
		call  fencing.Call
		want  fencing.Command
	}{
		"this node holds it as the owner":             {state: held(own, own), want: fencing.Register},
		"a former path holds it as the owner":         {state: held(own, own, keep), call: registered, want: fencing.Preempt},
		"this node keeps it":                          {state: held(keep, keep, own), want: fencing.Done},
		"another node has fenced this one":            {state: held(other, other), want: fencing.Done},
		"another node has fenced this registered one": {state: held(other, other, own), call: registered, want: fencing.Done},
	} {
		if got := fencing.AtKeep(test.state, own, keep, test.call); got.Command != test.want {
			t.Errorf("%s: got %+v, want %s", name, got, test.want)
		}
	}
}

func TestAtFence(t *testing.T) {
	t.Parallel()
	victim, own, next := key(t, 7, "node-1"), key(t, 7, "node-2").FenceOnly(), key(t, 8, "node-3")
	recorded := fencing.Call{Recorded: true}
	for name, test := range map[string]struct {
		state provisioner.ReservationState
		call  fencing.Call
		want  fencing.Command
	}{
		"the lost node holds it":                             {state: held(victim, victim), want: fencing.Register},
		"the lost node holds it, and this one is registered": {state: held(victim, victim, own), want: fencing.Record},
		"the same, recorded": {
			state: held(victim, victim, own), call: recorded, want: fencing.PreemptAndAbort},
		"registered by a former path": {state: held(victim, victim, own), call: fencing.Call{Recorded: true, Refused: true},
			want: fencing.Register},
		"registered again after a refusal": {state: held(victim, victim, own),
			call: fencing.Call{Recorded: true, Refused: true, Registered: true}, want: fencing.PreemptAndAbort},
		"this node has taken it":                                {state: held(own, own), call: recorded, want: fencing.Done},
		"this node's registration has replaced the lost node's": {state: held(own, own)},
		"this node has it, and the lost one registered again":   {state: held(own, own, victim), call: recorded},
		"no reservation": {state: free(own)},
		"no reservation, and the lost node is registered": {state: free(own, victim)},
		"the next owner has it":                           {state: held(next, next), call: recorded},
		"the lost node holds it for registrants only":     {state: forRegistrants(victim), call: recorded},
		"this node holds it for registrants only":         {state: forRegistrants(own), call: recorded},
		"another node has taken it":                       {state: held(key(t, 7, "node-4").FenceOnly())},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := fencing.AtFence(test.state, own, victim, test.call)
			if got.Command != test.want || (err != nil) != (test.want == "") || err != nil &&
				!errors.Is(err, provisioner.FailedPrecondition) {
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

func forRegistrants(holder provisioner.ReservationKey) provisioner.ReservationState {
	return provisioner.ReservationState{Type: provisioner.WriteExclusiveRegistrantsOnly, Holder: holder,
		Keys: []provisioner.ReservationKey{holder}}
}

// TestAFencedNodeNeverWrites interleaves a node that stages and writes, one that fences it, and the
// next owner. Each reads in one step and sends the command in a later one.
func TestAFencedNodeNeverWrites(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		disk := &sharedisk.Disk{}
		before := &actor{node: "before", key: key(t, 1, "before")}
		before.stages()
		old := &actor{node: "old", key: key(t, 2, "old")}
		old.stages()
		fencer := &actor{node: "fencer", key: key(t, 2, "fencer").FenceOnly()}
		oneInitiator := rapid.Bool().Draw(t, "the disk takes both nodes for one initiator")
		if oneInitiator {
			old.node = fencer.node
		}
		fencer.decide = func(s provisioner.ReservationState) (fencing.Step, error) {
			return fencing.AtFence(s, fencer.key, old.key, fencer.call)
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
				a.begin() // its plug-in was restarted, or the kubelet repeats the call
			}
			if a == old && !oneInitiator && !fencer.done() && a.done() && rapid.IntRange(0, 9).Draw(t, "its path changes") == 0 {
				a.node += "'"
				a.begin()
			}
			a.step(t, disk)
			if fencer.done() && oneInitiator {
				t.Fatalf("a fence of a node that the disk takes for the same initiator is a proof: the disk has %s", disk.State())
			}
			if a == old && a.done() && !fencer.done() && disk.State().Holder == old.key && !disk.Allows(old.node, true) {
				t.Fatalf("the disk refuses the writes of the node that has staged: it has %s", disk.State())
			}
			if fencer.done() && disk.Allows(old.node, true) {
				t.Fatalf("after the proof the disk takes writes of the fenced node: %s", disk.State())
			}
			if next.done() && !next.gaveUp && !disk.Allows(next.node, true) {
				t.Fatalf("the disk refuses the writes of its owner: %s", disk.State())
			}
		}
		if !fencer.done() {
			return
		}
		if next.begin(); !next.run(t, disk) {
			t.Fatalf("the next owner could not stage: %v; the disk has %s", next.failed, disk.State())
		}
		if !next.leaves().run(t, disk) || disk.State().Type != provisioner.NoReservation || len(disk.State().Keys) > 1 {
			t.Fatalf("after the owner left, the disk has %s, want no reservation and no key but the fenced node's", disk.State())
		}
	})
}

// actor is a node that follows a decision.
type actor struct {
	call   fencing.Call
	gaveUp bool
	node   string
	key    provisioner.ReservationKey
	decide func(provisioner.ReservationState) (fencing.Step, error)
	next   fencing.Step
	ended  bool
	failed error
}

func (a *actor) stages() *actor {
	a.decide = func(s provisioner.ReservationState) (fencing.Step, error) {
		return fencing.AtStage(s, fencing.Owner{Key: a.key}, a.call)
	}
	return a
}

func (a *actor) leaves() *actor {
	a.begin()
	a.decide = func(s provisioner.ReservationState) (fencing.Step, error) {
		return fencing.AtUnstage(s, a.key, a.call), nil
	}
	return a
}

// begin lets the node begin a call.
func (a *actor) begin() { a.ended, a.call, a.next = false, fencing.Call{}, fencing.Step{} }

func (a *actor) done() bool { return a.ended && a.failed == nil }

// run lets the node finish without another one in between, and reports whether it is done.
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
		a.gaveUp = next.Command == fencing.GiveUp
		a.failed, a.ended = err, err != nil || a.gaveUp || next.Command == fencing.Done
		if !a.ended {
			a.next = next
		}
		return
	}
	var err error
	device := sharedisk.Node{Name: a.node, Disk: func(context.Context, string) (*sharedisk.Disk, error) { return disk, nil }}
	switch a.next.Command {
	case fencing.Register:
		before := disk.State().Holder
		err = device.Register(t.Context(), "", a.key)
		a.call.Registered = true
		a.call.Replaced = before != 0 && before != a.key && !before.SameNode(a.key) && disk.State().Holder == a.key
	case fencing.Unregister:
		err = device.Unregister(t.Context(), "", a.key)
	case fencing.Ask:
		a.call.Aborts, err = device.Aborts(t.Context(), "", a.key)
		a.call.Asked = err == nil
	case fencing.Record:
		a.call.Recorded = true
	case fencing.Reserve:
		err = device.Reserve(t.Context(), "", a.key)
		a.call.Held = a.call.Held || err == nil
	case fencing.Preempt:
		err = device.Preempt(t.Context(), "", a.key, a.next.Victim)
		a.call.Held = a.call.Held || err == nil
	case fencing.PreemptAndAbort:
		err = device.PreemptAndAbort(t.Context(), "", a.key, a.next.Victim)
		a.call.Held = a.call.Held || err == nil
	default:
		t.Fatalf("unknown command %q", a.next.Command)
	}
	a.call.Refused = a.call.Refused || errors.Is(err, provisioner.Conflict)
	if err != nil && !errors.Is(err, provisioner.Conflict) { // a conflict changes nothing
		t.Fatalf("%s of %s: %v", a.next.Command, a.node, err)
	}
	a.next = fencing.Step{}
}
