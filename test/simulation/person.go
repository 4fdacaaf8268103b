package simulation

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// intervention is what a person does in a situation that the driver cannot resolve. Each one is
// documented, and a test compares the table with the documentation.
type intervention struct {
	// when reports whether a volume on a machine is in the situation.
	when func(w *world, v *volumeModel, m *machine) bool
	// pods is what the person does to the pods that use the volume on the machine; zero for
	// nothing.
	pods podAction
	// do is what else the person does; nil for nothing.
	do func(c *kubernetes, v *volumeModel, m *machine)
	// file below docs and section tell the person to do it, in these words.
	file, section, words string
}

// podAction is what a person does to pods.
type podAction int

const (
	// endPods ends the pods, and starts none until the situation is over: the kubelet unstages
	// nothing that a pod wants.
	endPods podAction = iota + 1
	// forcePods deletes pods that are to end, by force.
	forcePods
)

// interventions are all of them.
var interventions = []intervention{
	{when: (*world).unreportedLoss, pods: forcePods,
		file: "guides/failover.md", section: "What the driver does not move",
		words: "no heartbeat is known that could be missing. Delete the pods of that node by force."},
	{when: (*world).lostNeverPublished, pods: forcePods,
		file: "guides/failover.md", section: "What the driver does not move",
		words: "A volume whose AzVolume was removed manually may be such a one: delete the pod by force"},
	{when: (*world).kubeletDead, pods: forcePods,
		file: "guides/failover.md", section: "When only the kubelet is dead", words: "To move such a pod, delete its object:"},
	{when: (*world).detachedByForce, pods: endPods,
		file: "guides/failover.md", section: "When the node recovers", words: "Delete that pod."},
	{when: (*world).beingDeleted, pods: endPods,
		file: "guides/restore.md", section: "If the records of one volume were lost",
		words: "End the pods that use the volume on that node"},
	{when: (*world).deadOfV1, pods: endPods,
		file: "guides/migrate-from-v1.md", section: "What changes",
		words: "end all pods that use it there. Start the next one when the node's report does not name the volume any more"},
	{when: (*world).attachmentOfNoVolume, do: (*kubernetes).deleteAttachment,
		file: "guides/restore.md", section: "If the records of one volume were lost",
		words: "delete its AzVolumeAttachments as well"},
	{when: (*world).primaryWithoutOwnership, do: (*kubernetes).deleteAttachment,
		file: "guides/restore.md", section: "If the records of one volume were lost",
		words: "If no pod uses the volume, delete that AzVolumeAttachment"},
	{when: (*world).primaryOfAnothersEpoch, do: (*kubernetes).deleteAttachment,
		file: "guides/restore.md", section: "If the records of one volume were lost",
		words: "name, delete that AzVolumeAttachment. The driver does not make it a replica without a proof of its epoch."},
	{when: (*world).readOnlyEdited, do: (*kubernetes).makeWritable,
		file: "guides/restore.md", section: "If the records of one volume were lost", words: "Set the field back"},
	{when: (*world).diskAttachedUnrecorded, do: (*kubernetes).detachManually,
		file: "guides/restore.md", section: "If the records of one volume were lost", words: "Detach it at Azure:"},
	{when: (*world).lastDetachFailed, do: (*kubernetes).detachManually,
		file: "guides/restore.md", section: "If the records of one volume were lost",
		words: "is refused because its last detach failed. Detach it again in the same way"},
	{when: (*world).reservedAndMounted, pods: endPods,
		file: "guides/reservations.md", section: "Remove a reservation manually",
		words: "If the error says that the volume must be unstaged, end the pods that use it on that node first."},
	{when: (*world).reservedUnrecorded, do: (*kubernetes).removeReservation,
		file: "guides/reservations.md", section: "Remove a reservation manually",
		words: "Do this only if no node uses the disk:"},
	{when: (*world).sharedDiskLargerThanRecorded, pods: endPods,
		file: "guides/restore.md", section: "From a backup of etcd",
		words: "If the disk is shared, end all pods that use the volume first:"},
	{when: (*world).diskLargerThanRecorded, do: (*kubernetes).expandToDisk,
		file: "guides/restore.md", section: "From a backup of etcd", words: "Ask for the disk's present size through the claim."},
}

// personDoes reports whether a person does this to the pods of a volume on a machine.
func (w *world) personDoes(action podAction, v *volumeModel, m *machine) bool {
	return slices.ContainsFunc(interventions, func(i intervention) bool { return i.pods == action && i.when(w, v, m) })
}

// intervene does what a person does to a volume besides ending its pods.
func (c *kubernetes) intervene(v *volumeModel) {
	for _, m := range c.w.machines {
		for _, i := range interventions {
			if i.do != nil && i.when(c.w, v, m) {
				i.do(c, v, m)
			}
		}
	}
}

// unreportedLoss: a machine lost its power after a person deleted its AzDriverNode. No heartbeat is
// known that could be missing.
func (w *world) unreportedLoss(_ *volumeModel, m *machine) bool {
	return w.edits && !m.on && w.report(m) == nil
}

// lostNeverPublished: a machine without power has a pod of a volume that the V1 driver may have
// published, because a person removed the AzVolume.
func (w *world) lostNeverPublished(v *volumeModel, m *machine) bool {
	return w.edits && !m.on && ownership.Unrecorded(w.volume(v.name))
}

// kubeletDead: the machine runs, and its kubelet does not.
func (w *world) kubeletDead(_ *volumeModel, m *machine) bool {
	return m.on && m.kubelet != nil && !m.kubelet.dead.IsZero()
}

// detachedByForce: Kubernetes detached a volume from this machine by force, and the kubelet
// believes that it is staged.
func (w *world) detachedByForce(v *volumeModel, m *machine) bool {
	return w.attaching[shareOf(v, m)].is(detachingState)
}

// beingDeleted: the attachment is being deleted, so that the node stages the volume no more.
func (w *world) beingDeleted(v *volumeModel, m *machine) bool {
	a := w.attachment(v.name, m.name)
	return a != nil && a.DeletionTimestamp != nil
}

// deadOfV1: the V1 driver staged the volume, and the device was removed. Such a volume is published
// without a check (ADR 0015).
func (w *world) deadOfV1(v *volumeModel, m *machine) bool {
	_, staged := m.mounts[m.staging(v.name)]
	if !staged || m.live(m.staging(v.name)) {
		return false
	}
	record, found, err := m.records.Get(v.name)
	w.must(err)
	return found && record.Epoch == 0
}

// unusedOn reports whether no pod wants a volume on a machine and the machine does not have it.
func (w *world) unusedOn(v *volumeModel, m *machine) bool {
	return v.want != m.name && !slices.Contains(v.wants, m.name) && !m.mounted(v.name) &&
		!slices.ContainsFunc(w.podsOf(v), func(p *podModel) bool { return p.m == m })
}

// attachmentOfNoVolume: a person removed the AzVolume of a volume that nothing uses. A driver that
// publishes for pods cannot know the disk of the attachment, and no publish adopts the volume.
func (w *world) attachmentOfNoVolume(v *volumeModel, m *machine) bool {
	if !w.edits || v.want != "" || len(w.podsOf(v)) > 0 || !w.unusedOn(v, m) || w.volume(v.name) != nil {
		return false
	}
	a := w.attachment(v.name, m.name)
	return a != nil && a.DeletionTimestamp == nil
}

// primaryWithoutOwnership: an AzVolume lost its status, and an attachment has the role Primary on a
// machine that does not use the volume. The next publish would ask for the proof, and no pod wants
// the volume.
func (w *world) primaryWithoutOwnership(v *volumeModel, m *machine) bool {
	o, a := w.volume(v.name), w.attachment(v.name, m.name)
	return v.edited && v.want == "" && len(v.wants) == 0 && len(w.podsOf(v)) == 0 && w.unusedOn(v, m) && o != nil &&
		o.Status.Primary == nil &&
		a != nil && a.Spec.Role == apiv1.RolePrimary && a.DeletionTimestamp == nil
}

// primaryOfAnothersEpoch: a person gave a replica the role of a primary, with the epoch of the node
// that holds the volume.
func (w *world) primaryOfAnothersEpoch(v *volumeModel, m *machine) bool {
	o, a := w.volume(v.name), w.attachment(v.name, m.name)
	return w.edits && o != nil && o.Status.Primary != nil && o.Status.Primary.NodeName != m.name && w.unusedOn(v, m) &&
		a != nil && a.Spec.Role == apiv1.RolePrimary && a.Spec.Epoch == o.Status.Primary.Epoch && a.DeletionTimestamp == nil
}

func (c *kubernetes) deleteAttachment(v *volumeModel, m *machine) {
	a := c.w.attachment(v.name, m.name)
	c.w.note("a person deletes %s", a.Name)
	c.w.must(c.w.store.Delete(a, client.DeleteOptions{}))
}

// readOnlyEdited: a person edited how a volume was published to the machine that wants it, and the
// publish refuses the difference. All pods here write.
func (w *world) readOnlyEdited(v *volumeModel, m *machine) bool {
	a := w.attachment(v.name, m.name)
	return w.edits && (v.want == m.name || slices.Contains(v.wants, m.name)) && !m.mounted(v.name) &&
		a != nil && a.Spec.Role == apiv1.RolePrimary && a.Spec.ReadOnly && a.DeletionTimestamp == nil
}

func (c *kubernetes) makeWritable(v *volumeModel, m *machine) {
	a := c.w.attachment(v.name, m.name).DeepCopy()
	a.Spec.ReadOnly = false
	c.w.note("a person makes the attachment %s writable", a.Name)
	c.w.must(c.w.store.Update(a, false))
}

// diskAttachedUnrecorded: a person removed the AzVolume, or its status, and the attachment, and
// Azure has the disk attached to a machine that does not use it. The V1 driver may have attached
// it. The attachment is the only record of a multi-node volume on a machine. Also with an owner, if
// the disk keeps another node from being fenced; and at a machine that has no power and no
// AzDriverNode, whose VM the driver cannot know.
func (w *world) diskAttachedUnrecorded(v *volumeModel, m *machine) bool {
	o := w.volume(v.name)
	owned := o != nil && o.Status.Primary != nil && !ownership.Unrecorded(o)
	unknown := !m.on && w.report(m) == nil
	if !v.edited && !(w.edits && (v.several || unknown)) || w.attachment(v.name, m.name) != nil && !unknown ||
		!(!owned && w.unusedOn(v, m) || w.contested(v) && !m.mounted(v.name) || unknown) {
		return false
	}
	_, attached := w.azure.holds(vmOf(m.name), diskOf(v.name))
	return attached
}

// contested: a node is being fenced, and the record of its VM was lost, so that a disk at any VM
// may be the one that it used.
func (w *world) contested(v *volumeModel) bool {
	return slices.ContainsFunc(w.attachments(v.name), func(a *apiv1.AzVolumeAttachment) bool {
		return a.Status.State == apiv1.AttachmentDetaching && a.Status.VMID == ""
	})
}

func (c *kubernetes) detachManually(v *volumeModel, m *machine) { c.w.detachManually(m, v) }

// lastDetachFailed: the record of a detach that failed is lost, and Azure refuses to attach the
// disk until it is detached again. The machine does not have the volume.
func (w *world) lastDetachFailed(v *volumeModel, m *machine) bool {
	a := w.attachment(v.name, m.name)
	return v.edited && !m.mounted(v.name) && a != nil && a.DeletionTimestamp == nil && a.Status.Error != nil &&
		a.Status.State == apiv1.AttachmentFailed && strings.Contains(a.Status.Error.Message, "detach it again")
}

// reservedUnrecorded: a person removed the AzVolume, or restored an older one, and the disk is
// reserved under an epoch that the new ownership does not exceed. While a node is being fenced, or
// was fenced and has its attachment, the guide forbids to remove a reservation.
func (w *world) reservedUnrecorded(v *volumeModel, m *machine) bool {
	return w.reservedAbove(v, m) && !m.mounted(v.name)
}

// reservedAndMounted: the same, and the machine still has a mount of a device that it lost. The
// kubelet unmounts it only when no pod wants the volume.
func (w *world) reservedAndMounted(v *volumeModel, m *machine) bool {
	return w.reservedAbove(v, m) && m.mounted(v.name)
}

func (w *world) reservedAbove(v *volumeModel, m *machine) bool {
	o := w.volume(v.name)
	if !w.reservations || !v.edited || o == nil || o.Status.Primary == nil || o.Status.Primary.NodeName != m.name ||
		len(w.writers(v.name)) > 0 ||
		ownership.FenceDecided(o, m.name) || slices.ContainsFunc(w.attachments(v.name), ownership.Preempted) {
		return false
	}
	epoch, holder := o.Status.Primary.Epoch, w.sharedDisk(diskOf(v.name)).State().Holder
	own, err := provisioner.NewReservationKey(clusterIdentity, epoch, m.name, diskOf(v.name))
	w.must(err)
	return holder.IsDrivers() && holder.Epoch() >= epoch && holder != own
}

func (c *kubernetes) removeReservation(v *volumeModel, _ *machine) {
	c.w.note("a person removes the reservation of %s", v.name)
	delete(c.w.shared, diskOf(v.name))
}

// diskLargerThanRecorded: an AzVolume from before an expansion was restored.
func (w *world) diskLargerThanRecorded(v *volumeModel, _ *machine) bool {
	o := w.volume(v.name)
	return v.edited && o != nil && o.Status.SizeBytes > 0 && w.azure.sizeOf(diskOf(v.name)) > o.Status.SizeBytes
}

// sharedDiskLargerThanRecorded: a request for the present size is refused while a shared disk is
// attached, and no node stages the volume before it.
func (w *world) sharedDiskLargerThanRecorded(v *volumeModel, m *machine) bool {
	return v.shares > 1 && w.diskLargerThanRecorded(v, m)
}

func (c *kubernetes) expandToDisk(v *volumeModel, _ *machine) {
	p, size := c.w.alive(), c.w.azure.sizeOf(diskOf(v.name))
	c.do(v.name+" size", func() *call {
		return c.w.begin(p.owner, fmt.Sprintf("Expand %s to the disk's %d GiB", v.name, size/gib), callTimeout,
			func(ctx context.Context) error {
				_, err := p.csi.ControllerExpandVolume(ctx, &csi.ControllerExpandVolumeRequest{
					VolumeId:      diskOf(v.name),
					CapacityRange: &csi.CapacityRange{RequiredBytes: size},
				})
				return err
			})
	})
}
