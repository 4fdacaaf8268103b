package simulation

import (
	"fmt"
	"runtime/debug"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/memapi"
)

// recovered makes a panic of production code a broken law.
func (w *world) recovered(who string) {
	if fault := recover(); fault != nil {
		w.broken("%s panics: %v\n%s", who, fault, debug.Stack())
	}
}

func clientKey(o client.Object) client.ObjectKey { return client.ObjectKeyFromObject(o) }

// check asserts what holds after every step.
func (w *world) check() {
	for _, m := range w.machines {
		m.look()
		m.updateNode()
		w.oneProcess(m)
	}
	w.forgetDetached()
	w.stayFenced()
	w.undisturbed()
	w.sizes()
	w.kept()
	for _, v := range w.volumes {
		if writers := w.writers(v.name); len(writers) > 1 && !v.several {
			w.broken("law 1: %s is written by %s at once", v.name, strings.Join(writers, " and "))
		}
	}
}

// writers are the machines that can write to a volume.
func (w *world) writers(volume string) []string {
	var names []string
	for _, m := range w.machines {
		if m.writes(volume) {
			names = append(names, m.name)
		}
	}
	if w.elsewhere != nil && w.elsewhere.volume == volume {
		names = append(names, production)
	}
	return names
}

// volume returns a volume, which must not be changed, or nil.
func (w *world) volume(name string) *apiv1.AzVolume {
	v, _ := w.store.Look((*apiv1.AzVolume)(nil), client.ObjectKey{Namespace: namespace, Name: name}).(*apiv1.AzVolume)
	return v
}

// record is the volume as it is recorded, which must not be changed, or an empty one.
func (w *world) record(v *volumeModel) *apiv1.AzVolume {
	if o := w.volume(v.name); o != nil {
		return o
	}
	return &apiv1.AzVolume{}
}

// attachments returns the attachments of a volume, or of all if it names none.
func (w *world) attachments(volume string) []*apiv1.AzVolumeAttachment {
	var found []*apiv1.AzVolumeAttachment
	w.store.Peek(&apiv1.AzVolumeAttachment{}, func(o client.Object) {
		if a := o.(*apiv1.AzVolumeAttachment); volume == "" || a.Spec.VolumeName == volume {
			found = append(found, a)
		}
	})
	return found
}

// maysMount holds law 2: a kernel mounts only for the node that holds the ownership.
func (w *world) maysMount(m *machine, volume string) {
	v := w.volume(volume)
	if model := w.model(volume); w.edits && model != nil && model.edited && (v == nil || v.Status.Primary == nil) {
		return // the ownership under which it may mount was lost since
	}
	if v == nil || v.Status.Primary == nil {
		w.broken("law 2: %s mounts %s, which has no ownership", m.name, volume)
		return
	}
	if c := v.Status.Primary; c.State == apiv1.OwnershipReleased || c.NodeName != m.name {
		w.broken("law 2: %s mounts %s, and the ownership is %s", m.name, volume, describe(c))
	}
}

func describe(c *apiv1.Ownership) string {
	if c == nil {
		return "none"
	}
	return fmt.Sprintf("%s of %q, epoch %d", c.State, c.NodeName, c.Epoch)
}

// changed asserts what holds of every write. The store is locked.
func (w *world) changed(c memapi.Change) {
	if a, made := c.After.(*apiv1.AzVolumeAttachment); made && c.Before == nil {
		delete(w.model(a.Spec.VolumeName).erased, a.Spec.NodeName)
	}
	w.preemptedChanged(c)
	if w.editing {
		return // what people do is no step of the driver
	}
	switch before := c.Before.(type) {
	case *apiv1.AzVolume:
		if after, ok := c.After.(*apiv1.AzVolume); ok {
			w.ownershipChanged(before, after)
			w.fencedInPause(before, after)
			w.sizeChanged(before, after)
		}
	case *corev1.Node:
		w.endedAsleep(before, c.After)
	case *corev1.Pod:
		w.podChanged(c)
	case *apiv1.AzVolumeAttachment:
		after, stays := c.After.(*apiv1.AzVolumeAttachment)
		switch {
		case !stays:
			w.attachmentGone(before)
		case after.Spec.Epoch < before.Spec.Epoch:
			w.broken("law 1: the epoch of attachment %s shrinks from %d to %d", after.Name, before.Spec.Epoch, after.Spec.Epoch)
		default:
			w.proved(before, after)
			w.preemptedKept(before, after)
			w.hasDisk(before, after)
		}
	}
}

// ownershipChanged holds laws 1 and 3.
func (w *world) ownershipChanged(v, next *apiv1.AzVolume) {
	before, after := v.Status.Primary, next.Status.Primary
	if after == nil || before != nil && describe(before) == describe(after) {
		return
	}
	if before == nil {
		before = &apiv1.Ownership{State: apiv1.OwnershipReleased}
	}
	w.note("ownership of %s: %s", v.Name, describe(after))
	switch {
	case after.Epoch < before.Epoch:
		w.broken("law 1: the epoch of %s shrinks from %d to %d", v.Name, before.Epoch, after.Epoch)
	case after.State == apiv1.OwnershipHeld && after.Epoch != before.Epoch+1 &&
		!((w.edits || w.clusters) && after.Epoch > before.Epoch):
		w.broken("law 1: a node acquires ownership of %s and the epoch changes from %d to %d", v.Name, before.Epoch, after.Epoch)
	case before.State != apiv1.OwnershipReleased && after.State != apiv1.OwnershipReleased && after.NodeName != before.NodeName:
		w.broken("law 1: the ownership of %s changes from %s to %s without a release", v.Name, describe(before), describe(after))
	case after.State == apiv1.OwnershipReleased && before.State == apiv1.OwnershipHeld:
		w.broken("law 3: the ownership of %s is Released without having been Releasing", v.Name)
	case after.State == apiv1.OwnershipReleased:
		w.released(next, before)
	}
}

// released holds law 3: the proof is recorded, and the node cannot write.
func (w *world) released(v *apiv1.AzVolume, before *apiv1.Ownership) {
	last := v.Status.LastRelease
	if last == nil || last.NodeName != before.NodeName || last.Proof.Epoch < before.Epoch {
		w.broken("law 3: %s is released by %s and no proof is recorded", v.Name, before.NodeName)
	}
	if last != nil {
		w.data.end(v.Name, before.NodeName, last.Proof.Type)
	}
	for _, m := range w.machines {
		m.look()
		if m.name == before.NodeName && m.writes(v.Name) {
			kind := apiv1.ProofType("none")
			if last != nil {
				kind = last.Proof.Type
			}
			w.broken("law 3: %s is released (proof %s), and %s can write to it", v.Name, kind, m.name)
		}
	}
}

// attachmentGone holds: an object is removed only after its disk is detached.
func (w *world) attachmentGone(a *apiv1.AzVolumeAttachment) {
	if a.Status.VMID == "" {
		return
	}
	if _, attached := w.azure.holds(a.Status.VMID, diskOf(a.Spec.VolumeName)); attached {
		w.broken("leak: the object %s is removed, and Azure has the disk attached", a.Name)
	}
}

// replicasOf are the replicas of a volume that are to stay.
func (w *world) replicasOf(volume string) []*apiv1.AzVolumeAttachment {
	return slices.DeleteFunc(w.attachments(volume), func(a *apiv1.AzVolumeAttachment) bool {
		return a.Spec.Role != apiv1.RoleReplica || a.DeletionTimestamp != nil
	})
}

// hasDisk holds: a VM's list does not prove an attach that has failed.
func (w *world) hasDisk(before, after *apiv1.AzVolumeAttachment) {
	if after.Status.State == apiv1.AttachmentAttached && before.Status.State != apiv1.AttachmentAttached &&
		w.cloud.OnlyListed(after.Status.VMID, diskOf(after.Spec.VolumeName)) {
		w.broken("proof of attach: %s is Attached, and the VM only lists the disk: the attach has failed", after.Name)
	}
}
