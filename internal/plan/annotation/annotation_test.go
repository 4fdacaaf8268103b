package annotation_test

import (
	"strings"
	"testing"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/annotation"
)

func TestAnyValueButTheDefaultSwitchesOffAndAnUnknownOneIsAFault(t *testing.T) {
	t.Parallel()
	for _, a := range annotation.All() {
		for value, test := range map[string]struct {
			text  string
			fault bool
		}{
			a.On:       {"", false},
			a.Off:      {a.Key + ": " + a.Off, false},
			"Disabled": {a.Key + `: "Disabled", which is neither ` + a.On + " nor " + a.Off + " and counts as " + a.Off, true},
			"":         {"counts as " + a.Off, true},
		} {
			annotations := map[string]string{a.Key: value}
			got := a.Switched(annotations)
			if (got == "") != (test.text == "") || !strings.Contains(got, test.text) {
				t.Errorf("%s: %q: got %q, want it to have %q", a.Key, value, got, test.text)
			}
			for _, kind := range a.Kinds {
				faults := annotation.Faults(kind, annotations)
				if is := len(faults) == 1 && strings.Contains(faults[0], test.text); is != test.fault {
					t.Errorf("%s: %q on a %s: got the faults %q, want one: %t", a.Key, value, kind, faults, test.fault)
				}
			}
		}
		if got := a.Switched(nil); got != "" {
			t.Errorf("no annotation %s: got %q", a.Key, got)
		}
	}
}

func TestAnAnnotationThatIsNotReadOnAKindIsNoFaultThere(t *testing.T) {
	t.Parallel()
	if got := annotation.Faults(annotation.Claim, map[string]string{apiv1.AnnotationMaintenance: "no"}); got != nil {
		t.Errorf("got %q for a claim, want none: only a pod moves before maintenance", got)
	}
}
