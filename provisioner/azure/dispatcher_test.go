package azure

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func put(d *dispatcher, vm, disk string, v verb, shared bool) *entry {
	e := &entry{vm: vm, disk: disk, verb: v, shared: shared}
	d.add(e)
	return e
}

func TestARequestThatFindsTheVMIdleGoesAtOnceAndTheOthersTravelInTheNextCall(t *testing.T) {
	d := newDispatcher()
	first := put(d, "vm", "a", verbAttach, false)
	turns := d.startable()
	if len(turns) != 1 {
		t.Fatalf("turns %v", turns)
	}
	joins := put(d, "vm", "b", verbDetach, false)
	if got := d.take(turns[0]); !slices.Equal(got, []*entry{first, joins}) {
		t.Fatalf("who came during the reading is not on board: %v", got)
	}
	put(d, "vm", "c", verbAttach, false)
	put(d, "vm", "d", verbDetach, false)
	if turns := d.startable(); len(turns) != 0 {
		t.Fatalf("a second call of a busy VM: %v", turns)
	}
	d.end(turns[0], []*entry{first, joins})
	if got := d.take(d.startable()[0]); len(got) != 2 {
		t.Fatalf("the next call carries %d", len(got))
	}
}

func TestRequestsForOneDiskKeepTheirOrder(t *testing.T) {
	d := newDispatcher()
	out, in := put(d, "vm", "a", verbDetach, false), put(d, "vm", "a", verbAttach, false)
	turns := d.startable()
	if got := d.take(turns[0]); !slices.Equal(got, []*entry{out}) {
		t.Fatalf("first call: %v", got)
	}
	d.end(turns[0], []*entry{out})
	if got := d.take(d.startable()[0]); !slices.Equal(got, []*entry{in}) {
		t.Fatalf("second call: %v", got)
	}
}

func TestAForcedDetachDoesNotWaitAndHoldsBackTheNextOrdinaryCall(t *testing.T) {
	d := newDispatcher()
	a := put(d, "vm", "a", verbAttach, false)
	ordinary := d.startable()[0]
	d.take(ordinary)
	f := put(d, "vm", "b", verbForce, false)
	turns := d.startable()
	if len(turns) != 1 || !turns[0].forced {
		t.Fatalf("turns %v", turns)
	}
	d.take(turns[0])
	d.putBack(a)
	d.end(ordinary, []*entry{a})
	if again := d.startable(); len(again) != 0 {
		t.Fatalf("an ordinary call beside a forced one: %v", again)
	}
	d.end(turns[0], []*entry{f})
	if got := d.take(d.startable()[0]); !slices.Equal(got, []*entry{a}) {
		t.Fatalf("after the forced one: %v", got)
	}
}

func TestWhoComesDuringAForcedCallBoardsItUntilBoardingIsShut(t *testing.T) {
	d := newDispatcher()
	first := put(d, "vm", "a", verbForce, false)
	turn := d.startable()[0]
	d.take(turn)
	if d.boardable("vm") {
		t.Fatal("nobody waits")
	}
	again, second := put(d, "vm", "a", verbForce, false), put(d, "vm", "b", verbForce, false)
	if !d.boardable("vm") || len(d.startable()) != 0 {
		t.Fatal("the second does not board, or departs on its own")
	}
	if got := d.board("vm"); !slices.Equal(got, []*entry{second}) {
		t.Fatalf("on board are %v", got)
	}
	d.shut("vm")
	late := put(d, "vm", "c", verbForce, false)
	if d.boardable("vm") || len(d.board("vm")) != 0 {
		t.Fatal("somebody boards after boarding is shut")
	}
	d.end(turn, []*entry{first, second})
	if got := d.take(d.startable()[0]); !slices.Equal(got, []*entry{again, late}) {
		t.Fatalf("then %v", got)
	}
}

func TestNobodyBoardsThoseWhoTravelApart(t *testing.T) {
	d := newDispatcher()
	put(d, "vm", "a", verbForce, false)
	put(d, "vm", "b", verbForce, false)
	turn := d.startable()[0]
	taken := d.take(turn)
	d.split(taken...)
	d.end(turn, taken)
	turn = d.startable()[0]
	d.take(turn)
	put(d, "vm", "c", verbForce, false)
	if d.boardable("vm") {
		t.Fatal("somebody boards")
	}
}

func TestASharedDiskGoesToOneVMAfterTheOtherWithoutHoldingBackOtherDisks(t *testing.T) {
	d := newDispatcher()
	put(d, "vm1", "shared", verbAttach, true)
	one := d.startable()[0]
	taken := d.take(one)
	put(d, "vm2", "shared", verbAttach, true)
	other := put(d, "vm2", "other", verbAttach, false)
	two := d.startable()
	if len(two) != 1 {
		t.Fatalf("turns %v", two)
	}
	if got := d.take(two[0]); !slices.Equal(got, []*entry{other}) {
		t.Fatalf("vm2 carries %v", got)
	}
	d.end(two[0], []*entry{other})
	if again := d.startable(); len(again) != 0 {
		t.Fatalf("the shared disk goes twice: %v", again)
	}
	d.end(one, taken)
	if got := d.take(d.startable()[0]); len(got) != 1 || got[0].vm != "vm2" || got[0].disk != "shared" {
		t.Fatalf("then %v", got)
	}
}

func TestSplitRequestsTravelInHalvesAndAlone(t *testing.T) {
	d := newDispatcher()
	for _, disk := range []string{"a", "b", "c"} {
		put(d, "vm", disk, verbAttach, false)
	}
	turn := d.startable()[0]
	taken := d.take(turn)
	late := put(d, "vm", "late", verbAttach, false)
	d.split(taken...)
	d.end(turn, taken)
	var sizes []int
	for range 3 {
		turn = d.startable()[0]
		taken = d.take(turn)
		sizes = append(sizes, len(taken))
		d.end(turn, taken)
	}
	if !slices.Equal(sizes, []int{1, 2, 1}) || taken[0] != late {
		t.Fatalf("calls of %v", sizes)
	}
}

// world drives a dispatcher through random events and checks what must always hold.
type world struct {
	t        *rapid.T
	d        *dispatcher
	reading  []turn
	flying   map[turn][]*entry
	shut     map[turn]bool // forced turns whose boarding has ended
	foreign  []*entry
	order    map[string][]*entry // by VM and disk: ordinary requests that have not ended, in the order of their submission
	unserved int
}

func (w *world) submit() {
	v := rapid.SampledFrom([]verb{verbAttach, verbAttach, verbDetach, verbForce}).Draw(w.t, "verb")
	disk := rapid.IntRange(0, 4).Draw(w.t, "disk")
	e := put(w.d, fmt.Sprintf("vm%d", rapid.IntRange(0, 3).Draw(w.t, "vm")), fmt.Sprintf("disk%d", disk), v, disk < 2)
	w.unserved++
	if v != verbForce {
		w.order[e.vm+e.disk] = append(w.order[e.vm+e.disk], e)
	}
}

func (w *world) start() {
	for _, t := range w.d.startable() {
		if _, busy := w.flying[t]; busy || slices.Contains(w.reading, t) {
			w.t.Fatalf("%v departs twice", t)
		}
		w.reading = append(w.reading, t)
	}
}

func (w *world) take() {
	if len(w.reading) == 0 {
		return
	}
	i := rapid.IntRange(0, len(w.reading)-1).Draw(w.t, "read")
	t := w.reading[i]
	w.reading = slices.Delete(w.reading, i, i+1)
	taken := w.d.take(t)
	if len(taken) == 0 {
		return
	}
	seen := map[string]bool{}
	for _, e := range taken {
		if e.vm != t.vm || (e.verb == verbForce) != t.forced || seen[e.disk] {
			w.t.Fatalf("%v carries %v", t, e)
		}
		seen[e.disk] = true
		if line := w.order[e.vm+e.disk]; !t.forced && line[0] != e {
			w.t.Fatalf("%v overtakes on %s", e, e.disk)
		}
	}
	w.flying[t] = taken
	w.checkShared()
}

// forcedFlights returns the forced turns that are flying, in an order that repeats.
func (w *world) forcedFlights() []turn {
	var turns []turn
	for t := range w.flying {
		if t.forced {
			turns = append(turns, t)
		}
	}
	slices.SortFunc(turns, func(a, b turn) int { return strings.Compare(a.vm, b.vm) })
	return turns
}

func (w *world) board() {
	turns := w.forcedFlights()
	if len(turns) == 0 {
		return
	}
	t := rapid.SampledFrom(turns).Draw(w.t, "boarding")
	could := w.d.boardable(t.vm)
	boarded := w.d.board(t.vm)
	if could != (len(boarded) > 0) || could && w.shut[t] {
		w.t.Fatalf("boardable is %v, %d boarded, shut is %v", could, len(boarded), w.shut[t])
	}
	for _, e := range boarded {
		if e.vm != t.vm || e.verb != verbForce || slices.ContainsFunc(w.flying[t], func(other *entry) bool { return other.disk == e.disk }) {
			w.t.Fatalf("%v boards %v", e, t)
		}
		w.flying[t] = append(w.flying[t], e)
	}
	// A refused call leaves those who boarded behind.
	if len(boarded) > 0 && rapid.Bool().Draw(w.t, "refused") {
		w.d.putBack(boarded...)
		w.d.shut(t.vm)
		w.shut[t] = true
		w.flying[t] = w.flying[t][:len(w.flying[t])-len(boarded)]
	}
}

func (w *world) shutBoarding() {
	if turns := w.forcedFlights(); len(turns) > 0 {
		t := rapid.SampledFrom(turns).Draw(w.t, "shutting")
		w.d.shut(t.vm)
		w.shut[t] = true
	}
}

func (w *world) checkShared() {
	holders := map[string]int{}
	for _, taken := range w.flying {
		for _, e := range taken {
			if e.verb == verbAttach && e.shared {
				holders[e.disk]++
			}
		}
	}
	for disk, n := range holders {
		if n > 1 {
			w.t.Fatalf("%d attaches of shared %s at once", n, disk)
		}
	}
}

func (w *world) gone(e *entry) {
	w.unserved--
	if e.verb != verbForce {
		k := e.vm + e.disk
		w.order[k] = slices.DeleteFunc(w.order[k], func(other *entry) bool { return other == e })
	}
}

func (w *world) land(how string) {
	var turns []turn
	for t := range w.flying {
		turns = append(turns, t)
	}
	if len(turns) == 0 {
		return
	}
	slices.SortFunc(turns, func(a, b turn) int {
		return slices.Compare([]string{a.vm, fmt.Sprint(a.forced)}, []string{b.vm, fmt.Sprint(b.forced)})
	})
	t := rapid.SampledFrom(turns).Draw(w.t, "landing")
	taken := w.flying[t]
	delete(w.flying, t)
	delete(w.shut, t)
	served := taken
	switch {
	case how == "preempted" && !t.forced:
		served = nil
		w.d.putBack(taken...)
	case how == "refused" && len(taken) > 1:
		served = nil
		w.d.split(taken...)
	}
	for _, e := range served {
		w.gone(e)
	}
	w.d.end(t, taken)
}

func (w *world) withdraw() {
	for _, line := range w.order {
		if len(line) > 0 && w.d.withdraw(line[len(line)-1]) {
			w.gone(line[len(line)-1])
			return
		}
	}
}

func (w *world) resume() {
	e := &entry{vm: fmt.Sprintf("vm%d", rapid.IntRange(0, 3).Draw(w.t, "vm")), disk: "resumed", verb: verbAttach, shared: true}
	w.d.occupy(e)
	w.foreign = append(w.foreign, e)
}

func (w *world) vacate() {
	if len(w.foreign) > 0 {
		w.d.vacate(w.foreign[0])
		w.foreign = w.foreign[1:]
	}
}

func TestWhateverHappensEveryRequestIsServedInOrderAndNothingDeadlocks(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := &world{t: rt, d: newDispatcher(), flying: map[turn][]*entry{}, shut: map[turn]bool{}, order: map[string][]*entry{}}
		for range rapid.IntRange(1, 120).Draw(rt, "events") {
			switch rapid.SampledFrom([]string{"submit", "submit", "submit", "take", "take", "succeeded", "preempted", "refused", "withdraw", "resume", "vacate", "board", "shut"}).Draw(rt, "event") {
			case "submit":
				w.submit()
			case "take":
				w.take()
			case "succeeded":
				w.land("succeeded")
			case "preempted":
				w.land("preempted")
			case "refused":
				w.land("refused")
			case "withdraw":
				w.withdraw()
			case "resume":
				w.resume()
			case "vacate":
				w.vacate()
			case "board":
				w.board()
			case "shut":
				w.shutBoarding()
			}
			w.start()
		}
		for len(w.foreign) > 0 {
			w.vacate()
		}
		for w.unserved > 0 {
			w.start()
			if len(w.reading) == 0 && len(w.flying) == 0 {
				rt.Fatalf("%d requests wait and nothing is in flight", w.unserved)
			}
			for len(w.reading) > 0 {
				w.take()
			}
			w.land("succeeded")
		}
		for len(w.flying) > 0 {
			w.land("succeeded")
		}
		for w.start(); len(w.reading) > 0; w.start() {
			w.take()
		}
		if len(w.d.lanes) != 0 || len(w.d.holds) != 0 {
			rt.Fatalf("left over: lanes %v, holds %v", w.d.lanes, w.d.holds)
		}
	})
}
