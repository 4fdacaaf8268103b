package claimstatus_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/cause"
	"github.com/azuredisk-csi/azuredisk/internal/plan/claimstatus"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/objects"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// since is when every wait of the tests began.
var since = objects.Ago(2 * time.Minute)

func says(conditions *[]metav1.Condition, kind, status, reason, message string) {
	*conditions = append(*conditions, metav1.Condition{
		Type: kind, Status: metav1.ConditionStatus(status), Reason: reason, Message: message, LastTransitionTime: *since,
	})
}

func volumeSays(kind, status, reason, message string) func(*apiv1.AzVolume) {
	return func(v *apiv1.AzVolume) { says(&v.Status.Conditions, kind, status, reason, message) }
}

func failedBy(kind provisioner.Kind, code string) *apiv1.Error {
	return &apiv1.Error{Reason: string(kind), Code: code, Message: "Azure answered"}
}

func volumeFailed(reason string, kind provisioner.Kind, code string) []func(*apiv1.AzVolume) {
	return []func(*apiv1.AzVolume){volumeSays(apiv1.VolumeConditionReady, "False", reason, ""), func(v *apiv1.AzVolume) {
		v.Status.Error = failedBy(kind, code)
	}}
}

func held(v *apiv1.AzVolume) { objects.Owned("a", 2, apiv1.OwnershipHeld)(v) }

func lost(v *apiv1.AzVolume) {
	objects.Owned("a", 2, apiv1.OwnershipReleasing)(v)
	v.Status.Primary.Cause, v.Status.Primary.LastTransitionTime = apiv1.CauseNodeLost, since
}

func attachment(state apiv1.AttachmentState, reason string, e *apiv1.Error) *apiv1.AzVolumeAttachment {
	a := objects.NewAttachment("a", apiv1.RolePrimary, 2, state)
	a.Status.Error = e
	if reason != "" {
		says(&a.Status.Conditions, apiv1.AttachmentConditionAttached, "False", reason, "why")
	}
	return a
}

func holder(status, reason string) *apiv1.AzDriverNode {
	d := objects.Report("a")
	says(&d.Status.Conditions, apiv1.NodeConditionReachable, status, reason, "")
	return d
}

func deleted(finalizers ...string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: since, Finalizers: finalizers}}
}

type test struct {
	volume      []func(*apiv1.AzVolume)
	attachments []*apiv1.AzVolumeAttachment
	claim       *corev1.PersistentVolumeClaim
	users       []string
	holder      *apiv1.AzDriverNode
	want        string // the cause
	event       string // the reason of the event
}

func (c test) input() claimstatus.Input {
	return claimstatus.Input{
		Volume: objects.NewVolume(c.volume...), Attachments: c.attachments, Claim: c.claim, Users: c.users, Holder: c.holder,
	}
}

func attached(node string) *apiv1.AzVolumeAttachment {
	a := attachment(apiv1.AttachmentAttached, "", nil)
	a.Spec.NodeName = node
	return a
}

func released(v *apiv1.AzVolume) { v.Status.Primary.State = apiv1.OwnershipReleased }

// block is a raw block volume for several nodes.
var block = []func(*apiv1.AzVolume){func(v *apiv1.AzVolume) {
	v.Spec.Access, v.Spec.MaxMountReplicaCount = apiv1.AccessMultiNode, 0
}}

var one = []func(*apiv1.AzVolume){held}

func missing(message string) []func(*apiv1.AzVolume) {
	return []func(*apiv1.AzVolume){held, volumeSays(apiv1.VolumeConditionReplicasAttached, "False",
		apiv1.ReasonReplicasMissing, message), func(v *apiv1.AzVolume) { v.Status.Replicas = &apiv1.ReplicaCount{Wanted: 1} }}
}

var tests = map[string]test{
	"a volume that no node uses": {volume: []func(*apiv1.AzVolume){objects.Owned("a", 2, apiv1.OwnershipReleased)}},
	"a volume in use": {volume: []func(*apiv1.AzVolume){held, func(v *apiv1.AzVolume) {
		v.Status.Replicas, v.Status.Fencing = &apiv1.ReplicaCount{Ready: 2, Wanted: 2}, apiv1.FencingForcedDetach
	}}},
	"a raw block volume on two nodes": {volume: block, attachments: objects.Attachments(attached("c"), attached("b"))},
	"a raw block volume that is being attached to a second node": {volume: block, attachments: objects.Attachments(
		attachment(apiv1.AttachmentAttaching, apiv1.ReasonDiskAttaching, nil), attached("b")), want: "DiskAttaching",
		event: apiv1.ReasonDiskAttaching},

	"a raw block volume, and the second of its nodes waits": {volume: block, attachments: objects.Attachments(
		attached("0"), attachment(apiv1.AttachmentAttaching, apiv1.ReasonDiskAttaching, nil)), want: "DiskAttaching",
		event: apiv1.ReasonDiskAttaching},
	"a raw block volume that leaves a node": {volume: block, attachments: objects.Attachments(
		objects.Deleted(attachment(apiv1.AttachmentDetaching, apiv1.ReasonDiskDetaching, nil)))},
	"a raw block volume with a replica on its way": {volume: block, attachments: objects.Attachments(
		objects.NewAttachment("a", apiv1.RoleReplica, 0, apiv1.AttachmentAttaching))},
	"an attachment of a volume that no node has used": {volume: []func(*apiv1.AzVolume){objects.NeverOwned},
		attachments: objects.Attachments(attachment(apiv1.AttachmentAttaching, apiv1.ReasonDiskAttaching, nil))},
	"an attachment of a volume that was released": {volume: []func(*apiv1.AzVolume){held, released},
		attachments: objects.Attachments(attachment(apiv1.AttachmentDetaching, apiv1.ReasonDiskDetaching, nil)),
		holder:      holder("Unknown", apiv1.ReasonFencingHeldBack)},
	"a volume whose disk is attached": {volume: one, attachments: objects.Attachments(attached("a"))},

	"a claim that stays": {claim: &corev1.PersistentVolumeClaim{}},
	"a disk that Azure does not delete, without an error": {volume: []func(*apiv1.AzVolume){volumeSays(
		apiv1.VolumeConditionReady, "False", apiv1.ReasonDiskDeletionFailed, "")}, want: "DiskDeletionFailed",
		event: apiv1.ReasonDiskDeletionFailed},
	"a disk that Azure does not create, without an error": {volume: []func(*apiv1.AzVolume){volumeSays(
		apiv1.VolumeConditionReady, "False", apiv1.ReasonDiskCreationFailed, "")}, want: "ProvisioningFailed",
		event: apiv1.ReasonDiskCreationFailed},
	"a lost node whose fence has not failed": {volume: []func(*apiv1.AzVolume){lost}, attachments: objects.Attachments(
		attachment(apiv1.AttachmentDetaching, "", nil)), want: "VolumeFencing"},
	"a node that has released the volume": {volume: []func(*apiv1.AzVolume){objects.Owned("a", 2,
		apiv1.OwnershipReleasing)}, attachments: objects.Attachments(objects.Proved(attached("a"), apiv1.ProofUnstaged)),
		want: "StillMounted"},
	"a node that has not reported": {volume: one, holder: objects.Report("a")},
	"replicas that are attached": {volume: []func(*apiv1.AzVolume){held, volumeSays(apiv1.VolumeConditionReplicasAttached,
		"True", apiv1.ReasonReplicasAttached, "")}},

	"a claim that pods use is deleted": {claim: deleted("kubernetes.io/pvc-protection"), users: []string{"p"},
		want: "ClaimInUse", event: "ClaimInUse"},
	"a claim with a finalizer of a backup program is deleted": {claim: deleted("kubernetes.io/pvc-protection", "backup/x"),
		want: "FinalizerWaits", event: "FinalizerWaits"},
	"a claim is deleted": {claim: deleted("kubernetes.io/pvc-protection"), want: "DiskDeleting"},
	"an AzVolume that was deleted alone is kept, and keeps nothing waiting": {volume: []func(*apiv1.AzVolume){volumeSays(
		apiv1.VolumeConditionReady, "True", apiv1.ReasonVolumeDeletionHeld, "")}},
	"a disk that Azure does not delete": {volume: volumeFailed(apiv1.ReasonDiskDeletionFailed, provisioner.FailedPrecondition,
		"ScopeLocked"), want: "ScopeLocked", event: apiv1.ReasonDiskDeletionFailed},
	"a disk that is gone": {volume: volumeFailed(apiv1.ReasonDiskCreationFailed, provisioner.NotFound, ""),
		want: "DiskGone", event: apiv1.ReasonDiskCreationFailed},
	"a disk of another volume": {volume: volumeFailed(apiv1.ReasonDiskCreationFailed, provisioner.AlreadyExists, ""),
		want: "ForeignDisk", event: apiv1.ReasonDiskCreationFailed},
	"a disk that Azure does not create": {volume: volumeFailed(apiv1.ReasonDiskCreationFailed, provisioner.InvalidArgument, "X"),
		want: "ProvisioningFailed", event: apiv1.ReasonDiskCreationFailed},
	"a disk that is being filled": {volume: []func(*apiv1.AzVolume){volumeSays(apiv1.VolumeConditionReady, "False",
		apiv1.ReasonDiskFilling, "50 %")}, want: "DiskFilling"},

	"a lost node that is being fenced": {volume: []func(*apiv1.AzVolume){lost}, want: "VolumeFencing"},
	"a lost node that Azure does not detach": {volume: []func(*apiv1.AzVolume){lost}, attachments: objects.Attachments(
		attachment(apiv1.AttachmentDetachFail, "", failedBy(provisioner.Unauthorized, "AuthorizationFailed"))),
		want: "PermissionMissing"},
	"a lost node that is fenced": {volume: []func(*apiv1.AzVolume){lost}, attachments: objects.Attachments(
		objects.Proved(attachment(apiv1.AttachmentDetaching, "", nil), apiv1.ProofDetached)), want: "FailoverProven"},
	"a lost node that the guard keeps": {volume: one, holder: holder("Unknown", apiv1.ReasonFencingHeldBack),
		want: "FencingHeldBack"},
	"a late heartbeat": {volume: one, holder: holder("Unknown", apiv1.ReasonHeartbeatStale)},
	"a healthy node":   {volume: one, holder: holder("True", apiv1.ReasonHeartbeatFresh)},
	"a volume that is being released": {volume: []func(*apiv1.AzVolume){objects.Owned("a", 2, apiv1.OwnershipReleasing)},
		want: "StillMounted"},

	"an attach": {volume: one, attachments: objects.Attachments(attachment(apiv1.AttachmentAttaching,
		apiv1.ReasonDiskAttaching, nil)), want: "DiskAttaching", event: apiv1.ReasonDiskAttaching},
	"an attach that waits for Azure's quota": {volume: one, attachments: objects.Attachments(
		attachment(apiv1.AttachmentAttaching, apiv1.ReasonWaitingForAzureQuota, nil)), want: "WaitingForAzureQuota",
		event: apiv1.ReasonWaitingForAzureQuota},
	"an attach after a restored status": {volume: one, attachments: objects.Attachments(
		attachment(apiv1.AttachmentPending, apiv1.ReasonStatusRestored, nil)), want: "DiskAttaching",
		event: apiv1.ReasonDiskAttaching},
	"an attach that Azure refuses": {volume: one, attachments: objects.Attachments(attachment(apiv1.AttachmentFailed,
		apiv1.ReasonDiskAttachFailed, failedBy(provisioner.InvalidArgument, "BadRequest"))), want: "DiskAttachFailed",
		event: apiv1.ReasonDiskAttachFailed},
	"a repeated attach, which Azure refused before": {volume: one, attachments: objects.Attachments(
		attachment(apiv1.AttachmentAttaching, apiv1.ReasonDiskAttaching, failedBy(provisioner.RateLimited, ""))),
		want: "Throttled", event: apiv1.ReasonDiskAttachFailed},
	"a node without a free slot": {volume: one, attachments: objects.Attachments(attachment(apiv1.AttachmentFailed,
		apiv1.ReasonNoDiskSlot, failedBy(provisioner.InsufficientCapacity, ""))), want: "NoDiskSlot",
		event: apiv1.ReasonDiskAttachFailed},
	"an attachment that was a primary before": {volume: one, attachments: objects.Attachments(func() *apiv1.AzVolumeAttachment {
		a := attachment(apiv1.AttachmentDetaching, apiv1.ReasonDiskDetaching, nil)
		a.Spec.NodeName = "z"
		return a
	}())},

	"a change that Azure refuses": {volume: []func(*apiv1.AzVolume){held, volumeSays(apiv1.VolumeConditionUpdated, "False",
		apiv1.ReasonDiskUpdateRefused, "size")}, want: "DiskUpdateRefused"},
	"a replica without a place": {volume: missing("b: no free slot"),
		want:  "ReplicasMissing",
		event: apiv1.ReasonReplicasMissing},
	"a replica that is being attached": {volume: missing(""),
		want:  "ReplicaAttaching",
		event: apiv1.ReasonReplicasMissing},
}

func TestWhatAClaimWaitsFor(t *testing.T) {
	t.Parallel()
	for name, c := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if w := claimstatus.WaitOf(c.input()); w.Cause != c.want || w.Event != c.event {
				t.Errorf("got cause %q and event %q, want %q and %q", w.Cause, w.Event, c.want, c.event)
			}
		})
	}
}

// A user who looks up what an event says has to find it.
func TestWhatAClaimWaitsForIsOnThePage(t *testing.T) {
	t.Parallel()
	ids, seen := map[string]bool{}, map[string]bool{}
	for _, cause := range cause.Table() {
		ids[string(cause.ID)] = true
		for _, s := range cause.Seen {
			seen[s] = true
		}
	}
	for name, c := range tests {
		w := claimstatus.WaitOf(c.input())
		if w.Cause != "" && !ids[w.Cause] {
			t.Errorf("%s: got the cause %s, want one of the page", name, w.Cause)
		}
		if w.Event != "" && !ids[w.Event] && !seen[w.Event] {
			t.Errorf("%s: got the event %s, want one of the page", name, w.Event)
		}
	}
}

func TestSinceWhenAClaimWaitsForItsNode(t *testing.T) {
	t.Parallel()
	unknown := func(v *apiv1.AzVolume) { v.Status.Primary.LastTransitionTime = nil }
	for name, c := range map[string]struct {
		volume []func(*apiv1.AzVolume)
		want   *metav1.Time
	}{
		"since its release":           {[]func(*apiv1.AzVolume){lost}, since},
		"since the volume was made":   {[]func(*apiv1.AzVolume){lost, unknown}, objects.Ago(time.Hour)},
		"a release that goes forward": {[]func(*apiv1.AzVolume){objects.Owned("a", 2, "Releasing")}, objects.Ago(time.Minute)},
	} {
		if w := claimstatus.WaitOf(test{volume: c.volume}.input()); !w.Since.Equal(c.want.Time) {
			t.Errorf("%s: got %s, want %s", name, w.Since, c.want)
		}
	}
}

func TestAClaimSaysHowManyReplicasAreAttached(t *testing.T) {
	t.Parallel()
	count := func(ready, wanted int32) func(*apiv1.AzVolume) {
		return func(v *apiv1.AzVolume) { v.Status.Replicas = &apiv1.ReplicaCount{Ready: ready, Wanted: wanted} }
	}
	none := func(v *apiv1.AzVolume) { v.Status.Replicas = nil }
	is := func(status, reason string) func(*apiv1.AzVolume) {
		return volumeSays(apiv1.VolumeConditionReplicasAttached, status, reason, "")
	}
	missing, there := is("False", apiv1.ReasonReplicasMissing), is("True", apiv1.ReasonReplicasAttached)
	for name, c := range map[string]struct {
		volume         []func(*apiv1.AzVolume)
		wait, restored string
	}{
		"one of two":        {[]func(*apiv1.AzVolume){held, missing, count(1, 2)}, "1 of 2 replicas are attached", ""},
		"not counted yet":   {[]func(*apiv1.AzVolume){held, missing, none}, "0 of 1 replicas are attached", ""},
		"both of two":       {[]func(*apiv1.AzVolume){held, there, count(2, 2)}, "", "2 of 2 replicas are attached again"},
		"both, not counted": {[]func(*apiv1.AzVolume){held, there, none}, "", ""},
		"no condition":      {[]func(*apiv1.AzVolume){held, count(2, 2)}, "", ""},
	} {
		in := test{volume: c.volume}.input()
		if got, again := claimstatus.WaitOf(in).Message, claimstatus.Restored(in.Volume); got != c.wait || again != c.restored {
			t.Errorf("%s: got %q and %q, want %q and %q", name, got, again, c.wait, c.restored)
		}
	}
}
