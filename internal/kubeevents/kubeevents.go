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
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/tools/reference"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlrecorder "sigs.k8s.io/controller-runtime/pkg/recorder"

	"github.com/azuredisk-csi/azuredisk/internal/printable"
	"github.com/azuredisk-csi/azuredisk/provisioner"
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

// The IDs of Azure's answers differ with each repetition of a request. So that repetitions are still
// counted in one event, a note that differs from a former one only in its IDs is written as the
// former one for as long as sameNote. A condition has the ID of the last answer. maxNotes bounds how
// many notes with IDs are remembered.
const (
	sameNote = 10 * time.Minute
	maxNotes = 4096
)

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
	notes       *cache.LRUExpireCache // by noteKey
}

// noteKey identifies the events whose notes differ only in Azure's request IDs.
type noteKey struct {
	uid                types.UID
	kind, reason, text string
}

// once returns the note to write: the former one, if the new one differs from it only in IDs.
func (r *recorders) once(regarding runtime.Object, kind, reason, note string) string {
	text, ids := provisioner.CutRequestIDs(note)
	about, err := reference.GetReference(r.scheme, regarding)
	if ids == "" || err != nil {
		return note
	}
	key := noteKey{about.UID, kind, reason, text}
	if former, ok := r.notes.Get(key); ok {
		return fmt.Sprint(former)
	}
	r.notes.Add(key, note, sameNote)
	return note
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
	return &recorders{scheme: scheme, broadcaster: broadcaster, notes: cache.NewLRUExpireCache(maxNotes)}
}

func (r *recorders) of(source string) ctrlrecorder.EventRecorder {
	return recorder{r.broadcaster.NewRecorder(r.scheme, corev1.EventSource{Component: source}), r}
}

type recorder struct {
	record.EventRecorder
	recorders *recorders
}

// Eventf implements events.EventRecorder. Events of tools/record have no related object and no
// action.
func (r recorder) Eventf(regarding, _ runtime.Object, kind, reason, _, note string, args ...any) {
	r.Event(regarding, kind, reason, short(r.recorders.once(regarding, kind, reason, fmt.Sprintf(note, args...))))
}

// AnnotatedEventf implements events.AnnotatedEventRecorder.
func (r recorder) AnnotatedEventf(regarding, _ runtime.Object, annotations map[string]string, kind, reason, _, note string,
	args ...any) {
	r.EventRecorder.AnnotatedEventf(regarding, annotations, kind, reason, "%s",
		short(r.recorders.once(regarding, kind, reason, fmt.Sprintf(note, args...))))
}

// short escapes what cannot be printed, and cuts a note between two characters. It keeps the IDs of Azure's answers.
func short(note string) string {
	note = printable.Text(note)
	if len(note) <= maxNote {
		return note
	}
	text, ids := provisioner.CutRequestIDs(note)
	end := max(maxNote-len(ids), 0)
	if len(text) <= end {
		return text + ids
	}
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return strings.TrimSpace(text[:end]) + "..." + ids
}
