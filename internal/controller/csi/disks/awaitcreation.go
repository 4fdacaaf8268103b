package disks

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cluster"
	"github.com/azuredisk-csi/azuredisk/internal/controller/csi/call"
	"github.com/azuredisk-csi/azuredisk/internal/kube"
	"github.com/azuredisk-csi/azuredisk/internal/plan/disk"
	"github.com/azuredisk-csi/azuredisk/internal/rpc/status"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// awaitCreatedOrDeleted waits until the disk is created. If Azure will never create it, it deletes
// the AzVolume, because the caller will not ask for the deletion. The error is a conflict if the
// AzVolume is newer than that in the cache: the disk may have been created in the meantime.
func (s *Provisioner) awaitCreatedOrDeleted(ctx context.Context, v *apiv1.AzVolume) (*apiv1.AzVolume, error) {
	current, refused, err := s.awaitCreation(ctx, v)
	if refused == nil {
		return current, err
	}
	if err := kube.Delete(ctx, s.Client, current); err != nil && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("delete AzVolume, whose disk Azure will not create: %w", err)
	}
	if err := s.awaitVolumeGone(ctx, current); err != nil {
		return nil, err
	}
	return nil, call.Failure(refused)
}

// awaitCreated waits until the disk is created, or until Azure has refused permanently to create
// it.
func (s *Provisioner) awaitCreated(ctx context.Context, v *apiv1.AzVolume) (*apiv1.AzVolume, error) {
	current, refused, err := s.awaitCreation(ctx, v)
	if refused != nil {
		return nil, call.Failure(refused)
	}
	return current, err
}

// awaitCreation returns the AzVolume when its disk is created, or when Azure has refused
// permanently to create it.
func (s *Provisioner) awaitCreation(ctx context.Context, v *apiv1.AzVolume) (current *apiv1.AzVolume, refused *apiv1.Error,
	err error) {
	current = &apiv1.AzVolume{}
	err = s.Watch.Until(ctx, func() (bool, error) {
		err := s.Client.Get(ctx, s.Key(v.Name), current)
		if apierrors.IsNotFound(err) || (err == nil && current.UID != v.UID) {
			return false, nil // the cache does not have it yet
		}
		if err != nil {
			return false, err
		}
		switch current.Status.State {
		case apiv1.VolumeCreated, apiv1.VolumeUpdating, apiv1.VolumeUpdateFailed:
			return true, nil
		case apiv1.VolumeCreationFailed:
			if e := current.Status.Error; e != nil && disk.IsFinal(provisioner.Kind(e.Reason)) {
				refused = e
				return true, nil
			}
		case apiv1.VolumePending, apiv1.VolumeCreating, apiv1.VolumeDeleting, apiv1.VolumeDeletionFailed:
		}
		return false, nil
	}, cluster.VolumeNamed(v.Name))
	if err == nil {
		return current, refused, nil
	}
	if e := s.failing(ctx, current); e != nil {
		return nil, nil, status.NotFinal(call.Failure(e), "the controller tries again")
	}
	return nil, nil, err
}
