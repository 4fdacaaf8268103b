package attachdetach

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/kube"
	"github.com/azuredisk-csi/azuredisk/internal/plan/operation"
	"github.com/azuredisk-csi/azuredisk/internal/plan/publishing"
)

// explain says why pods wait for the volume: in events on the pods, and in the condition Published of
// the AzVolume, for the pod that waits longest. It returns when to look again, because a wait is not
// told at once; 0 for never.
func (r *Reconciler) explain(ctx context.Context, o observed) (after time.Duration, err error) {
	recorded := publishing.Wait{}
	slices.SortStableFunc(o.Pods, func(a, b *corev1.Pod) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	for _, p := range o.Pods {
		if p.Spec.NodeName == "" || p.DeletionTimestamp != nil {
			continue
		}
		wait := publishing.WaitOf(o.Input, p.Spec.NodeName)
		if wait.Key == "" {
			continue
		}
		if in := publishing.FirstEventIn(p, r.Clock.Now()); in > 0 {
			after = operation.Sooner(after, in)
			continue
		}
		if recorded.Key == "" {
			recorded = wait
		}
		if !r.told.first(o.name, p.UID, wait.Key) {
			continue
		}
		if wait.Failing {
			r.event(p, corev1.EventTypeWarning, apiv1.ReasonFailedAttachVolume, wait.Message)
		} else {
			r.event(p, corev1.EventTypeNormal, apiv1.ReasonWaitingForVolume, wait.Message)
		}
	}
	if err = r.record(ctx, o, recorded); apierrors.IsConflict(err) { // the cache is behind
		return operation.Sooner(after, operation.ConflictRetry), nil
	}
	return after, err
}

// record writes the condition Published, if there is something new to say.
func (r *Reconciler) record(ctx context.Context, o observed, w publishing.Wait) error {
	if o.Volume == nil {
		return nil
	}
	changed := o.Volume.DeepCopy()
	if !publishing.Recorded(changed, w, r.told.sameWait(o.name, w.Key)) {
		return nil
	}
	if err := kube.PatchStatus(ctx, r.Client, changed, o.Volume); err != nil {
		return client.IgnoreNotFound(fmt.Errorf("write what volume %s waits for: %w", o.name, err))
	}
	r.told.record(o.name, w.Key)
	return nil
}

// tell writes an event about a call on each pod on the node that uses the volume and is not being
// deleted, unless the last event about a call was the same.
func (r *Reconciler) tell(o observed, node, kind, reason, note string) {
	for _, p := range o.Pods {
		if p.Spec.NodeName == node && p.DeletionTimestamp == nil && r.told.changed(o.name, p.UID, note) {
			r.event(p, kind, reason, note)
		}
	}
}

func (r *Reconciler) event(p *corev1.Pod, kind, reason, note string) {
	about := &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       p.Namespace,
			Name:            p.Name,
			UID:             p.UID,
			ResourceVersion: p.ResourceVersion,
		},
	}
	r.Events.Eventf(about, nil, kind, reason, "AttachVolume", "%s", note)
}

// told has the texts of the events on pods, by the name of the AzVolume. A new process writes them
// once more; nothing else depends on it.
type told struct {
	mu      sync.Mutex
	volumes map[string]map[types.UID]*toldPod
	// waits are the keys of the waits in conditions, by the name of the AzVolume.
	waits map[string]string
}

type toldPod struct {
	// waits are the keys of all waits. They may alternate.
	waits map[string]bool
	// call is the note about the last call, without its numbers.
	call string
}

func (t *told) pod(volume string, uid types.UID) *toldPod {
	if t.volumes == nil {
		t.volumes = map[string]map[types.UID]*toldPod{}
	}
	if t.volumes[volume] == nil {
		t.volumes[volume] = map[types.UID]*toldPod{}
	}
	if t.volumes[volume][uid] == nil {
		t.volumes[volume][uid] = &toldPod{waits: map[string]bool{}}
	}
	return t.volumes[volume][uid]
}

// first reports whether a pod has had no event about a wait yet.
func (t *told) first(volume string, uid types.UID, wait string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.pod(volume, uid)
	if p.waits[wait] {
		return false
	}
	p.waits[wait], p.call = true, ""
	return true
}

// numbers are what differs in Azure's answers to repetitions of one request: times, counts and the
// IDs of requests.
var numbers = regexp.MustCompile(`[0-9a-fA-F-]*[0-9][0-9a-fA-F-]*`)

// changed reports whether the note about a call differs from the note about the last call in more
// than numbers.
func (t *told) changed(volume string, uid types.UID, note string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	p, note := t.pod(volume, uid), numbers.ReplaceAllString(note, "#")
	if p.call == note {
		return false
	}
	p.call = note
	return true
}

// sameWait reports whether the key of a wait is the one of the condition. The key of a condition that
// another process has written is not known, and counts as the same.
func (t *told) sameWait(volume, key string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	recorded, known := t.waits[volume]
	return !known || recorded == key
}

func (t *told) record(volume, key string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.waits == nil {
		t.waits = map[string]string{}
	}
	t.waits[volume] = key
}

// keep forgets the events of pods that no longer use the volume or name its disk.
func (t *told) keep(o observed) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for uid := range t.volumes[o.name] {
		if !slices.ContainsFunc(o.Pods, func(p *corev1.Pod) bool { return p.UID == uid }) &&
			!slices.ContainsFunc(o.strangers, func(s stranger) bool { return s.pod.UID == uid }) {
			delete(t.volumes[o.name], uid)
		}
	}
	if len(t.volumes[o.name]) == 0 {
		delete(t.volumes, o.name)
		delete(t.waits, o.name)
	}
}
