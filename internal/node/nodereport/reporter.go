package nodereport

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/kube"
	"github.com/azuredisk-csi/azuredisk/internal/plan/operation"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
	"github.com/azuredisk-csi/azuredisk/internal/plan/problem"
)

// Options of a Reporter.
type Options struct {
	// Client reads, writes and watches at the API server, never through a cache.
	Client client.WithWatch
	// Namespace of the custom resources.
	Namespace string
	// NodeName is the Node's and the AzDriverNode's name.
	NodeName string
	// Spec identifies the VM.
	Spec apiv1.AzDriverNodeSpec
	// DriverVersion is reported.
	DriverVersion string
	// Scanner finds the volumes that are staged on the node.
	Scanner Scanner
	// SlowInterval and FastInterval between heartbeats; fast while a replicated volume is staged on
	// the node.
	SlowInterval, FastInterval time.Duration
	// ProbedInterval takes the place of both while the controller's probes reach the node, because
	// it then requests a heartbeat when a probe fails.
	ProbedInterval time.Duration
	// Clock of the heartbeat; nil for the real one.
	Clock clock.WithTicker
}

// Reporter writes this node's AzDriverNode. It is safe for concurrent use.
type Reporter struct {
	options Options
	// writing is a lock for writing the report and for last. It is held during a call, and it is a
	// channel so that the wait for it can end with a context.
	writing chan struct{}
	// last is the object as the API server returned it; nil if it must be read.
	last *apiv1.AzDriverNode
	// scanned is when this process scanned the node's mounts; zero until the result is written.
	scanned metav1.MicroTime
	// staged are the entries, as this process last wrote them. From the first write on they replace
	// the entries of the object, which other writers can change by an edit or by restoring an older
	// version. A change needs writing and mu, a read needs one of them.
	staged []apiv1.StagedVolume
	// fenced are the results of fences, by the rules of staged.
	fenced []apiv1.FenceResult
	// removing are the volumes whose entries the write in progress removes: the forgotten volumes
	// at its start. It needs writing.
	removing []string
	// changed is closed by the next write, which replaces it by a new channel.
	changed chan struct{}
	wake    chan struct{}
	// written is closed by the first write.
	written chan struct{}

	mu    sync.Mutex
	ready metav1.Condition
	// maintenance is what Azure has announced, once SetMaintenance was called.
	maintenance    *apiv1.NodeMaintenance
	maintenanceSet bool
	// forgotten are the volumes whose entries the next write removes.
	forgotten map[string]bool
	// unstaging are the volumes whose unstage was begun.
	unstaging map[string]bool
	// unpublished are the volumes that are mounted for no pod any more.
	unpublished map[string]bool
	// lost are the losses of writes that this process has seen, by volume.
	lost map[string]apiv1.LostWrites
	// problems are what this process has seen of volumes, and told is what the report has of it.
	problems problem.Book
	told     []apiv1.VolumeProblem
	// observed are the volumes as they were read last. Those that are not staged any more are
	// removed with their entries.
	observed map[string]observation
	// watching says that changes of the object are seen, so that requests for heartbeats are
	// answered.
	watching bool
	// versions are the resource versions that this process wrote last.
	versions []string
	// known is the newest state that this process wrote or has looked at; seen is the one that
	// another writer made and that no write has started from.
	known, seen *apiv1.AzDriverNode
	// requests to fence, as the watch showed them last; without a watch, as they were read last.
	requests []apiv1.FenceRequest
	// fencesChanged is closed when requests or fenced changes, which replaces it by a new channel.
	fencesChanged chan struct{}
}

// New returns a Reporter that has not written yet.
func New(options Options) *Reporter {
	if options.Clock == nil {
		options.Clock = clock.RealClock{}
	}
	r := &Reporter{
		options: options,
		writing: make(chan struct{}, 1),
		changed: make(chan struct{}),
		wake:    make(chan struct{}, 1),
		written: make(chan struct{}),

		fencesChanged: make(chan struct{}),
		forgotten:     map[string]bool{},
		unstaging:     map[string]bool{},
		unpublished:   map[string]bool{},
		lost:          map[string]apiv1.LostWrites{},
		observed:      map[string]observation{},
	}
	r.SetReady(false, apiv1.ReasonStarting, "the node plug-in is starting")
	return r
}

// Scanned is closed when this process has compared its report with the node's mounts and written
// it.
func (r *Reporter) Scanned() <-chan struct{} { return r.written }

// AwaitEmpty returns nil when no volume is in the report, also before the first write, or the
// context's error when ctx ends.
func (r *Reporter) AwaitEmpty(ctx context.Context) error {
	for {
		select {
		case r.writing <- struct{}{}:
		case <-ctx.Done():
			return ctx.Err()
		}
		left, changed := len(r.staged), r.changed
		<-r.writing
		if left == 0 {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("%d volumes are still in use: %w", left, ctx.Err())
		}
	}
}

// Capacity returns how many disks can be attached to the VM, or nil while the controller has not
// written it. It reads at the API server.
func (r *Reporter) Capacity(ctx context.Context) (*apiv1.NodeCapacity, error) {
	var node apiv1.AzDriverNode
	if err := r.options.Client.Get(ctx, r.key(), &node); client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("read capacity of node: %w", err)
	}
	return node.Capacity(), nil
}

func (r *Reporter) key() client.ObjectKey {
	return client.ObjectKey{Namespace: r.options.Namespace, Name: r.options.NodeName}
}

// update changes the status with mutate and returns when the API server has stored it. mutate may
// be called several times, with this process's entries and the rest of the newest status that this
// process knows: a write that starts from an older one fails and is repeated. It must not call the
// Reporter. If mutate changes nothing, update does not write the status, but
// reads it, because the object may have been deleted.
func (r *Reporter) update(ctx context.Context, mutate func(*apiv1.AzDriverNodeStatus)) error {
	if ctx.Err() != nil { // or the select below would choose by chance
		return fmt.Errorf("write the report: %w", ctx.Err())
	}
	select {
	case r.writing <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("wait for another write of the report: %w", ctx.Err())
	}
	defer func() { <-r.writing }()
	for fresh := false; ; {
		if seen := r.takeSeen(); seen != nil && r.last != nil {
			r.last = seen
		}
		if r.last == nil {
			if err := r.load(ctx); err != nil {
				return err
			}
			fresh = true
		}
		next := r.last.DeepCopy()
		scanned, err := r.merge(ctx, next)
		if err != nil {
			return err
		}
		mutate(&next.Status)
		next.Status.ReportDigest = ownership.ReportDigest(next)
		if apiequality.Semantic.DeepEqual(next.Status, r.last.Status) {
			if fresh {
				// An earlier write may have been stored although it returned an error.
				r.setStaged(next)
				return nil
			}
			r.last = nil
			continue
		}
		done, err := r.write(ctx, next, scanned)
		if done || err != nil {
			return err
		}
	}
}

// write returns done = false if the object has changed and must be read again.
func (r *Reporter) write(ctx context.Context, next *apiv1.AzDriverNode, scanned metav1.MicroTime) (done bool, err error) {
	r.promise(&next.Status)
	err = kube.PatchStatus(ctx, r.options.Client, next, r.last)
	if err != nil {
		// Also after an error that does not say whether the write was stored.
		r.last = nil
		if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
			return false, nil
		}
		return false, fmt.Errorf("write report of node: %w", err)
	}
	r.last = next
	r.wrote(next)
	first := r.scanned.IsZero()
	r.scanned = scanned
	r.setStaged(next)
	if first {
		close(r.written)
	}
	close(r.changed)
	r.changed = make(chan struct{})
	return true, nil
}

// setStaged stores the entries of a report that the API server has. Those that had to be removed
// are not among them, or were announced again. The caller holds writing.
func (r *Reporter) setStaged(written *apiv1.AzDriverNode) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.staged = written.DeepCopy().Status.StagedVolumes
	r.told = written.DeepCopy().Status.VolumeProblems
	for _, volume := range r.removing {
		delete(r.forgotten, volume)
		if !slices.ContainsFunc(r.staged, named(volume)) {
			delete(r.observed, volume)
		}
	}
	r.setFenced(written)
}

// load reads the object, creates it if it does not exist, and updates its spec.
func (r *Reporter) load(ctx context.Context) error {
	node := &apiv1.AzDriverNode{}
	err := r.options.Client.Get(ctx, r.key(), node)
	if apierrors.IsNotFound(err) {
		node = &apiv1.AzDriverNode{
			ObjectMeta: metav1.ObjectMeta{Namespace: r.options.Namespace, Name: r.options.NodeName},
			Spec:       r.options.Spec,
		}
		err = r.options.Client.Create(ctx, node)
	}
	if err != nil {
		return fmt.Errorf("load AzDriverNode: %w", err)
	}
	spec := r.options.Spec
	spec.Requests = node.Spec.Requests
	if node.Spec != spec {
		before := node.DeepCopy()
		node.Spec = spec
		if err := kube.Patch(ctx, r.options.Client, node, before); err != nil {
			return fmt.Errorf("write spec of AzDriverNode: %w", err)
		}
	}
	r.last = node
	r.mu.Lock()
	defer r.mu.Unlock()
	r.setRequests(node)
	return nil
}

// merge writes this process's entries to a status that was read, and returns when the node's mounts
// were scanned. The first write of the process scans them, and its entries are the result of the
// scan. After that the process's own entries are newer than any scan, because calls may be running.
// Other entries in the status are outdated, and a missing entry was removed by another writer.
// Results of fences are handled in the same way, except that the first write keeps the results of
// the former process.
func (r *Reporter) merge(ctx context.Context, node *apiv1.AzDriverNode) (scanned metav1.MicroTime, err error) {
	status := &node.Status
	if scanned = r.scanned; scanned.IsZero() {
		scanned = metav1.MicroTime{Time: r.options.Clock.Now()}
		found, err := r.options.Scanner.scan(ctx)
		if err != nil {
			return scanned, fmt.Errorf("scan mounts: %w", err)
		}
		for _, record := range found.unrecorded {
			// Before anything is unmounted: after that only a record says which device must be
			// flushed.
			if err := r.options.Scanner.Records.Put(record); err != nil {
				return scanned, err
			}
		}
		entries, obsolete := compare(status.StagedVolumes, found)
		for _, volume := range obsolete {
			if err := r.options.Scanner.Records.Delete(volume); err != nil {
				return scanned, err
			}
		}
		status.StagedVolumes = entries
		r.resumeProblems(status.VolumeProblems)
	} else {
		r.mu.Lock()
		r.removing = slices.Collect(maps.Keys(r.forgotten))
		unstaging, unpublished := maps.Clone(r.unstaging), maps.Clone(r.unpublished)
		r.mu.Unlock()
		status.StagedVolumes = slices.DeleteFunc(slices.Clone(r.staged),
			func(e apiv1.StagedVolume) bool { return slices.Contains(r.removing, e.VolumeName) })
		for i := range status.StagedVolumes {
			e := &status.StagedVolumes[i]
			if unstaging[e.VolumeName] {
				e.Phase = apiv1.PhaseUnstaging
			}
			e.Published = e.Published && !unpublished[e.VolumeName]
		}
		status.FenceResults = slices.Clone(r.fenced)
	}
	status.MountsScannedTime = &scanned
	status.BootID = r.options.Scanner.BootID
	status.DriverVersion = r.options.DriverVersion
	status.LostWrites = r.withLost(status.LostWrites)
	r.reportProblems(status)
	r.reportMaintenance(status)
	return scanned, r.reportGuards(status)
}

// reportGuards sets the condition GuardsFencedNodes. A volume leaves the report after its Guard was
// stored, so that the report always shows the one or the other.
func (r *Reporter) reportGuards(status *apiv1.AzDriverNodeStatus) error {
	volumes, err := r.options.Scanner.Records.Guards()
	if err != nil {
		return err
	}
	c := metav1.Condition{
		Type: apiv1.NodeConditionGuards, Status: metav1.ConditionFalse, Reason: apiv1.ReasonNothingGuarded,
	}
	if len(volumes) > 0 {
		c.Status, c.Reason = metav1.ConditionTrue, apiv1.ReasonNodeFenced
		c.Message = operation.Shorten("the reservation of this node keeps fenced nodes from writing to " + strings.Join(volumes, ", "))
	}
	meta.SetStatusCondition(&status.Conditions, r.stamped(c))
	return nil
}
