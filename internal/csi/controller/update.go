package controller

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/crashpoint"
	"github.com/azuredisk-csi/azuredisk/internal/csi/status"
	"github.com/azuredisk-csi/azuredisk/internal/plan/disk"
	"github.com/azuredisk-csi/azuredisk/internal/volumehandle"
)

// errReadAgain is what an edit of rewrite returns that has reason to believe that the volume has changed.
var errReadAgain = errors.New("read the volume again")

// rewrite changes what is wanted of a disk, and returns the volume as it is wanted then. edit gets the volume as it is, and the spec to edit, which is free
// of what Azure has refused before. A disk that has no AzVolume is adopted; one that does not exist is NotFound.
func (s *Server) rewrite(ctx context.Context, handle volumehandle.Handle, a access, edit func(v *apiv1.AzVolume, spec *apiv1.AzVolumeSpec) error) (*apiv1.AzVolume, error) {
	for range maxTries {
		v, err := s.created(ctx, handle, a)
		if err != nil {
			return nil, err
		}
		spec := disk.RevertRefused(v)
		if err := edit(v, spec); errors.Is(err, errReadAgain) {
			continue
		} else if err != nil {
			return nil, err
		}
		if equality.Semantic.DeepEqual(*spec, v.Spec) {
			return v, nil
		}
		before := v.DeepCopy()
		v.Spec = *spec
		err = s.Client.Patch(ctx, v, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
		switch {
		case err == nil:
			crashpoint.At("update-written")
			return v, nil
		case apierrors.IsInvalid(err):
			return nil, invalidArgument("%s", err)
		case !apierrors.IsConflict(err):
			return nil, fmt.Errorf("ask for a change of the disk: %w", err)
		}
	}
	return nil, grpcstatus.Errorf(codes.Aborted, "volume %s changes too often", handle.VolumeName())
}

// created returns the AzVolume of a disk that exists.
func (s *Server) created(ctx context.Context, handle volumehandle.Handle, a access) (*apiv1.AzVolume, error) {
	v, err := s.volume(ctx, handle)
	if err == nil && v == nil {
		v, err = s.adopt(ctx, handle, nil, a)
	}
	if err != nil {
		return nil, err
	}
	if v.DeletionTimestamp != nil {
		return nil, grpcstatus.Errorf(codes.NotFound, "volume %s is being deleted", v.Name)
	}
	if v.Status.DiskURI == "" {
		return s.awaitCreated(ctx, v)
	}
	return v, nil
}

// awaitUpdate waits until done says that the disk is as wanted, or the part of it that refused returns was refused for good since v was
// written.
func (s *Server) awaitUpdate(ctx context.Context, v *apiv1.AzVolume, done func(apiv1.AzVolumeStatus) bool, refused func(apiv1.AzVolumeStatus) *apiv1.Refusal) (*apiv1.AzVolume, error) {
	current := &apiv1.AzVolume{}
	err := s.Watch.until(ctx, func() (bool, error) {
		err := s.Client.Get(ctx, s.key(v.Name), current)
		switch {
		case apierrors.IsNotFound(err):
			return false, nil // the cache does not know it yet, or no more
		case err != nil:
			return false, err
		case current.UID != v.UID || current.Generation < v.Generation:
			return false, nil
		case done(current.Status):
			return true, nil
		}
		if r := refused(current.Status); r != nil && r.Generation >= v.Generation {
			return true, failureOf(&r.Error)
		}
		return false, nil
	}, watched{kindVolume, v.Name})
	if !errors.Is(err, context.DeadlineExceeded) {
		return current, err
	}
	if e := s.failing(ctx, current); e != nil {
		return nil, status.NotFinal(failureOf(e), "it is tried again")
	}
	why := "not begun"
	if c := meta.FindStatusCondition(current.Status.Conditions, disk.ConditionUpdated); c != nil {
		why = c.Reason + ": " + c.Message
	}
	return nil, grpcstatus.Errorf(codes.Aborted, "the disk is still being changed (%s)", why)
}

// failing reads into v what the cache has now, at the end of a wait for it, and returns why what is asked for has not come about, if Azure has failed. The
// error stays on record while the next try is under way.
func (s *Server) failing(ctx context.Context, v *apiv1.AzVolume) *apiv1.Error {
	if v.Name != "" {
		_ = s.Client.Get(context.WithoutCancel(ctx), client.ObjectKeyFromObject(v), v) // v is left as it was last seen if it is gone
	}
	return v.Status.Error
}
