package csi

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/metrics"
	"github.com/azuredisk-csi/azuredisk/internal/node/csi/reservation"
	"github.com/azuredisk-csi/azuredisk/internal/node/nodereport"
	"github.com/azuredisk-csi/azuredisk/internal/plan/fencing"
	"github.com/azuredisk-csi/azuredisk/internal/plan/operation"
	"github.com/azuredisk-csi/azuredisk/internal/volumehandle"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

const (
	// fenceTimeout limits the first try. The controller asks another node after 2 s; a later success is
	// still reported. The limit doubles with each further try up to longestFenceTimeout, so that a node
	// or a disk that is merely slow answers in the end.
	fenceTimeout, longestFenceTimeout = 1500 * time.Millisecond, 6 * time.Second
	// fenceRetry is when a try that fails is repeated first. The time doubles up to
	// longestFenceRetry.
	fenceRetry, longestFenceRetry = 50 * time.Millisecond, 30 * time.Second
	// fencesAtOnce is how many volumes are fenced at the same time: one device that does not answer
	// must not delay the others.
	fencesAtOnce = 4
)

// fences are the volumes whose requests to fence the process works on.
type fences struct {
	queue workqueue.TypedRateLimitingInterface[string]
	// tries are the durations of tries to fence, by result.
	tries *prometheus.HistogramVec

	mu sync.Mutex
	// tried are the requests for which this process may have registered a key and has written no
	// result, by volume.
	tried map[string]apiv1.FenceRequest
}

// The results of a try to fence, in the metric.
const (
	tryFenced = "Fenced"
	// tryRefused: there can be no proof, and the controller asks another node.
	tryRefused = "Refused"
	// tryFailed: the node tries again.
	tryFailed = "Failed"
)

// AnswerFences follows the requests to fence in this node's AzDriverNode until ctx ends: it takes the
// reservation of a volume from a lost node, reports the result, and ends this node's registration
// after the request was withdrawn (law 3d). It is called once. registerer may be nil.
func (s *Server) AnswerFences(ctx context.Context, registerer prometheus.Registerer) error {
	f := &fences{
		tries: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "azuredisk_failover_fence_attempt_duration_seconds",
			Help:    "Duration of the tries of this node to take the reservation of a disk from a lost node, by result.",
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 1.5, 2.5},
		}, []string{"result"}),
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(
			workqueue.NewTypedItemExponentialFailureRateLimiter[string](fenceRetry, longestFenceRetry),
			workqueue.TypedRateLimitingQueueConfig[string]{Clock: s.options.Clock}),
		tried: map[string]apiv1.FenceRequest{},
	}
	if err := metrics.Register(registerer, "the fences of the node", f.tries); err != nil {
		return err
	}
	var working sync.WaitGroup
	defer working.Wait()
	defer f.queue.ShutDown()
	for range s.options.FencesAtOnce {
		working.Go(func() {
			for s.answerNext(ctx, f) {
			}
		})
	}
	before := map[string]bool{} // volumes without a request any more may have to be left
	for {
		requests, results, changed := s.options.Report.Fences()
		now := map[string]bool{}
		for _, request := range requests {
			now[request.VolumeName] = true
		}
		for _, result := range results {
			now[result.VolumeName] = true
		}
		for _, volumes := range []map[string]bool{before, now} {
			for _, volume := range slices.Sorted(maps.Keys(volumes)) {
				f.queue.Forget(volume)
				f.queue.Add(volume)
			}
		}
		before = now
		select {
		case <-changed:
		case <-ctx.Done():
			return nil
		}
	}
}

// answerNext works on the next volume in the queue. It returns false when the queue was shut down.
func (s *Server) answerNext(ctx context.Context, f *fences) bool {
	volume, shutdown := f.queue.Get()
	if shutdown {
		return false
	}
	defer f.queue.Done(volume)
	if err := s.answerFence(ctx, f, volume); err != nil && ctx.Err() == nil {
		logr.FromContextOrDiscard(ctx).Info("the request to fence is not answered yet", "volumeName", volume, "reason",
			err.Error())
		f.queue.AddRateLimited(volume)
	} else {
		f.queue.Forget(volume)
	}
	return true
}

// answerFence brings a volume to what its request says: fenced and reported, or left.
func (s *Server) answerFence(ctx context.Context, f *fences, volume string) error {
	requests, results, _ := s.options.Report.Fences()
	asked := slices.IndexFunc(requests, func(r apiv1.FenceRequest) bool { return r.VolumeName == volume })
	answered := slices.IndexFunc(results, func(r apiv1.FenceResult) bool { return r.VolumeName == volume })
	f.mu.Lock()
	tried, isTried := f.tried[volume]
	f.mu.Unlock()
	switch {
	case asked >= 0 && answered >= 0 && fencing.Answers(results[answered], requests[asked]):
		return nil
	case asked >= 0:
		return s.fence(ctx, f, requests[asked])
	case answered >= 0:
		if err := s.leaveFence(ctx, f.limit(volume), results[answered], results[answered].Key != ""); err != nil {
			return err
		}
		return s.options.Report.ForgetFence(ctx, volume)
	case isTried:
		// The result may have been stored although its write failed.
		if err := s.leaveFence(ctx, f.limit(volume), apiv1.FenceResult{
			VolumeName: volume,
			NodeName:   tried.NodeName,
			Epoch:      tried.Epoch,
		}, true); err != nil {
			return err
		}
		f.setTried(volume, nil)
	}
	return nil
}

// limit returns the time that the next try for a volume may take.
func (f *fences) limit(volume string) time.Duration {
	limit := fenceTimeout
	for range f.queue.NumRequeues(volume) {
		limit = min(2*limit, longestFenceTimeout)
	}
	return limit
}

func (f *fences) setTried(volume string, request *apiv1.FenceRequest) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if request == nil {
		delete(f.tried, volume)
	} else {
		f.tried[volume] = *request
	}
}

// fence takes the reservation from the lost node and reports it, or why it cannot. An error means
// that it is to be tried again.
func (s *Server) fence(ctx context.Context, f *fences, request apiv1.FenceRequest) error {
	f.setTried(request.VolumeName, &request)
	began := s.options.Clock.Now()
	result := apiv1.FenceResult{
		VolumeName:  request.VolumeName,
		VolumeUID:   request.VolumeUID,
		NodeName:    request.NodeName,
		Epoch:       request.Epoch,
		RequestTime: request.RequestTime,
	}
	key, proof, err := s.tryFence(ctx, f.limit(request.VolumeName), request)
	ended := tryFenced
	switch {
	case err == nil:
		result.Key, result.PRGeneration = key.String(), int64(proof.Generation)
	case finalOfFence(err):
		ended, result.Message = tryRefused, operation.ShortenTo(err.Error(), nodereport.LongestMessage)
	default:
		ended = tryFailed
	}
	f.tries.WithLabelValues(ended).Observe(s.options.Clock.Since(began).Seconds())
	if ended == tryFailed {
		return err
	}
	result.ResultTime = metav1.NewMicroTime(s.options.Clock.Now())
	logr.FromContextOrDiscard(ctx).Info("fenced a node by the reservation of a disk", "volumeName", request.VolumeName,
		"nodeName", request.NodeName, "epoch", request.Epoch,
		"key", result.Key, "failure", result.Message, "duration", result.ResultTime.Sub(began).String())
	if err := s.options.Report.Fenced(ctx, result); err != nil {
		return err
	}
	f.setTried(request.VolumeName, nil)
	return nil
}

// finalOfFence reports whether another try would fail in the same way.
func finalOfFence(err error) bool {
	for _, kind := range []error{provisioner.FailedPrecondition, provisioner.Unsupported, provisioner.InvalidArgument} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}

// tryFence does not take the volume's lock: a NodeStageVolume that waits for the publish, which
// comes after the fence, holds it. The lock of the device is enough, because a call for the volume
// uses it while it reserves and uses the device.
func (s *Server) tryFence(ctx context.Context, limit time.Duration, request apiv1.FenceRequest) (provisioner.ReservationKey,
	provisioner.ReservationState, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var none provisioner.ReservationState
	volume, own, err := s.replicaOf(ctx, request.VolumeName)
	if err != nil {
		return 0, none, err
	}
	if volume == nil {
		return 0, none, provisioner.Errorf(provisioner.FailedPrecondition, "volume %s does not exist", request.VolumeName)
	}
	if why := fencing.MayFence(s.options.NodeName, s.options.Instance.VMID, request, volume, own); why != "" {
		return 0, none, provisioner.Errorf(provisioner.FailedPrecondition, "refusing to fence node %s from volume %s: %s",
			request.NodeName, request.VolumeName, why)
	}
	device, release, err := s.devices.Replica(ctx, volume, *own.Status.LUN)
	if err != nil {
		return 0, none, err
	}
	defer release()
	if err := s.checkFence(ctx, volume, device); err != nil {
		return 0, none, err
	}
	disk := volumehandle.Of(volume.Spec.Disk)
	key, err := s.key(disk, request.Epoch)
	if err != nil {
		return 0, none, err
	}
	victim, err := provisioner.NewReservationKey(s.options.Cluster, request.Epoch, request.NodeName, disk.String())
	if err != nil {
		return 0, none, err
	}
	key = key.FenceOnly()
	before, _, err := s.options.Records.Guard(volume.Name)
	if err != nil {
		return 0, none, err
	}
	pair := nodereport.Guard{
		VolumeName: volume.Name,
		Key:        key.String(),
		Victim:     victim.String(),
	}
	proof, changed, err := s.reserver.Fence(ctx, device.Path, reservation.Takeover{
		Own:      key,
		Victim:   victim,
		Recorded: before == pair,
		Record:   func() error { return s.options.Records.PutGuard(pair) },
	})
	if changed && finalOfFence(err) {
		// Else it is left when the request is withdrawn. It may hold the reservation that a fence
		// of an earlier epoch depends on.
		err = errors.Join(err, s.leave(ctx, disk, device.Path, ownReservation{key: key}))
	}
	return key, proof, err
}

// checkFence refuses a device that carries another filesystem than the volume's, and a volume that
// this node uses.
func (s *Server) checkFence(ctx context.Context, volume *apiv1.AzVolume, device provisioner.Device) error {
	record, _, err := s.options.Records.Get(volume.Name)
	if err != nil {
		return err
	}
	if record.BootID == s.options.BootID {
		return provisioner.Errorf(provisioner.FailedPrecondition,
			"refusing to fence by %s: this node has staged volume %s with %s", device.Path, volume.Name, record.Device)
	}
	if volume.Status.Filesystem == nil {
		return nil
	}
	found, _, err := s.options.Host.Filesystems().Probe(ctx, device.Path)
	if err != nil {
		return fmt.Errorf("probe device: %w", err)
	}
	if found.UUID != volume.Status.Filesystem.UUID {
		return provisioner.Errorf(provisioner.FailedPrecondition,
			"refusing to fence by %s: it carries the filesystem %q, and volume %s has %q",
			device.Path, found.UUID, volume.Name, volume.Status.Filesystem.UUID)
	}
	return nil
}

// leaveFence ends this node's fence-only registration, once nothing depends on it: no node has the
// disk attached that only a reservation keeps from writing, and if the result may become the lost
// node's proof, that node has one. It succeeds if the disk is not attached to this node any more,
// and if this node uses the volume, because the key of its own epoch has replaced the fence-only
// key then.
func (s *Server) leaveFence(ctx context.Context, limit time.Duration, result apiv1.FenceResult, provable bool) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	name := result.VolumeName
	record, _, err := s.options.Records.Get(name)
	if err != nil || record.ReservationKey != "" && record.BootID == s.options.BootID {
		return err
	}
	attachments, err := s.attachments(ctx, name)
	if err != nil {
		return err
	}
	if provable && fencing.ProofMissing(attachments, result.NodeName, result.Epoch) {
		return provisioner.Errorf(provisioner.Unavailable,
			"cannot end the fence of node %s from volume %s: the node was not proved to have released it", result.NodeName, name)
	}
	err = s.leaveAttached(ctx, name, func(disk volumehandle.Handle, _ *apiv1.AzVolumeAttachment) (provisioner.ReservationKey,
		error) {
		key, err := s.key(disk, result.Epoch)
		return key.FenceOnly(), err
	})
	// The LUN has another disk: the fence was refused for that reason, and has left nothing there.
	if err != nil && (provable || !errors.Is(err, provisioner.FailedPrecondition)) {
		return err
	}
	if kept, _, err := s.options.Records.Guard(name); kept.Victim == "" {
		return err
	}
	return s.options.Records.DeleteGuard(name)
}
