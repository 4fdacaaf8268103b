package simulation

import (
	"context"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/kube"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/sharedisk"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// Another cluster uses a disk, and this one has its records: the PersistentVolume, and an AzVolume
// and an AzVolumeAttachment that were restored from a backup. Its VM is no node of this cluster.
// Until a person detaches the disk there, no node of this cluster gets the disk.

const (
	// OtherClusterVMsUnseen: what Azure says of a disk does not name the VMs of another cluster.
	OtherClusterVMsUnseen Mutant = "VMs of another cluster unseen"
	// CopiesBelieved: a status that was restored with its object is taken for the object's own.
	CopiesBelieved Mutant = "restored statuses believed"

	production = "production"
	// otherCluster is part of the keys of the other cluster's nodes.
	otherCluster provisioner.ClusterIdentity = 2
)

// elsewhere is a VM of another cluster that writes to the disk of a volume.
type elsewhere struct{ volume string }

// playClusters plays the scene of two clusters and one disk.
func (w *world) playClusters(c *kubernetes) {
	if !w.clusters {
		return
	}
	for _, v := range w.volumes {
		if m := pick(w.random, w.hosts()); v.shares > 1 && !v.several && m.well() && w.takesPods(m) {
			w.until("a disk is attached nowhere before another cluster uses it", patience, w.replicasLeft)
			w.useElsewhere(v)
			w.recordHere(v)
			v.want = m.name
			w.note("%s is wanted on %s", v.name, m.name)
			w.within(time.Minute, func() bool { return c.place() == "" })
			w.leaveElsewhere(v)
			w.until("a volume that another cluster has left is where it is wanted", patience, c.place)
			v.want = ""
			w.until("a volume that two clusters have used is released", patience, c.place)
			return
		}
	}
}

// useElsewhere makes a VM of another cluster use a disk.
func (w *world) useElsewhere(v *volumeModel) {
	disk := diskOf(v.name)
	w.note("a node of another cluster uses %s", v.name)
	w.addProduction(v)
	if w.content[disk] == (provisioner.Filesystem{}) {
		w.content[disk] = provisioner.Filesystem{Type: "ext4", UUID: "fs-" + production}
	}
	delete(w.shared, disk) // the other cluster's administrator has removed what a node of this one left
	if w.reservations {
		key, err := provisioner.NewReservationKey(otherCluster, int64(1+w.random.IntN(20)), production, disk)
		w.must(err)
		node := sharedisk.Node{
			Name: production,
			Disk: func(context.Context, string) (*sharedisk.Disk, error) { return w.sharedDisk(disk), nil },
		}
		w.must(node.Register(context.Background(), "", key))
		w.must(node.Reserve(context.Background(), "", key))
	}
	w.elsewhere = &elsewhere{v.name}
}

// recordHere makes the records of a volume such as a restore into another cluster leaves them.
func (w *world) recordHere(v *volumeModel) {
	w.editing, v.edited = true, true
	defer func() { w.editing = false }()
	o := w.volume(v.name)
	if o == nil {
		return
	}
	w.store.Erase(o)
	n := w.random.IntN(4)
	if n == 0 {
		w.note("%s has no AzVolume here", v.name)
		return
	}
	again := &apiv1.AzVolume{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:  namespace,
			Name:       v.name,
			Finalizers: o.Finalizers,
		},
		Spec: *o.Spec.DeepCopy(),
	}
	w.must(w.store.Create(again))
	if n > 1 {
		w.note("the AzVolume %s is restored with its status", v.name)
		again = w.volume(v.name).DeepCopy()
		again.Status = *o.Status.DeepCopy()
		w.store.Restore(again)
	} else {
		w.note("the AzVolume %s is restored without its status", v.name)
	}
	a := &apiv1.AzVolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:  namespace,
			Name:       apiv1.AttachmentName(v.name, production),
			Finalizers: []string{apiv1.FinalizerAttachment},
		},
		Spec: apiv1.AzVolumeAttachmentSpec{
			VolumeName: v.name,
			NodeName:   production,
			Role:       apiv1.RolePrimary,
			Epoch:      int64(1 + w.random.IntN(20)),
		},
	}
	if w.random.IntN(4) == 0 {
		a.Spec.Role, a.Spec.Epoch = apiv1.RoleReplica, 0
	}
	w.must(w.store.Create(a))
	w.note("the attachment %s is restored: %s of epoch %d", a.Name, a.Spec.Role, a.Spec.Epoch)
	if w.random.IntN(2) == 0 {
		w.note("… with its status")
		lun := int32(0)
		a.Status = apiv1.AzVolumeAttachmentStatus{
			State: apiv1.AttachmentAttached,
			Role:  a.Spec.Role,
			LUN:   &lun,
			VMID:  vmOf(production),
			UID:   "production's",
		}
		w.must(w.store.Update(a, true))
	}
	if w.random.IntN(3) == 0 {
		w.must(w.store.Delete(a, client.DeleteOptions{}))
	}
}

// leaveElsewhere ends the use of a disk by the other cluster, whose node may leave its reservation.
func (w *world) leaveElsewhere(v *volumeModel) {
	w.note("a person detaches %s from the VM of the other cluster", v.name)
	w.elsewhere = nil
	w.cloud.RemoveVM(vmOf(production))
	w.azure.changed = true
	if w.random.IntN(2) == 0 {
		delete(w.shared, diskOf(v.name))
	}
}

// undisturbed holds that no other cluster's writer is cut off.
func (w *world) undisturbed() {
	if w.elsewhere == nil {
		return
	}
	disk := diskOf(w.elsewhere.volume)
	if _, attached := w.azure.holds(vmOf(production), disk); !attached {
		w.broken("two clusters: %s is detached from %s, which writes to it", lastOf(disk), production)
	}
	if w.reservations && !w.sharedDisk(disk).Allows(production, true) {
		w.broken("two clusters: the disk %s refuses the writes of %s: it has %s", lastOf(disk), production,
			w.sharedDisk(disk).State())
	}
}

// unseen removes what a mutant does not see of a disk.
func (w *world) unseen(ctx context.Context, disk provisioner.Disk) provisioner.Disk {
	if w.options.Mutant == OtherClusterVMsUnseen || w.unasked(ctx) {
		var seen []string
		for _, vm := range disk.AttachedTo {
			if !strings.EqualFold(vm, vmOf(production)) {
				seen = append(seen, vm)
			}
		}
		disk.AttachedTo = seen
	}
	return disk
}

// PreemptedRaised: the attachment of a node that was fenced by a pre-emption gets the epoch of the
// ownership that is being released, and is not deleted.
const PreemptedRaised Mutant = "pre-empted attachments are raised"

// raised changes a pre-empted attachment of a node that owns its volume under a later epoch, where
// the driver would delete it. It returns whether it did.
func (t tampered) raised(ctx context.Context, o client.Object) (bool, error) {
	a, isAttachment := o.(*apiv1.AzVolumeAttachment)
	if t.w.options.Mutant != PreemptedRaised || !isAttachment || !ownership.Preempted(a) {
		return false, nil
	}
	v := t.w.volume(a.Spec.VolumeName)
	if v == nil || !ownership.OwnedBy(v, a.Spec.NodeName) || v.Status.Primary.State != apiv1.OwnershipReleasing ||
		v.Status.Primary.Epoch <= a.Spec.Epoch {
		return false, nil
	}
	after := a.DeepCopy()
	after.Spec.Role, after.Spec.Epoch = apiv1.RolePrimary, v.Status.Primary.Epoch
	return true, kube.Patch(ctx, t.Client, after, a)
}

// Delete implements client.Writer.
func (t tampered) Delete(ctx context.Context, o client.Object, options ...client.DeleteOption) error {
	if raised, err := t.raised(ctx, o); raised {
		return err
	}
	return t.Client.Delete(ctx, o, options...)
}

// preemptedKept holds that the attachment of a node that was fenced by a pre-emption is deleted and
// never changed: with another epoch it would not say any more that only a reservation keeps the
// node from writing.
func (w *world) preemptedKept(before, after *apiv1.AzVolumeAttachment) {
	if ownership.Preempted(before) && (after.Spec.Epoch != before.Spec.Epoch || after.Spec.Role != before.Spec.Role) {
		w.broken("law 3: the pre-empted attachment %s of epoch %d becomes %s of epoch %d", after.Name, before.Spec.Epoch,
			after.Spec.Role, after.Spec.Epoch)
	}
}

// publishHalf has an unpublish from a machine that was fenced, and then a publish to it, be killed
// after each has written the ownership, so that the attachment is the one from before. An unpublish
// follows, which the caller repeats.
func (w *world) publishHalf(v *volumeModel, fenced *machine) {
	w.note("%s is published again to %s, which was fenced", v.name, fenced.name)
	at := func(state apiv1.OwnershipState, node string) func() bool {
		return func() bool {
			o := w.record(v).Status.Primary
			return o != nil && o.State == state && o.NodeName == node
		}
	}
	if w.killAt(at(apiv1.OwnershipReleased, ""), func(p *process) { w.unpublish(p, v, fenced.name, callTimeout) }) {
		w.killAt(at(apiv1.OwnershipHeld, fenced.name), func(p *process) { w.publish(p, v, fenced.name, callTimeout) })
	}
	for _, p := range w.processes {
		if p.dead {
			w.must(p.start())
		}
	}
	w.elect()
	w.unpublish(w.alive(), v, fenced.name, callTimeout)
	w.within(callTimeout, func() bool { return false })
}

// killAt makes a process begin a call, and kills it when done is reached. It returns whether it
// was.
func (w *world) killAt(done func() bool, begin func(*process)) bool {
	p := w.alive()
	if p == nil {
		return false
	}
	begin(p)
	if !w.within(callTimeout, done) {
		return false
	}
	p.stop()
	return true
}
