package drivernode

import (
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// A read of a VM that Azure refuses was repeated 11 times in the first 10 seconds.
func TestAReadThatAzureRefusesIsRepeatedSlowly(t *testing.T) {
	t.Parallel()
	paced, reads := retries(), 1
	var last time.Duration
	for passed := time.Duration(0); passed < 10*time.Second; passed += last {
		last = paced.When(reconcile.Request{})
		reads++
	}
	if reads > 5 {
		t.Errorf("got %d reads in 10 s, want at most 5", reads)
	}
	for range 10 {
		last = paced.When(reconcile.Request{})
	}
	if last != time.Minute {
		t.Errorf("got a last pause of %s, want a minute", last)
	}
}
