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
