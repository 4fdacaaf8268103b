package operation_test

import (
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/azuredisk-csi/azuredisk/internal/plan/operation"
)

func TestShortenKeepsBothEndsAndSplitsNoCharacter(t *testing.T) {
	t.Parallel()
	if got := operation.Shorten("short"); got != "short" {
		t.Errorf("got %q, want the text as it is", got)
	}
	for most := 8; most < 40; most++ {
		got := operation.ShortenTo("ab"+strings.Repeat("é", 100)+"yz", most)
		if len(got) > most || len(got) < most-2 || !utf8.ValidString(got) || !strings.Contains(got, " … ") ||
			!strings.HasPrefix(got, "ab") || most > 8 && !strings.HasSuffix(got, "z") {
			t.Errorf("%d bytes: got %q of %d bytes, want both ends of the text", most, got, len(got))
		}
	}
}

// The API server refuses a status with a longer text as a whole, and what it records would be lost.
func TestWhatAzureAnswersFitsIntoAStatus(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 100_000)
	if e := operation.Failure(errors.New(long), time.Unix(0, 0)); len(e.Message) > 1024 || len(e.Code) > 256 || e.Reason == "" {
		t.Errorf("got a message of %d and a code of %d bytes", len(e.Message), len(e.Code))
	}
	for name, test := range map[string]struct{ token, want string }{
		"a token":                  {"abc", "abc"},
		"a token that is too long": {long, ""}, // the operation is found again without it
	} {
		job := operation.Job{Work: operation.WorkAttach, Phase: operation.PhaseAccepted, Tokens: []string{test.token}}
		if op := job.Operation(); op.ResumeToken != test.want || !job.IsRecorded(op) {
			t.Errorf("%s: recorded %q (%v), want %q", name, op.ResumeToken, job.IsRecorded(op), test.want)
		}
	}
}
