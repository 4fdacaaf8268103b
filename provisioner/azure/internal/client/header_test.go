package client

import (
	"net/http"
	"testing"
	"time"

	"github.com/azuredisk-csi/azuredisk/provisioner/azure/internal/pacing"
)

func TestRemainingQuotaIsReadFromHeaders(t *testing.T) {
	h := http.Header{}
	h.Add("x-ms-ratelimit-remaining-resource", "Microsoft.Compute/PutVM3Min;223,Microsoft.Compute/PutVM30Min; 1186")
	h.Add("x-ms-ratelimit-remaining-resource", "Microsoft.Compute/UpdateVM;7, nonsense, a;b")
	got := remainingOf(h)
	want := []pacing.Remaining{{
		Policy: "Microsoft.Compute/PutVM3Min",
		Left:   223,
	}, {Policy: "Microsoft.Compute/PutVM30Min", Left: 1186}, {Policy: "Microsoft.Compute/UpdateVM", Left: 7}}
	if len(got) != len(want) {
		t.Fatalf("got %v, want %v", got, want)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("got %v, want %v", got[i], want[i])
		}
	}
}

func TestRetryAfterIsReadFromHeaders(t *testing.T) {
	now := time.Date(2026, 11, 21, 4, 0, 0, 0, time.UTC)
	for name, test := range map[string]struct {
		header, value string
		want          time.Duration
	}{
		"seconds":              {"Retry-After", "17", 17 * time.Second},
		"milliseconds":         {"retry-after-ms", "250", 250 * time.Millisecond},
		"Azure's milliseconds": {"x-ms-retry-after-ms", "90", 90 * time.Millisecond},
		"a date":               {"Retry-After", "Sat, 21 Nov 2026 04:00:09 GMT", 9 * time.Second},
		"a date in the past":   {"Retry-After", "Sat, 21 Nov 2026 03:00:09 GMT", 0},
		"nonsense":             {"Retry-After", "soon", 0},
		"nothing":              {"X-Other", "1", 0},
	} {
		t.Run(name, func(t *testing.T) {
			h := http.Header{}
			h.Set(test.header, test.value)
			if got := retryAfter(h, now); got != test.want {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}
