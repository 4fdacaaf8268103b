package explain

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/cause"
	"github.com/azuredisk-csi/azuredisk/internal/plan/refusal"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// claim names the claim that is bound to a volume, in a sentence.
func (v *Volume) claim() string {
	if v.ClaimName == "" {
		if v.PersistentVolume != nil {
			return "PersistentVolume " + v.PersistentVolume.Name
		}
		return "AzVolume " + v.Name
	}
	return "claim " + v.ClaimName
}

func (v *Volume) claimEvidence() Evidence {
	if v.Claim == nil {
		return Evidence{Object: v.claim(), Says: "not found"}
	}
	return Evidence{Object: v.claim(), Says: string(v.Claim.Status.Phase)}
}

// unbound explains a volume whose claim is not bound to a PersistentVolume of this driver; ok is
// false if it is. pod is nil for a question about the claim.
func (f Facts) unbound(v *Volume, pod *corev1.Pod) (finding Finding, ok bool) {
	if v.ClaimName != "" {
		switch c := v.Claim; {
		case c == nil && f.unread(Claims):
			return find(apiv1.ReasonNotReadable, "Claims are not readable with these rights."), true
		case c == nil:
			return find(apiv1.ReasonClaimNotFound, "There is no claim %s in namespace %s.", v.ClaimName, v.Namespace), true
		case c.DeletionTimestamp != nil && (pod == nil || c.Status.Phase != corev1.ClaimBound):
			return f.terminating(v), true
		case c.Status.Phase == corev1.ClaimLost:
			return find(apiv1.ReasonClaimLost, "%s was bound to PersistentVolume %s, which does not exist any more.", upper(v.claim()),
				c.Spec.VolumeName), true
		case c.Status.Phase != corev1.ClaimBound:
			return f.pending(v, pod), true
		}
	}
	switch pv := v.PersistentVolume; {
	case pv == nil && v.ClaimName == "", f.unread(Volumes):
		return Finding{}, false // a disk that the pod names itself; or nothing more is readable
	case pv == nil:
		return find(apiv1.ReasonClaimLost, "PersistentVolume %s does not exist.", v.Claim.Spec.VolumeName), true
	case v.Name == "":
		return find(apiv1.ReasonOtherDriver, "The volume of %s belongs to %s.", v.claim(), ownerOf(pv)), true
	}
	return Finding{}, false
}

func ownerOf(pv *corev1.PersistentVolume) string {
	if pv.Spec.CSI != nil {
		return "driver " + pv.Spec.CSI.Driver
	}
	return "another driver"
}

func upper(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

// terminating explains a claim that is being deleted.
func (f Facts) terminating(v *Volume) Finding {
	since := Evidence{Object: v.claim(), Says: "is being deleted", Since: &v.Claim.DeletionTimestamp.Time}
	var users []string
	for _, p := range v.Pods {
		users = append(users, p.Name)
	}
	slices.Sort(users)
	finalizers := v.Claim.Finalizers
	switch {
	case len(users) > 0 && slices.Contains(finalizers, "kubernetes.io/pvc-protection"):
		return find(apiv1.ReasonClaimInUse, "The claim is deleted as soon as no pod uses it. Pods that use it: %s.", strings.Join(users, ", ")).
			seen(since)
	case slices.Contains(finalizers, FinalizerSnapshot) && len(v.Snapshots) > 0:
		return find(apiv1.ReasonFinalizerWaits, "The claim is being deleted, and is the source of snapshots that are not complete: %s.",
			strings.Join(v.Snapshots, ", ")).
			then("ask for the reason (kubectl azuredisk why snapshot %s -n %s), and repair or delete the snapshot", v.Snapshots[0],
				v.Namespace).seen(since)
	case slices.Equal(finalizers, []string{FinalizerSnapshot}):
		// snapshot-controller forgets it when such a snapshot is deleted.
		return find(apiv1.ReasonFinalizerWaits,
			"The claim is being deleted, and finalizer %s keeps it, which snapshot-controller has set.", FinalizerSnapshot).
			then("if no incomplete VolumeSnapshot of the claim is left, remove the finalizer: "+
				`kubectl patch pvc %s -n %s --type=merge -p '{"metadata":{"finalizers":null}}'`,
				v.Claim.Name, v.Namespace).
			seen(since)
	case len(finalizers) > 0:
		return find(apiv1.ReasonFinalizerWaits, "The claim is being deleted, and finalizers keep it: %s.",
			strings.Join(finalizers, ", ")).
			seen(since)
	}
	return f.soon(find(apiv1.ReasonDiskDeleting, "The claim is being deleted.").seen(since), v.Claim.DeletionTimestamp.Time)
}

// FinalizerSnapshot is set by snapshot-controller on the source of a snapshot that is not complete.
const FinalizerSnapshot = "snapshot.storage.kubernetes.io/pvc-as-source-protection"

// noAttributesClass is for a claim whose VolumeAttributesClass does not exist.
func (f Facts) noAttributesClass(v *Volume) Finding {
	return find(apiv1.ReasonAttributesClassNotFound, "There is no VolumeAttributesClass %s, which %s names.",
		*v.Claim.Spec.VolumeAttributesClassName, v.claim()).seen(v.claimEvidence())
}

// pending explains a claim without a PersistentVolume.
func (f Facts) pending(v *Volume, pod *corev1.Pod) Finding {
	c := v.Claim
	class, named := "", c.Spec.StorageClassName != nil
	if named {
		class = *c.Spec.StorageClassName
	}
	switch {
	case c.Spec.VolumeName != "":
		return find(apiv1.ReasonDiskCreating, "The claim waits to be bound to PersistentVolume %s.", c.Spec.VolumeName).
			then("nothing, if PersistentVolume %s exists and is not bound to another claim", c.Spec.VolumeName)
	case f.unread(Classes):
		return f.pendingByEvents(v)
	case class == "" && (named || v.DefaultClass == ""):
		return find(apiv1.ReasonClaimWithoutClass, "The claim names no StorageClass, and no driver creates a volume for it.").seen(v.claimEvidence())
	case class == "":
		return find(apiv1.ReasonDiskCreating, "The claim is about to get the default StorageClass %s.", v.DefaultClass)
	case v.Class == nil:
		return find(apiv1.ReasonClassNotFound, "There is no StorageClass %s.", class).seen(v.claimEvidence())
	case v.Class.Provisioner != f.DriverName:
		return find(apiv1.ReasonOtherDriver, "StorageClass %s belongs to driver %s.", class, v.Class.Provisioner)
	}
	if waitsForConsumer(v) {
		if finding, ok := f.scheduledAgain(v); ok {
			return finding
		}
		if pod != nil && pod.Spec.NodeName == "" {
			return find(apiv1.ReasonWaitForFirstConsumer, "The volume of %s is created when the pod is placed on a node.", v.claim())
		}
		return find(apiv1.ReasonWaitForFirstConsumer, "The volume is created when a pod that uses the claim is placed on a node.").
			seen(v.claimEvidence())
	}
	return f.provisioning(v)
}

// retries is how long csi-provisioner waits at most until it repeats a request.
const retries = 5 * time.Minute

// scheduledAgain explains a claim whose volume could not be created where its pod was to be placed: csi-provisioner
// leaves it to the scheduler to choose again, and the claim waits for that as if nothing had happened.
func (f Facts) scheduledAgain(v *Volume) (Finding, bool) {
	if az := v.AzVolume; az != nil && az.Status.Error != nil {
		return f.creation(v), true
	}
	e := f.claimEvent(v, eventProvisioning)
	if e == nil || f.Now.Sub(EventTime(e).Time) > 2*retries {
		return Finding{}, false
	}
	refused := f.pendingByEvents(v)
	if refused.ID == apiv1.ReasonProvisioningFailed {
		refused = refused.then("remove what the event names; the request is repeated")
	}
	return refused, true
}

func waitsForConsumer(v *Volume) bool {
	mode := v.Class.VolumeBindingMode
	return mode != nil && *mode == storagev1.VolumeBindingWaitForFirstConsumer && v.Claim.Annotations[annSelectedNode] == ""
}

// annSelectedNode is set by the scheduler.
const annSelectedNode = "volume.kubernetes.io/selected-node"

// provisioning explains a claim for which the driver is to create a disk.
func (f Facts) provisioning(v *Volume) Finding {
	if az := v.AzVolume; az != nil && az.Status.State != apiv1.VolumeCreated {
		return f.creation(v)
	}
	if finding, ok := f.driver(sidecarProvisioner); ok {
		return finding
	}
	switch {
	case v.SourceMissing != "":
		return find(apiv1.ReasonDataSourceNotFound, "The volume is to be made from %s, which does not exist in namespace %s.",
			v.SourceMissing, v.Namespace).seen(v.claimEvidence())
	case v.AttributesClassMissing:
		return f.noAttributesClass(v)
	}
	return f.pendingByEvents(v)
}

// pendingByEvents explains a Pending claim by its events.
func (f Facts) pendingByEvents(v *Volume) Finding {
	if e := f.claimEvent(v, eventProvisioning); e != nil {
		if reason, rest, ok := refusal.In(e.Message); ok {
			return find(reason, "The driver refused to create the volume.").quoting(rest).seen(f.said(e))
		}
		if id, ok := cause.OfAnswer(e.Message, apiv1.ReasonProvisioningFailed); ok {
			refused := find(id, "Azure refused to create the volume of %s.", v.claim()).quoting(e.Message).seen(f.said(e))
			if id == apiv1.ReasonProvisioningFailed {
				refused.Next = "remove what Azure names"
			}
			return refused.then("%s. csi-provisioner repeats the request, after some refusals only after several minutes", refused.Next)
		}
		refused := find(apiv1.ReasonProvisioningFailed, "The driver refused to create the volume of %s.", v.claim())
		if !strings.Contains(e.Message, "rpc error: ") { // the answer of the driver
			refused.Sentence = "csi-provisioner does not ask the driver for the volume of " + v.claim() + "."
		}
		return refused.quoting(e.Message).seen(f.said(e))
	}
	if e := f.claimEvent(v, apiv1.ReasonWaitForFirstConsumer); e != nil && f.unread(Classes) {
		return find(apiv1.ReasonWaitForFirstConsumer, "The volume is created when a pod that uses the claim is placed on a node.").seen(f.said(e))
	}
	if f.unread(Classes) {
		return find(apiv1.ReasonNotReadable, "The claim is Pending, and no event says why.").seen(v.claimEvidence())
	}
	return f.soon(find(apiv1.ReasonDiskCreating, "The volume of %s is about to be created.", v.claim()).seen(v.claimEvidence()),
		v.Claim.CreationTimestamp.Time)
}

// creation explains an AzVolume whose disk is not created.
func (f Facts) creation(v *Volume) Finding {
	az := v.AzVolume
	ready := meta.FindStatusCondition(az.Status.Conditions, apiv1.VolumeConditionReady)
	switch {
	case ready != nil && ready.Reason == apiv1.ReasonDiskFilling:
		return find(apiv1.ReasonDiskFilling, "Azure copies the content of the source into the disk of %s.", v.claim()).
			quoting(ready.Message).
			seen(f.azEvidence(v)...)
	case az.Status.Error != nil && az.Status.Error.Reason == string(provisioner.AlreadyExists):
		return find(apiv1.ReasonForeignDisk, "Azure has a disk %s that was not created for %s.", az.Spec.Disk.Name, v.claim()).
			quoting(az.Status.Error.Message).seen(f.azEvidence(v)...)
	case gone(az):
		return find(apiv1.ReasonDiskGone, "Disk %s does not exist at Azure any more.", az.Spec.Disk.Name).
			quoting(az.Status.Error.Message).
			seen(f.azEvidence(v)...)
	case az.Status.Error != nil:
		return f.failed(az.Status.Error, apiv1.ReasonProvisioningFailed, "create disk "+az.Spec.Disk.Name, transition(ready,
			az.CreationTimestamp.Time)).
			seen(f.azEvidence(v)...)
	}
	if finding, ok := f.driver(""); ok {
		return finding
	}
	return f.call(find(apiv1.ReasonDiskCreating, "Azure creates the disk of %s.", v.claim()).seen(f.azEvidence(v)...),
		az.Status.Operation, az.CreationTimestamp.Time)
}
