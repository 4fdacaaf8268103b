package handover_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
)

// An AzVolume that was lost, or restored from a backup, does not say which node uses the volume.
func TestPublishOfALostOwnership(t *testing.T) {
	t.Parallel()
	const unstaged, detached = apiv1.ProofUnstaged, apiv1.ProofDetached
	newer := at("b", replica, 7, proof(unstaged, 7))
	cacheLacks := func(prepare given) given { return func(w *world) { behind(w); prepare(w) } }
	run(t, []row{
		ok("its primary has unstaged it", on(at("a", primary, 5)), publish("b"), "Held 6 b; a P5 Unstaged 5; b P6"),
		no("its primary has it staged", on(at("a", primary, 5), stages("a", 5)),
			publish("b"), codes.FailedPrecondition, "node a was its primary under epoch 5, which the AzVolume", "unowned; a P5"),
		no("its primary has it staged, and the cache does not show it", on(cacheLacks(at("a", primary, 5)), stages("a", 5)),
			publish("b"), codes.FailedPrecondition, "under epoch 5", "unowned; a P5"),
		ok("its primary has it staged and publishes again", on(at("a", primary, 5), stages("a", 5)),
			publish("a"), "Held 6 a; a P6"),
		no("its primary is not Ready", on(at("a", primary, 5), stages("a", 5), notReady("a")),
			publish("b"), codes.FailedPrecondition, "released the volume: the node reports the volume", "unowned; a P5 deleted"),
		no("its primary is not Ready, and is being fenced", on(idle, at("a", primary, 5, deleted), stages("a", 5), notReady("a")),
			publish("b"), codes.FailedPrecondition, "under epoch 5", "unowned; a P5 deleted"),
		ok("its primary was fenced", on(idle, at("a", primary, 5, deleted, proof(detached, 5)), stages("a", 5), asked("b")),
			publish("b"), "Held 6 b; a P5 Detached 5 deleted; b P6"),
		no("an older ownership was restored", on(released(3), at("a", primary, 5), stages("a", 5)),
			publish("b"), codes.FailedPrecondition, "under epoch 5", "Released 3; a P5"),
		ok("an older ownership was restored, and a replica is newer", on(released(3), at("a", replica, 5, proof(unstaged, 5))),
			publish("b"), "Held 6 b; a R5 Unstaged 5; b P6"),
		ok("an older ownership was restored, and the cache lacks the attachments",
			on(released(3), at("a", replica, 5, proof(unstaged, 5)), cacheLacks(newer), later(2*time.Second, caughtUp)),
			publish("c"), "Held 8 c; a R5 Unstaged 5; b R7 Unstaged 7; c P8"),
		no("only a report of the disk's VM is left", on(has("a"), stages("a", 5)),
			publish("b"), codes.FailedPrecondition, "node a: it reports the volume", "unowned"),
		ok("only a report of another VM is left", on(has("c"), stages("a", 5)), publish("b"), "Held 1 b; b P1"),
		ok("only the node's own report is left", on(has("a"), stages("a", 5)), publish("a"), "Held 1 a; a P1"),
		ok("a report from before a proof is left", on(has("a"), stages("a", 5), at("a", replica, 5, proof(detached, 5))),
			publish("b"), "Held 6 b; a R5 Detached 5; b P6"),
		ok("a report under the epoch of the ownership is left", on(released(5), has("a"), stages("a", 5)),
			publish("b"), "Held 6 b; b P6"),
		no("a node has not scanned its mounts", on(has("a"), unscanned("a")),
			publish("b"), codes.FailedPrecondition, "node a: its node plug-in has not yet compared", "unowned"),
		no("a VM of another cluster has the disk", on(unconfirmed, has("production")),
			publish("b"), codes.FailedPrecondition, "production", "unowned"),
	})
}

// A publish writes the ownership before the attachment: an attachment whose ownership seems lost may
// be of a publish that is at work.
func TestLaw1APublishDoesNotProveAgainstAnotherThatIsAtWork(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		w.before = func(access string) error {
			if access == "list AzVolumeAttachment" && w.attachment("a") == nil {
				held("a", 1)(w)
				at("a", primary, 1)(w)
			}
			return nil
		}
		row{want: codes.FailedPrecondition, says: "held by node a", then: "Held 1 a; a P1"}.check(w, publish("b")(w))
	})
}

// A call that waits for a proof is repeated. It deletes the attachment once, and then only reads.
func TestARepetitionThatWaitsForAProofWritesNothing(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		given []given
		do    act
		want  codes.Code
	}{
		"unpublish of a multi-node volume": {on(multiNode, at("a", primary, multi, deleted)), unpublish("a"), codes.Aborted},
		"publish of a lost ownership": {on(notReady("a"), at("a", primary, 5, deleted)), publish("b"),
			codes.FailedPrecondition},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in(t, func(w *world) {
				w.ended(test.do(w), test.want, "proof")
				for _, access := range w.server {
					if verb, _, _ := strings.Cut(access, " "); slices.Contains(writes, verb) {
						t.Errorf("got access %q, want reads alone", access)
					}
				}
			}, append(test.given, stages("a", 5))...)
		})
	}
}
