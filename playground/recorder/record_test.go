package recorder

import (
	"bytes"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func drawRecord(t *rapid.T) Record {
	return Record{
		Sequence: rapid.Int64Range(1, maxSequence).Draw(t, "sequence"),
		Start:    rapid.Int64Range(1, maxStart).Draw(t, "start"),
		Writer:   rapid.StringMatching(`[a-z0-9-]{1,36}`).Draw(t, "writer"),
		Time:     time.Unix(0, rapid.Int64Range(0, 1<<62).Draw(t, "time")).UTC(),
	}
}

func TestARecordReadsBackAsItWasWritten(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		want := drawRecord(t)
		line, err := want.MarshalText()
		if err != nil {
			t.Fatal(err)
		}
		if len(line) != recordSize {
			t.Fatalf("a line of %d bytes, want %d", len(line), recordSize)
		}
		entries := Parse(line)
		if len(entries) != 1 || entries[0].Damaged || entries[0].Record != want {
			t.Fatalf("%+v, want %+v", entries, want)
		}
	})
}

func TestAChangedOrCutRecordIsDamaged(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		line, err := drawRecord(t).MarshalText()
		if err != nil {
			t.Fatal(err)
		}
		at := rapid.IntRange(0, len(line)-2).Draw(t, "position")
		changed := bytes.Clone(line)
		changed[at] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
		for _, content := range [][]byte{changed, line[:at+1], line[:len(line)-1]} {
			for _, e := range Parse(content) {
				if !e.Damaged {
					t.Fatalf("%q passes as %+v", content, e)
				}
			}
		}
	})
}

func TestARecordThatCannotBeStoredIsRefused(t *testing.T) {
	t.Parallel()
	good := Record{
		Sequence: 1,
		Start:    1,
		Writer:   "w",
		Time:     time.Unix(1, 0),
	}
	tests := map[string]func(*Record){
		"a sequence number of 0":         func(r *Record) { r.Sequence = 0 },
		"a sequence number too long":     func(r *Record) { r.Sequence = maxSequence + 1 },
		"a start number of 0":            func(r *Record) { r.Start = 0 },
		"no writer":                      func(r *Record) { r.Writer = "" },
		"a writer with a space":          func(r *Record) { r.Writer = "a b" },
		"a writer longer than a pod UID": func(r *Record) { r.Writer = string(bytes.Repeat([]byte("x"), writerSize+1)) },
	}
	for name, spoil := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := good
			spoil(&r)
			if line, err := r.MarshalText(); err == nil {
				t.Fatalf("stored as %q", line)
			}
		})
	}
}
