package operation_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/operation"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/objects"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

func TestAJobRunsFromItsBeginToItsEnd(t *testing.T) {
	t.Parallel()
	for phase, want := range map[operation.Phase]struct{ running, ended bool }{
		operation.PhaseIdle:     {},
		operation.PhaseBegun:    {running: true},
		operation.PhaseAccepted: {running: true},
		operation.PhaseEnded:    {ended: true},
	} {
		job := operation.Job{Work: operation.WorkAttach, Phase: phase}
		if got := job.Running(); got != want.running {
			t.Errorf("phase %q: got running %t, want %t", phase, got, want.running)
		}
		if got := job.EndedAs(operation.WorkAttach); got != want.ended {
			t.Errorf("phase %q: got ended as its work %t, want %t", phase, got, want.ended)
		}
		if job.EndedAs(operation.WorkDetach) {
			t.Errorf("phase %q: got ended as another work, want not", phase)
		}
	}
}

// The result of a job that is not recorded is older than the status: another leader has gone on.
func TestAStatusRecordsAJob(t *testing.T) {
	t.Parallel()
	op := func(kind operation.Work, token string, ago time.Duration) *apiv1.Operation {
		return &apiv1.Operation{Type: string(kind), ResumeToken: token, StartTime: *objects.Ago(ago)}
	}
	const kind, begun, accepted = operation.WorkUpdateDisk, time.Minute, time.Second
	job := operation.Job{
		Work:     kind,
		Phase:    operation.PhaseAccepted,
		Begun:    op(kind, "", begun),
		Tokens:   []string{"", "t"},
		Accepted: objects.Now.Add(-accepted),
	}
	resumed, first := job, job
	resumed.Begun, first.Begun = op(kind, "former", begun), nil
	for name, test := range map[string]struct {
		job      operation.Job
		recorded *apiv1.Operation
		want     bool
	}{
		"nothing":                                {job, nil, false},
		"another kind":                           {job, op(operation.WorkReadDisk, "t", accepted), false},
		"its token":                              {job, op(kind, "t", time.Hour), true},
		"another token":                          {job, op(kind, "other", accepted), false},
		"another token, since it began":          {job, op(kind, "other", begun), false},
		"no token, since it was accepted":        {job, op(kind, "", accepted), true},
		"no token, since it began":               {job, op(kind, "", begun), true},
		"no token, since another time":           {job, op(kind, "", time.Hour), false},
		"no token, and nothing when it began":    {first, op(kind, "", begun), false},
		"the operation that it resumed":          {resumed, op(kind, "former", begun), true},
		"the token that it resumed, of later":    {resumed, op(kind, "former", accepted), false},
		"no token, since the resumed one began":  {resumed, op(kind, "", begun), false},
		"nothing when it began, another's token": {first, op(kind, "other", begun), false},
	} {
		if got := test.job.IsRecorded(test.recorded); got != test.want {
			t.Errorf("%s: got %t, want %t", name, got, test.want)
		}
	}
}

func TestAnAcceptedOperationIsRecordedWithItsLastToken(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		phase  operation.Phase
		tokens []string
		want   string
	}{
		"begun":                  {operation.PhaseBegun, []string{"t"}, ""},
		"accepted":               {operation.PhaseAccepted, []string{"t", "u"}, "u"},
		"accepted without token": {operation.PhaseAccepted, nil, ""},
		"ended":                  {operation.PhaseEnded, []string{"t"}, ""},
	} {
		job := operation.Job{Work: operation.WorkAttach, Phase: test.phase, Tokens: test.tokens, Accepted: objects.Now}
		got := job.Operation()
		if got == nil {
			got = &apiv1.Operation{}
		} else if got.Type != string(operation.WorkAttach) || !got.StartTime.Time.Equal(objects.Now) {
			t.Errorf("%s: got %+v, want kind %s since %s", name, got, operation.WorkAttach, objects.Now)
		}
		if got.ResumeToken != test.want {
			t.Errorf("%s: got token %q, want %q", name, got.ResumeToken, test.want)
		}
	}
}

func TestAnOperationKeepsItsStartTime(t *testing.T) {
	t.Parallel()
	op := func(kind operation.Work, token string, ago time.Duration) *apiv1.Operation {
		return &apiv1.Operation{Type: string(kind), ResumeToken: token, StartTime: *objects.Ago(ago)}
	}
	current := op(operation.WorkAttach, "t", 0)
	for name, test := range map[string]struct {
		recorded *apiv1.Operation
		keeps    bool
	}{
		"the same one":  {op(operation.WorkAttach, "t", time.Minute), true},
		"another token": {op(operation.WorkAttach, "u", time.Minute), false},
		"another kind":  {op(operation.WorkDetach, "t", time.Minute), false},
		"none":          {nil, false},
	} {
		want := current
		if test.keeps {
			want = test.recorded
		}
		if got := operation.KeepStartTime(test.recorded, current); got != want {
			t.Errorf("%s is recorded: got %+v, want %+v", name, got, want)
		}
	}
}

func TestAFailureOfAnUnknownKindMayPass(t *testing.T) {
	t.Parallel()
	for want, err := range map[provisioner.Kind]error{
		provisioner.Unavailable: errors.New("no"),
		provisioner.Conflict:    provisioner.Errorf(provisioner.Conflict, "no"),
	} {
		got := operation.Failure(err, objects.Now)
		if got.Reason != string(want) || !strings.Contains(got.Message, "no") || !got.FailureTime.Time.Equal(objects.Now) {
			t.Errorf("got %+v, want kind %s, the message and the time", got, want)
		}
	}
}

func TestAMessageThatIsTooLongKeepsItsBeginAndItsEnd(t *testing.T) {
	t.Parallel()
	const most = 1024
	fits := strings.Repeat("a", most)
	if got := operation.Shorten(fits); got != fits {
		t.Errorf("got %d bytes, want the message as it is", len(got))
	}
	got := operation.Shorten("begin" + fits + "end")
	if len(got) > most || !strings.HasPrefix(got, "begin") || !strings.HasSuffix(got, "end") || !strings.Contains(got, " … ") {
		t.Errorf("got %d bytes (%s), want at most %d with begin and end", len(got), got, most)
	}
}
