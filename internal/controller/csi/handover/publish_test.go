package handover_test

import (
	"slices"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/expect"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

func TestPublish(t *testing.T) {
	t.Parallel()
	const proved = apiv1.ProofUnstaged
	idOf := func(id string) func(*csi.ControllerPublishVolumeRequest) {
		return func(r *csi.ControllerPublishVolumeRequest) { r.VolumeId = id }
	}
	incapable := func(r *csi.ControllerPublishVolumeRequest) { r.VolumeCapability = nil }
	untyped := func(r *csi.ControllerPublishVolumeRequest) { r.VolumeCapability.AccessType = nil }
	sharedMount := func(r *csi.ControllerPublishVolumeRequest) {
		r.VolumeCapability.AccessMode.Mode = csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER
	}
	run(t, []row{
		ok("of a new volume", on(), publish("a"), "Held 1 a; a P1"),
		ok("read only", on(), publish("a", readOnly), "Held 1 a; a P1"),
		ok("to a replica", on(released(3), at("b", replica, 0)), publish("b"), "Held 4 b; b P4"),
		ok("to the last primary", on(released(3), at("a", replica, 3, proof(proved, 3))),
			publish("a"), "Held 4 a; a P4 Unstaged 3"),
		ok("to the owner", on(held("a", 2), at("a", primary, 2)), publish("a"), "Held 2 a; a P2"),
		no("to the owner, as something else", on(held("a", 2), at("a", primary, 2)),
			publish("a", readOnly), codes.AlreadyExists, "readonly=false already", "Held 2 a; a P2"),
		ok("to the owner, after a kill before the promotion", on(held("a", 2), at("a", primary, 1)),
			publish("a"), "Held 2 a; a P2"),
		ok("to the owner, whose role was edited", on(held("a", 2), at("a", replica, 2)), publish("a"), "Held 2 a; a P2"),
		ok("to the owner, whose attachment was deleted", on(held("a", 2), at("a", primary, 2, deleted)),
			publish("a"), "Held 2 a; a P2 deleted"),
		no("to the owner, whose attachment was deleted, as something else", on(held("a", 2), at("a", primary, 2, deleted)),
			publish("a", readOnly), codes.AlreadyExists, "readonly=false already", "Held 2 a; a P2 deleted"),
		ok("to the owner that was to release it", on(releasing("a", 2), at("a", primary, 2)), publish("a"), "Held 3 a; a P3"),
		no("to another node", on(held("a", 2), at("a", primary, 2)),
			publish("b"), codes.FailedPrecondition, "held by node a (epoch 2); the node must unstage it first", "Held 2 a; a P2"),
		no("to a lost node", on(fenced("a", 2), at("a", primary, 2)),
			publish("a"), codes.FailedPrecondition, "which was lost", "Releasing 2 a; a P2"),
		ok("to a node that was fenced by its reservation", on(released(2), at("a", primary, 2, proof(apiv1.ProofPreempted, 2))),
			publish("a"), "Held 3 a; a P3"),
		ok("to a node that is another VM now", on(released(2), at("a", replica, 2, onVM("old"))), publish("a"), "Held 3 a; a P3"),
		no("to a node that is another VM now, while Azure detaches the disk", on(idle, released(2), at("a", replica, 2, onVM("old"))),
			publish("a"), codes.Aborted, "from node a", "Held 3 a; a R2 deleted"),
		no("to the owner, whose attachment of an earlier epoch is being deleted", on(held("a", 2), at("a", primary, 1, deleted)),
			publish("a"), codes.Aborted, "from node a", "Held 2 a; a P1 deleted"),
		ok("to the owner, whose edited attachment is being deleted", on(held("a", 2), at("a", replica, 2, deleted)),
			publish("a"), "Held 2 a; a P2"),
		ok("to the owner, whose attachment has the finalizer of a fence", on(held("a", 2), at("a", primary, 2, taken)),
			publish("a"), "Held 2 a; a P2"),
		ok("while the cache lacks the node and its report, and has no time to catch up",
			on(behind, func(w *world) { w.addNode("new") }, at("new", replica, 0), later(15*time.Second, caughtUp)),
			publish("new"), "Held 1 new; new P1"),
		ok("to a node from which it is being detached", on(released(2), at("a", replica, 2, deleted)),
			publish("a"), "Held 3 a; a P3"),
		ok("to a node from which it is being detached after a proof",
			on(released(2), at("a", primary, 2, proof(proved, 2), deleted)), publish("a"), "Held 3 a; a P3"),
		no("to a node from which Azure is still detaching it",
			on(idle, released(2), at("a", replica, 2, deleted, condition("DiskDetaching", "two minutes"))),
			publish("a"), codes.Aborted, "from node a (DiskDetaching: two minutes)", "Held 3 a; a R2 deleted"),
		no("to a node from which Azure refuses to detach it",
			on(idle, released(2), at("a", replica, 2, deleted, failed(provisioner.Unauthorized, "no"))),
			publish("a"), codes.PermissionDenied, "no", "Held 3 a; a R2 deleted"),
		ok("while the cache lacks the attachment", on(released(1), behind, at("a", replica, 0)), publish("a"), "Held 2 a; a P2"),
		ok("while the cache has an attachment that is gone",
			on(held("a", 2), at("a", primary, 2), behind, gone("a"), later(2*time.Second, caughtUp)),
			publish("a"), "Held 2 a; a P2"),
		no("while the cache only has an attachment that is gone", on(held("a", 2), at("a", primary, 2), behind, gone("a")),
			publish("a"), codes.Aborted, "not yet reconciled", "Held 2 a; a P2"),
		ok("while the cache lacks the node",
			on(behind, func(w *world) { w.addNode("new") }, at("new", replica, 0), later(2*time.Second, caughtUp)),
			publish("new"), "Held 1 new; new P1"),
		no("without a volume ID", on(), publish("a", idOf("")), codes.InvalidArgument, "volume ID", "unowned"),
		no("of a volume ID that is none", on(), publish("a", idOf("nonsense")), codes.NotFound, "nonsense", "unowned"),
		no("without a node", on(), publish(""), codes.InvalidArgument, "node ID", "unowned"),
		no("without a capability", on(), publish("a", incapable), codes.InvalidArgument, "volume capability: missing", "unowned"),
		no("of a volume that is being deleted", on(leaving), publish("a"), codes.NotFound, "is being deleted", "unowned"),
		ok("of a paused volume, to a replica", on(paused, released(3), at("b", replica, 0)), publish("b"), "Held 4 b; b P4"),
		no("of a paused volume, to a node without the disk", on(paused, released(3)),
			publish("b"), codes.Unavailable, "paused", "Released 3"),
		no("of a paused volume, to a replica on another VM", on(paused, released(3), at("b", replica, 0, onVM("old"))),
			publish("b"), codes.Unavailable, "paused", "Released 3; b R0"),
		no("for several nodes", on(), publish("a", shared), codes.InvalidArgument, "is for one node at a time", "unowned"),
		no("for several nodes, of a disk that has one share", on(oneShare),
			publish("a", shared), codes.InvalidArgument, "maxShares of 2 or more", "unowned"),
		no("for a filesystem on several nodes", on(multiNode),
			publish("a", sharedMount), codes.InvalidArgument, "raw block", "unowned"),
		no("for an access that no disk has, of a disk without an AzVolume", on(noVolume),
			publish("a", untyped), codes.InvalidArgument, "neither block nor mount", "no AzVolume"),
		ok("of a disk without an AzVolume", on(noVolume), publish("a"), "Held 1 a; a P1"),
		no("of a disk that does not exist", on(noVolume, noDisk),
			publish("a"), codes.NotFound, "there is no disk", "no AzVolume"),
		no("to a node that does not exist", on(noNode("a"), noReport("a")),
			publish("a"), codes.NotFound, "no such Node", "unowned"),
		no("to a node that has not reported", on(noReport("a")),
			publish("a"), codes.Unavailable, "has not reported yet", "unowned"),
		ok("to a node that reports at last", on(noReport("a"), later(3*time.Second, reported("a"))),
			publish("a"), "Held 1 a; a P1"),
		no("to a node that names the VM of another", on(report("a", func(d *apiv1.AzDriverNode) { d.Spec.VMID = vms + "b" })),
			publish("a"), codes.Unavailable, "providerID", "unowned"),
		no("of a disk that other pods name", on(withClaim, pod("thief", "apps", "a")),
			publish("a"), codes.FailedPrecondition, "claim shop/data", "unowned"),
	})
}

// A publish to a node that has a replica is one read and two writes, and waits for nothing.
func TestAWarmPublishIsOneReadAndTwoWrites(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		began := time.Now()
		w.must(publish("b")(w))
		if want := []string{"get AzVolume", "patch/status AzVolume", "patch AzVolumeAttachment"}; !slices.Equal(w.server, want) {
			t.Errorf("got accesses %q, want %q", w.server, want)
		}
		if took := time.Since(began); took > 0 {
			t.Errorf("took %s, want no waiting", took)
		}
		promotions := func(warm string) float64 { return w.counted("azuredisk_promotions_total", warm) }
		if warm, cold := promotions("true"), promotions("false"); warm != 1 || cold != 0 {
			t.Errorf("counted %v warm and %v cold promotions, want 1, 0", warm, cold)
		}
		w.must(publish("b")(w))
		w.must(unpublish("b")(w))
		w.must(publish("c")(w))
		if warm, cold := promotions("true"), promotions("false"); warm != 1 || cold != 1 {
			t.Errorf("counted %v warm and %v cold promotions, want 1, 1: a repetition is none", warm, cold)
		}
		w.server = nil
		w.must(publish("c")(w))
		if want := []string{"get AzVolume", "get AzVolumeAttachment"}; !slices.Equal(w.server, want) {
			t.Errorf("got accesses %q of a repetition, want %q", w.server, want)
		}
	}, released(1), at("b", replica, 1, proof(apiv1.ProofUnstaged, 1)))
}

// A publish waits until Azure has accepted to attach the disk, or refused it as the disk is.
func TestAPublishWaitsForAzuresAnswer(t *testing.T) {
	t.Parallel()
	operation := func(a *apiv1.AzVolumeAttachment) { a.Status.Operation = &apiv1.Operation{ResumeToken: "t"} }
	observed := func(a *apiv1.AzVolumeAttachment) { a.Status.ObservedGeneration = a.Generation }
	unobserved := func(a *apiv1.AzVolumeAttachment) { a.Status.ObservedGeneration = a.Generation - 1 }
	attaching, refused := state(apiv1.AttachmentAttaching), state(apiv1.AttachmentFailed)
	pending, noSlot := state(apiv1.AttachmentPending), condition("NoDiskSlot", "a replica gives way")
	no := failed(provisioner.Unauthorized, "no permission")
	for name, test := range map[string]struct {
		status []change
		want   codes.Code
		says   string
	}{
		"attached":           {[]change{state(apiv1.AttachmentAttached)}, codes.OK, ""},
		"Azure has accepted": {[]change{attaching, operation}, codes.OK, ""},
		"Azure has not accepted": {[]change{attaching, condition("DiskAttaching", "")}, codes.Aborted,
			"(DiskAttaching)"},
		"Azure has refused":                   {[]change{refused, observed, no}, codes.PermissionDenied, "no permission"},
		"Azure has refused a former request":  {[]change{refused, unobserved, no}, codes.Aborted, "has not accepted"},
		"the failure is not recorded":         {[]change{refused, observed}, codes.Aborted, "has not accepted"},
		"no slot is free":                     {[]change{pending, noSlot}, codes.Aborted, "(NoDiskSlot: a replica gives way)"},
		"the controller has not looked at it": {nil, codes.Aborted, "not yet reconciled"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in(t, func(w *world) { w.ended(publish("a")(w), test.want, test.says) }, idle,
				later(2*time.Second, edit("a", test.status...)))
		})
	}
}

// A disk that Azure refuses to attach is read. It may be another one than its AzVolume says, and then
// it is attached in another way.
func TestAPublishWaitsUntilARefusedDiskIsRead(t *testing.T) {
	t.Parallel()
	refused := func(a *apiv1.AzVolumeAttachment) {
		a.Status.State, a.Status.ObservedGeneration = apiv1.AttachmentFailed, a.Generation
		condition(apiv1.ReasonDiskAttachFailed, "")(a)
		a.Status.Error = &apiv1.Error{Reason: string(provisioner.InvalidArgument), Message: "not such a disk", FailureTime: now()}
	}
	read := volume(func(v *apiv1.AzVolume) { v.Status.Disk = &apiv1.DiskReading{ReadTime: now()} })
	changed := volume(func(v *apiv1.AzVolume) { v.Status.Disk = &apiv1.DiskReading{ReadTime: now(), ChangedTime: new(now())} })
	for name, test := range map[string]struct {
		then given
		want codes.Code
	}{
		"the disk is as the AzVolume says": {read, codes.InvalidArgument},
		"the disk has changed":             {changed, codes.Aborted},
		"the disk is not read":             {func(*world) {}, codes.Aborted},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in(t, func(w *world) { w.ended(publish("a")(w), test.want, "") }, idle,
				later(2*time.Second, edit("a", refused)), later(4*time.Second, test.then))
		})
	}
}

// The volume can be published to another node at once if the node is full. After another refusal, the
// repetition must find the ownership: it would ask Azure again under each new epoch.
func TestARefusedPublishKeepsItsOwnershipUnlessTheNodeIsFull(t *testing.T) {
	t.Parallel()
	full := refuses(provisioner.InsufficientCapacity)
	elsewhere := volume(func(v *apiv1.AzVolume) {
		v.Status.Disk = &apiv1.DiskReading{ReadTime: now(), UnrecordedVMs: []string{vms + "x", vms + "y"}}
	})
	run(t, []row{
		no("the node is full", on(full), publish("a"), codes.ResourceExhausted, "Azure refuses", "Released 1; a R1 Unstaged 1"),
		no("the node is full, and the call is repeated", on(full, held("a", 1), at("a", primary, 1, unasked)),
			publish("a"), codes.ResourceExhausted, "Azure refuses", "Held 1 a; a P1"),
		no("the node is full, and its plug-in does not answer", on(full, unscanned("a")),
			publish("a"), codes.ResourceExhausted, "Azure refuses", "Releasing 1 a; a P1"),
		no("no share of the disk is free", on(full, elsewhere),
			publish("a"), codes.ResourceExhausted, "Azure refuses", "Held 1 a; a P1"),
		no("no permission", on(refuses(provisioner.Unauthorized)),
			publish("a"), codes.PermissionDenied, "Azure refuses", "Held 1 a; a P1"),
	})
}

// A user removed the finalizer of the VolumeAttachment while the unpublish waited for its proof, so
// that the unpublish is not repeated.
func TestAPublishCompletesAReleaseThatWasStarted(t *testing.T) {
	t.Parallel()
	run(t, []row{
		ok("the node has unstaged it", on(releasing("a", 1), at("a", primary, 1)),
			publish("b"), "Held 2 b; a R1 Unstaged 1; b P2").leaving("Held 2 b; a P1 Unstaged 1; b P2"),
		no("the node has it staged", on(releasing("a", 1), at("a", primary, 1), stages("a", 1)),
			publish("b"), codes.FailedPrecondition, "is being released", "Releasing 1 a; a P1"),
		no("the node was lost, and the failover fences it", on(fenced("a", 1), at("a", primary, 1)),
			publish("b"), codes.FailedPrecondition, "which was lost", "Releasing 1 a; a P1"),
		no("the unpublish is still at work",
			on(held("a", 1), at("a", primary, 1), stages("a", 1), inBackground(unpublish("a")), behind, unstages("a")),
			publish("b"), codes.Aborted, "another call", "Releasing 1 a; a P1"),
	})
}

// The write of the ownership ends what the volume was recorded to wait for.
func TestAPublishEndsTheRecordedWait(t *testing.T) {
	t.Parallel()
	waiting := volume(func(v *apiv1.AzVolume) {
		v.Status.Conditions = append(v.Status.Conditions, metav1.Condition{
			Type: apiv1.VolumeConditionPublished, Status: metav1.ConditionFalse, Reason: apiv1.ReasonStillMounted,
			Message: "volume vol is held by node b", LastTransitionTime: metav1.Now(),
		})
	})
	in(t, func(w *world) {
		expect.Must(t, publish("a")(w))
		c := meta.FindStatusCondition(w.volume().Status.Conditions, apiv1.VolumeConditionPublished)
		if c == nil || c.Status != metav1.ConditionTrue || c.Reason != apiv1.ReasonPublished {
			t.Errorf("got %+v, want True, %s", c, apiv1.ReasonPublished)
		}
	}, waiting)
}

func paused(w *world) {
	v := w.volume()
	v.Annotations = map[string]string{apiv1.AnnotationPaused: apiv1.PausedTrue}
	w.put(v)
}
