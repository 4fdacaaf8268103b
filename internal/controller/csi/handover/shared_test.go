package handover_test

import (
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
)

// A multi-node volume has no ownership: its attachments are the record of the nodes that may use it.
func TestMultiNodeVolume(t *testing.T) {
	t.Parallel()
	const unstaged, detached = apiv1.ProofUnstaged, apiv1.ProofDetached
	both := func(more ...given) []given {
		return append(on(multiNode, at("a", primary, multi), at("b", primary, multi)), more...)
	}
	run(t, []row{
		ok("the first publish", on(multiNode), publish("a", shared), "unowned; a P1"),
		ok("a publish for one node", on(multiNode), publish("a"), "unowned; a P1"),
		ok("a publish to a second node", on(multiNode, at("b", primary, multi)), publish("a", shared), "unowned; a P1; b P1"),
		ok("a publish to a node that has it", both(), publish("a", shared), "unowned; a P1; b P1"),
		ok("a publish to a node that released it", both(edit("a", proof(unstaged, multi))),
			publish("a", shared), "unowned; a P1; b P1"),
		ok("a publish to a node that released it, which the cache does not show",
			both(behind, edit("a", proof(unstaged, multi))), publish("a", shared), "unowned; a P1; b P1"),
		no("a publish of a volume that is being deleted", both(leaving),
			publish("a", shared), codes.NotFound, "is being deleted", "unowned; a P1; b P1"),
		no("a publish to a node that is to be fenced", both(edit("a", taken)),
			publish("a", shared), codes.Aborted, "still being fenced", "unowned; a P1; b P1"),
		ok("a publish to another node than the one that is to be fenced", both(edit("a", taken)),
			publish("b", shared), "unowned; a P1; b P1"),
		no("a publish to a node that is being unpublished", both(edit("a", deleted), stages("a", multi)),
			publish("a", shared), codes.Aborted, "no proof yet", "unowned; a P1 deleted; b P1"),
		ok("a publish to a node that ends its unpublish",
			both(edit("a", deleted), stages("a", multi), later(5*time.Second, unstages("a"))),
			publish("a", shared), "unowned; a P1; b P1"),
		no("a publish of a volume whose disk a VM of another cluster has", on(multiNode, unconfirmed, has("production")),
			publish("a", shared), codes.FailedPrecondition, "production", "unowned"),
		no("a publish to a node whose attachment was restored",
			on(multiNode, unconfirmed, has("production"), at("a", primary, multi, copied)),
			publish("a", shared), codes.FailedPrecondition, "production", "unowned; a P1"),
		no("a publish to a node whose attachment is new",
			on(multiNode, unconfirmed, has("production"), at("a", primary, multi, unasked)),
			publish("a", shared), codes.FailedPrecondition, "production", "unowned; a P1"),
		ok("a publish to a node that was asked about", on(multiNode, unconfirmed, has("production"), at("a", primary, multi)),
			publish("a", shared), "unowned; a P1"),
		ok("an unpublish", both(idle), unpublish("a"), "unowned; a P1 Unstaged 1 deleted; b P1"),
		ok("an unpublish from all nodes", both(idle, at("c", replica, 0)),
			unpublish(""), "unowned; a P1 Unstaged 1 deleted; b P1 Unstaged 1 deleted; c R0"),
		no("an unpublish from a node that has it staged", both(stages("a", multi)),
			unpublish("a"), codes.Aborted, "no proof yet", "unowned; a P1 deleted; b P1"),
		ok("an unpublish from a node that was fenced", both(idle, stages("a", multi), edit("a", deleted, proof(detached, multi))),
			unpublish("a"), "unowned; a P1 Detached 1 deleted; b P1"),
		ok("an unpublish of a disk that has one share left", on(multiNode, oneShare, at("a", primary, multi)),
			unpublish("a"), "unowned"),
		ok("an unpublish from a node that never had it", both(), unpublish("c"), "unowned; a P1; b P1"),
		ok("an unpublish from a node whose attachment was lost",
			on(idle, multiNode, stages("a", multi), has("a"), later(5*time.Second, unstages("a"))),
			unpublish("a"), "unowned; a P1 Unstaged 1 deleted"),
	})
}

func TestTheReleasesOfAMultiNodeVolumeAreCounted(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		w.must(unpublish("a")(w))
		if got := w.counted("azuredisk_releases_total", "Unstaged"); got != 1 {
			t.Errorf("counted %v releases, want 1", got)
		}
	}, multiNode, at("a", primary, multi))
}
