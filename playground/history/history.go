// Package history judges what a workload left on its disk: it compares the records
// that were acknowledged to a collector outside the nodes with the records that are
// on the disk. It is pure. Package scenario calls it after every scenario.
//
// Two laws are judged. Nothing that was acknowledged may be lost. And no writer may
// write after its successor has begun: a writer takes the next start number after
// the highest that it finds, so on the disk the start numbers never fall.
package history

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/azuredisk-csi/azuredisk/playground/recorder"
)

// Kind says why a line on the disk does not belong there.
type Kind string

const (
	// KindDamaged is a line that holds no whole record with a right checksum, where
	// a write that was cut off cannot explain it.
	KindDamaged Kind = "damaged"
	// KindOldWriter is a record of a writer after the first one of its successor.
	KindOldWriter Kind = "old writer"
	// KindTwoWriters is a record whose start number another writer took as well: both
	// began from the same content.
	KindTwoWriters Kind = "two writers"
	// KindDuplicate is a record whose sequence number was there before.
	KindDuplicate Kind = "duplicate"
	// KindGap is a record before which sequence numbers are missing.
	KindGap Kind = "gap"
)

// Finding is a line on the disk that does not belong there.
type Finding struct {
	Kind  Kind           `json:"kind"`
	Entry recorder.Entry `json:"entry"`
	// Detail names what was expected.
	Detail string `json:"detail"`
}

// Result is the judgement.
type Result struct {
	// Acknowledged counts the acknowledged records.
	Acknowledged int
	// OnDisk counts the whole records on the disk.
	OnDisk int
	// Writers counts the starts that are on the disk.
	Writers int
	// Lost are the acknowledged records that are not on the disk.
	Lost []recorder.Ack
	// Foreign are the lines that do not belong there, at most one finding each.
	Foreign []Finding
	// Torn counts the writes that were cut off: a damaged line between the last record
	// of one writer and the first of the next, or at the end. It was never acknowledged.
	Torn int
}

// Clean reports whether nothing was lost and nothing is foreign.
func (r Result) Clean() bool { return len(r.Lost) == 0 && len(r.Foreign) == 0 }

// Check judges. The acknowledgements may be in any order; the disk is in the order
// of the file.
func Check(acks []recorder.Ack, disk []recorder.Entry) Result {
	result := Result{Acknowledged: len(acks)}
	present := map[identity]bool{}
	for _, e := range disk {
		if !e.Damaged {
			present[identify(e.Record)] = true
			result.OnDisk++
		}
	}
	for _, a := range acks {
		if !present[identify(a.Record)] {
			result.Lost = append(result.Lost, a)
		}
	}
	slices.SortFunc(result.Lost, func(a, b recorder.Ack) int {
		return cmp.Or(cmp.Compare(a.Sequence, b.Sequence), cmp.Compare(a.Start, b.Start))
	})
	result.Foreign, result.Torn, result.Writers = walk(disk)
	return result
}

// identity is what makes a record the one that was acknowledged: the same number by
// another writer is another record.
type identity struct {
	sequence, start int64
	writer          string
	nanos           int64
}

func identify(r recorder.Record) identity {
	return identity{r.Sequence, r.Start, r.Writer, r.Time.UnixNano()}
}

func walk(disk []recorder.Entry) (foreign []Finding, torn, writers int) {
	var sequence, start int64 // the highest so far
	owner := map[int64]string{}
	for i, e := range disk {
		if e.Damaged {
			if cutOff(disk, i, start) {
				torn++
			} else {
				foreign = append(foreign, Finding{KindDamaged, e, "not a whole record, and the writer continued after it"})
			}
			continue
		}
		if _, seen := owner[e.Start]; !seen {
			owner[e.Start] = e.Writer
		}
		switch {
		case e.Start < start:
			foreign = append(foreign, Finding{KindOldWriter, e, fmt.Sprintf("writer %d had begun", start)})
		case owner[e.Start] != e.Writer:
			foreign = append(foreign, Finding{KindTwoWriters, e, fmt.Sprintf("start %d belongs to %s", e.Start, owner[e.Start])})
		case e.Sequence <= sequence:
			foreign = append(foreign, Finding{KindDuplicate, e, fmt.Sprintf("%d was there before", sequence)})
		case e.Sequence > sequence+1:
			foreign = append(foreign, Finding{KindGap, e, fmt.Sprintf("%d should be next", sequence+1)})
		}
		sequence, start = max(sequence, e.Sequence), max(start, e.Start)
	}
	return foreign, torn, len(owner)
}

// cutOff reports whether the damaged line can be the last, unfinished write of a
// writer that was killed: it is the only damaged one there and the next whole
// record, if any, is of a later writer.
func cutOff(disk []recorder.Entry, i int, start int64) bool {
	if i > 0 && disk[i-1].Damaged {
		return false
	}
	return i == len(disk)-1 || !disk[i+1].Damaged && disk[i+1].Start > start
}
