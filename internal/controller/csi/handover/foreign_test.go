package handover_test

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/expect"
)

// The V1 driver attached the disk without custom resources.
func TestUnpublishOfAVolumeOfV1(t *testing.T) {
	t.Parallel()
	upper := func(w *world) { has(strings.ToUpper("a"))(w) }
	run(t, []row{
		ok("the node's VM has the disk", on(noVolume, has("a")), unpublish("a"), "Released 1; a R1 Unstaged 1"),
		ok("the node's VM has the disk, spelled in another way", on(noVolume, upper),
			unpublish("a"), "Released 1; a R1 Unstaged 1"),
		ok("two VMs have the disk", on(noVolume, has("b", "a")), unpublish("a"), "Released 1; a R1 Unstaged 1"),
		ok("the volume is for several nodes", on(idle, noVolume, described, has("a"), asked("a")),
			unpublish("a"), "unowned; a P1 Unstaged 1 deleted"),
		ok("another node's VM has the disk", on(noVolume, has("b")), unpublish("a"), "no AzVolume"),
		ok("no VM has the disk", on(noVolume), unpublish("a"), "no AzVolume"),
		ok("the disk does not exist", on(noVolume, noDisk), unpublish("a"), "no AzVolume"),
		no("the node's VM is not known", on(noVolume, has("a"), noReport("a")),
			unpublish("a"), codes.Aborted, "may be the node's VM", "no AzVolume"),
		ok("the node's VM is not known, and another node's has the disk", on(noVolume, has("b"), noReport("a")),
			unpublish("a"), "no AzVolume").tolerating("get Node"), // a Node that cannot be read may exist
		no("the node's VM is not known, and others have the disk", on(noVolume, has("b", "x"), noReport("a")),
			unpublish("a"), codes.Aborted, "virtualMachines/x", "no AzVolume"),
		ok("the node was deleted", on(noVolume, has("x"), noReport("a"), noNode("a")),
			unpublish("a"), "no AzVolume").tolerating("get Node"),
		no("an attachment says which VM the node was", on(noVolume, has("a"), noReport("a"), at("a", replica, 0)),
			unpublish("a"), codes.Aborted, "no AzDriverNode", "Releasing 1 a; a P1"),
		no("an attachment says which VM the node was, which was deleted",
			on(noVolume, has("a"), noReport("a"), noNode("a"), at("a", replica, 0)),
			unpublish("a"), codes.Aborted, "", "Releasing 1 a; a P1"),
		no("a restored attachment says which VM the node was", on(noVolume, has("a"), noReport("a"), at("a", replica, 0, copied)),
			unpublish("a"), codes.Aborted, "may be the node's VM", "no AzVolume; a R0"),
		ok("from all nodes", on(noVolume, has("a")), unpublish(""), "no AzVolume"),
	})
}

// An AzVolume of a disk of V1 may have been made by an expansion, or by an unpublish that was
// interrupted.
func TestUnpublishOfAnAdoptedVolume(t *testing.T) {
	t.Parallel()
	interrupted := at("a", primary, 1, unasked)
	run(t, []row{
		ok("no record, and the node's VM has the disk", on(adopted, has("a")), unpublish("a"), "Released 1; a R1 Unstaged 1"),
		ok("no record, and another node's VM has the disk", on(adopted, has("b")), unpublish("a"), "unowned"),
		ok("interrupted before the attachment", on(adopted, has("a"), held("a", 1)),
			unpublish("a"), "Released 1; a R1 Unstaged 1"),
		ok("interrupted before Azure was asked", on(adopted, has("a"), held("a", 1), interrupted),
			unpublish("a"), "Released 1; a R1 Unstaged 1"),
		ok("the node published it", on(unasking, adopted, held("a", 1), at("a", primary, 1)),
			unpublish("a"), "Released 1; a R1 Unstaged 1"),
		ok("the attachment is being deleted", on(unasking, idle, adopted, held("a", 1), interrupted, edit("a", deleted)),
			unpublish("a"), "Released 1; a P1 Unstaged 1 deleted"),
		ok("another node published it", on(unasking, adopted, held("b", 1), at("b", primary, 1)),
			unpublish("a"), "Held 1 b; b P1"),
		ok("it was released", on(unasking, adopted, released(1)), unpublish("a"), "Released 1"),
		ok("it is being released", on(unasking, adopted, releasing("a", 1)), unpublish("a"), "Released 1"),
		ok("it is being deleted", on(unasking, adopted, leaving), unpublish("a"), "unowned"),
		ok("this driver made it", on(unasking), unpublish("a"), "unowned"),
	})
}

// The AzVolume was deleted by force, and the attachments were not.
func TestUnpublishOfALostAzVolume(t *testing.T) {
	t.Parallel()
	proved := proof(apiv1.ProofDetached, 2)
	run(t, []row{
		ok("the node was the primary", on(noVolume, at("a", primary, 2, proved)), unpublish("a"), "no AzVolume"),
		no("the node was the primary, and there is no proof yet", on(noVolume, at("a", primary, 2)),
			unpublish("a"), codes.Aborted, "still detaching", "no AzVolume; a P2 deleted"),
		ok("the attachment is being deleted", on(noVolume, at("a", primary, 2, deleted, proved)), unpublish("a"), "no AzVolume"),
		ok("the node had a replica", on(noVolume, at("a", replica, 2)), unpublish("a"), "no AzVolume; a R2"),
		ok("from all nodes", on(noVolume, at("a", primary, 2, proved), at("b", replica, 1)), unpublish(""), "no AzVolume; b R1"),
	})
}

// A user made an AzVolume of the name that the disk's AzVolume has.
func TestAnAzVolumeOfAnotherDiskIsNotUsed(t *testing.T) {
	t.Parallel()
	other := volume(func(v *apiv1.AzVolume) { v.Spec.Disk.Name = "other" })
	for _, do := range []act{publish("a"), unpublish("a")} {
		in(t, func(w *world) { expect.Code(t, do(w), codes.FailedPrecondition, "delete it") }, other)
	}
}
