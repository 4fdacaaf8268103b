// Package faults makes chosen calls and operations misbehave, on request of a test: fail, take
// longer, be throttled, or lose their answer. Rules live in memory; they are gone after a restart.
package faults

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/azuredisk-csi/azuredisk/internal/azuresim/armerror"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/latency"
)

// Stage says when a rule strikes.
type Stage string

// The stages. Before: instead of the call. After: the call is done, its answer is replaced or lost.
// Operation: at the end of the long-running operation, instead of its effect.
const (
	Before    Stage = "before"
	After     Stage = "after"
	Operation Stage = "operation"
)

// Rule is one fault. The first group of fields says what it matches (empty matches everything, case
// does not matter); the second what happens: a delay, then an error if Status or Code is set, or a
// closed connection.
type Rule struct {
	ID        string `json:"id,omitempty"`
	Method    string `json:"method,omitempty"`
	Kind      string `json:"kind,omitempty"`      // disks, snapshots, virtualMachines, virtualMachineScaleSets, operations, ...
	Name      string `json:"name,omitempty"`      // of the resource; an instance of a scale set is <scale set>_<instance>
	Action    string `json:"action,omitempty"`    // last path segment of a POST, for instance attachDetachDataDisks
	Operation string `json:"operation,omitempty"` // kind of operation, for stage operation, for instance vm.disks
	Stage     Stage  `json:"stage,omitempty"`     // default before

	Times int              `json:"times,omitempty"` // how often it strikes; 0: no limit
	For   latency.Duration `json:"for,omitempty"`   // how long it is active; 0: no limit

	Delay      latency.Duration `json:"delay,omitempty"`
	Status     int              `json:"status,omitempty"`
	Code       string           `json:"code,omitempty"`
	Message    string           `json:"message,omitempty"`
	RetryAfter latency.Duration `json:"retryAfter,omitempty"`
	Disconnect bool             `json:"disconnect,omitempty"` // close the connection without an answer
	Hits       int              `json:"hits"`                 // how often it struck so far

	expires time.Time
}

// Call is what rules are matched against.
type Call struct{ Method, Kind, Name, Action, Operation string }

// Effect is what a rule does to a call.
type Effect struct {
	Delay      time.Duration
	Err        *armerror.Error
	Disconnect bool
}

// Set is the active rules. It is safe for concurrent use.
type Set struct {
	clock clock.PassiveClock
	mu    sync.Mutex
	next  int
	rules []*Rule
}

// New returns an empty set.
func New(c clock.PassiveClock) *Set { return &Set{clock: c} }

// Add checks the rule and activates it. Rules are tried in the order in which they were added.
func (s *Set) Add(r Rule) (Rule, error) {
	if r.Stage == "" {
		r.Stage = Before
	}
	if err := r.validate(); err != nil {
		return Rule{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next++
	r.ID, r.Hits = strconv.Itoa(s.next), 0
	if r.For > 0 {
		r.expires = s.clock.Now().Add(time.Duration(r.For))
	}
	s.rules = append(s.rules, &r)
	return r, nil
}

func (r *Rule) validate() error {
	var faults []error
	if !slices.Contains([]Stage{Before, After, Operation}, r.Stage) {
		faults = append(faults, fmt.Errorf("stage %q: must be before, after or operation", r.Stage))
	}
	if r.Stage == Operation && (r.Disconnect || r.Method != "" || r.Action != "") {
		faults = append(faults, errors.New("stage operation: method, action and disconnect do not apply"))
	}
	if r.Stage != Operation && r.Operation != "" {
		faults = append(faults, errors.New("operation: applies to stage operation only"))
	}
	if r.Status != 0 && (r.Status < 400 || r.Status > 599) {
		faults = append(faults, fmt.Errorf("status %d: must be between 400 and 599", r.Status))
	}
	if r.Times < 0 || r.For < 0 || r.Delay < 0 || r.RetryAfter < 0 {
		faults = append(faults, errors.New("times, for, delay and retryAfter must not be negative"))
	}
	if r.Delay == 0 && r.Status == 0 && r.Code == "" && !r.Disconnect {
		faults = append(faults, errors.New("the rule does nothing: give delay, status, code or disconnect"))
	}
	return errors.Join(faults...)
}

// Remove takes a rule out of force and reports whether it was there.
func (s *Set) Remove(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := len(s.rules)
	s.rules = slices.DeleteFunc(s.rules, func(r *Rule) bool { return r.ID == id })
	return len(s.rules) < before
}

// Reset takes every rule out of force.
func (s *Set) Reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rules = nil
}

// List returns copies of the active rules.
func (s *Set) List() []Rule {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropSpent()
	list := make([]Rule, 0, len(s.rules))
	for _, r := range s.rules {
		list = append(list, *r)
	}
	return list
}

func (s *Set) dropSpent() {
	now := s.clock.Now()
	s.rules = slices.DeleteFunc(s.rules, func(r *Rule) bool {
		return r.Times > 0 && r.Hits >= r.Times || !r.expires.IsZero() && !now.Before(r.expires)
	})
}

// Strike returns the effect of the first rule of the stage that matches the call, and counts the
// hit. The zero effect means none.
func (s *Set) Strike(stage Stage, c Call) Effect {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropSpent()
	for _, r := range s.rules {
		if r.Stage == stage && r.matches(c) {
			r.Hits++
			return r.effect()
		}
	}
	return Effect{}
}

func (r *Rule) matches(c Call) bool {
	match := func(want, got string) bool { return want == "" || strings.EqualFold(want, got) }
	return match(r.Method, c.Method) && match(r.Kind, c.Kind) && match(r.Name, c.Name) && match(r.Action, c.Action) &&
		match(r.Operation, c.Operation)
}

func (r *Rule) effect() Effect {
	e := Effect{Delay: time.Duration(r.Delay), Disconnect: r.Disconnect}
	if r.Status == 0 && r.Code == "" {
		return e
	}
	status, code, message := r.Status, r.Code, r.Message
	if status == 0 {
		status = http.StatusConflict
	}
	if code == "" {
		code = strings.ReplaceAll(http.StatusText(status), " ", "")
	}
	if message == "" {
		message = "Fault on request: " + code + "."
	}
	e.Err = armerror.New(status, code, "%s", message)
	e.Err.RetryAfter = time.Duration(r.RetryAfter)
	return e
}
