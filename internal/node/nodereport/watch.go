package nodereport

import (
	"context"
	"slices"
	"time"

	"github.com/go-logr/logr"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
)

// ownVersions is how many resource versions of its own writes the process remembers, to recognise
// them when the watch shows them late.
const ownVersions = 8

// lookDelay is the time between a change of the object and the look at it. Until then a write of
// this process, which the watch can show before its answer has come, is known as its own.
const lookDelay = 10 * time.Millisecond

// watchRetry is the time between the end of a watch and the next one.
const watchRetry = time.Second

// watch has a heartbeat written when another writer has requested one, has changed which volumes the
// report names, its digest or its times, or has deleted the object. It watches until ctx ends. While the
// watch is down, the report does not offer heartbeats on request.
func (r *Reporter) watch(ctx context.Context) {
	log := logr.FromContextOrDiscard(ctx)
	for ctx.Err() == nil {
		watcher, err := r.options.Client.Watch(ctx, &apiv1.AzDriverNodeList{},
			client.InNamespace(r.options.Namespace), client.MatchingFields{"metadata.name": r.options.NodeName})
		r.setWatching(err == nil)
		if err == nil {
			r.follow(ctx, watcher)
		} else if ctx.Err() == nil {
			log.Error(err, "own AzDriverNode not watched", "retryIn", watchRetry.String())
		}
		timer := r.options.Clock.NewTimer(watchRetry)
		select {
		case <-ctx.Done():
		case <-timer.C():
		}
		timer.Stop()
	}
}

// follow returns when the watch has ended, which it does regularly.
func (r *Reporter) follow(ctx context.Context, watcher apiwatch.Interface) {
	defer watcher.Stop()
	var latest apiwatch.Event
	var due <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case event, open := <-watcher.ResultChan():
			if !open || event.Type == apiwatch.Error {
				return
			}
			if latest = event; due == nil {
				due = r.options.Clock.After(lookDelay)
			}
		case <-due:
			due = nil
			if d, ok := latest.Object.(*apiv1.AzDriverNode); ok && r.needsHeartbeat(latest.Type, d) {
				r.wakeUp()
			}
		}
	}
}

// needsHeartbeat reports whether the state of the object that the watch shows needs a heartbeat
// now.
func (r *Reporter) needsHeartbeat(event apiwatch.EventType, d *apiv1.AzDriverNode) bool {
	if event == apiwatch.Deleted {
		return true
	}
	seconds, onRequest := r.interval(&d.Status)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.setRequests(d)
	if slices.Contains(r.versions, d.ResourceVersion) {
		return false
	}
	known := r.known
	r.known, r.seen = d, d
	return known == nil || !d.Status.HeartbeatTime.Equal(known.Status.HeartbeatTime) ||
		d.Status.ReportDigest != known.Status.ReportDigest || ownership.ReportDigest(d) != known.Status.ReportDigest ||
		!d.HeartbeatRequestedTime().Equal(known.HeartbeatRequestedTime()) ||
		seconds != d.Status.HeartbeatPeriodSeconds || onRequest != d.Status.HeartbeatOnRequest
}

func (r *Reporter) setWatching(on bool) {
	r.mu.Lock()
	changed := r.watching != on
	r.watching = on
	r.mu.Unlock()
	if changed {
		r.wakeUp()
	}
}

// wrote remembers a state that this process wrote.
func (r *Reporter) wrote(d *apiv1.AzDriverNode) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.known, r.seen = d, nil; !r.watching { // the watch may have shown a newer state
		r.setRequests(d)
	}
	r.versions = append(r.versions, d.ResourceVersion)
	if len(r.versions) > ownVersions {
		r.versions = r.versions[1:]
	}
}

// takeSeen returns the state that another writer made and the watch showed since the last write;
// nil if there is none. It saves the next write a read. If this process has written a newer one,
// the next write gets a conflict and reads.
func (r *Reporter) takeSeen() *apiv1.AzDriverNode {
	r.mu.Lock()
	defer r.mu.Unlock()
	seen := r.seen
	r.seen = nil
	return seen
}
