package batch

import (
	"testing"
	"time"

	"github.com/azuredisk-csi/azuredisk/provisioner/azure/internal/operation"
)

func TestACallIsPolledAtTheAgeOfItsSlowestChange(t *testing.T) {
	attach, detach, force := Change{Kind: operation.Attach}, Change{Kind: operation.Detach}, Change{Kind: operation.ForceDetach}
	for name, test := range map[string]struct {
		changes []Change
		kind    operation.Kind
		from    time.Duration
		patient bool
	}{
		"an attach":                              {[]Change{attach}, operation.Attach, 6 * time.Second, false},
		"a detach":                               {[]Change{detach}, operation.Detach, 15 * time.Second, true},
		"an attach, and a detach that is slower": {[]Change{attach, detach}, operation.Attach, 15200 * time.Millisecond, false},
		"a detach before an attach":              {[]Change{detach, attach}, operation.Attach, 15200 * time.Millisecond, false},
		"forced detaches":                        {[]Change{force, force}, operation.ForceDetach, 10 * time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			u := Update{Changes: test.changes}
			if usual := u.Usual(); u.Kind() != test.kind || usual.From != test.from || usual.Patient != test.patient {
				t.Errorf("got %s, from %v, patient %v; want %s, %v, %v", u.Kind(), usual.From, usual.Patient, test.kind,
					test.from, test.patient)
			}
		})
	}
}
