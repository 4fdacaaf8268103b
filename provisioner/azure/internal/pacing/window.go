package pacing

import (
	"slices"
	"sort"
	"strings"
	"time"
)

// windows is a quota that Azure counts in windows of 3 and of 30 minutes. It is not known when they
// begin. So no more requests are sent in any span of that length, wherever it begins.
type windows []*window

// window is one of the limits.
type window struct {
	suffix string // of its name in an answer
	length time.Duration
	limit  int
	sent   []time.Time // when the last requests were, or will be, sent: at most limit, in their order
}

// windowsOf returns the recorded limits of a policy, less a margin for requests that overtake one
// another on their way.
func windowsOf(p Policy) (windows, bool) {
	short, long := 0, 0
	switch p {
	case PutDisk:
		short, long = 1000, 8000
	case DeleteDisk:
		short, long = 3000, 24000
	case ListDisks, PutSnapshot:
		short, long = 240, 1920
	default:
		return nil, false
	}
	return windows{
		{suffix: "3Min", length: 3 * time.Minute, limit: short - margin},
		{suffix: "30Min", length: 30 * time.Minute, limit: long - margin},
	}, true
}

// at returns when that many further requests can have been sent.
func (w *window) at(now time.Time, further int) time.Time {
	first := len(w.sent) + further - w.limit - 1 // the last request that must have left the window
	if first < 0 {
		return now
	}
	if free := w.sent[min(first, len(w.sent)-1)].Add(w.length); free.After(now) {
		return free
	}
	return now
}

// add enters a request that is sent then.
func (w *window) add(at time.Time) {
	if len(w.sent) == w.limit {
		w.sent = slices.Delete(w.sent, 0, 1)
	}
	w.sent = slices.Insert(w.sent, w.until(at), at)
}

// until returns how many of the requests are not sent after a time.
func (w *window) until(at time.Time) int {
	return sort.Search(len(w.sent), func(i int) bool { return w.sent[i].After(at) })
}

// left returns how many requests can be sent now.
func (w *window) left(now time.Time) int {
	return w.limit - (len(w.sent) - w.until(now.Add(-w.length)))
}

// take implements quota.
func (all windows) take(now time.Time) time.Duration {
	at := now
	for _, w := range all {
		if t := w.at(now, 1); t.After(at) {
			at = t
		}
	}
	for _, w := range all {
		w.add(at)
	}
	return at.Sub(now)
}

// delay implements quota.
func (all windows) delay(now time.Time, tokens float64) time.Duration {
	var wait time.Duration
	for _, w := range all {
		wait = max(wait, w.at(now, int(tokens)).Sub(now))
	}
	return wait
}

// full implements quota.
func (all windows) full(now time.Time) bool {
	return !slices.ContainsFunc(all, func(w *window) bool { return w.left(now) < w.limit })
}

// learn implements quota. Others have sent what this process has not.
func (all windows) learn(now time.Time, name string, left Remaining) {
	for _, w := range all {
		if !strings.EqualFold(left.Policy, name+w.suffix) {
			continue
		}
		for range w.left(now) - int(left.Left) {
			w.add(now)
		}
	}
}
