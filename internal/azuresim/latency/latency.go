// Package latency decides how long simulated Azure takes. A profile is data: for each kind of step
// a range and a tail. Draws come from one seeded source, so a run with the same seed and the same
// order of calls takes the same times.
package latency

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand"
	"slices"
	"sync"
	"time"
)

// Step is a kind of work that takes time.
type Step string

// The steps that a profile may set. Request is the time that any call takes before it is answered;
// PerDisk is added for each disk of a VM update after the first. ForceDetach is a forced detach from
// a VM whose host does not answer, and ForceDetachRunning one from a VM that runs.
const (
	Request            Step = "request"
	DiskCreate         Step = "diskCreate"
	UltraDiskCreate    Step = "ultraDiskCreate"
	DiskUpdate         Step = "diskUpdate"
	DiskDelete         Step = "diskDelete"
	SnapshotCreate     Step = "snapshotCreate"
	SnapshotDelete     Step = "snapshotDelete"
	BackgroundCopy     Step = "backgroundCopy"
	Attach             Step = "attach"
	Detach             Step = "detach"
	ForceDetach        Step = "forceDetach"
	ForceDetachRunning Step = "forceDetachRunning"
	PerDisk            Step = "perDisk"
	VMCreate           Step = "vmCreate"
	VMUpdate           Step = "vmUpdate"
	VMDelete           Step = "vmDelete"
	VMStart            Step = "vmStart"
	VMPowerOff         Step = "vmPowerOff"
	VMDeallocate       Step = "vmDeallocate"
	VMRestart          Step = "vmRestart"
	ScaleSet           Step = "scaleSet"
)

// Steps lists every step.
var Steps = []Step{
	Request, DiskCreate, UltraDiskCreate, DiskUpdate, DiskDelete, SnapshotCreate, SnapshotDelete, BackgroundCopy, Attach, Detach,
	ForceDetach, ForceDetachRunning, PerDisk,
	VMCreate, VMUpdate, VMDelete, VMStart, VMPowerOff, VMDeallocate, VMRestart, ScaleSet,
}

// Duration is a time.Duration that is written as a string such as "1.5s" in JSON.
type Duration time.Duration

// UnmarshalJSON reads a Go duration string.
func (d *Duration) UnmarshalJSON(raw []byte) error {
	var s string
	if err := json.Unmarshal(raw, &s); err != nil {
		return fmt.Errorf("duration must be a string such as \"1.5s\": %w", err)
	}
	v, err := time.ParseDuration(s)
	if err != nil {
		return err
	}
	*d = Duration(v)
	return nil
}

// MarshalJSON writes a Go duration string.
func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(time.Duration(d).String()) }

// Range is the distribution of one step: uniform between Min and Max, and with probability
// TailChance uniform between Max and TailMax instead.
type Range struct {
	Min        Duration `json:"min"`
	Max        Duration `json:"max"`
	TailChance float64  `json:"tailChance,omitempty"`
	TailMax    Duration `json:"tailMax,omitempty"`
}

// Pause is how long the answers about one kind of operation ask to wait; 0 for not.
type Pause struct {
	// Accepted is in the answer that accepts the operation.
	Accepted Duration `json:"accepted,omitzero"`
	// FirstPoll is in the first answer that says that the operation is in progress. Azure predicts
	// there how long the operation takes.
	FirstPoll Duration `json:"firstPoll,omitzero"`
}

// Profile is how Azure answers: how long it takes, and what its answers have besides the resources.
type Profile struct {
	// RetryAfter is in every answer about an operation in progress whose kind has no Pause.
	RetryAfter Duration `json:"retryAfter"`
	// Pauses by the kind of the operation, such as vm.disks, which is attachDetachDataDisks.
	Pauses map[string]Pause `json:"pauses,omitempty"`
	// ForeignQuotas lets the answers to writes to scale sets and their instances name quotas that
	// the request does not use, with nothing left in them, as Azure's do.
	ForeignQuotas bool `json:"foreignQuotas,omitzero"`
	// SignedURLs makes the URLs of operations as long as Azure's, which have a signature and the
	// certificate to check it with, about 4 KB.
	SignedURLs bool `json:"signedURLs,omitzero"`
	// UpperCaseGroups writes resource groups in upper case where Azure has been seen to: in the IDs
	// of VMs in lists, and of disks that a VM's list made.
	UpperCaseGroups bool `json:"upperCaseGroups,omitzero"`
	// Steps take the time of their range; a missing step takes none.
	Steps map[Step]Range `json:"steps"`
}

// Parse reads a profile from JSON and reports every fault in it.
func Parse(r io.Reader) (*Profile, error) {
	dec := json.NewDecoder(r)
	dec.DisallowUnknownFields()
	p := &Profile{}
	if err := dec.Decode(p); err != nil {
		return nil, fmt.Errorf("decode latency profile: %w", err)
	}
	return p, p.Validate()
}

// Validate reports every fault of the profile.
func (p *Profile) Validate() error {
	var faults []error
	if p.RetryAfter < 0 {
		faults = append(faults, fmt.Errorf("retryAfter %s: must not be negative", time.Duration(p.RetryAfter)))
	}
	for kind, pause := range p.Pauses {
		if pause.Accepted < 0 || pause.FirstPoll < 0 {
			faults = append(faults, fmt.Errorf("pauses of %s: must not be negative", kind))
		}
	}
	for step, r := range p.Steps {
		switch {
		case !slices.Contains(Steps, step):
			faults = append(faults, fmt.Errorf("step %q: unknown, known are %v", step, Steps))
		case r.Min < 0 || r.Max < r.Min:
			faults = append(faults, fmt.Errorf("step %q: need 0 <= min <= max", step))
		case r.TailChance < 0 || r.TailChance > 1:
			faults = append(faults, fmt.Errorf("step %q: tailChance %v must be between 0 and 1", step, r.TailChance))
		case r.TailChance > 0 && r.TailMax < r.Max:
			faults = append(faults, fmt.Errorf("step %q: tailMax must be at least max", step))
		}
	}
	return errors.Join(faults...)
}

// Sampler draws from a profile. It is safe for concurrent use.
type Sampler struct {
	mu      sync.Mutex
	profile *Profile
	rand    *rand.Rand
}

// NewSampler returns a sampler over the profile.
func NewSampler(p *Profile, r *rand.Rand) *Sampler { return &Sampler{profile: p, rand: r} }

// Draw returns the time that the step takes this time.
func (s *Sampler) Draw(step Step) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok := s.profile.Steps[step]
	if !ok {
		return 0
	}
	lo, hi := time.Duration(r.Min), time.Duration(r.Max)
	if r.TailChance > 0 && s.rand.Float64() < r.TailChance {
		lo, hi = hi, time.Duration(r.TailMax)
	}
	if hi <= lo {
		return lo
	}
	return lo + time.Duration(s.rand.Int63n(int64(hi-lo)+1))
}

// Pause returns how long the answers about a kind of operation ask to wait: the answer that accepts
// it, the first one that says that it is in progress, and later ones.
func (s *Sampler) Pause(kind string) (accepted, first, later time.Duration) {
	p := s.Profile()
	always := time.Duration(p.RetryAfter)
	pause, ok := p.Pauses[kind]
	if !ok {
		return always, always, always
	}
	return time.Duration(pause.Accepted), time.Duration(pause.FirstPoll), 0
}

// Use makes the sampler draw from another profile, which must be valid and not be changed any more.
// What is under way keeps the time that was drawn for it.
func (s *Sampler) Use(p *Profile) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.profile = p
}

// Profile returns the profile that is drawn from. It must not be changed.
func (s *Sampler) Profile() *Profile {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.profile
}
