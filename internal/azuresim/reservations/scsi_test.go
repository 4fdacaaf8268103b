package reservations_test

import (
	"encoding/binary"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/azuredisk-csi/azuredisk/internal/azuresim/reservations"
)

const (
	we, ea, wero, earo, wear, eaar = 1, 3, 5, 6, 7, 8
)

// out is PERSISTENT RESERVE OUT.
func out(action, reservationType byte, key, other uint64) (cdb, list []byte) {
	cdb = []byte{reservations.OpOut, action, reservationType, 0, 0, 0, 0, 0, 24, 0}
	list = binary.BigEndian.AppendUint64(nil, key)
	list = binary.BigEndian.AppendUint64(list, other)
	return cdb, append(list, 0, 0, 0, 0, 1, 0, 0, 0)
}

// describe is a state as text: the generation, each initiator with its key, and the reservation.
func describe(s reservations.State) string {
	var parts []string
	for _, r := range s.Registrations {
		parts = append(parts, fmt.Sprintf("%s=%x", r.Initiator, r.Key))
	}
	return fmt.Sprintf("%d [%s] %d %s", s.Generation, strings.Join(parts, " "), s.Type, s.Holder)
}

type step struct {
	vm         string
	action, t  byte
	key, other uint64
	want       reservations.Status
}

const (
	good     = reservations.Good
	check    = reservations.CheckCondition
	conflict = reservations.Conflict
)

func TestCommandsOfSPC4(t *testing.T) {
	t.Parallel()
	register := func(vm string, key uint64) step { return step{vm, reservations.RegisterAndIgnore, 0, 0, key, good} }
	reserve := func(vm string, t byte, key uint64) step { return step{vm, reservations.Reserve, t, key, 0, good} }
	for name, c := range map[string]struct {
		steps []step
		want  string // state
		abort string
	}{
		"register, without a key before": {[]step{{"a", reservations.Register, 0, 0, 1, good}}, "1 [a=1] 0 ", "[]"},
		"register, with a wrong key before": {[]step{register("a", 1), {"a", reservations.Register, 0, 7, 2, conflict}},
			"1 [a=1] 0 ", "[]"},
		"register, unknown with a key before": {[]step{{"a", reservations.Register, 0, 7, 2, conflict}}, "0 [] 0 ", "[]"},
		"another key for the holder": {[]step{register("a", 1), reserve("a", we, 1), register("a", 2)},
			"2 [a=2] 1 a", "[]"},
		"unregister": {[]step{register("a", 1), {"a", reservations.Register, 0, 1, 0, good}},
			"2 [] 0 ", "[]"},
		"unregister what is not there, ignoring": {[]step{register("a", 0)}, "1 [] 0 ", "[]"},
		"unregister the holder": {[]step{register("a", 1), register("b", 2), reserve("a", wero, 1),
			register("a", 0)}, "3 [b=2] 0 ", "[]"},
		"unregister one of all holders": {[]step{register("a", 1), register("b", 2), reserve("a", wear, 1),
			register("a", 0)}, "3 [b=2] 7 ", "[]"},
		"unregister the last of all holders": {[]step{register("a", 1), reserve("a", wear, 1), register("a", 0)},
			"2 [] 0 ", "[]"},
		"reserve without a registration": {[]step{{"a", reservations.Reserve, we, 0, 0, conflict}}, "0 [] 0 ", "[]"},
		"reserve with a wrong key": {[]step{register("a", 1), {"a", reservations.Reserve, we, 2, 0, conflict}},
			"1 [a=1] 0 ", "[]"},
		"reserve twice": {[]step{register("a", 1), reserve("a", we, 1), reserve("a", we, 1)},
			"1 [a=1] 1 a", "[]"},
		"reserve with another type": {[]step{register("a", 1), reserve("a", we, 1),
			{"a", reservations.Reserve, ea, 1, 0, conflict}}, "1 [a=1] 1 a", "[]"},
		"reserve what another holds": {[]step{register("a", 1), register("b", 2), reserve("a", we, 1),
			{"b", reservations.Reserve, we, 2, 0, conflict}}, "2 [a=1 b=2] 1 a", "[]"},
		"reserve what all hold": {[]step{register("a", 1), register("b", 2), reserve("a", eaar, 1),
			reserve("b", eaar, 2)}, "2 [a=1 b=2] 8 ", "[]"},
		"reserve with a type that there is not": {[]step{register("a", 1), {"a", reservations.Reserve, 2, 1, 0, check}},
			"1 [a=1] 0 ", "[]"},
		"reserve an element": {[]step{register("a", 1),
			{"a", reservations.Reserve, 0x20 | we, 1, 0, check}}, "1 [a=1] 0 ", "[]"},
		"release": {[]step{register("a", 1), reserve("a", we, 1),
			{"a", reservations.Release, we, 1, 0, good}}, "1 [a=1] 0 ", "[]"},
		"release what another holds": {[]step{register("a", 1), register("b", 2), reserve("a", we, 1),
			{"b", reservations.Release, we, 2, 0, good}}, "2 [a=1 b=2] 1 a", "[]"},
		"release without a registration": {[]step{{"a", reservations.Release, we, 1, 0, conflict}}, "0 [] 0 ", "[]"},
		"release with another type": {[]step{register("a", 1), reserve("a", we, 1),
			{"a", reservations.Release, ea, 1, 0, check}}, "1 [a=1] 1 a", "[]"},
		"clear": {[]step{register("a", 1), register("b", 2), reserve("a", we, 1),
			{"b", reservations.Clear, 0, 2, 0, good}}, "3 [] 0 ", "[]"},
		"clear without a registration": {[]step{register("a", 1), {"b", reservations.Clear, 0, 1, 0, conflict}},
			"1 [a=1] 0 ", "[]"},
		"preempt the holder": {[]step{register("a", 1), register("b", 2), reserve("a", we, 1),
			{"b", reservations.Preempt, we, 2, 1, good}}, "3 [b=2] 1 b", "[]"},
		"preempt and abort the holder": {[]step{register("a", 1), register("b", 2), reserve("a", we, 1),
			{"b", reservations.PreemptAndAbort, wero, 2, 1, good}}, "3 [b=2] 5 b", "[a]"},
		"preempt one that does not hold": {[]step{register("a", 1), register("b", 2), register("c", 3),
			reserve("a", we, 1), {"b", reservations.PreemptAndAbort, we, 2, 3, good}}, "4 [a=1 b=2] 1 a", "[c]"},
		"preempt where nothing is reserved": {[]step{register("a", 1), register("b", 2),
			{"b", reservations.PreemptAndAbort, we, 2, 1, good}}, "3 [b=2] 0 ", "[a]"},
		"preempt a key that is not registered": {[]step{register("b", 2),
			{"b", reservations.PreemptAndAbort, we, 2, 9, conflict}}, "1 [b=2] 0 ", "[]"},
		"preempt without a registration": {[]step{register("a", 1), reserve("a", we, 1),
			{"b", reservations.PreemptAndAbort, we, 2, 1, conflict}}, "1 [a=1] 1 a", "[]"},
		"preempt nothing": {[]step{register("a", 1), register("b", 2), reserve("a", we, 1),
			{"b", reservations.Preempt, we, 2, 0, check}}, "2 [a=1 b=2] 1 a", "[]"},
		"preempt all of all holders": {[]step{register("a", 1), register("b", 2), register("c", 3),
			reserve("a", wear, 1), {"b", reservations.PreemptAndAbort, we, 2, 0, good}}, "4 [b=2] 1 b", "[a c]"},
		"preempt one of all holders": {[]step{register("a", 1), register("b", 2), reserve("a", wear, 1),
			{"b", reservations.PreemptAndAbort, wear, 2, 1, good}}, "3 [b=2] 7 ", "[a]"},
		"preempt two with one key": {[]step{register("a", 1), register("c", 1), register("b", 2),
			reserve("a", we, 1), {"b", reservations.PreemptAndAbort, we, 2, 1, good}}, "4 [b=2] 1 b", "[a c]"},
		"preempt the holder with the same key": {[]step{register("a", 1), register("b", 1), reserve("a", we, 1),
			{"b", reservations.PreemptAndAbort, we, 1, 1, good}}, "3 [b=1] 1 b", "[a]"},
		"preempt oneself": {[]step{register("a", 1), reserve("a", we, 1),
			{"a", reservations.PreemptAndAbort, ea, 1, 1, good}}, "2 [a=1] 3 a", "[]"},
		"register and move": {[]step{register("a", 1), {"a", 0x07, 0, 1, 2, check}}, "1 [a=1] 0 ", "[]"},
		"the commands of a VM that was pre-empted": {[]step{register("a", 1), register("b", 2), reserve("a", we, 1),
			{"b", reservations.Preempt, we, 2, 1, good}, {"a", reservations.Reserve, we, 1, 0, conflict},
			{"a", reservations.PreemptAndAbort, we, 1, 2, conflict}}, "3 [b=2] 1 b", "[]"},
		"a VM that was pre-empted registers again": {[]step{register("a", 1), register("b", 2), reserve("a", we, 1),
			{"b", reservations.Preempt, we, 2, 1, good}, register("a", 3)}, "4 [b=2 a=3] 1 b", "[]"},
		"a holder that is registered as another one": {[]step{register("a", 1), reserve("a", we, 1), register("a", 5),
			{"a", reservations.Release, we, 5, 0, good}}, "2 [a=5] 0 ", "[]"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var state reservations.State
			var abort []string
			for i, s := range c.steps {
				cdb, list := out(s.action, s.t, s.key, s.other)
				answer := state.Execute(s.vm, cdb, list)
				if answer.Status != s.want {
					t.Fatalf("step %d, service action %#x of %s: got status %#x, want %#x", i, s.action, s.vm, answer.Status,
						s.want)
				}
				state, abort = answer.State, answer.Abort
			}
			if got := describe(state); got != c.want || fmt.Sprint(abort) != c.abort {
				t.Errorf("got state %q and aborted %v, want %q and %s", got, abort, c.want, c.abort)
			}
		})
	}
}

// TestWhoMayReadAndWrite is the table "reservation type against access" of Azure's page about
// shared disks.
func TestWhoMayReadAndWrite(t *testing.T) {
	t.Parallel()
	for reservationType, want := range map[reservations.Type]string{ // holder, registered, others
		0: "rw rw rw", we: "rw r r", ea: "rw - -", wero: "rw rw r", earo: "rw rw -", wear: "rw rw r", eaar: "rw rw -",
	} {
		state := reservations.State{
			Type:          reservationType,
			Registrations: []reservations.Registration{{Initiator: "holder", Key: 1}, {Initiator: "registered", Key: 2}},
		}
		if reservationType != 0 && reservationType < wear {
			state.Holder = "holder"
		}
		var got []string
		for _, vm := range []string{"holder", "registered", "other"} {
			access := ""
			if state.Allows(vm, false) {
				access += "r"
			}
			if state.Allows(vm, true) {
				access += "w"
			}
			if access == "" {
				access = "-"
			}
			got = append(got, access)
		}
		if got := strings.Join(got, " "); got != want {
			t.Errorf("type %d: holder, registered and other VM may %q, want %q", reservationType, got, want)
		}
	}
}

func TestReadingTheState(t *testing.T) {
	t.Parallel()
	state := reservations.State{
		Generation:    7,
		Registrations: []reservations.Registration{{Initiator: "a", Key: 0x11}, {Initiator: "b", Key: 0x22}},
		Type:          we,
		Holder:        "b",
	}
	for name, c := range map[string]struct {
		action byte
		length byte
		want   []byte
	}{
		"keys":          {0, 255, []byte{0, 0, 0, 7, 0, 0, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0x11, 0, 0, 0, 0, 0, 0, 0, 0x22}},
		"keys, cut off": {0, 8, []byte{0, 0, 0, 7, 0, 0, 0, 16}},
		"reservation":   {1, 255, []byte{0, 0, 0, 7, 0, 0, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0x22, 0, 0, 0, 0, 0, 1, 0, 0}},
		"capabilities":  {2, 255, []byte{0, 8, 1, 0x81, 0xEA, 1, 0, 0}},
	} {
		answer := state.Execute("c", []byte{reservations.OpIn, c.action, 0, 0, 0, 0, 0, 0, c.length, 0}, nil)
		if answer.Status != good || !reflect.DeepEqual(answer.Data, c.want) || !reflect.DeepEqual(answer.State, state) {
			t.Errorf("%s: got status %#x, % x, want % x", name, answer.Status, answer.Data, c.want)
		}
	}
	for name, cdb := range map[string][]byte{
		"another command":             {0x12, 0, 0, 0, 0, 0, 0, 0, 24, 0},
		"a command that is too short": {reservations.OpIn, 0, 0, 0, 0, 0},
		"a parameter list too short":  {reservations.OpOut, 0, 0, 0, 0, 0, 0, 0, 8, 0},
	} {
		if answer := state.Execute("a", cdb, nil); answer.Status != check || answer.Sense[2] != 5 {
			t.Errorf("%s: got status %#x, sense % x, want ILLEGAL REQUEST", name, answer.Status, answer.Sense)
		}
	}
}

// TestRandomCommandsKeepTheState plays commands and checks what SPC-4 says of every state and
// answer.
func TestRandomCommandsKeepTheState(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var state reservations.State
		for range rapid.IntRange(1, 60).Draw(t, "commands") {
			vm := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "VM")
			action := rapid.ByteRange(0, 7).Draw(t, "service action")
			cdb, list := out(action, rapid.ByteRange(0, 8).Draw(t, "type"),
				rapid.Uint64Range(0, 3).Draw(t, "key"), rapid.Uint64Range(0, 3).Draw(t, "service action key"))
			before := describe(state)
			answer := state.Execute(vm, cdb, list)
			if describe(state) != before {
				t.Fatalf("the command changed the state that it was given: got %q, want %q", describe(state), before)
			}
			if answer.Status != good && describe(answer.State) != before {
				t.Fatalf("a refused command changed the state: got %q, want %q", describe(answer.State), before)
			}
			counts := action != reservations.Reserve && action != reservations.Release
			if grown := answer.State.Generation - state.Generation; answer.Status == good && (grown == 1) != counts {
				t.Fatalf("service action %#x: the generation grew by %d", action, grown)
			}
			state = answer.State
			registered := map[string]bool{}
			for _, r := range state.Registrations {
				if registered[r.Initiator] || r.Key == 0 {
					t.Fatalf("state %q: an initiator is there twice, or has no key", describe(state))
				}
				registered[r.Initiator] = true
			}
			for _, gone := range answer.Abort {
				if registered[gone] || gone == vm {
					t.Fatalf("state %q: %s was aborted and is registered, or sent the command", describe(state), gone)
				}
			}
			held := state.Holder != "" && registered[state.Holder] || state.Holder == "" && state.Type >= wear &&
				len(registered) > 0
			if (state.Type != 0) != held {
				t.Fatalf("state %q: reserved %t, want it exactly if a registered initiator holds the reservation",
					describe(state), state.Type != 0)
			}
		}
	})
}
