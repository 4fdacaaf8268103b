package failover_test

import (
	"fmt"
	"strings"
	"testing"

	eventsv1 "k8s.io/api/events/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/azuredisk-csi/azuredisk/internal/controller/attachdetach"
	"github.com/azuredisk-csi/azuredisk/internal/plan/failover"
	"github.com/azuredisk-csi/azuredisk/internal/plan/nodehealth"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/controlplane"
	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/fake"
)

// awaitEvent waits for an event on an object, whose note has all the parts.
func (l *lab) awaitEvent(kind, name, reason string, parts ...string) {
	l.Helper()
	l.Eventually("event "+reason, func() string {
		var list eventsv1.EventList
		l.must(l.Client.List(l.Context(), &list, client.InNamespace(l.Namespace)))
		var notes []string
	events:
		for _, e := range list.Items {
			if e.Regarding.Kind != kind || e.Regarding.Name != name || e.Reason != reason {
				continue
			}
			notes = append(notes, e.Note)
			for _, part := range parts {
				if !strings.Contains(e.Note, part) {
					continue events
				}
			}
			return ""
		}
		return fmt.Sprintf("got notes %q, want one with %q", notes, parts)
	})
}

func TestAPodThatWaitsForAFenceIsToldWhatAzureAnswers(t *testing.T) {
	for name, byPods := range map[string]bool{"with VolumeAttachments": false, "without VolumeAttachments": true} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, 0, func(o *controlplane.Options) { o.PublishedByPods = byPods })
			a, b := fmt.Sprintf("wf-%t-a", byPods), fmt.Sprintf("wf-%t-b", byPods)
			l.AddNode(a, "1", size)
			l.AddNode(b, "1", size)
			handle := l.Create("vol", replicated)
			l.claim("vol", handle)
			l.pod("web-0", a, []string{"vol"})
			if !byPods {
				l.must(l.Publish(t.Context(), handle, a))
			}
			l.awaitStaged("vol", a)
			l.awaitReplica("vol", b)
			recovered := l.Cloud.Inject(fake.Fault{Method: fake.AttachmentsForceDetach, Err: provisioner.Errorf(provisioner.Unavailable, "503 Service Unavailable")})
			l.monitor.set(a, nodehealth.Lost)
			l.pod("web-1", b, []string{"vol"})
			l.awaitEvent("Pod", "web-1", attachdetach.ReasonFailed, "held by node "+a+" (epoch 1), which was lost", "503 Service Unavailable")
			recovered()
			if !byPods {
				return // the rest would be csi-attacher's
			}
			l.awaitStaged("vol", b)
			// The events of a second failover are its own.
			l.back(a, l.Eventually)
			l.awaitReplica("vol", a)
			l.monitor.set(b, nodehealth.Lost)
			l.pod("web-2", a, []string{"vol"})
			l.awaitStaged("vol", a)
			for _, node := range []string{a, b} {
				l.awaitEvent("PersistentVolumeClaim", "vol", failover.ReasonFailoverStarted, "node "+node+" is lost")
				l.awaitEvent("PersistentVolumeClaim", "vol", failover.ReasonFailoverProven, "node "+node+" can no longer write")
			}
		})
	}
}

func (l *lab) awaitStaged(volume, node string) {
	l.Helper()
	l.Eventually("staged on "+node, func() string {
		if err := l.Stage(volume, node); err != nil {
			return err.Error()
		}
		return ""
	})
}
