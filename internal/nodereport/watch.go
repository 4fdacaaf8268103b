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

// ownVersions is how many resource versions of its own writes the process remembers, to recognise them when the watch shows them late.
const ownVersions = 8

// watchRetry is the time between the end of a watch and the next one.
const watchRetry = time.Second

// watch has a heartbeat written when another writer has requested one, has changed the report or has deleted the object.
// It watches until ctx ends. While it cannot, the node promises no answers.
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
	for {
		select {
		case <-ctx.Done():
			return
		case event, open := <-watcher.ResultChan():
			if !open || event.Type == apiwatch.Error {
				return
			}
			if d, ok := event.Object.(*apiv1.AzDriverNode); ok && r.needsHeartbeat(ctx, event.Type, d) {
				r.wakeUp()
			}
		}
	}
}

// needsHeartbeat says whether a state of the object needs a heartbeat now.
func (r *Reporter) needsHeartbeat(ctx context.Context, event apiwatch.EventType, d *apiv1.AzDriverNode) bool {
	r.mu.Lock()
	own := slices.Contains(r.versions, d.ResourceVersion)
	r.mu.Unlock()
	if own && event != apiwatch.Deleted {
		return false
	}
	select {
	case r.writing <- struct{}{}:
	case <-ctx.Done():
		return false
	}
	defer func() { <-r.writing }()
	if event == apiwatch.Deleted || r.last == nil {
		return true
	}
	known := r.last.Status
	// It saves the next write a read. If it is an older state than the last, the next write gets a conflict and reads.
	r.last = d.DeepCopy()
	seconds, onRequest := r.interval(&d.Status)
	return !d.Status.HeartbeatTime.Equal(known.HeartbeatTime) ||
		d.Status.ReportDigest != known.ReportDigest || ownership.ReportDigest(d) != known.ReportDigest ||
		!d.Status.HeartbeatRequestedTime.Equal(known.HeartbeatRequestedTime) ||
		seconds != d.Status.HeartbeatSeconds || onRequest != d.Status.HeartbeatOnRequest
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

// wrote remembers a version that this process wrote.
func (r *Reporter) wrote(version string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.versions = append(r.versions, version)
	if len(r.versions) > ownVersions {
		r.versions = r.versions[1:]
	}
}
