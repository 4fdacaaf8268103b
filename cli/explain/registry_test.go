package explain_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/azuredisk-csi/azuredisk/cli/explain"
	"github.com/azuredisk-csi/azuredisk/internal/plan/lostnode"
	"github.com/azuredisk-csi/azuredisk/internal/plan/refusal"
)

func TestTheListOfCausesIsComplete(t *testing.T) {
	t.Parallel()
	reason := regexp.MustCompile(`^[A-Z][A-Za-z]+$`)
	ids := map[explain.ID]bool{}
	for _, c := range explain.Registry() {
		switch {
		case !reason.MatchString(string(c.ID)) || ids[c.ID]:
			t.Errorf("got ID %q, want a reason that no other cause has", c.ID)
		case !slices.Contains(explain.Groups(), c.Group):
			t.Errorf("%s: got group %q, want one of the page", c.ID, c.Group)
		case !strings.HasSuffix(c.Means, ".") || c.Next == "" || strings.HasSuffix(c.Next, "."):
			t.Errorf("%s: got %q and %q, want a sentence, and what to do without a full stop", c.ID, c.Means, c.Next)
		case c.Outcome == explain.Waits && !strings.HasPrefix(c.Next, "nothing"):
			t.Errorf("%s: got %q, want nothing to do for what ends by itself", c.ID, c.Next)
		}
		ids[c.ID] = true
	}
	for _, id := range refusal.Reasons {
		if !ids[explain.ID(id)] {
			t.Errorf("got no cause for the refusal %s, want one", id)
		}
	}
	for _, id := range []lostnode.LeaveReason{lostnode.LeaveOptOut, lostnode.LeaveNoOwner, lostnode.LeaveDaemonSet,
		lostnode.LeaveForeignVolume, lostnode.LeaveUnknownVolume, lostnode.LeaveSharedVolume} {
		if !ids[explain.ID(id)] {
			t.Errorf("got no cause for %s, want one", id)
		}
	}
}

func TestExitCodes(t *testing.T) {
	t.Parallel()
	for outcome, want := range map[explain.Outcome]int{
		explain.Healthy: 0, explain.Waits: 1, explain.NeedsAction: 2, explain.CannotTell: 3,
	} {
		if got := outcome.ExitCode(); got != want {
			t.Errorf("%s: got %d, want %d", outcome, got, want)
		}
	}
}
