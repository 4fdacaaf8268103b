package history_test

import (
	"testing"
	"time"

	"github.com/azuredisk-csi/azuredisk/playground/history"
	"github.com/azuredisk-csi/azuredisk/playground/recorder"
)

// file builds the lines of a disk.
type file []recorder.Entry

func (f file) record(start, sequence int64, writer string) file {
	return append(f, recorder.Entry{Line: len(f) + 1, Record: record(start, sequence, writer)})
}

func (f file) damage() file {
	return append(f, recorder.Entry{Line: len(f) + 1, Damaged: true})
}

func record(start, sequence int64, writer string) recorder.Record {
	at := time.Unix(1000*start+sequence, 0).UTC()
	return recorder.Record{Sequence: sequence, Start: start, Writer: writer, Time: at}
}

func (f file) acks() []recorder.Ack {
	var acks []recorder.Ack
	for _, e := range f {
		if !e.Damaged {
			acks = append(acks, recorder.Ack{Record: e.Record})
		}
	}
	return acks
}

// move is two writers that followed one another as they should.
func move() file {
	return file{}.record(1, 1, "a").record(1, 2, "a").record(2, 3, "b").record(2, 4, "b")
}

func TestCheckFindsWhatDoesNotBelong(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		disk file
		acks []recorder.Ack
		lost int
		kind []history.Kind
		torn int
	}{
		"nothing was ever written":                             {},
		"two writers that followed one another are clean":      {disk: move(), acks: move().acks()},
		"a record that was not acknowledged may be there":      {disk: move(), acks: move().acks()[:2]},
		"an acknowledged record that is missing is lost":       {disk: move(), acks: move().record(2, 5, "b").acks(), lost: 1},
		"every acknowledged record is lost from an empty disk": {acks: move().acks(), lost: 4},
		"the same number by another writer is not the record":  {disk: move(), acks: file{}.record(1, 3, "a").acks(), lost: 1},
		"the same number at another time is not the record": {disk: move(),
			acks: []recorder.Ack{{Record: recorder.Record{Sequence: 1, Start: 1, Writer: "a", Time: time.Unix(5, 0)}}}, lost: 1},
		"the old writer continues after the new one has begun": {disk: move().record(1, 5, "a"),
			kind: []history.Kind{history.KindOldWriter}},
		"the old writer repeats a number of the new one": {disk: move().record(1, 3, "a"),
			kind: []history.Kind{history.KindOldWriter}},
		"two writers begin from the same content": {disk: file{}.record(1, 1, "a").record(1, 2, "b"),
			kind: []history.Kind{history.KindTwoWriters}},
		"a number comes twice":        {disk: move().record(2, 4, "b"), kind: []history.Kind{history.KindDuplicate}},
		"a number is missing":         {disk: move().record(2, 6, "b"), kind: []history.Kind{history.KindGap}},
		"the first number is missing": {disk: file{}.record(1, 2, "a"), kind: []history.Kind{history.KindGap}},
		"a lost record that leaves a gap is both": {disk: file{}.record(1, 1, "a").record(1, 3, "a"),
			acks: file{}.record(1, 2, "a").acks(), lost: 1, kind: []history.Kind{history.KindGap}},
		"a write that was cut off before the next writer": {disk: file{}.record(1, 1, "a").damage().record(2, 2, "b"), torn: 1},
		"a write that was cut off at the end":             {disk: file{}.record(1, 1, "a").damage(), torn: 1},
		"damage after which the same writer continues": {disk: file{}.record(1, 1, "a").damage().record(1, 2, "a"),
			kind: []history.Kind{history.KindDamaged}},
		"damage of more than one line is no write that was cut": {
			disk: file{}.record(1, 1, "a").damage().damage().record(2, 2, "b"),
			kind: []history.Kind{history.KindDamaged, history.KindDamaged}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			result := history.Check(test.acks, test.disk)
			if len(result.Lost) != test.lost {
				t.Errorf("lost %v, want %d", result.Lost, test.lost)
			}
			var kinds []history.Kind
			for _, f := range result.Foreign {
				kinds = append(kinds, f.Kind)
			}
			if len(kinds) != len(test.kind) {
				t.Fatalf("foreign: %+v, want %v", result.Foreign, test.kind)
			}
			for i := range kinds {
				if kinds[i] != test.kind[i] {
					t.Errorf("finding %d is %q, want %q", i, kinds[i], test.kind[i])
				}
			}
			if result.Torn != test.torn {
				t.Errorf("%d torn lines, want %d", result.Torn, test.torn)
			}
			if clean := test.lost == 0 && len(test.kind) == 0; result.Clean() != clean {
				t.Errorf("Clean() is %t, want %t", result.Clean(), clean)
			}
		})
	}
}
