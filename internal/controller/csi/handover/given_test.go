package handover_test

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
	"github.com/azuredisk-csi/azuredisk/provisioner"
	cloudfake "github.com/azuredisk-csi/azuredisk/provisioner/fake"
)

// What a world begins with.

// volume changes the AzVolume.
func volume(changes ...func(*apiv1.AzVolume)) given {
	return func(w *world) {
		v := w.volume()
		for _, f := range changes {
			f(v)
		}
		w.put(v)
	}
}

func owned(state apiv1.OwnershipState, node string, epoch int64, cause apiv1.ReleaseCause) given {
	return volume(func(v *apiv1.AzVolume) {
		v.Status.Primary = &apiv1.Ownership{
			NodeName: node, Epoch: epoch, State: state, Cause: cause, LastTransitionTime: new(metav1.Now()),
		}
	})
}

func held(node string, epoch int64) given { return owned(apiv1.OwnershipHeld, node, epoch, "") }

func releasing(node string, epoch int64) given {
	return owned(apiv1.OwnershipReleasing, node, epoch, apiv1.CauseUnpublished)
}

func released(epoch int64) given { return owned(apiv1.OwnershipReleased, "", epoch, "") }

// fenced is the ownership of a lost node.
func fenced(node string, epoch int64) given {
	return owned(apiv1.OwnershipReleasing, node, epoch, apiv1.CauseNodeLost)
}

var (
	adopted     = volume(func(v *apiv1.AzVolume) { v.Spec.Origin = apiv1.OriginAdopted })
	unconfirmed = volume(func(v *apiv1.AzVolume) { v.Status.ConfirmedUID = "" })
	multiNode   = volume(func(v *apiv1.AzVolume) { v.Spec.Access = apiv1.AccessMultiNode })
	noReplicas  = volume(func(v *apiv1.AzVolume) { v.Spec.MaxMountReplicaCount = 0 })
	oneShare    = volume(func(v *apiv1.AzVolume) { v.Spec.Disk.MaxShares, v.Spec.MaxMountReplicaCount = 1, 0 })
	leaving     = volume(func(v *apiv1.AzVolume) {
		v.DeletionTimestamp, v.Spec.DeletionPolicy = new(metav1.Now()), apiv1.DeletionDelete
	})
)

func noVolume(w *world) { w.erase(w.volume()) }

func idle(w *world) { w.idle.Store(true) }

// behind keeps the cache as it is from now on.
func behind(w *world) { w.behind.Store(true) }

// later prepares more after a time.
func later(after time.Duration, more ...given) given {
	return func(w *world) {
		time.AfterFunc(after, func() {
			for _, f := range more {
				f(w)
			}
			w.deliver()
		})
	}
}

const (
	primary = apiv1.RolePrimary
	replica = apiv1.RoleReplica
)

type change = func(*apiv1.AzVolumeAttachment)

// at adds an attachment to a node, which is Attached.
func at(node string, role apiv1.Role, epoch int64, changes ...change) given {
	return func(w *world) {
		name := apiv1.AttachmentName(volumeName, node)
		a := &apiv1.AzVolumeAttachment{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: "given",
				Finalizers: []string{apiv1.FinalizerAttachment}},
			Spec:   apiv1.AzVolumeAttachmentSpec{VolumeName: volumeName, NodeName: node, Role: role, Epoch: epoch},
			Status: apiv1.AzVolumeAttachmentStatus{State: apiv1.AttachmentAttached, VMID: vms + node, UID: "given"},
		}
		for _, f := range changes {
			f(a)
		}
		w.put(a)
	}
}

// edit changes an attachment that is there.
func edit(node string, changes ...change) given {
	return func(w *world) {
		a := w.attachment(node)
		for _, f := range changes {
			f(a)
		}
		w.put(a)
	}
}

func proof(kind apiv1.ProofType, epoch int64) change {
	return func(a *apiv1.AzVolumeAttachment) { a.Status.Proof = &apiv1.ReleaseProof{Type: kind, Epoch: epoch} }
}

func deleted(a *apiv1.AzVolumeAttachment) { a.DeletionTimestamp = new(metav1.Now()) }

func onVM(name string) change {
	return func(a *apiv1.AzVolumeAttachment) { a.Status.VMID = vms + name }
}

func state(s apiv1.AttachmentState) change {
	return func(a *apiv1.AzVolumeAttachment) { a.Status.State = s }
}

func unasked(a *apiv1.AzVolumeAttachment) { a.Status = apiv1.AzVolumeAttachmentStatus{} }

func copied(a *apiv1.AzVolumeAttachment) { a.Status.UID = "of-the-former-object" }

func failed(kind provisioner.Kind, message string) change {
	return func(a *apiv1.AzVolumeAttachment) {
		a.Status.Error = &apiv1.Error{Reason: string(kind), Message: message}
	}
}

func condition(reason, message string) change {
	return func(a *apiv1.AzVolumeAttachment) {
		c := metav1.Condition{Type: "Attached", Status: metav1.ConditionFalse, Reason: reason, Message: message}
		a.Status.Conditions = []metav1.Condition{c}
	}
}

func gone(node string) given { return func(w *world) { w.erase(w.attachment(node)) } }

// report changes the AzDriverNode of a node.
func report(node string, change func(*apiv1.AzDriverNode)) given {
	return func(w *world) {
		d, _ := read[apiv1.AzDriverNode](w, namespace, node)
		change(d)
		w.put(d)
	}
}

// stages has a node report the volume as staged.
func stages(node string, epoch int64) given {
	return report(node, func(d *apiv1.AzDriverNode) {
		d.Status.StagedVolumes = []apiv1.StagedVolume{{VolumeName: volumeName, Epoch: epoch, Phase: apiv1.PhaseStaged}}
	})
}

func unstages(node string) given {
	return report(node, func(d *apiv1.AzDriverNode) { d.Status.StagedVolumes = nil })
}

func unscanned(node string) given {
	return report(node, func(d *apiv1.AzDriverNode) { d.Status.MountsScannedTime = nil })
}

func noReport(node string) given {
	return func(w *world) {
		d, _ := read[apiv1.AzDriverNode](w, namespace, node)
		w.erase(d)
	}
}

// kubeNode changes the Node of a node.
func kubeNode(name string, change func(*corev1.Node)) given {
	return func(w *world) {
		n, _ := read[corev1.Node](w, "", name)
		change(n)
		w.put(n)
	}
}

func notReady(name string) given {
	return kubeNode(name, func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown })
}

func noNode(name string) given {
	return func(w *world) {
		n, _ := read[corev1.Node](w, "", name)
		w.erase(n)
	}
}

// names has a node name another VM, which no providerID contradicts.
func names(node, vm string) given {
	return func(w *world) {
		kubeNode(node, func(n *corev1.Node) { n.Spec.ProviderID = "" })(w)
		report(node, func(d *apiv1.AzDriverNode) { d.Spec.VMID = vms + vm })(w)
	}
}

// has attaches the disk to VMs.
func has(names ...string) given {
	return func(w *world) {
		for _, name := range names {
			w.cloud.AddVM(provisioner.Instance{ID: vms + name, DataDisks: []provisioner.Attachment{{DiskID: diskID}}})
		}
	}
}

// unasking has each call fail that asks Azure about the disk.
func unasking(w *world) {
	asked := provisioner.Errorf(provisioner.Unavailable, "Azure is asked")
	w.cloud.Inject(cloudfake.Fault{Method: cloudfake.DisksGet, Err: asked})
}

func noDisk(w *world) {
	op, err := w.cloud.Disks().Delete(w.Context(), diskID)
	w.must(err)
	w.must(op.Wait(w.Context()))
}

// described adds a PersistentVolume of the disk, for several nodes.
func described(w *world) {
	block := corev1.PersistentVolumeBlock
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}}
	pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: driverName, VolumeHandle: diskID}
	pv.Spec.VolumeMode, pv.Spec.AccessModes = &block, []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
	w.put(pv)
}

// refuses has Azure refuse to attach the disk.
func refuses(kind provisioner.Kind) given {
	return func(w *world) { w.refuse.Store(&apiv1.Error{Reason: string(kind), Message: "Azure refuses"}) }
}

// taken is a finalizer of the failover that has decided to fence the node.
func taken(a *apiv1.AzVolumeAttachment) { a.Finalizers = append(a.Finalizers, apiv1.FinalizerFenced) }

var multi = int64(ownership.MultiNodeEpoch)

func now() metav1.Time { return metav1.Now() }

// caughtUp lets the cache be brought up to date again.
func caughtUp(w *world) { w.behind.Store(false) }

// reported adds the AzDriverNode of a node.
func reported(node string) given {
	return func(w *world) {
		w.put(&apiv1.AzDriverNode{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: node},
			Spec:       apiv1.AzDriverNodeSpec{VMID: vms + node},
			Status:     apiv1.AzDriverNodeStatus{MountsScannedTime: &metav1.MicroTime{Time: time.Now()}},
		})
	}
}

// withClaim adds the PersistentVolume of the disk, which is bound to the claim data of namespace shop.
func withClaim(w *world) {
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}}
	pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: driverName, VolumeHandle: diskID}
	pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "shop", Name: "data"}
	w.put(pv)
}

// pod adds a pod that names the disk as azureDisk.
func pod(name, namespace, node string) given {
	return func(w *world) {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
		p.Spec.NodeName = node
		p.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
			AzureDisk: &corev1.AzureDiskVolumeSource{DataDiskURI: diskID},
		}}}
		w.put(p)
	}
}

// inBackground makes a call, and returns when it waits.
func inBackground(do act) given {
	return func(w *world) {
		go func() { _ = do(w) }()
		synctest.Wait()
	}
}

// another is an attachment that was created again.
func another(a *apiv1.AzVolumeAttachment) { a.UID, a.Status.UID = "another", "another" }

// spelling adds a second PersistentVolume of the disk, which spells it in another way.
func spelling(w *world) { describedAs("second", strings.ToLower(diskID))(w) }

// spelled adds the same and its VolumeAttachment to node a.
func spelled(w *world) { attachedBy(strings.ToLower(diskID))(w) }

// attachedBy adds a PersistentVolume with that handle, and its VolumeAttachment to node a.
func attachedBy(handle string) given {
	return func(w *world) {
		describedAs("second", handle)(w)
		name := fmt.Sprintf("csi-%x", sha256.Sum256([]byte(handle+driverName+"a")))
		w.put(&storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
}

func describedAs(name, handle string) given {
	return func(w *world) {
		pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}}
		pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: driverName, VolumeHandle: handle}
		w.put(pv)
	}
}

// asked has Azure asked about an attachment although the attachment reconciler is idle.
func asked(node string) given {
	return later(1500*time.Millisecond, edit(node, state(apiv1.AttachmentAttached), onVM(node)))
}
