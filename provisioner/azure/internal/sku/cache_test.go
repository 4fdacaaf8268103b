package sku

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// region is a cache that counts how often an answer is read. Reading takes a second.
type region struct {
	cache[int]
	reads int
	err   error
}

func (r *region) get(ctx context.Context, age time.Duration) (int, error) {
	valid := func(a *answer[int]) bool { return a.err == nil && time.Since(a.at) < age }
	return r.cache.get(ctx, "eastus", time.Now, valid, func() (int, error) {
		r.reads++
		select {
		case <-time.After(time.Second):
			return r.reads, r.err
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	})
}

func TestCallersShareAReadingUntilItIsTooOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r region
		for range 20 {
			go func() { _, _ = r.get(t.Context(), time.Hour) }()
		}
		time.Sleep(time.Minute)
		if got, err := r.get(t.Context(), time.Hour); got != 1 || err != nil {
			t.Errorf("after a minute: got reading %d and %v, want the first", got, err)
		}
		time.Sleep(time.Hour)
		if got, err := r.get(t.Context(), time.Hour); got != 2 || err != nil {
			t.Errorf("after an hour: got reading %d and %v, want the second", got, err)
		}
	})
}

func TestAFailedReadingKeepsTheLastValue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r region
		if _, err := r.get(t.Context(), time.Hour); err != nil {
			t.Fatal(err)
		}
		r.err = errors.New("refused")
		time.Sleep(2 * time.Hour)
		if _, err := r.get(t.Context(), time.Hour); !errors.Is(err, r.err) {
			t.Errorf("got %v, want the error of the reading", err)
		}
		if got, recent := r.known("eastus", time.Now().Add(-time.Hour)); got != 1 || recent {
			t.Errorf("got reading %d (recent: %v), want the first, which is not recent", got, recent)
		}
	})
}

func TestACallerWhoLeavesDoesNotFailTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r region
		ctx, leave := context.WithCancel(t.Context())
		go func() { _, _ = r.get(ctx, time.Hour) }()
		synctest.Wait()
		leave()
		if got, err := r.get(t.Context(), time.Hour); got != 2 || err != nil {
			t.Errorf("got reading %d and %v, want the second, since the first has no result", got, err)
		}
	})
}
