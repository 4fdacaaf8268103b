package attachdetach

import (
	"regexp"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/azuredisk-csi/azuredisk/internal/plan/operation"
	"github.com/azuredisk-csi/azuredisk/internal/plan/publishing"
)

// explain writes events to the pods that wait for the volume, which say why. It returns when to
// look again, because a pod gets no event at once; 0 for never.
func (r *Reconciler) explain(o observed) time.Duration {
	after := time.Duration(0)
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
		if !r.told.first(o.name, p.UID, wait.Key) {
			continue
		}
		if wait.Failing {
			r.event(p, corev1.EventTypeWarning, ReasonFailed, wait.Message)
		} else {
			r.event(p, corev1.EventTypeNormal, reasonWaiting, wait.Message)
		}
	}
	return after
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
	}
}
