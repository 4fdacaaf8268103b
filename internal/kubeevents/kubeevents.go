// Package kubeevents records Kubernetes events.
//
// It writes them with client-go's tools/record and not with tools/events: the latter joins two
// events on one object that differ only in their note, and keeps the note of the first. The event
// of a second failover then names the node and the times of the first one. tools/record joins
// events of one text only, counts them, and bounds how many events are written for one object.
package kubeevents

import (
	"context"
	"fmt"
	"strings"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlrecorder "sigs.k8s.io/controller-runtime/pkg/recorder"
)

// Each recorder writes at most distinct-1 events with different notes for one object and reason
// within ten minutes. The next ones update one further event, whose note begins with "(combined
// from similar events)". The largest VM takes 64 data disks, so that a lost node can name each of
// its volumes. After burst writes for one object and reason, one more is written every five
// minutes.
const (
	distinct = 70
	burst    = 100
)

// maxNote is how many bytes of a note are kept.
const maxNote = 1000

// With returns mgr with event recorders of this package in place of its own. They write until ctx
// ends.
func With(ctx context.Context, mgr manager.Manager) (manager.Manager, error) {
	core, err := typedcorev1.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return nil, fmt.Errorf("make a client for events: %w", err)
	}
	return recording{mgr, newRecorders(ctx, &typedcorev1.EventSinkImpl{Interface: core.Events("")}, mgr.GetScheme())}, nil
}

type recording struct {
	manager.Manager
	recorders *recorders
}

// GetEventRecorder returns a recorder whose events name source as the part that wrote them. It does
// not block.
func (m recording) GetEventRecorder(source string) ctrlrecorder.EventRecorder {
	return m.recorders.of(source)
}

// recorders share a queue.
type recorders struct {
	scheme      *runtime.Scheme
	broadcaster record.EventBroadcaster
}

func newRecorders(ctx context.Context, sink record.EventSink, scheme *runtime.Scheme) *recorders {
	broadcaster := record.NewBroadcaster(record.WithContext(ctx), record.WithCorrelatorOptions(record.CorrelatorOptions{
		MaxEvents: distinct,
		BurstSize: burst,
		SpamKeyFunc: func(e *corev1.Event) string {
			// Fields that a combined event does not have are left out, so that it is counted with
			// its parts.
			key, _ := record.EventAggregatorByReasonFunc(&corev1.Event{
				Source:         e.Source,
				InvolvedObject: e.InvolvedObject,
				Type:           e.Type,
				Reason:         e.Reason,
			})
			return key
		},
	}))
	broadcaster.StartRecordingToSink(sink)
	return &recorders{scheme: scheme, broadcaster: broadcaster}
}

func (r *recorders) of(source string) ctrlrecorder.EventRecorder {
	return recorder{r.broadcaster.NewRecorder(r.scheme, corev1.EventSource{Component: source})}
}

type recorder struct{ record.EventRecorder }

// Eventf implements events.EventRecorder. Events of tools/record have no related object and no
// action.
func (r recorder) Eventf(regarding, _ runtime.Object, kind, reason, _, note string, args ...any) {
	r.Event(regarding, kind, reason, short(fmt.Sprintf(note, args...)))
}

// AnnotatedEventf implements events.AnnotatedEventRecorder.
func (r recorder) AnnotatedEventf(regarding, _ runtime.Object, annotations map[string]string, kind, reason, _, note string,
	args ...any) {
	r.EventRecorder.AnnotatedEventf(regarding, annotations, kind, reason, "%s", short(fmt.Sprintf(note, args...)))
}

// short cuts a note between two characters.
func short(note string) string {
	if len(note) <= maxNote {
		return note
	}
	end := maxNote
	for !utf8.RuneStart(note[end]) {
		end--
	}
	return strings.TrimSpace(note[:end]) + "..."
}
