package maintenance

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
)

// Policy is what the driver does before an event of one kind.
type Policy string

// The policies.
const (
	// Ignore: nothing. An announced pause is survived with each policy.
	Ignore Policy = "ignore"
	// Prepare: the node gets no new replicas, pods are not steered there, and each volume that is
	// used there has a replica on a node that stays, as far as there is one.
	Prepare Policy = "prepare"
	// Move: in addition pods with replicated volumes are evicted before the maintenance.
	Move Policy = "move"
)

// Policies has the policy of each kind; Prepare for one that it does not have.
type Policies map[apiv1.MaintenanceType]Policy

// ParsePolicies reads the policies of kinds, both in any case, as in freeze=ignore.
func ParsePolicies(settings map[string]string) (Policies, error) {
	policies := Policies{}
	for _, kind := range slices.Sorted(maps.Keys(settings)) {
		i := slices.IndexFunc(kinds, func(k apiv1.MaintenanceType) bool { return strings.EqualFold(string(k), kind) })
		policy := Policy(strings.ToLower(settings[kind]))
		switch {
		case i < 0:
			return nil, fmt.Errorf("%q must be one of %v", kind, kinds)
		case policy != Ignore && policy != Prepare && policy != Move:
			return nil, fmt.Errorf("the policy %q of %s must be %s, %s or %s", settings[kind], kind, Ignore, Prepare, Move)
		}
		policies[kinds[i]] = policy
	}
	return policies, nil
}

// Of returns the policy of a kind.
func (p Policies) Of(kind apiv1.MaintenanceType) Policy {
	if policy, set := p[kind]; set {
		return policy
	}
	return Prepare
}

// Next returns the event that says what the driver does: one with the policy Move before one with
// Prepare, and of these the earliest. An event that has begun comes first, because Azure lists it for
// some minutes after its end. It returns nil if there is none whose policy is not Ignore.
func (p Policies) Next(events []apiv1.MaintenanceEvent) *apiv1.MaintenanceEvent {
	var next *apiv1.MaintenanceEvent
	for i := range events {
		e := &events[i]
		if p.Of(e.Type) == Ignore {
			continue
		}
		moves, before := p.Of(e.Type) == Move, next != nil && p.Of(next.Type) == Move
		if next == nil || moves && !before || moves == before && begins(e).Before(begins(next)) {
			next = e
		}
	}
	return next
}

// begins is when the event may begin; the zero time for one that has begun.
func begins(e *apiv1.MaintenanceEvent) time.Time {
	if e.Started || e.NotBeforeTime == nil {
		return time.Time{}
	}
	return e.NotBeforeTime.Time
}

// Describe says to a user what an event is.
func Describe(e *apiv1.MaintenanceEvent) string {
	at := begins(e)
	if at.IsZero() {
		return fmt.Sprintf("the %s of the VM that Azure has announced has begun (event %s)", e.Type, e.EventID)
	}
	return fmt.Sprintf("Azure has announced a %s of the VM not before %s (event %s)", e.Type, at.UTC().Format(time.RFC3339),
		e.EventID)
}
