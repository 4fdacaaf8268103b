package simulation

import (
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/memapi"
)

// People restore and edit the driver's objects: older versions are restored, statuses are lost,
// finalizers are removed, specs are changed, and records are deleted while their volumes are in use.
//
// What a person does afterwards is in person.go. Edits against which no driver can protect are left
// out:
//
//   - No person writes a proof of release, an ownership, an epoch that no ownership has had, or a role of a multi-node volume: each says what
//     only the driver can know.
//   - A change that was requested before the AzVolume was lost or restored is not expected any more: the AzVolume has an older spec.
//   - An AzVolume is not restored with an older ownership while the controllers run. In an orderly restore, which the documentation
//     describes, they do not run until every node has reported.
//   - After an edit of a node's report no process reads it until the node has written it again: until then it has what the person wrote. A person who
//     edits a report waits for that before a volume is unpublished from the node.
//   - An attachment of a multi-node volume does not get an older status: all of its attachments have one epoch, so that the proof of an earlier use looks
//     like one of now.

// edit does one such thing.
func (w *world) edit() {
	if !w.edits || w.apiDown || w.random.IntN(6) > 0 {
		return
	}
	v, m := pick(w.random, w.volumes), pick(w.random, w.machines)
	if o := w.volume(v.name); o != nil && o.Status.Primary != nil && o.Status.Primary.NodeName != "" {
		m = w.machine(o.Status.Primary.NodeName)
	}
	w.editing = true
	switch w.random.IntN(5) {
	case 0:
		w.editReport(m, v)
	case 1, 2:
		w.editAttachment(m, v)
	case 3:
		w.deleteBound(v)
	default:
		w.editVolume(v)
	}
	w.editing = false
}

// editReport edits the report of a node that runs, so that it writes it again.
func (w *world) editReport(m *machine, v *volumeModel) {
	d := w.report(m)
	if d == nil || !m.on || m.cutOff || m.unreported {
		return
	}
	d = d.DeepCopy()
	key := client.ObjectKeyFromObject(d)
	switch w.random.IntN(4) {
	case 0:
		var left []apiv1.StagedVolume
		for _, e := range d.Status.StagedVolumes {
			if e.VolumeName != v.name {
				left = append(left, e)
			}
		}
		w.note("a person removes %s from the report of %s", v.name, m.name)
		d.Status.StagedVolumes = left
		w.must(w.store.Update(d, true))
	case 1:
		old, _ := pick(w.random, w.store.Versions(d, key)).(*apiv1.AzDriverNode)
		if old == nil {
			return
		}
		w.note("an older report of %s is restored", m.name)
		w.store.Restore(old)
	case 2:
		w.note("the status of the report of %s is lost", m.name)
		d.Status = apiv1.AzDriverNodeStatus{}
		w.store.Restore(d)
	default:
		w.note("a person deletes the report of %s", m.name)
		w.store.Erase(d)
	}
	m.unreported = true
}

// report is the AzDriverNode of a machine, which must not be changed, or nil.
func (w *world) report(m *machine) *apiv1.AzDriverNode {
	d, _ := w.store.Look((*apiv1.AzDriverNode)(nil), client.ObjectKey{Namespace: namespace, Name: m.name}).(*apiv1.AzDriverNode)
	return d
}

// withheld reports whether an access is to a report that was edited and that its node has not
// written since.
func (w *world) withheld(a *access) bool {
	if a.of.Kind != "AzDriverNode" || a.of.Writes() {
		return false
	}
	for _, m := range w.machines {
		if m.unreported && m.on && a.by != m.plugin && (a.of.Name == "" || a.of.Name == m.name) {
			return true
		}
	}
	return false
}

// edited takes note of a report that its node has written, and of an attachment that its node has
// read, since they were edited.
func (w *world) edited(by *owner, c memapi.Call, err error) {
	for _, m := range w.machines {
		if m.plugin != by {
			continue
		}
		if c.Kind == "AzDriverNode" && c.Writes() && err == nil {
			m.unreported = false
		}
		for _, v := range w.volumes {
			if c.Verb == "get" && c.Kind == "AzVolumeAttachment" && c.Name == apiv1.AttachmentName(v.name, m.name) {
				delete(v.erased, m.name)
			}
		}
	}
}

func (w *world) editAttachment(m *machine, v *volumeModel) {
	a := w.attachment(v.name, m.name)
	if a == nil {
		if all := w.attachments(v.name); len(all) > 0 {
			a = pick(w.random, all)
		}
	}
	if a == nil {
		return
	}
	a = a.DeepCopy()
	n := w.random.IntN(6)
	if w.liar != nil && a.Spec.NodeName == w.liar.name && (n == 0 || n == 2 || n == 3) {
		w.mislaid = true
	}
	switch {
	case n == 0:
		w.note("a person removes the attachment %s with its finalizer", a.Name)
		w.store.Erase(a)
		v.erased[a.Spec.NodeName] = true
	case n == 1:
		w.note("a person deletes the attachment %s", a.Name)
		w.must(w.store.Delete(a, client.DeleteOptions{}))
	case v.several:
	case n == 2:
		old, _ := pick(w.random, w.store.Versions(a, client.ObjectKeyFromObject(a))).(*apiv1.AzVolumeAttachment)
		if old == nil || old.UID != a.UID {
			return
		}
		w.note("an older attachment %s is restored: %s of epoch %d, %s", a.Name, old.Spec.Role, old.Spec.Epoch, old.Status.State)
		a.Spec, a.Status = old.Spec, old.Status // its deletion goes on: the API server never unsets a deletionTimestamp
		w.store.Restore(a)
	case n == 3:
		w.note("the status of the attachment %s is lost", a.Name)
		a.Status = apiv1.AzVolumeAttachmentStatus{}
		w.store.Restore(a)
	case n == 4 && a.Spec.Role == apiv1.RolePrimary:
		w.note("a person makes the attachment %s a replica", a.Name)
		a.Spec.Role = apiv1.RoleReplica
		w.must(w.store.Update(a, false))
	case n == 4:
		o := w.record(v).Status.Primary
		if o == nil || o.Epoch == 0 {
			return
		}
		a.Spec.Role, a.Spec.Epoch = apiv1.RolePrimary, max(a.Spec.Epoch, o.Epoch)
		w.note("a person makes the attachment %s a primary of epoch %d", a.Name, a.Spec.Epoch)
		w.must(w.store.Update(a, false))
	case a.Spec.Role == apiv1.RoleReplica: // that of a primary is from the request of the publish
		a.Spec.ReadOnly = !a.Spec.ReadOnly
		w.note("a person makes the attachment %s read-only: %t", a.Name, a.Spec.ReadOnly)
		w.must(w.store.Update(a, false))
	}
}

// deleteBound deletes the record of a volume that a claim is bound to. The volume is used as before,
// and what is expected of it does not change, with one exception: if no controller has recorded the
// PersistentVolume yet, its cache may not have it either. Then the record is removed as one that no
// claim needs, the disk remains, and the next publish adopts it; a change of its size or its settings that
// was requested before is not expected any more, and there may be no record while no pod wants it.
func (w *world) deleteBound(v *volumeModel) {
	if o := w.volume(v.name); o != nil && o.DeletionTimestamp == nil && len(o.Finalizers) > 0 {
		w.note("a person deletes the AzVolume %s, whose claim is bound", v.name)
		v.edited = v.edited || o.Status.PersistentVolume == ""
		w.must(w.store.Delete(o.DeepCopy(), client.DeleteOptions{}))
	}
}

func (w *world) editVolume(v *volumeModel) {
	o := w.volume(v.name)
	if o == nil {
		return
	}
	o, v.edited = o.DeepCopy(), true
	switch w.random.IntN(4) {
	case 0:
		w.note("a person removes the AzVolume %s with its finalizer", v.name)
		w.store.Erase(o)
	case 1:
		w.note("the AzVolume %s is lost, and restored without its status", v.name)
		w.store.Erase(o)
		again := &apiv1.AzVolume{Spec: o.Spec}
		again.Name, again.Namespace, again.Finalizers = o.Name, o.Namespace, o.Finalizers
		w.must(w.store.Create(again))
	case 2:
		old, _ := pick(w.random, w.store.Versions(o, client.ObjectKeyFromObject(o))).(*apiv1.AzVolume)
		if old == nil || old.UID != o.UID || describe(old.Status.Primary) != describe(o.Status.Primary) {
			return
		}
		w.note("an older AzVolume %s with the current ownership is restored", v.name)
		old = old.DeepCopy()
		old.DeletionTimestamp = o.DeletionTimestamp // the API server never unsets it
		w.store.Restore(old)
	default:
		if v.several {
			return
		}
		o.Spec.MaxMountReplicaCount = int32(w.random.IntN(v.shares))
		w.note("a person sets %d replicas of %s", o.Spec.MaxMountReplicaCount, v.name)
		w.must(w.store.Update(o, false))
	}
}

// restoreAll restores all of the driver's objects as they were at a moment, in the order that the
// documentation gives: no controller runs from before until every node has reported.
func (w *world) restoreAll() {
	if !w.edits || !w.options.Restores || w.apiDown || len(w.moments) == 0 || w.random.IntN(30) > 0 {
		return
	}
	for _, m := range w.machines {
		if !m.on || m.cutOff || m.unreported {
			return
		}
	}
	for _, p := range w.processes {
		if !p.dead {
			p.stop()
		}
	}
	at := pick(w.random, w.moments)
	w.note("all objects of the driver are restored as they were at change %d", at)
	w.editing = true
	for _, v := range w.volumes {
		v.edited = true
	}
	for _, kind := range []client.Object{&apiv1.AzVolume{}, &apiv1.AzVolumeAttachment{}, &apiv1.AzDriverNode{}} {
		w.store.RestoreAll(kind, at)
	}
	w.editing = false
	for _, m := range w.machines {
		m.unreported = true
	}
	w.until("every node has reported after the restore", time.Minute, func() string {
		for _, m := range w.machines {
			if m.unreported && m.on {
				return m.name
			}
		}
		return ""
	})
	for _, p := range w.processes {
		w.must(p.start())
	}
	w.elect()
}
