package azure_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/azuredisk-csi/azuredisk/internal/azuresim/audit"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/latency"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// noticed runs an operation and returns how long it took at the platform, how late its end was
// noticed, and the times of its polls.
func (l *lab) noticed(begin func() (provisioner.Operation, error)) (took, late time.Duration, polls []time.Time) {
	l.Helper()
	began := time.Now()
	l.must(begin())
	back, id := time.Now(), ""
	for _, r := range l.since(began) {
		switch {
		case r.Operation != "":
			id = r.Operation
		case isPoll(r):
			polls = append(polls, r.Time)
		}
		if r.Status == http.StatusTooManyRequests {
			l.Errorf("%s was answered 429", r.API)
		}
	}
	op, err := l.sim.Operation(id)
	if err != nil || op == nil {
		l.Fatalf("operation %q: %v", id, err)
	}
	return op.Ended.Sub(op.Accepted), back.Sub(op.Ended), polls
}

func isPoll(r audit.Record) bool { return strings.Contains(r.Path, "/operations/") }

// A disk is attached to a VM and detached again, with Azure's latencies and their tail. If Azure asks
// not to poll, the VM is read, which has a smaller quota.
func TestTheEndOfEveryDiskOperationIsNoticedSoon(t *testing.T) {
	for name, test := range map[string]struct {
		asks bool          // Azure asks not to poll for ten seconds
		mean time.Duration // that an end may be noticed late
		slow int           // of 60 that may be noticed more than a second late
	}{
		"Azure lets the driver poll":         {false, 400 * time.Millisecond, 6},
		"Azure asks not to poll for a while": {true, 2 * time.Second, 40},
	} {
		t.Run(name, func(t *testing.T) {
			profile := latency.Realistic()
			if !test.asks {
				profile.Pauses = nil
			}
			inLab(t, profile, 1, func(l *lab) { l.noticeEnds(test.mean, test.slow) })
		})
	}
}

func (l *lab) noticeEnds(most time.Duration, mostSlow int) {
	vm, disk := l.newVM(), l.newDisks(1)[0]
	steps := []func() (provisioner.Operation, error){
		func() (provisioner.Operation, error) { return l.attach(vm, disk) },
		func() (provisioner.Operation, error) { return l.cloud.Attachments().Detach(l.Context(), vm, disk) },
		func() (provisioner.Operation, error) { return l.attach(vm, disk) },
		func() (provisioner.Operation, error) { return l.cloud.Attachments().ForceDetach(l.Context(), vm, disk) },
	}
	var sum time.Duration
	slow := 0
	const operations = 60
	for i := range operations {
		took, late, polls := l.noticed(steps[i%len(steps)])
		sum += late
		if late > time.Second {
			slow++
		}
		if late > max(most*5, took/4) || len(polls) > 60 {
			l.Errorf("operation %d of %v was noticed %v late after %d polls", i, took, late, len(polls))
		}
	}
	l.Logf("noticed %v late on average, %d of %d more than a second late", sum/operations, slow, operations)
	if mean := sum / operations; mean > most || slow > mostSlow {
		l.Errorf("noticed %v late on average, %d of %d more than a second late, want at most %v and %d", mean, slow, operations, most,
			mostSlow)
	}
}

func TestPausesThatAzureAsksForBetweenPollsAreKept(t *testing.T) {
	inLab(t, latency.Realistic(), 1, func(l *lab) {
		vm, disk := l.newVM(), l.newDisks(1)[0]
		l.header = http.Header{"Retry-After": {"3"}}
		_, late, polls := l.noticed(func() (provisioner.Operation, error) { return l.attach(vm, disk) })
		if late > 3500*time.Millisecond || len(polls) < 3 {
			l.Errorf("noticed %v late after %d polls", late, len(polls))
		}
		for i := range polls[1:] {
			if pause := polls[i+1].Sub(polls[i]); pause < 3*time.Second {
				l.Errorf("poll %d comes after %v", i+1, pause)
			}
		}
	})
}
