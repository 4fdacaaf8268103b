package kubeevents

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// sink is an API server that holds events.
type sink struct {
	mu      sync.Mutex
	changed sync.Cond
	events  map[string]*corev1.Event
	writes  int
}

func newSink() *sink {
	s := &sink{events: map[string]*corev1.Event{}}
	s.changed.L = &s.mu
	return s
}

func (s *sink) put(e *corev1.Event) (*corev1.Event, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events[e.Name], s.writes = e.DeepCopy(), s.writes+1
	s.changed.Broadcast()
	return e, nil
}

func (s *sink) Create(e *corev1.Event) (*corev1.Event, error) { return s.put(e) }
func (s *sink) Update(e *corev1.Event) (*corev1.Event, error) { return s.put(e) }

func (s *sink) Patch(e *corev1.Event, patch []byte) (*corev1.Event, error) {
	s.mu.Lock()
	current := s.events[e.Name].DeepCopy()
	s.mu.Unlock()
	if err := json.Unmarshal(patch, current); err != nil {
		return nil, err
	}
	return s.put(current)
}

// notesOnce waits until there is an event with a note, and returns the notes of all, with their
// counts.
func (s *sink) notesOnce(note string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		var notes []string
		found := false
		for _, e := range s.events {
			notes = append(notes, fmt.Sprintf("%d x %s", e.Count, e.Message))
			found = found || e.Message == note
		}
		if found {
			slices.Sort(notes)
			return notes
		}
		s.changed.Wait()
	}
}

func claim() *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace:       "db",
		Name:            "data",
		UID:             "1",
		ResourceVersion: "7",
	}}
}

func TestEventsOfOneReasonWithDifferentNotesAreWrittenEach(t *testing.T) {
	t.Parallel()
	s := newSink()
	r := newRecorders(t.Context(), s, scheme.Scheme).of("failover")
	said := []string{"volume pvc-1 is taken from node-1", "volume pvc-2 is taken from node-1",
		"volume pvc-1 is taken from node-2", "volume pvc-1 is taken from node-2"}
	for _, note := range append(said, "end") {
		r.Eventf(claim(), nil, corev1.EventTypeNormal, "FailoverStarted", "", "%s", note)
	}
	want := []string{"1 x end", "1 x " + said[0], "1 x " + said[1], "2 x " + said[2]}
	slices.Sort(want)
	if got := s.notesOnce("end"); !slices.Equal(got, want) {
		t.Errorf("got events %q, want %q", got, want)
	}
}

func TestEventsNameTheObjectAndTheSource(t *testing.T) {
	t.Parallel()
	s := newSink()
	newRecorders(t.Context(), s, scheme.Scheme).of("azuredisk-failover").Eventf(claim(), nil, corev1.EventTypeWarning,
		"FailoverHeldBack", "", "%d pods", 2)
	s.notesOnce("2 pods")
	for _, e := range s.events {
		if e.InvolvedObject.Kind != "PersistentVolumeClaim" || e.InvolvedObject.Name != "data" || e.Namespace != "db" ||
			e.Type != corev1.EventTypeWarning ||
			e.Reason != "FailoverHeldBack" || e.Source.Component != "azuredisk-failover" ||
			e.ReportingController != "azuredisk-failover" {
			t.Errorf("got event %+v, want a Warning of azuredisk-failover about the PersistentVolumeClaim db/data", e)
		}
	}
}

func TestEventsOfOneObjectAreBounded(t *testing.T) {
	t.Parallel()
	s := newSink()
	r := newRecorders(t.Context(), s, scheme.Scheme).of("attachment")
	for i := range 5 * burst {
		r.Eventf(claim(), nil, corev1.EventTypeWarning, "DiskAttachFailed", "", "request %d failed", i)
	}
	r.Eventf(claim(), nil, corev1.EventTypeNormal, "DiskAttached", "", "end")
	got := s.notesOnce("end")
	// distinct-1 events, the combined one, and the one of the other reason.
	if len(got) != distinct+1 || s.writes > burst+1 {
		t.Errorf("got %d events by %d writes, want %d by at most %d", len(got), s.writes, distinct+1, burst+1)
	}
	if !slices.ContainsFunc(got, func(note string) bool { return strings.Contains(note, "(combined from similar events)") }) {
		t.Errorf("got events %q, want one that is combined", got)
	}
}

// Each answer of Azure has another correlation ID. Each repetition of a refused attach became an
// event of its own.
func TestRepetitionsWithOtherIDsAreCountedInOneEvent(t *testing.T) {
	t.Parallel()
	s := newSink()
	r := newRecorders(t.Context(), s, scheme.Scheme).of("attachment")
	refused := func(id string) string {
		return provisioner.WithRequestID("attach disk: Azure answered 409", provisioner.CorrelationID, id) + "; again"
	}
	for i := range 5 {
		r.Eventf(claim(), nil, corev1.EventTypeWarning, "DiskAttachFailed", "", "%s", refused(fmt.Sprint("id-", i)))
	}
	other := claim()
	other.UID = "2"
	r.Eventf(other, nil, corev1.EventTypeWarning, "DiskAttachFailed", "", "%s", refused("id-9"))
	r.Eventf(claim(), nil, corev1.EventTypeNormal, "DiskAttached", "", "end")
	want := []string{"1 x " + refused("id-9"), "1 x end", "5 x " + refused("id-0")}
	if got := s.notesOnce("end"); !slices.Equal(got, want) {
		t.Errorf("got events %q, want %q", got, want)
	}
}

func TestALongNoteKeepsTheIDsOfAzure(t *testing.T) {
	t.Parallel()
	got := short(provisioner.WithRequestID(strings.Repeat("é", maxNote), provisioner.CorrelationID, "2f1c") + " more")
	if !strings.HasSuffix(got, "... (correlation ID 2f1c)") || len(got) > maxNote+len("...") || !utf8.ValidString(got) {
		t.Errorf("got %d bytes that end with %q, want at most %d that end with the ID", len(got), got[len(got)-40:], maxNote+3)
	}
}

func TestALongNoteIsCutBetweenCharacters(t *testing.T) {
	t.Parallel()
	for length := maxNote - 3; length < maxNote+5; length++ {
		got := short(strings.Repeat("a", length%3) + strings.Repeat("é", length/2))
		if len(got) > maxNote+len("...") || !utf8.ValidString(got) {
			t.Errorf("got %d bytes, valid UTF-8 %t; want at most %d bytes of valid UTF-8", len(got), utf8.ValidString(got),
				maxNote+3)
		}
	}
}
