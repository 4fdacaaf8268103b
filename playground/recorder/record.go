package recorder

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"strconv"
	"strings"
	"time"
)

// FileName is the file in the data directory that holds the records.
const FileName = "records"

// recordSize is the length of every record, line end included. Records are lines
// of text, so that a person can look at them with cat and tail.
const recordSize = 12 + 1 + 6 + 1 + writerSize + 1 + 19 + 1 + 8 + 1

const (
	writerSize  = 36 // the length of a pod's UID
	maxSequence = 999_999_999_999
	maxStart    = 999_999
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Record is one numbered entry of the file.
type Record struct {
	// Sequence counts the records of the file from 1, across all writers.
	Sequence int64 `json:"sequence"`
	// Start counts the writers of the file from 1: each one takes the next number
	// after the highest that it finds.
	Start int64 `json:"start"`
	// Writer identifies who wrote it: the UID of a pod. At most 36 characters and no space.
	Writer string `json:"writer"`
	// Time is the writer's clock just before the write.
	Time time.Time `json:"time"`
}

// MarshalText returns the record as the line that is stored, line end included.
func (r Record) MarshalText() ([]byte, error) {
	switch {
	case r.Sequence < 1 || r.Sequence > maxSequence:
		return nil, fmt.Errorf("sequence number %d is out of range", r.Sequence)
	case r.Start < 1 || r.Start > maxStart:
		return nil, fmt.Errorf("start number %d is out of range", r.Start)
	case r.Writer == "" || len(r.Writer) > writerSize || strings.ContainsAny(r.Writer, " \n\x00"):
		return nil, fmt.Errorf("writer %q is not 1 to %d characters without spaces", r.Writer, writerSize)
	}
	body := fmt.Appendf(nil, "%012d %06d %-*s %019d ", r.Sequence, r.Start, writerSize, r.Writer, r.Time.UnixNano())
	return fmt.Appendf(body, "%08x\n", crc32.Checksum(body, castagnoli)), nil
}

// parseRecord reads one line without its line end. It reports false for anything
// that MarshalText did not make.
func parseRecord(line []byte) (Record, bool) {
	if len(line) != recordSize-1 {
		return Record{}, false
	}
	body, sum := line[:len(line)-8], line[len(line)-8:]
	want, err := strconv.ParseUint(string(sum), 16, 32)
	if err != nil || uint32(want) != crc32.Checksum(body, castagnoli) {
		return Record{}, false
	}
	fields := strings.Fields(string(body))
	if len(fields) != 4 {
		return Record{}, false
	}
	sequence, err1 := strconv.ParseInt(fields[0], 10, 64)
	start, err2 := strconv.ParseInt(fields[1], 10, 64)
	nanos, err3 := strconv.ParseInt(fields[3], 10, 64)
	if err1 != nil || err2 != nil || err3 != nil {
		return Record{}, false
	}
	record := Record{
		Sequence: sequence,
		Start:    start,
		Writer:   fields[2],
		Time:     time.Unix(0, nanos).UTC(),
	}
	// A checksum in capitals has the same value, and was not written by us either.
	made, err := record.MarshalText()
	return record, err == nil && bytes.Equal(made[:len(made)-1], line)
}

// Entry is one line of the file as it was found.
type Entry struct {
	// Line counts from 1.
	Line int `json:"line"`
	// Damaged is set for a line that is no whole record with a right checksum; then
	// Record is empty.
	Damaged bool `json:"damaged,omitempty"`
	// Record that the line holds.
	Record
}

// Parse returns every line of a file of records in the order of the file. A last
// line without its end is damaged.
func Parse(content []byte) []Entry {
	var entries []Entry
	for len(content) > 0 {
		line, rest, ended := bytes.Cut(content, []byte{'\n'})
		entry := Entry{Line: len(entries) + 1, Damaged: true}
		if record, ok := parseRecord(line); ok && ended {
			entry.Record, entry.Damaged = record, false
		}
		entries = append(entries, entry)
		content = rest
	}
	return entries
}

// Last returns the highest sequence number and the highest start number of the
// entries, 0 and 0 if there is none.
func Last(entries []Entry) (sequence, start int64) {
	for _, e := range entries {
		if !e.Damaged {
			sequence, start = max(sequence, e.Sequence), max(start, e.Start)
		}
	}
	return sequence, start
}
