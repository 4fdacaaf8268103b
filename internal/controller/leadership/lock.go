// Package leadership lets a standby controller take the leader's lease as soon as it knows that the
// leader's node is lost, instead of when the lease has expired. docs/adr/0014 says why two leaders
// for a few seconds do no harm.
package leadership

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"

	"github.com/azuredisk-csi/azuredisk/internal/plan/nodehealth"
)

// lookEvery is how often the elector checks whether the lease can be taken or must be renewed. The
// Lock reads and writes the lease less often.
const lookEvery = 500 * time.Millisecond

// LookEvery returns the retry period of the elector that uses a Lock whose lease is renewed every
// renewEvery.
func LookEvery(renewEvery time.Duration) time.Duration { return min(lookEvery, renewEvery) }

// ControllerOptions are the options of all controllers of a manager. They use client-go's queue: a
// controller of controller-runtime 0.24.1 with the priority queue may not stop, and delays the
// manager's end by its whole grace period, so that the next leader waits for the lease
// (https://github.com/kubernetes-sigs/controller-runtime/issues/3538).
func ControllerOptions() ctrlconfig.Controller {
	return ctrlconfig.Controller{UsePriorityQueue: ptr.To(false)}
}

// Options of a Lock.
type Options struct {
	Leases          coordinationv1client.LeasesGetter
	Namespace, Name string
	// Identity is the holder's name that this process writes into the lease; see Identity.
	Identity string
	// RenewEvery is how often the leader renews the lease, and a standby reads it.
	RenewEvery time.Duration
	Clock      clock.PassiveClock
	Log        logr.Logger
}

// Lock is the leader's lease as client-go's elector sees it. The lease of a leader that has missed
// a renewal, and whose node is lost and may be fenced, looks released; the elector then takes it with a
// compare-and-swap on the version that was read.
// One elector uses it, and makes one call at a time.
type Lock struct {
	Options
	*resourcelock.LeaseLock
	// Verdict on a node. It is set before the first call.
	Health func(node string) nodehealth.Judgement
	// Superseded is called when another controller has taken the lease that this one held. It is
	// set before the first call.
	Superseded func(by string)

	seen    *resourcelock.LeaderElectionRecord // as read last; nil after a failure
	raw     []byte
	read    time.Time
	changed time.Time // when raw was read first
	held    bool      // the last write made this process the leader
	written time.Time
}

// New makes a Lock.
func New(options Options) *Lock {
	return &Lock{Options: options, LeaseLock: &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: options.Namespace, Name: options.Name},
		Client:     options.Leases,
		LockConfig: resourcelock.ResourceLockConfig{Identity: options.Identity},
	}}
}

// Identity implements resourcelock.Interface.
func (l *Lock) Identity() string { return l.Options.Identity }

// Get implements resourcelock.Interface.
func (l *Lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	if l.ofAnother() && l.Clock.Since(l.read) < l.RenewEvery && !l.due() {
		return l.seen, l.raw, nil
	}
	record, raw, err := l.LeaseLock.Get(ctx)
	if err != nil {
		l.seen = nil
		return nil, nil, err
	}
	now := l.Clock.Now()
	if !bytes.Equal(raw, l.raw) {
		l.changed = now
	}
	l.seen, l.raw, l.read = record, raw, now
	if !l.ofAnother() {
		return record, raw, nil
	}
	if l.held {
		l.held = false
		l.Superseded(record.HolderIdentity)
	}
	if !l.due() {
		return record, raw, nil
	}
	node := nodeOf(record.HolderIdentity)
	l.Log.Info("taking the lease of a leader whose node is lost", "holder", record.HolderIdentity, "node", node, "evidence",
		l.Health(node).Evidence)
	released := *record
	released.HolderIdentity = ""
	raw, err = json.Marshal(released)
	if err != nil {
		return nil, nil, fmt.Errorf("write a record of the leader's lease: %w", err)
	}
	return &released, raw, nil
}

// Create implements resourcelock.Interface.
func (l *Lock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.wrote(record, l.LeaseLock.Create(ctx, record))
}

// Update implements resourcelock.Interface. A renewal before its time is not sent.
func (l *Lock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if l.held && record.HolderIdentity == l.Identity() && l.Clock.Since(l.written) < l.RenewEvery {
		return nil
	}
	return l.wrote(record, l.LeaseLock.Update(ctx, record))
}

func (l *Lock) wrote(record resourcelock.LeaderElectionRecord, err error) error {
	l.seen = nil
	if err == nil {
		l.held, l.written = record.HolderIdentity == l.Identity(), l.Clock.Now()
	}
	return err
}

// ofAnother reports whether another process held the lease when it was read last.
func (l *Lock) ofAnother() bool {
	return l.seen != nil && l.seen.HolderIdentity != "" && l.seen.HolderIdentity != l.Identity()
}

// due reports whether the lease is to be taken from its holder.
func (l *Lock) due() bool {
	node := nodeOf(l.seen.HolderIdentity)
	return node != "" && nodehealth.AcquiresLease(nodehealth.LeaderSigns{
		Health:     l.Health(node),
		Unrenewed:  l.Clock.Since(l.changed),
		RenewEvery: l.RenewEvery,
	})
}
