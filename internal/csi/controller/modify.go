package controller

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/disk"
	"github.com/azuredisk-csi/azuredisk/internal/volumehandle"
	"github.com/azuredisk-csi/azuredisk/internal/volumeparams"
)

// ControllerModifyVolume asks for a disk with other parameters, and waits for it. A call that is repeated waits for the same
// change. What Azure refuses for good leaves nothing behind.
func (s *Server) ControllerModifyVolume(ctx context.Context, request *csi.ControllerModifyVolumeRequest) (*csi.ControllerModifyVolumeResponse, error) {
	if request.GetVolumeId() == "" {
		return nil, invalidArgument("volume ID: missing")
	}
	change, err := volumeparams.ParseChange(request.GetMutableParameters())
	if err != nil {
		return nil, statusOf(err)
	}
	handle, err := volumehandle.Parse(request.GetVolumeId())
	if err != nil {
		return nil, grpcstatus.Error(codes.NotFound, err.Error())
	}
	// Not the key of ControllerExpandVolume: both at once become one call to Azure.
	unlock, err := s.lock("the modification of " + handle.VolumeName())
	if err != nil {
		return nil, err
	}
	defer unlock()
	ctx, cancel := s.bound(ctx)
	defer cancel()
	if err := s.modify(ctx, handle, change); err != nil {
		return nil, statusOf(err)
	}
	return &csi.ControllerModifyVolumeResponse{}, nil
}

func (s *Server) modify(ctx context.Context, handle volumehandle.Handle, change volumeparams.Change) error {
	waited := false
	v, err := s.rewrite(ctx, handle, access{pattern: apiv1.AccessSingleNode}, func(v *apiv1.AzVolume, spec *apiv1.AzVolumeSpec) error {
		before := existingParameters(v, spec)
		after, err := before.With(change, max(spec.CapacityBytes, v.Status.SizeBytes))
		if _, larger := before.With(change, ampleSize); err != nil && larger == nil && !waited {
			waited = true
			return s.awaitGrowth(ctx, v)
		}
		if err != nil {
			return err
		}
		spec.Disk.SetSettings(settingsOf(after))
		return s.changeable(ctx, v, spec)
	})
	if err != nil {
		return err
	}
	wanted := v.Spec.Disk.Settings()
	_, err = s.awaitUpdate(ctx, v,
		func(is apiv1.AzVolumeStatus) bool {
			if is.Applied == nil || disk.UpdateUncertain(&is) {
				return false
			}
			refused := is.RefusedSettings != nil && is.RefusedSettings.Generation >= v.Generation
			return equality.Semantic.DeepEqual(is.Applied.DiskSettings, wanted) || !refused && is.Applied.Generation >= v.Generation
		},
		func(is apiv1.AzVolumeStatus) *apiv1.Refusal { return is.RefusedSettings })
	return err
}

const (
	// ampleSize is one at which no parameter fails for want of size.
	ampleSize = 32767 * volumeparams.GiB
	// companionWait is how long a modification that a larger disk could have waits for the call that makes it one.
	companionWait = time.Second
)

// awaitGrowth waits a moment for a larger disk to be asked for. Somebody who edits size and class of a claim at once makes two calls, in any order.
func (s *Server) awaitGrowth(ctx context.Context, v *apiv1.AzVolume) error {
	ctx, cancel := context.WithTimeout(ctx, companionWait)
	defer cancel()
	current := &apiv1.AzVolume{}
	err := s.Watch.until(ctx, func() (bool, error) {
		err := s.Client.Get(ctx, s.key(v.Name), current)
		return err == nil && current.Spec.CapacityBytes > v.Spec.CapacityBytes, client.IgnoreNotFound(err)
	}, watched{kindVolume, v.Name})
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return errReadAgain
}

// changeable returns a FailedPrecondition for changes of the settings that a disk in use does not take.
func (s *Server) changeable(ctx context.Context, v *apiv1.AzVolume, spec *apiv1.AzVolumeSpec) error {
	changed := v.DeepCopy()
	changed.Spec = *spec.DeepCopy()
	changed.Spec.CapacityBytes = 0 // it is not asked about
	caching := disk.Caching(v)
	converts := spec.Disk.SKUName != v.Spec.Disk.SKUName && spec.Disk.SKUName == volumeparams.PremiumV2LRS
	switch err := s.unused(ctx, v); {
	case err == nil:
		return nil
	case disk.ChangesAlone(changed):
		return grpcstatus.Errorf(codes.FailedPrecondition, "Azure changes SKU and tier of a shared disk only while it is attached nowhere: %s", grpcstatus.Convert(err).Message())
	case converts && caching != volumeparams.CachingNone:
		return grpcstatus.Errorf(codes.FailedPrecondition, "Azure converts a disk to %s only without host caching, and it is attached with cachingMode %s; it can be converted while no node uses it: %s",
			spec.Disk.SKUName, caching, grpcstatus.Convert(err).Message())
	case grpcstatus.Code(err) != codes.FailedPrecondition:
		return err
	}
	return nil
}

// existingParameters returns the parameters of a disk in the words of a StorageClass.
func existingParameters(v *apiv1.AzVolume, spec *apiv1.AzVolumeSpec) volumeparams.Parameters {
	d := spec.Disk
	p := volumeparams.Parameters{
		SKUName: d.SKUName, CachingMode: d.CachingMode, FSType: d.FSType, MaxShares: d.MaxShares,
		DiskIOPSReadWrite: d.DiskIOPSReadWrite, DiskMBpsReadWrite: d.DiskMBpsReadWrite, DiskIOPSReadOnly: d.DiskIOPSReadOnly, DiskMBpsReadOnly: d.DiskMBpsReadOnly,
		Tier: d.Tier, LogicalSectorSize: d.LogicalSectorSize, NetworkAccessPolicy: d.NetworkAccessPolicy, PublicNetworkAccess: d.PublicNetworkAccess,
		DiskAccessID: d.DiskAccessID, DiskEncryptionSetID: d.DiskEncryptionSetID, DiskEncryptionType: d.DiskEncryptionType,
		EnableBursting: d.EnableBursting, EnablePerformancePlus: d.EnablePerformancePlus, WriteAcceleratorEnabled: d.WriteAcceleratorEnabled,
		Tags: d.Tags, VolumeName: first(d.Tags[volumeparams.TagVolumeName], v.Name),
		ClaimName: d.Tags[volumeparams.TagClaimName], ClaimNamespace: d.Tags[volumeparams.TagClaimNamespace],
	}
	if namespace, name, ok := strings.Cut(spec.PersistentVolumeClaim, "/"); ok {
		p.ClaimName, p.ClaimNamespace = name, namespace
	}
	return p
}

// settingsOf returns those of the parameters that can be changed.
func settingsOf(p volumeparams.Parameters) apiv1.DiskSettings {
	return apiv1.DiskSettings{
		SKUName: p.SKUName, DiskIOPSReadWrite: p.DiskIOPSReadWrite, DiskMBpsReadWrite: p.DiskMBpsReadWrite,
		DiskIOPSReadOnly: p.DiskIOPSReadOnly, DiskMBpsReadOnly: p.DiskMBpsReadOnly, Tier: p.Tier, EnableBursting: p.EnableBursting,
		NetworkAccessPolicy: p.NetworkAccessPolicy, PublicNetworkAccess: p.PublicNetworkAccess, DiskAccessID: p.DiskAccessID, Tags: p.Tags,
	}
}
