package handover_test

import (
	"slices"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/expect"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

func TestUnpublish(t *testing.T) {
	t.Parallel()
	const unstaged, detached = apiv1.ProofUnstaged, apiv1.ProofDetached
	published := func(more ...given) []given { return append(on(held("a", 2), at("a", primary, 2)), more...) }
	run(t, []row{
		ok("the node has unstaged it", published(), unpublish("a"), "Released 2; a R2 Unstaged 2"),
		ok("from all nodes", published(), unpublish(""), "Released 2; a R2 Unstaged 2"),
		ok("from all nodes, after a kill before the promotion", on(held("a", 2), at("a", replica, 1)),
			unpublish(""), "Released 2; a R1 Unstaged 2"),
		ok("from all nodes, of a volume that none has", on(released(2), at("a", replica, 2)), unpublish(""), "Released 2; a R2"),
		ok("no replica is wanted", published(noReplicas), unpublish("a"), "Released 2; a P2 Unstaged 2 deleted"),
		ok("another VM can have the disk when it is detached", published(oneShare), unpublish("a"), "Released 2"),
		no("Azure is still detaching the disk", published(oneShare, idle),
			unpublish("a"), codes.Aborted, "Azure is still detaching", "Released 2; a P2 Unstaged 2 deleted"),
		ok("its attachment was deleted", published(idle, edit("a", deleted)),
			unpublish("a"), "Released 2; a P2 Unstaged 2 deleted"),
		ok("its attachment was deleted, and the disk has one share", published(oneShare, edit("a", deleted)),
			unpublish("a"), "Released 2"),
		ok("its attachment was replaced while Azure detached the disk",
			published(oneShare, idle, edit("a", deleted), later(2*time.Second, gone("a"), at("a", replica, 0, another))),
			unpublish("a"), "Released 2; a R0"),
		ok("its attachment is gone, and the node has unstaged it", on(held("a", 2)), unpublish("a"), "Released 2"),
		no("its attachment is gone, and the node has it staged", on(held("a", 2), stages("a", 2)),
			unpublish("a"), codes.Aborted, "the node reports the volume as Staged", "Releasing 2 a; a P2"),
		no("the node has it staged", published(stages("a", 2)),
			unpublish("a"), codes.Aborted, ": the node reports the volume as Staged", "Releasing 2 a; a P2"),
		ok("the node unstages it", published(stages("a", 2), later(5*time.Second, unstages("a"))),
			unpublish("a"), "Released 2; a R2 Unstaged 2"),
		ok("its attachment is lost while the node unstages it",
			published(stages("a", 2), later(2*time.Second, gone("a")), later(5*time.Second, unstages("a"))),
			unpublish("a"), "Released 2").leaving("Released 2; a R2 Unstaged 2"),
		no("the node has not scanned its mounts", published(unscanned("a")),
			unpublish("a"), codes.Aborted, "not yet compared", "Releasing 2 a; a P2"),
		no("the node has no report", published(noReport("a")),
			unpublish("a"), codes.Aborted, "no AzDriverNode", "Releasing 2 a; a P2"),
		ok("Azure proves it", published(stages("a", 2), edit("a", proof(detached, 2))),
			unpublish("a"), "Released 2; a P2 Detached 2 deleted"),
		ok("Azure proves it at last", published(stages("a", 2), oneShare, later(5*time.Second, edit("a", proof(detached, 2)))),
			unpublish("a"), "Released 2"),
		no("Azure has proved the last release", published(stages("a", 2), edit("a", proof(detached, 1))),
			unpublish("a"), codes.Aborted, "reports the volume", "Releasing 2 a; a P2 Detached 1"),
		no("the node is another VM now", published(names("a", "new")),
			unpublish("a"), codes.Aborted, "new now, and the attachment is to "+vms+"a", "Releasing 2 a; a P2"),
		ok("the node is another VM now, and Azure proves it",
			published(names("a", "new"), oneShare, later(time.Second, edit("a", proof(detached, 2)))),
			unpublish("a"), "Released 2"),
		no("Azure refuses to fence the node",
			published(unscanned("a"), edit("a", state(apiv1.AttachmentDetaching), failed(provisioner.Unavailable, "503"))),
			unpublish("a"), codes.Aborted, "the last one failed: 503", "Releasing 2 a; a P2"),
		no("another unpublish waits for the node", published(stages("a", 2), inBackground(unpublish("a"))),
			unpublish("a"), codes.Aborted, "another call", "Releasing 2 a; a P2"),
		no("without a volume ID", published(), func(w *world) error {
			_, err := w.publisher.ControllerUnpublishVolume(w.Context(), &csi.ControllerUnpublishVolumeRequest{NodeId: "a"})
			return err
		}, codes.InvalidArgument, "volume ID", "Held 2 a; a P2"),
		ok("its own VolumeAttachment is there", published(attachedBy(diskID)), unpublish("a"), "Released 2; a R2 Unstaged 2"),
		ok("another spelling of the handle has no VolumeAttachment", published(spelling), unpublish("a"),
			"Released 2; a R2 Unstaged 2"),
		ok("it was never published", on(), unpublish("a"), "unowned"),
		ok("another node has it", on(held("b", 3), at("b", primary, 3)), unpublish("a"), "Held 3 b; b P3"),
		ok("another node has it, and this one a replica", on(held("b", 3), at("b", primary, 3), at("a", replica, 2)),
			unpublish("a"), "Held 3 b; a R2; b P3"),
		ok("another node has it since, and this one is still a primary",
			on(held("b", 3), at("b", primary, 3), at("a", primary, 2, proof(unstaged, 2))),
			unpublish("a"), "Held 3 b; a R2 Unstaged 2; b P3"),
		ok("another node has it since, and this one has no proof", on(held("b", 3), at("b", primary, 3), at("a", primary, 2)),
			unpublish("a"), "Held 3 b; a P2 deleted; b P3"),
	})
}

// What the AzVolume does not say may be known by the attachment.
func TestUnpublishOfALostOwnership(t *testing.T) {
	t.Parallel()
	lost := func(more ...given) []given { return append(on(at("a", primary, 2)), more...) }
	run(t, []row{
		ok("the node has unstaged it", lost(), unpublish("a"), "unowned; a R2 Unstaged 2"),
		ok("from all nodes", lost(), unpublish(""), "unowned; a R2 Unstaged 2"),
		no("the node has it staged", lost(stages("a", 2)),
			unpublish("a"), codes.Aborted, "which it held under epoch 2: the node reports the volume", "unowned; a P2"),
		no("the node is not Ready", lost(stages("a", 2), notReady("a")),
			unpublish("a"), codes.Aborted, "which it held under epoch 2", "unowned; a P2 deleted"),
		no("the node was deleted", lost(stages("a", 2), noNode("a")),
			unpublish("a"), codes.Aborted, "which it held under epoch 2", "unowned; a P2 deleted"),
		ok("the attachment is being deleted", lost(idle, stages("a", 2), edit("a", deleted)),
			unpublish("a"), "unowned; a P2 deleted"),
		ok("Azure has proved it", lost(stages("a", 2), edit("a", proof(apiv1.ProofVMDown, 2))),
			unpublish("a"), "unowned; a P2 VMDown 2 deleted"),
	})
}

// The report is read after the ownership is Releasing: the node may not stage the volume any more.
func TestLaw3TheReportIsReadAfterTheReleaseWasStarted(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		began := time.Now()
		w.must(unpublish("a")(w))
		if want := []string{
			"get AzVolume", "patch/status AzVolume", "get AzVolumeAttachment", "get AzDriverNode", "get AzVolumeAttachment",
			"patch/status AzVolumeAttachment", "patch/status AzVolume", "patch AzVolumeAttachment",
		}; !slices.Equal(w.server, want) {
			t.Errorf("got accesses %q, want %q", w.server, want)
		}
		if took := time.Since(began); took > 0 {
			t.Errorf("took %s, want no waiting", took)
		}
		if got := w.counted("azuredisk_releases_total", "Unstaged"); got != 1 {
			t.Errorf("counted %v releases, want 1", got)
		}
		r := w.volume().Status.LastRelease
		if r == nil || r.NodeName != "a" || r.Cause != apiv1.CauseUnpublished || r.Proof.Epoch != 2 {
			t.Errorf("got release %+v, want one of node a under epoch 2", r)
		}
	}, held("a", 2), at("a", primary, 2))
}

func TestARepetitionAfterTheReleaseIsTwoReads(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		w.must(unpublish("a")(w))
		if want := []string{"get AzVolume", "get AzVolumeAttachment"}; !slices.Equal(w.server, want) {
			t.Errorf("got accesses %q, want %q", w.server, want)
		}
	}, released(2), at("a", replica, 2, proof(apiv1.ProofUnstaged, 2)))
}

// The proof is of the ownership that was to be released. It releases no other one.
func TestLaw1AReleaseIsOfTheOwnershipThatWasRead(t *testing.T) {
	t.Parallel()
	for then, other := range map[string]given{
		"unowned; a P2 Unstaged 2":       volume(func(v *apiv1.AzVolume) { v.Status.Primary = nil }),
		"Releasing 2 b; a P2 Unstaged 2": releasing("b", 2),
		"Releasing 3 a; a P2 Unstaged 2": releasing("a", 3),
		"Held 2 a; a P2 Unstaged 2":      held("a", 2),
	} {
		t.Run(then, func(t *testing.T) {
			t.Parallel()
			in(t, func(w *world) {
				w.before = func(access string) error {
					if access == "patch/status AzVolumeAttachment" {
						other(w)
					}
					return nil
				}
				row{want: codes.Aborted, says: "changed its ownership", then: then}.check(w, unpublish("a")(w))
			}, held("a", 2), at("a", primary, 2))
		})
	}
}

// Two AzVolumes never share a disk: one that a user made for the disk is refused.
func TestUnpublishOfAVolumeIDThatIsNone(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		for id, want := range map[string]codes.Code{"": codes.InvalidArgument, "nonsense": codes.OK} {
			_, err := w.publisher.ControllerUnpublishVolume(t.Context(), &csi.ControllerUnpublishVolumeRequest{VolumeId: id})
			expect.Code(t, err, want)
		}
	})
}

// Kubernetes does not call without VolumeAttachments, so that none of them needs the volume.
func TestAVolumeAttachmentKeepsAVolumeOnlyIfKubernetesCalls(t *testing.T) {
	t.Parallel()
	respelled := func(w *world) { spelled(w) }
	byPods := func(w *world) { w.publisher.ByVolumeAttachments = false }
	run(t, []row{
		ok("Kubernetes calls", on(held("a", 1), at("a", primary, 1), respelled), unpublish("a"), "Held 1 a; a P1"),
		ok("the driver calls", on(held("a", 1), at("a", primary, 1), respelled, byPods),
			unpublish("a"), "Released 1; a R1 Unstaged 1"),
	})
}
