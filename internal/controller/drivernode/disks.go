package drivernode

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cluster"
	"github.com/azuredisk-csi/azuredisk/internal/controller/keeper"
	"github.com/azuredisk-csi/azuredisk/internal/kube"
	"github.com/azuredisk-csi/azuredisk/internal/plan/attaching"
	"github.com/azuredisk-csi/azuredisk/internal/plan/operation"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
	"github.com/azuredisk-csi/azuredisk/internal/volumehandle"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

const (
	// lookEvery is how often Azure is asked for the disks of a VM: one read of 60 that it allows
	// for a VM in that time.
	lookEvery = 5 * time.Minute
	// lookAgain is the least time between two reads of a VM after an attachment found no slot
	// there: the count of its slots is out of date then.
	lookAgain = 30 * time.Second
)

// look compares the disks that are attached to the VM with the objects, if that is due. It
// re-creates attachments of the driver whose objects were lost, attaches disks again that were
// detached outside the driver, and returns the number of disks from outside the driver; nil if it
// is not due. next is when to look again.
//
// If the nodes are many, the disks come from lists first. What a list says is enough if it agrees
// with the objects. If not, the VM is read alone: only an answer that was asked for now may change
// an attachment.
func (r *Reconciler) look(ctx context.Context, d *apiv1.AzDriverNode) (outside *int32, next time.Duration, err error) {
	here, pressed, err := r.attachments(ctx, d.Namespace, d.Name)
	if err != nil {
		return nil, 0, err
	}
	wait := r.wait(d, pressed)
	// A pod that found no slot does not wait for a survey.
	answer, pending, err := r.listing(ctx, d, wait <= 0 && pressed.IsZero(), pressed)
	switch {
	case err != nil:
		return nil, 0, err
	case pending:
		return nil, surveyLost, nil
	case answer != nil:
		c, err := r.compare(ctx, d.Namespace, here, answer.disks)
		if err != nil {
			return nil, 0, err
		}
		if len(c.lost) == 0 && len(contradicted(d, here, c.seen, answer.at)) == 0 {
			r.saw(d, answer.at)
			return &c.outside, lookEvery - r.Clock.Since(answer.at), nil
		}
	case wait > 0:
		return nil, wait, nil
	}
	ctx, cancel := context.WithTimeout(ctx, cloudTimeout)
	defer cancel()
	return r.lookAlone(ctx, d, here, pressed)
}

// lookAlone reads the disks of the VM, and acts on what it finds.
func (r *Reconciler) lookAlone(ctx context.Context, d *apiv1.AzDriverNode, here map[string]*apiv1.AzVolumeAttachment,
	pressed time.Time) (outside *int32, next time.Duration, err error) {
	now, asking := r.Clock.Now(), ctx
	if pressed.IsZero() { // no pod waits for the answer
		asking = provisioner.Deferrable(ctx)
	}
	disks, err := r.Cloud.Attachments().List(asking, d.Spec.VMID)
	gone := errors.Is(err, provisioner.NotFound)
	if err != nil && !gone {
		return nil, 0, fmt.Errorf("read disks of VM: %w", err)
	}
	c, err := r.compare(ctx, d.Namespace, here, disks)
	if err != nil {
		return nil, 0, err
	}
	for _, v := range c.lost {
		if err := r.rebuild(ctx, d, v); err != nil {
			return nil, 0, err
		}
	}
	if !gone { // without a VM there is nothing to attach to
		if err := r.correct(ctx, d, here, c.seen, now); apierrors.IsConflict(err) {
			return &c.outside, operation.ConflictRetry, nil // what Azure said is too old for what is there now
		} else if err != nil {
			return nil, 0, err
		}
	}
	r.saw(d, now)
	return &c.outside, lookEvery, nil
}

// saw records a look at a node's VM.
func (r *Reconciler) saw(d *apiv1.AzDriverNode, at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.looked[client.ObjectKeyFromObject(d)] = looked{vmID: d.Spec.VMID, at: at}
}

// comparison is the difference between the disks of a VM and the objects.
type comparison struct {
	// outside is the number of disks from outside the driver.
	outside int32
	// lost are the volumes that are attached without an attachment.
	lost []*apiv1.AzVolume
	// seen are the disks of the attachments, by volume.
	seen map[string]*provisioner.Attachment
}

// compare compares the disks of a VM with the attachments to its node.
func (r *Reconciler) compare(ctx context.Context, namespace string, here map[string]*apiv1.AzVolumeAttachment,
	disks []provisioner.Attachment) (comparison, error) {
	c := comparison{seen: map[string]*provisioner.Attachment{}}
	for _, disk := range disks {
		handle, err := volumehandle.Parse(disk.DiskID)
		if err != nil { // a disk whose ID is not a disk's is not the driver's
			c.outside++
			continue
		}
		v, ours, err := r.owner(ctx, namespace, handle)
		switch {
		case err != nil:
			return c, err
		case !ours:
			c.outside++
		case v == nil:
		case here[v.Name] != nil:
			c.seen[v.Name] = &disk
		default:
			c.lost = append(c.lost, v.DeepCopy())
		}
	}
	return c, nil
}

// contradicted returns the attachments that the disks of the VM contradict, by name of the volume.
// The disks were asked for at a time.
func contradicted(d *apiv1.AzDriverNode, here map[string]*apiv1.AzVolumeAttachment, seen map[string]*provisioner.Attachment,
	at time.Time) []*apiv1.AzVolumeAttachment {
	var all []*apiv1.AzVolumeAttachment
	for _, volume := range slices.Sorted(maps.Keys(here)) {
		if attaching.ContradictedByAzure(here[volume], d.Spec.VMID, seen[volume], at) {
			all = append(all, here[volume])
		}
	}
	return all
}

// wait is how long it is until the next look at a node's VM. pressed is when an attachment there
// last found no slot. A node that has become another VM waits as well: otherwise a node that names
// a new VM with every write would use up the driver's quota at Azure.
func (r *Reconciler) wait(d *apiv1.AzDriverNode, pressed time.Time) time.Duration {
	r.mu.Lock()
	last, seen := r.looked[client.ObjectKeyFromObject(d)]
	r.mu.Unlock()
	if !seen {
		return 0
	}
	every := lookEvery
	// The API has full seconds.
	if pressed.After(last.at.Truncate(time.Second)) || last.vmID != d.Spec.VMID {
		every = lookAgain
	}
	return every - r.Clock.Since(last.at)
}

// attachments returns the node's attachments by volume (read only), and when one of them was last
// refused a slot.
func (r *Reconciler) attachments(ctx context.Context, namespace, node string) (volumes map[string]*apiv1.AzVolumeAttachment,
	pressed time.Time, err error) {
	here, err := cluster.AttachmentsOfNode(ctx, r.Client, namespace, node)
	if err != nil {
		return nil, time.Time{}, err
	}
	volumes = make(map[string]*apiv1.AzVolumeAttachment, len(here))
	for _, a := range here {
		volumes[a.Spec.VolumeName] = a
		if at := noRoomAt(a); at.After(pressed) {
			pressed = at
		}
	}
	return volumes, pressed, nil
}

// noRoomAt is when the attachment last found no slot; zero if it is not attached for another
// reason.
func noRoomAt(a *apiv1.AzVolumeAttachment) time.Time {
	if e := a.Status.Error; e != nil && e.Reason == string(provisioner.InsufficientCapacity) {
		return e.FailureTime.Time
	}
	return time.Time{}
}

// owner reports whether a disk is the driver's, and which AzVolume is the disk's. A disk that only
// a PersistentVolume names was attached by the V1 driver and not adopted yet: the scheduler counts
// it as the driver's already. The AzVolume shares memory with the cache and must not be changed.
func (r *Reconciler) owner(ctx context.Context, namespace string, handle volumehandle.Handle) (v *apiv1.AzVolume, ours bool,
	err error) {
	v, err = kube.Find[apiv1.AzVolume](ctx, r.Client, client.ObjectKey{
		Namespace: namespace,
		Name:      handle.VolumeName(),
	}, client.UnsafeDisableDeepCopy)
	if err != nil || v != nil && volumehandle.Of(v.Spec.Disk).Same(handle) {
		return v, err == nil, err
	}
	of, known, err := cluster.Disk(ctx, r.Client, handle.VolumeName())
	return nil, known && of.Same(handle), err
}

// rebuild re-creates an attachment that Azure has and that has no object, in the role that
// ownership.RecreateAs decides. The caller has found none in the cache before it asked Azure, and
// rebuild finds none at the API server after it, so the object was not just created or deleted.
func (r *Reconciler) rebuild(ctx context.Context, d *apiv1.AzDriverNode, v *apiv1.AzVolume) error {
	key := client.ObjectKey{Namespace: d.Namespace, Name: apiv1.AttachmentName(v.Name, d.Name)}
	err := r.Reader.Get(ctx, key, &apiv1.AzVolumeAttachment{})
	if err == nil {
		return nil
	}
	if !apierrors.IsNotFound(err) {
		return fmt.Errorf("get attachment: %w", err)
	}
	// The ownership and the report decide the role, so they are read from the API server, the
	// report after the ownership (ADR 0001).
	if err := r.Reader.Get(ctx, client.ObjectKeyFromObject(v), v); err != nil {
		return client.IgnoreNotFound(fmt.Errorf("get volume of a lost attachment: %w", err))
	}
	report, err := cluster.ReportOfVM(ctx, r.Reader, client.ObjectKeyFromObject(d), d.Spec.VMID)
	if err != nil {
		return err
	}
	role, epoch, why := ownership.RecreateAs(v, d.Name, report, r.Clock.Now())
	if role == "" {
		ctrl.LoggerFrom(ctx).Info("disk is attached without an attachment, and remains so", "volume", v.Name, "node", d.Name,
			"message", why)
		return nil
	}
	pv, err := cluster.PersistentVolume(ctx, r.Client, v)
	if err != nil {
		return err
	}
	a, err := keeper.Create(ctx, r.Client, v.Namespace, apiv1.AzVolumeAttachmentSpec{
		VolumeName: v.Name,
		NodeName:   d.Name,
		Role:       role,
		Epoch:      epoch,
		ReadOnly:   role == apiv1.RolePrimary && cluster.ReadOnly(pv),
	})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	if err != nil {
		return err
	}
	// An attachment that names no VM is deleted without a detach: normally Azure was never asked
	// for it.
	status := a.Status
	status.State, status.VMID, status.UID = apiv1.AttachmentPending, d.Spec.VMID, a.UID
	meta.SetStatusCondition(&status.Conditions, metav1.Condition{
		Type:               apiv1.AttachmentConditionAttached,
		Status:             metav1.ConditionUnknown,
		Reason:             apiv1.ReasonNotYetKnown,
		ObservedGeneration: a.Generation,
		LastTransitionTime: metav1.NewTime(r.Clock.Now()),
	})
	_, err = keeper.WriteStatus(ctx, r.Client, a, status)
	// its own reconciler was first, and records the VM as well
	if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
		return err
	}
	ctrl.LoggerFrom(ctx).Info("attachment was lost", "volume", v.Name, "node", d.Name, "role", role, "reason",
		apiv1.ReasonAttachmentLost)
	return nil
}

// correct attaches the disks again whose recorded attachment Azure contradicts, unless the node has
// staged the volume. Each write succeeds only if nothing has changed since before Azure was asked,
// which was at now; the attachment's own reconciler, which writes the status otherwise, continues
// from there.
func (r *Reconciler) correct(ctx context.Context, d *apiv1.AzDriverNode, here map[string]*apiv1.AzVolumeAttachment,
	seen map[string]*provisioner.Attachment, now time.Time) error {
	for _, a := range contradicted(d, here, seen, now) {
		if err := r.attachAgain(ctx, a, d.Spec.VMID, seen[a.Spec.VolumeName], now); err != nil {
			return err
		}
	}
	return nil
}

// attachAgain makes an attachment one whose disk is attached like a new one, unless the node has staged
// the volume. vmID is the VM whose disks Azure listed, and seen the disk as it was listed there at
// now; nil if it was not. The write succeeds only if nothing has changed since a was read. The
// attachment's own reconciler continues from there. In either case it is not known any more which
// cluster uses the disk: the person who detached it may have started it in another one.
func (r *Reconciler) attachAgain(ctx context.Context, a *apiv1.AzVolumeAttachment, vmID string,
	seen *provisioner.Attachment, now time.Time) error {
	report, err := cluster.ReportOfVM(ctx, r.Reader, client.ObjectKey{Namespace: a.Namespace, Name: a.Spec.NodeName}, vmID)
	if err != nil {
		return err
	}
	log := ctrl.LoggerFrom(ctx).WithValues("volume", a.Spec.VolumeName, "node", a.Spec.NodeName, "reason",
		apiv1.ReasonDiskDetachedOutside)
	// First, because nothing repeats it once the attachment is changed.
	volume := client.ObjectKey{Namespace: a.Namespace, Name: a.Spec.VolumeName}
	if err := cluster.UnconfirmCustody(ctx, r.Client, volume); err != nil {
		return err
	}
	status, why := a.Status, attaching.MayReattach(report, a.Spec.VolumeName)
	switch {
	case why == "":
		status = attaching.StatusToAttachAgain(a, seen, now)
	case a.Status.Exclusive:
		status.Exclusive = false
	default:
		log.Info("Azure does not have the disk where it is recorded, and it remains so", "message", why)
		return nil
	}
	if _, err := keeper.WriteStatus(ctx, r.Client, a, status); client.IgnoreNotFound(err) != nil {
		return err
	}
	log.Info("Azure does not have the disk where it is recorded; attaching it again, unless there is a reason", "message", why)
	return nil
}
