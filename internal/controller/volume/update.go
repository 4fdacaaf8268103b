package volume

import (
	"context"
	"errors"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cluster"
	"github.com/azuredisk-csi/azuredisk/internal/controller/work"
	"github.com/azuredisk-csi/azuredisk/internal/crashpoint"
	"github.com/azuredisk-csi/azuredisk/internal/plan/disk"
	"github.com/azuredisk-csi/azuredisk/internal/plan/operation"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// update makes the job that brings the disk to the spec. It reads the spec from the API server
// right before it calls Azure, so that every change that was written until then is sent in one
// call. If Azure refuses a call permanently, the job sends its two parts one by one, so that a part
// that is impossible does not prevent the other.
func (d diskWork) update(v *apiv1.AzVolume, token string, uncertain bool) work.Func {
	return func(ctx context.Context, accepted func(provisioner.Operation)) (operation.Truth, error) {
		truth := operation.Truth{Update: &operation.Updated{Generation: v.Generation, Uncertain: uncertain}}
		if token != "" {
			if err := d.finish(ctx, token, accepted); err != nil {
				return truth, err
			}
		}
		found, err := d.cloud.Disks().Get(ctx, v.Status.DiskID)
		if err != nil {
			return truth, fmt.Errorf("read disk: %w", err)
		}
		if !found.Ready && found.CompletionPercent >= 100 {
			return truth, provisioner.Errorf(provisioner.Conflict, "another operation on disk %s is in flight", v.Status.DiskID)
		}
		crashpoint.At("update-disk-read")
		current := &apiv1.AzVolume{}
		if err := d.reader.Get(ctx, client.ObjectKeyFromObject(v), current); err != nil {
			return truth, fmt.Errorf("read volume: %w", err)
		}
		if current.UID != v.UID {
			return truth, provisioner.Errorf(provisioner.Conflict, "volume %s was deleted and re-created", v.Name)
		}
		if err := d.checkCustody(ctx, current, &found); err != nil {
			return truth, err
		}
		change := disk.ChangeOf(current, &found, uncertain)
		truth.Update.Generation = current.Generation
		truth.Update.Uncertain = uncertain || change.SizeBytes != 0 || change.Settings != nil
		if err := d.change(ctx, v.Status.DiskID, change, truth.Update, accepted); err != nil {
			return truth, err
		}
		if truth.Update.RefusedSettings != nil {
			truth.Update.Applied = change.Before
		}
		crashpoint.At("update-disk-changed")
		if found, err = d.cloud.Disks().Get(ctx, v.Status.DiskID); err != nil {
			return truth, fmt.Errorf("read disk: %w", err)
		}
		truth.Disk = &found
		return truth, nil
	}
}

// checkCustody refuses to change a disk that a VM outside of this cluster has: the spec of an
// AzVolume that was restored from a backup, or whose disk was taken from this cluster, would undo
// the changes of the other cluster.
func (d diskWork) checkCustody(ctx context.Context, v *apiv1.AzVolume, found *provisioner.Disk) error {
	if len(found.AttachedTo) == 0 {
		return nil
	}
	attachments, err := cluster.Attachments(ctx, d.reader, v.Namespace, cluster.AttachmentVolume, v.Name)
	if err != nil {
		return err
	}
	other, err := cluster.OtherClusterVM(ctx, d.cache, v.Namespace, found.AttachedTo, attachments)
	if err == nil && other != "" {
		err = provisioner.Errorf(provisioner.Conflict, "change disk: %s", ownership.OtherClusterUse(other, v.Spec.Disk.Name))
	}
	return err
}

// finish waits for the change that an earlier process began. Its outcome does not matter: what is
// still missing is requested again.
func (d diskWork) finish(ctx context.Context, token string, accepted func(provisioner.Operation)) error {
	op, err := d.cloud.Disks().Resume(ctx, token)
	if err == nil {
		accepted(op)
		err = op.Wait(ctx)
	}
	if err == nil || disk.IsFinal(provisioner.KindOf(err)) {
		return nil
	}
	return fmt.Errorf("change disk: %w", err)
}

// change sends a change to Azure and waits. A permanent refusal is recorded in u, other failures
// are returned.
func (d diskWork) change(ctx context.Context, id string, c disk.Change, u *operation.Updated,
	accepted func(provisioner.Operation)) error {
	if c.SizeBytes == 0 && c.Settings == nil {
		u.Applied = c.Applied
		return nil
	}
	err := d.ask(ctx, id, c.All(), accepted)
	switch {
	case err == nil:
		u.Applied = c.Applied
		return nil
	case !disk.IsFinal(provisioner.KindOf(err)):
		return err
	case c.Settings == nil:
		u.Applied, u.RefusedCapacity = c.Applied, err
		return nil
	case c.SizeBytes == 0:
		u.RefusedSettings = err
		return nil
	}
	for _, part := range []struct {
		change  provisioner.DiskChange
		refused *error
	}{{provisioner.DiskChange{SizeBytes: c.SizeBytes}, &u.RefusedCapacity}, {*c.Settings, &u.RefusedSettings}} {
		if err := d.ask(ctx, id, part.change, accepted); disk.IsFinal(provisioner.KindOf(err)) {
			*part.refused = err
		} else if err != nil {
			return err
		}
	}
	if u.RefusedSettings == nil {
		u.Applied = c.Applied
	}
	return nil
}

func (d diskWork) ask(ctx context.Context, id string, change provisioner.DiskChange, accepted func(provisioner.Operation)) error {
	op, err := d.cloud.Disks().Update(ctx, id, change)
	if err == nil {
		accepted(op)
		err = op.Wait(ctx)
	}
	if errors.Is(err, provisioner.NotFound) {
		// The disk has just been read, so it is another resource of the change that does not exist.
		return &provisioner.Error{Kind: provisioner.InvalidArgument, Message: "change disk: " + err.Error()}
	}
	if err != nil {
		return fmt.Errorf("change disk: %w", err)
	}
	return nil
}

// look makes the job that reads the progress of a conversion.
func (d diskWork) look(v *apiv1.AzVolume) work.Func {
	return func(ctx context.Context, _ func(provisioner.Operation)) (operation.Truth, error) {
		disk, err := d.cloud.Disks().Get(ctx, v.Status.DiskID)
		if err != nil {
			return operation.Truth{}, fmt.Errorf("read disk: %w", err)
		}
		return operation.Truth{Disk: &disk}, nil
	}
}
