package operation_test

import (
	"testing"
	"time"

	"github.com/azuredisk-csi/azuredisk/internal/plan/operation"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/objects"
)

func TestRetriesDoubleUpToAMinute(t *testing.T) {
	t.Parallel()
	since, last := objects.Now, objects.Now
	var tries int
	for last.Sub(since) < 10*time.Minute {
		wait := operation.RetryIn(since, last, last)
		if wait < time.Second || wait > time.Minute {
			t.Fatalf("wait %s", wait)
		}
		last = last.Add(wait)
		tries++
	}
	if tries > 18 {
		t.Fatalf("%d tries in ten minutes", tries)
	}
}

func TestAWaitBeginsAtARecordedTime(t *testing.T) {
	t.Parallel()
	const wait = 10 * time.Second
	for name, test := range map[string]struct {
		ago, want time.Duration
	}{
		"now":                                 {0, wait},
		"a while ago":                         {4 * time.Second, 6 * time.Second},
		"just before the wait ends":           {wait - 1, operation.MinWait},
		"as long ago as the wait":             {wait, 0},
		"long ago":                            {time.Hour, 0},
		"a little ahead, as clocks differ":    {-operation.ClockSkew, wait},
		"far ahead, by a clock that is wrong": {-operation.ClockSkew - 1, 0},
	} {
		if got := operation.Remaining(wait, objects.Now.Add(-test.ago), objects.Now); got != test.want {
			t.Errorf("recorded %s: got %s, want %s", name, got, test.want)
		}
	}
}

func TestTheSoonerOfTwoWaitsCountsIfItIsAboveZero(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ a, b, want time.Duration }{
		{1, 2, 1}, {0, 2, 2}, {-1, 2, 2}, {0, 0, 0}, {-1, -1, 0},
	} {
		got, other := operation.Sooner(test.a, test.b), operation.Sooner(test.b, test.a)
		if got != test.want || other != test.want {
			t.Errorf("of %d and %d: got %d and %d, want %d", test.a, test.b, got, other, test.want)
		}
	}
}
