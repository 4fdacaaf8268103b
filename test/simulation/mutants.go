package simulation

import (
	"context"
	"slices"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/memapi"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// Mutant is a law that the driver breaks. The simulation breaks it from outside: it changes what
// the driver reads and writes, so that the driver acts as if a check were missing.
type Mutant string

// The mutants.
const (
	// NoCompareAndSwap: an ownership is written even if the AzVolume has changed since it was read
	// (law 1).
	NoCompareAndSwap Mutant = "no compare-and-swap"
	// NoEpochCheck: a node stages every attached volume, also one that is being released (law 2).
	NoEpochCheck Mutant = "no epoch check"
	// NoProof: every report of a node counts as a proof (law 3).
	NoProof Mutant = "no proof"
	// NoFence: the disk is not detached from a node that has power, whether it is cut off or
	// reachable again (law 3).
	NoFence Mutant = "no fence of a node that lives"
	// FinalizerFirst: the finalizer is removed before the disk is detached.
	FinalizerFirst Mutant = "finalizer before detach"
	// ReplicasUncounted: the driver creates as many replicas as the disk has shares.
	ReplicasUncounted Mutant = "replica count ignored"
	// RecordIsDisk: the disk is deleted with its AzVolume, whichever client deletes that.
	RecordIsDisk Mutant = "record is disk"
	// AbsenceIsProof: a forced detach is complete as soon as the VM does not list the disk (law 3).
	AbsenceIsProof Mutant = "absence from the list is proof"
	// ListIsProof: an attach is complete as soon as the VM lists the disk, also if its operation fails.
	ListIsProof Mutant = "the list is proof"
	// DownIsProof: a VM that Azure reports as stopped or deallocated counts as one that cannot
	// write any more, and its disks stay (law 3).
	DownIsProof Mutant = "down is proof"
	// HibernatedIsDown: so does a VM that is hibernated (law 3).
	HibernatedIsDown Mutant = "hibernated is down"
	// StoppedIsOff: a VM that is stopped counts as deallocated.
	StoppedIsOff Mutant = "stopped is off"
	// FlushUnseen: the controller does not see that a node is releasing a volume.
	FlushUnseen Mutant = "flushes are not seen"
	// NoAnnouncement: a node mounts without an entry in its report (laws 2 and 3).
	NoAnnouncement Mutant = "no announcement"
	// PublishedUnsaid: a node does not report that a volume is mounted for a pod, so that the next
	// pod is steered to where a process of the one before still writes (law 1).
	PublishedUnsaid Mutant = "published is not said"
	// Unsynced: a pod's object goes before what the pod has written is on the disk (law 3).
	Unsynced Mutant = "no sync before a pod is gone"
	// ChangedInUse: a disk is changed at rest although a node has the volume (law 1).
	ChangedInUse Mutant = "changed in use"
	// ChangedBeforeProof: a disk is changed at rest although the release of the volume is not proved (law 3).
	ChangedBeforeProof Mutant = "changed before the proof"
	// Unprotected: a node does not write-protect the device of a volume that it releases (law 3).
	Unprotected Mutant = "no write protection"
)

// tampered is a client of a process that breaks a law.
type tampered struct {
	*memapi.Client
	w *world
	// node of a node plug-in; "" for the controller.
	node string
}

// tamper returns the client for the process.
func (w *world) tamper(c *memapi.Client, node string) client.WithWatch {
	if w.options.Mutant == "" {
		return c
	}
	return tampered{c, w, node}
}

// Get implements client.Reader.
func (t tampered) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	if err := t.Client.Get(ctx, key, into, append(options, copied{})...); err != nil {
		return err
	}
	t.tamper(ctx, into)
	switch o := into.(type) {
	case *apiv1.AzVolume:
		if t.w.options.Mutant == NoEpochCheck && t.node != "" {
			o.Status.Primary = &apiv1.Ownership{
				NodeName: t.node,
				Epoch:    1,
				State:    apiv1.OwnershipHeld,
			}
		}
		if t.w.options.Mutant == RecordIsDisk && t.node == "" {
			o.Spec.DeletionPolicy = apiv1.DeletionRetain
			if o.DeletionTimestamp != nil {
				o.Spec.DeletionPolicy = apiv1.DeletionDelete
			}
		}
		if t.node == "" {
			t.w.tamperChanges(o)
		}
		if t.w.options.Mutant == ReplicasUncounted && t.node == "" {
			o.Spec.MaxMountReplicaCount = o.Spec.Disk.MaxShares - 1
		}
	case *apiv1.AzVolumeAttachment:
		if t.w.options.Mutant == NoEpochCheck && t.node != "" {
			o.Spec.Role, o.Spec.Epoch, o.Status.Proof, o.DeletionTimestamp = apiv1.RolePrimary, 1, nil, nil
		}
	case *apiv1.AzDriverNode:
		if t.node == "" {
			t.w.tamperPauses(o)
		}
		if t.w.options.Mutant == FlushUnseen && t.node == "" {
			for i := range o.Status.StagedVolumes {
				o.Status.StagedVolumes[i].Phase = apiv1.PhaseStaged
			}
		}
		if t.w.options.Mutant == NoProof && t.node == "" {
			o.Status.StagedVolumes, o.Status.MountsScannedTime, o.Status.ReportDigest = nil, o.Status.HeartbeatTime, ""
		}
	}
	return nil
}

// Status implements client.StatusClient.
func (t tampered) Status() client.SubResourceWriter { return tamperedStatus{t.Client.Status(), t} }

type tamperedStatus struct {
	client.SubResourceWriter
	t tampered
}

// Patch implements client.SubResourceWriter.
func (s tamperedStatus) Patch(ctx context.Context, o client.Object, patch client.Patch,
	options ...client.SubResourcePatchOption) error {
	a, isAttachment := o.(*apiv1.AzVolumeAttachment)
	if s.t.w.options.Mutant == FinalizerFirst && isAttachment && a.DeletionTimestamp != nil &&
		a.Status.State == apiv1.AttachmentDetaching {
		without := a.DeepCopy()
		without.Finalizers = nil
		return s.t.Client.Patch(ctx, without, client.MergeFrom(a))
	}
	if d, ok := o.(*apiv1.AzDriverNode); ok && s.t.node != "" {
		return s.report(ctx, d, patch, options)
	}
	return s.SubResourceWriter.Patch(ctx, o, patch, options...)
}

// report writes a report as a mutant does.
func (s tamperedStatus) report(ctx context.Context, d *apiv1.AzDriverNode, patch client.Patch,
	options []client.SubResourcePatchOption) error {
	switch s.t.w.options.Mutant {
	case EntriesStayAway:
		s.t.keepAway(d)
	case PublishedUnsaid:
		for i := range d.Status.StagedVolumes {
			d.Status.StagedVolumes[i].Published = false
		}
	case NoAnnouncement:
		// The entry is written when the operation is complete.
		kept := d.DeepCopy().Status.StagedVolumes
		d.Status.ReportDigest = ""
		d.Status.StagedVolumes = slices.DeleteFunc(d.Status.StagedVolumes,
			func(e apiv1.StagedVolume) bool { return e.Phase == apiv1.PhaseStaging })
		if err := s.SubResourceWriter.Patch(ctx, d, patch, options...); err != nil {
			return err
		}
		d.Status.StagedVolumes = kept
		return nil
	}
	return s.SubResourceWriter.Patch(ctx, d, patch, options...)
}

// absent reports whether a mutant takes it for the end of a detach that the VM does not list the
// disk, and present the mirror image for an attach.
func (a azureClient) absent(vm, disk string) bool {
	return a.w.options.Mutant == AbsenceIsProof && vm != "" && !a.lists(vm, disk)
}

func (a azureClient) present(vm, disk string) bool {
	return a.w.options.Mutant == ListIsProof && vm != "" && a.lists(vm, disk)
}

// lists reports whether a VM lists a disk, or cannot be read.
func (a azureClient) lists(vm, disk string) bool {
	disks, err := a.Cloud.Attachments().List(context.Background(), vm)
	return err != nil || slices.ContainsFunc(disks,
		func(d provisioner.Attachment) bool { return strings.EqualFold(d.DiskID, disk) })
}

// leftAttached reports whether a mutant takes the power state of a VM for the proof, and leaves its
// disks attached.
func (a azureAttachments) leftAttached(vm string) bool {
	i, err := a.Cloud.Instances().Get(context.Background(), vm)
	switch a.w.options.Mutant {
	case DownIsProof:
		return err == nil && i.Down()
	case HibernatedIsDown:
		return err == nil && i.Power == provisioner.PowerHibernated
	}
	return false
}

// spared reports whether a forced detach is reported and not done.
func (a azureAttachments) spared(vm string) bool {
	return a.w.options.Mutant == NoFence && a.w.machine(lastOf(vm)).on
}

// hide removes spared disks from what Azure shows of a VM.
func (a azureAttachments) hide(vm string, disks []provisioner.Attachment) []provisioner.Attachment {
	var seen []provisioner.Attachment
	for _, d := range disks {
		if !a.w.spared[vm+d.DiskID] {
			seen = append(seen, d)
		}
	}
	return seen
}
