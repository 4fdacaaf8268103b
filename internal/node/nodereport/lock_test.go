package nodereport

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	"k8s.io/utils/clock"
)

func TestOneProcessAtATimeHoldsTheRecords(t *testing.T) {
	records := Records{Dir: filepath.Join(t.TempDir(), "staged")}
	release, err := records.Lock(t.Context(), clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if _, err := records.Lock(ended, clock.RealClock{}); !errors.Is(err, context.Canceled) {
		t.Errorf("a second lock: %v, want that it waits until its context ends", err)
	}
	if found, err := records.List(); len(found) != 0 || err != nil {
		t.Errorf("List = %v, %v; want no records", found, err)
	}
	second := make(chan error, 1)
	go func() {
		_, err := records.Lock(t.Context(), clock.RealClock{})
		second <- err
	}()
	release()
	if err := <-second; err != nil {
		t.Errorf("after the release: %v", err)
	}
}
