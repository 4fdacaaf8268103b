package nodereport

import (
	"context"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/operation"
)

const (
	firstRetry = 250 * time.Millisecond
	// callTimeout limits one heartbeat, because a call that hangs must not stop the heartbeats.
	callTimeout = 3 * time.Second
	// observationAge is how long an AzVolume is used before it is read again; it may change while
	// the volume is staged.
	observationAge = 5 * time.Minute
)

// observation is an AzVolume, and when it was read.
type observation struct {
	volume *apiv1.AzVolume
	read   time.Time
}

// Start writes heartbeats until ctx ends. The first one creates the AzDriverNode and has the result
// of the scan of the mounts.
func (r *Reporter) Start(ctx context.Context) error {
	log := logr.FromContextOrDiscard(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	watching.Go(func() { r.watch(ctx) })
	retry := firstRetry
	for {
		interval, err := r.beat(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			log.Error(err, "heartbeat failed", "retryIn", retry.String())
			interval = min(retry, interval)
			retry = min(2*retry, r.options.SlowInterval)
		default:
			retry = firstRetry
		}
		timer := r.options.Clock.NewTimer(interval)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C():
		case <-r.wake:
			timer.Stop()
		}
	}
}

// NeedLeaderElection tells the manager that every node reports.
func (r *Reporter) NeedLeaderElection() bool { return false }

// SetReady sets the condition PluginReady, which the next heartbeat writes. reason is one word in
// CamelCase.
func (r *Reporter) SetReady(ready bool, reason, message string) {
	status := metav1.ConditionFalse
	if ready {
		status = metav1.ConditionTrue
	}
	r.mu.Lock()
	r.ready = metav1.Condition{
		Type:    apiv1.NodeConditionPluginReady,
		Status:  status,
		Reason:  reason,
		Message: operation.Shorten(message),
	}
	r.mu.Unlock()
	r.wakeUp()
}

// Leave writes that the plug-in has stopped: the node's volumes remain mounted, and no further
// volume can be staged. A plug-in that stops regularly calls it after Start has returned.
func (r *Reporter) Leave(ctx context.Context) error {
	select {
	case <-r.written:
	default:
		return nil // the plug-in has never reported that it was ready
	}
	r.SetReady(false, apiv1.ReasonStopped, "the node plug-in has stopped")
	_, err := r.beat(ctx)
	return err
}

// Observe passes the reporter an AzVolume that the caller has read, which saves a read.
func (r *Reporter) Observe(volume *apiv1.AzVolume) {
	observed := observation{volume: volume.DeepCopy(), read: r.options.Clock.Now()}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.observed[volume.Name] = observed
}

func (r *Reporter) wakeUp() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// beat writes one heartbeat and returns when the next one is due.
func (r *Reporter) beat(ctx context.Context) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	r.mu.Lock()
	ready := r.ready
	r.mu.Unlock()
	r.observeStaged(ctx)
	interval := r.options.SlowInterval
	err := r.update(ctx, func(status *apiv1.AzDriverNodeStatus) {
		r.promise(status)
		interval = time.Duration(status.HeartbeatPeriodSeconds) * time.Second
		// A restart of the plug-in does not make the node not ready: the condition remains until
		// the plug-in has a new one.
		if ready.Reason != apiv1.ReasonStarting || meta.FindStatusCondition(status.Conditions, ready.Type) == nil {
			meta.SetStatusCondition(&status.Conditions, r.stamped(ready))
		}
	})
	return interval, err
}

// promise sets the time of the heartbeat and the interval to the next one. It is part of every
// write. A write that makes the interval shorter wakes the loop, so that the next heartbeat is in
// time.
func (r *Reporter) promise(status *apiv1.AzDriverNodeStatus) {
	seconds, onRequest := r.interval(status)
	if seconds < status.HeartbeatPeriodSeconds {
		r.wakeUp()
	}
	status.HeartbeatPeriodSeconds, status.HeartbeatOnRequest = seconds, onRequest
	status.HeartbeatTime = &metav1.MicroTime{Time: r.options.Clock.Now()}
}

// interval returns the interval that the node has to promise, and whether it promises to answer
// requests.
func (r *Reporter) interval(status *apiv1.AzDriverNodeStatus) (seconds int32, onRequest bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	interval := r.options.SlowInterval
	for _, entry := range status.StagedVolumes {
		// A volume that could not be read yet counts as replicated: too many heartbeats do no harm.
		if known, found := r.observed[entry.VolumeName]; !found || known.volume.Spec.MaxMountReplicaCount > 0 {
			interval = r.options.FastInterval
		}
	}
	// A controller with another reason requests nothing.
	probed := meta.FindStatusCondition(status.Conditions, apiv1.NodeConditionProbeable)
	onRequest = r.watching && probed != nil && probed.Status == metav1.ConditionTrue && probed.Reason == apiv1.ReasonAnswersProbes
	if onRequest {
		interval = r.options.ProbedInterval
	}
	return int32(max(1, interval/time.Second)), onRequest
}

func (r *Reporter) stamped(condition metav1.Condition) metav1.Condition {
	condition.LastTransitionTime = metav1.NewTime(r.options.Clock.Now())
	return condition
}

// observeStaged reads the staged volumes that were not read yet, or long ago.
func (r *Reporter) observeStaged(ctx context.Context) {
	for _, name := range r.stagedVolumes() {
		r.mu.Lock()
		known, found := r.observed[name]
		r.mu.Unlock()
		if found && r.options.Clock.Since(known.read) <= observationAge {
			continue
		}
		var volume apiv1.AzVolume
		err := r.options.Client.Get(ctx, client.ObjectKey{Namespace: r.options.Namespace, Name: name}, &volume)
		if client.IgnoreNotFound(err) != nil {
			continue
		}
		volume.Name = name
		r.Observe(&volume)
	}
}

// stagedVolumes are the volumes of the report. It does not wait for a write in flight, which would
// use the heartbeat's time.
func (r *Reporter) stagedVolumes() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	volumes := make([]string, 0, len(r.staged))
	for _, entry := range r.staged {
		volumes = append(volumes, entry.VolumeName)
	}
	return volumes
}
