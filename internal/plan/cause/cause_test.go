package cause_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/cause"
)

func TestTheTableIsComplete(t *testing.T) {
	t.Parallel()
	reason := regexp.MustCompile(`^[A-Z][A-Za-z]+$`)
	ids := map[string]bool{}
	for _, c := range cause.Table() {
		answers := c.Group != ""
		switch {
		case !reason.MatchString(c.ID) || ids[c.ID]:
			t.Errorf("got ID %q, want a reason that no other row has", c.ID)
		case !strings.HasSuffix(c.Means, "."):
			t.Errorf("%s: got %q, want a sentence", c.ID, c.Means)
		case answers != (c.Outcome != "") || answers != (c.Next != ""):
			t.Errorf("%s: got outcome %q and next step %q in group %q, want all or none", c.ID, c.Outcome, c.Next, c.Group)
		case answers && !slices.Contains(cause.Groups(), c.Group):
			t.Errorf("%s: got group %q, want one of the page", c.ID, c.Group)
		case !answers && len(c.On) == 0:
			t.Errorf("%s: got no object, want one for what happened", c.ID)
		case strings.HasSuffix(c.Next, "."):
			t.Errorf("%s: got %q, want what to do without a full stop", c.ID, c.Next)
		case c.Outcome == cause.Waits && !strings.HasPrefix(c.Next, "nothing"):
			t.Errorf("%s: got %q, want nothing to do for what ends by itself", c.ID, c.Next)
		case c.Usually != 0 && c.Outcome != cause.Waits:
			t.Errorf("%s: got a usual time of %s, want none for what does not end by itself", c.ID, c.Usually)
		}
		for _, o := range c.On {
			if !slices.Contains(cause.Objects(), o) {
				t.Errorf("%s: got object %q, want one of the page", c.ID, o)
			}
		}
		ids[c.ID] = true
	}
}

// A page is generated from the conditions, so each reason needs its row, and each condition a status in which
// nothing is wrong.
func TestTheReasonsOfConditionsHaveRows(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, c := range cause.Conditions() {
		if name := c.Kind + " " + c.Type; seen[name] || c.Writer == "" {
			t.Errorf("%s: got it twice, or by the writer %q; want it once, with its writer", name, c.Writer)
		}
		seen[c.Kind+" "+c.Type] = true
		for status, m := range map[string]cause.Meaning{"True": c.True, "False": c.False, "Unknown": c.Unknown} {
			if (m.Text == "") != (len(m.Reasons) == 0) || m.Text == "" && status == "True" {
				t.Errorf("%s of %s, %s: got text %q and reasons %v, want both or none, and both for True", c.Type, c.Kind, status,
					m.Text, m.Reasons)
			}
			for _, id := range m.Reasons {
				if cause.Of(id).Means == "" {
					t.Errorf("%s of %s, %s: got the reason %s, which the table of causes does not have", c.Type, c.Kind, status, id)
				}
			}
		}
	}
}

func TestAnUnknownIDCannotTell(t *testing.T) {
	t.Parallel()
	if got := cause.Of("Nothing"); got.ID != "Nothing" || got.Outcome != cause.CannotTell {
		t.Errorf("got %+v, want Nothing with CannotTell", got)
	}
}

func TestExitCodes(t *testing.T) {
	t.Parallel()
	for outcome, want := range map[cause.Outcome]int{
		cause.Healthy: 0, cause.Waits: 1, cause.NeedsAction: 2, cause.CannotTell: 3, "": 3,
	} {
		if got := outcome.ExitCode(); got != want {
			t.Errorf("%q: got %d, want %d", outcome, got, want)
		}
	}
}

func TestTheWorseOutcome(t *testing.T) {
	t.Parallel()
	order := []cause.Outcome{cause.Healthy, cause.Waits, cause.CannotTell, cause.NeedsAction}
	for i, a := range order {
		for j, b := range order {
			if got, want := cause.Worse(a, b), order[max(i, j)]; got != want {
				t.Errorf("%s, %s: got %s, want %s", a, b, got, want)
			}
		}
	}
}

func TestEachRowIsFoundByItsID(t *testing.T) {
	t.Parallel()
	for _, want := range cause.Table() {
		if got := cause.Of(want.ID); got.Means != want.Means || got.Outcome != want.Outcome {
			t.Errorf("%s: got %+v, want %+v", want.ID, got, want)
		}
	}
	if got, general := cause.Of(apiv1.ReasonThrottled).Next, cause.Of(apiv1.ReasonDiskDeleting).Next; got == general {
		t.Errorf("got the general advice %q for a request that Azure throttles, want the row's own", got)
	}
}

func TestTheCauseOfAFailure(t *testing.T) {
	t.Parallel()
	for e, want := range map[apiv1.Error]string{
		{Reason: "InsufficientCapacity", Code: "QuotaExceeded"}: apiv1.ReasonQuotaExceeded,
		{Reason: "Unauthorized", Code: "AuthorizationFailed"}:   apiv1.ReasonPermissionMissing,
		{Reason: "Unauthorized"}:                                apiv1.ReasonUnauthenticated,
		{Reason: "Unauthorized", Code: "Forbidden"}:             "other",
		{Reason: "InsufficientCapacity"}:                        apiv1.ReasonNoDiskSlot,
		{Reason: "RateLimited"}:                                 apiv1.ReasonThrottled,
		{Reason: "Unavailable"}:                                 apiv1.ReasonAzureUnavailable,
		{Reason: "NotFound", Code: "ResourceNotFound"}:          apiv1.ReasonNotFoundAtAzure,
		{Reason: "Conflict"}:                                    "other",
		{Reason: "FailedPrecondition"}:                          apiv1.ReasonRefusedByDriver,
		{Reason: "InvalidArgument"}:                             apiv1.ReasonRefusedByDriver,
		{Reason: "Unsupported"}:                                 apiv1.ReasonRefusedByDriver,
		{Reason: "FailedPrecondition", Code: "DiskInUse"}:       "other",
	} {
		if got := cause.OfError(&e, "other"); got != want {
			t.Errorf("%s %s: got %s, want %s", e.Reason, e.Code, got, want)
		}
	}
}

func TestTheCauseOfAnAnswerInAText(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"create disk: Azure answered 403 RequestDisallowedByPolicy: Resource was disallowed": apiv1.ReasonPolicyRefused,
		"create disk: Azure answered 409 Odd: odd":                                           "other",
		"RequestDisallowedByPolicy: a user wrote this":                                       "",
	} {
		if got, ok := cause.OfAnswer(text, "other"); got != want || ok != (want != "") {
			t.Errorf("%s: got %q, %t, want %q", text, got, ok, want)
		}
	}
}
