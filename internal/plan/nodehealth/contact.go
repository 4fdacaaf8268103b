package nodehealth

import "time"

const (
	// pingEvery is how often the API server is pinged, and pingSoon how often if the judgement of a
	// node waits for its answer.
	pingEvery = time.Second
	pingSoon  = 100 * time.Millisecond
	// contactLoss is how long the API server may not answer this process before the silence of
	// nodes does not count.
	contactLoss = 3 * time.Second
)

// contact records when the API server answered this process.
type contact struct {
	// asked is when the last ping began.
	asked time.Time
	// last is the last answer; since is when contact began, at the start or after a loss.
	last, since time.Time
}

// due reports whether to ping. awaited says that the judgement of a node waits for the answer.
func (c contact) due(now time.Time, awaited bool) bool {
	every := pingEvery
	if awaited {
		every = pingSoon
	}
	return now.Sub(c.asked) >= every
}

// answered returns the contact after an answer that came at the time now.
func (c contact) answered(now time.Time) contact {
	if now.Sub(c.last) > contactLoss {
		c.since = now
	}
	c.last = now
	return c
}

// lost returns the contact after a time in which this process stood still: silence counts again from
// the next answer on.
func (c contact) lost() contact {
	c.last = time.Time{}
	return c
}

// alive reports whether silence counts.
func (c contact) alive(now time.Time) bool { return now.Sub(c.last) <= contactLoss }

// silence returns for how long the API server answered and showed no heartbeat after one that was
// seen at changed, and from when that counts.
func (c contact) silence(changed time.Time) (from time.Time, d time.Duration) {
	from = changed
	if c.since.After(from) {
		from = c.since
	}
	return from, max(c.last.Sub(from), 0)
}
