// Package audit remembers the calls that the simulator answered, so that a test can count what its
// client did. Records live in memory.
package audit

import (
	"maps"
	"sync"
	"time"
)

const capacity = 100_000

// Record is one call.
type Record struct {
	Seq       uint64    `json:"seq"`
	Time      time.Time `json:"time"` // when it arrived
	Millis    int64     `json:"millis"`
	Method    string    `json:"method"`
	Path      string    `json:"path"`
	API       string    `json:"api"` // for instance VirtualMachines.AttachDetachDataDisks
	Policy    string    `json:"policy,omitempty"`
	Kind      string    `json:"kind,omitempty"`
	Name      string    `json:"name,omitempty"`
	Status    int       `json:"status"` // 0: the connection was closed on request
	Code      string    `json:"code,omitempty"`
	Operation string    `json:"operation,omitempty"` // ID of the operation that it started
	UserAgent string    `json:"userAgent,omitempty"`
	Client    string    `json:"client,omitempty"` // whose token the call had; of a token request, who asked
}

// IsWrite reports whether the call was meant to change something.
func (r Record) IsWrite() bool { return r.Method != "GET" && r.Method != "HEAD" }

// Counter is how often an API was called.
type Counter struct {
	Calls     int `json:"calls"`
	Failed    int `json:"failed"` // status 4xx and 5xx
	Throttled int `json:"throttled"`
}

// Log is the memory. The oldest records are dropped when it is full; counters count all. The zero
// value is ready.
type Log struct {
	mu       sync.Mutex
	seq      uint64
	records  []Record
	counters map[string]Counter
}

// Add remembers a call and gives it the next sequence number.
func (l *Log) Add(r Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seq++
	r.Seq = l.seq
	if len(l.records) >= capacity {
		l.records = append(l.records[:0], l.records[capacity/10:]...)
	}
	l.records = append(l.records, r)
	if l.counters == nil {
		l.counters = map[string]Counter{}
	}
	c := l.counters[r.API]
	c.Calls++
	if r.Status >= 400 {
		c.Failed++
	}
	if r.Status == 429 {
		c.Throttled++
	}
	l.counters[r.API] = c
}

// Snapshot is a part of the log.
type Snapshot struct {
	Last     uint64             `json:"last"` // sequence number to continue from
	Writes   int                `json:"writes"`
	Records  []Record           `json:"records"`
	Counters map[string]Counter `json:"counters"` // since the last reset
}

// Since returns the records for which keep says so.
func (l *Log) Since(keep func(Record) bool) Snapshot {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := Snapshot{
		Last:     l.seq,
		Records:  []Record{},
		Counters: map[string]Counter{},
	}
	for _, r := range l.records {
		if keep(r) {
			s.Records = append(s.Records, r)
			if r.IsWrite() {
				s.Writes++
			}
		}
	}
	maps.Copy(s.Counters, l.counters)
	return s
}

// Reset forgets records and counters; sequence numbers continue.
func (l *Log) Reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.records, l.counters = nil, nil
}
