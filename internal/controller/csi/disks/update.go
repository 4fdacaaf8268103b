package disks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cluster"
	"github.com/azuredisk-csi/azuredisk/internal/controller/csi/call"
	"github.com/azuredisk-csi/azuredisk/internal/crashpoint"
	"github.com/azuredisk-csi/azuredisk/internal/kube"
	"github.com/azuredisk-csi/azuredisk/internal/parameters/volumeparams"
	"github.com/azuredisk-csi/azuredisk/internal/plan/disk"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
	"github.com/azuredisk-csi/azuredisk/internal/plan/refusal"
	"github.com/azuredisk-csi/azuredisk/internal/rpc/status"
	"github.com/azuredisk-csi/azuredisk/internal/volumehandle"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// rewrite changes the spec of an AzVolume, and returns the AzVolume with that spec. edit gets the
// AzVolume, and the spec to edit, from which changes that Azure has refused before are removed; if
// edit returns cluster.ErrChanged, rewrite reads the AzVolume again. A disk without an AzVolume is
// adopted; a disk that does not exist is NotFound.
func (s *Provisioner) rewrite(ctx context.Context, handle volumehandle.Handle, a call.Access,
	edit func(v *apiv1.AzVolume, spec *apiv1.AzVolumeSpec) error) (v *apiv1.AzVolume, err error) {
	err = cluster.RetryChanged("volume "+handle.VolumeName(), func() error {
		if v, err = s.created(ctx, handle, a); err != nil {
			return err
		}
		spec := disk.RevertRefused(v)
		if err := edit(v, spec); err != nil {
			return err
		}
		if equality.Semantic.DeepEqual(*spec, v.Spec) {
			return nil
		}
		before := v.DeepCopy()
		v.Spec = *spec
		err := kube.Patch(ctx, s.Client, v, before)
		if apierrors.IsInvalid(err) {
			return call.InvalidArgument("%s", err)
		}
		if err != nil {
			return fmt.Errorf("change the spec of AzVolume %s: %w", v.Name, err)
		}
		crashpoint.At("update-written")
		return nil
	})
	return v, err
}

// created returns the AzVolume of a disk that exists.
func (s *Provisioner) created(ctx context.Context, handle volumehandle.Handle, a call.Access) (*apiv1.AzVolume, error) {
	v, err := s.Volume(ctx, handle)
	if err == nil && v == nil {
		v, err = s.AdoptUnused(ctx, handle, a)
	}
	if err != nil {
		return nil, err
	}
	if v.Leaving() {
		return nil, grpcstatus.Errorf(codes.NotFound, "volume %s is being deleted", v.Name)
	}
	if err := refusal.Paused(v, "change volume "+v.Name); err != nil {
		return nil, err
	}
	if v.Status.DiskID == "" {
		return s.awaitCreated(ctx, v)
	}
	return v, nil
}

// awaitUpdate waits until done says that the disk has the spec of v, or until Azure has permanently
// refused, since v was written, the part that refused returns.
func (s *Provisioner) awaitUpdate(ctx context.Context, v *apiv1.AzVolume, done func(apiv1.AzVolumeStatus) bool,
	refused func(apiv1.AzVolumeStatus) *apiv1.Refusal) (*apiv1.AzVolume, error) {
	current := &apiv1.AzVolume{}
	err := s.Watch.Until(ctx, func() (bool, error) {
		err := s.Client.Get(ctx, s.Key(v.Name), current)
		switch {
		case apierrors.IsNotFound(err):
			return false, nil // the cache does not have it yet, or it was deleted
		case err != nil:
			return false, err
		case current.UID != v.UID || current.Generation < v.Generation:
			return false, nil
		case done(current.Status):
			return true, nil
		}
		if err := s.pending(ctx, current); err != nil {
			return true, err
		}
		if r := refused(current.Status); r != nil && r.Generation >= v.Generation {
			return true, call.Failure(&r.Error)
		}
		return false, nil
	}, cluster.VolumeNamed(v.Name))
	if !errors.Is(err, context.DeadlineExceeded) {
		return current, err
	}
	if e := s.failing(ctx, current); e != nil {
		return nil, status.NotFinal(call.Failure(e), "the controller tries again")
	}
	why := "not started"
	if c := meta.FindStatusCondition(current.Status.Conditions, apiv1.VolumeConditionUpdated); c != nil {
		why = c.Reason + ": " + c.Message
	}
	return nil, grpcstatus.Errorf(codes.Aborted, "the disk is still being changed (%s)", why)
}

// pending returns an Aborted if a change of the volume's disk waits until no node uses the volume.
func (s *Provisioner) pending(ctx context.Context, v *apiv1.AzVolume) error {
	message, pending := disk.Pending(v)
	if !pending {
		return nil
	}
	attachments, err := s.Attachments(ctx, s.Client, v.Name)
	if err != nil {
		return err
	}
	if waits, _ := disk.Waits(v, attachments, s.Clock.Now()); !waits {
		return nil // it has just been released
	}
	return grpcstatus.Errorf(codes.Aborted, "the disk of volume %s is not changed yet: %s", v.Name, message)
}

// failing reads v again from the cache at the end of a wait, and returns Azure's last error, nil if
// there is none. The error stays in the status while the next try is in progress.
func (s *Provisioner) failing(ctx context.Context, v *apiv1.AzVolume) *apiv1.Error {
	if v.Name != "" {
		// if it was deleted, v stays as it was last read
		_ = s.Client.Get(context.WithoutCancel(ctx), client.ObjectKeyFromObject(v), v)
	}
	return v.Status.Error
}

// ControllerExpandVolume expands a disk and waits until Azure has done it. A shared disk cannot
// grow while it is attached: with a primary the growth is recorded, and made when the volume is released
// next; until then the call is Aborted. Replicas are detached first.
func (s *Provisioner) ControllerExpandVolume(ctx context.Context,
	request *csi.ControllerExpandVolumeRequest) (*csi.ControllerExpandVolumeResponse, error) {
	handle, err := call.Volume(request.GetVolumeId())
	switch {
	case request.GetVolumeId() != "" && request.GetCapacityRange() == nil:
		return nil, call.InvalidArgument("capacity range: missing")
	case err != nil:
		return nil, err
	}
	ctx, end, err := s.Begin(ctx, handle.VolumeName())
	if err != nil {
		return nil, err
	}
	defer end()
	response, err := s.expand(ctx, handle, request)
	return response, status.From(err)
}

func (s *Provisioner) expand(ctx context.Context, handle volumehandle.Handle,
	request *csi.ControllerExpandVolumeRequest) (*csi.ControllerExpandVolumeResponse, error) {
	block, known := request.GetVolumeCapability().GetBlock() != nil, request.GetVolumeCapability() != nil
	if err := s.learnIOPS(ctx, handle); err != nil {
		return nil, err
	}
	var size int64
	v, err := s.rewrite(ctx, handle, call.Access{
		Pattern: apiv1.AccessSingleNode,
		Block:   block,
	}, func(v *apiv1.AzVolume, spec *apiv1.AzVolumeSpec) error {
		p := existingParameters(v, spec)
		var err error
		size, err = p.Size(request.GetCapacityRange().GetRequiredBytes(), request.GetCapacityRange().GetLimitBytes())
		if err != nil || size <= v.Status.SizeBytes {
			return err
		}
		spec.CapacityBytes = max(spec.CapacityBytes, size)
		p.RaiseIOPS(spec.CapacityBytes)
		spec.Disk.DiskIOPSReadWrite = p.DiskIOPSReadWrite
		return s.refusedBefore(ctx, v, spec)
	})
	if err != nil {
		return nil, err
	}
	if v, err = s.awaitUpdate(ctx, v,
		func(is apiv1.AzVolumeStatus) bool { return is.SizeBytes >= size },
		func(is apiv1.AzVolumeStatus) *apiv1.Refusal { return is.RefusedCapacity }); err != nil {
		return nil, err
	}
	block = block || v.Spec.Access == apiv1.AccessMultiNode || !known && v.Spec.Origin == apiv1.OriginProvisioned &&
		v.FilesystemType() == ""
	response := &csi.ControllerExpandVolumeResponse{CapacityBytes: v.Status.SizeBytes, NodeExpansionRequired: true}
	if block {
		// A node that uses the volume must rescan its device. A node that stages it later reads the
		// new size then.
		response.NodeExpansionRequired, err = s.inUse(ctx, handle)
	}
	return response, err
}

// learnIOPS writes to the AzVolume what was changed of its disk at Azure, if its IOPS grow with its
// size: IOPS that were raised at Azure are not lowered by the growth.
func (s *Provisioner) learnIOPS(ctx context.Context, handle volumehandle.Handle) error {
	v, err := s.Volume(ctx, handle)
	if err != nil || v == nil || v.Spec.Disk.IOPSPerGiB == 0 {
		return err
	}
	return s.learn(ctx, handle)
}

// inUse reports whether a node may be using the volume.
func (s *Provisioner) inUse(ctx context.Context, handle volumehandle.Handle) (bool, error) {
	v, err := s.Volume(ctx, handle)
	if err != nil {
		return false, err
	}
	if v == nil {
		return false, provisioner.Errorf(provisioner.NotFound, "AzVolume %s was deleted during the expansion",
			handle.VolumeName())
	}
	return v.Spec.Access == apiv1.AccessMultiNode || ownership.HasPrimary(v, nil), nil
}

// ControllerModifyVolume changes the parameters of a disk, and waits until Azure has changed them.
// A repeated call waits for the same change. One that a shared disk in use does not take is recorded, and
// made when the volume is released next; until then the call is Aborted. A change that Azure refuses permanently leaves nothing
// behind.
func (s *Provisioner) ControllerModifyVolume(ctx context.Context,
	request *csi.ControllerModifyVolumeRequest) (*csi.ControllerModifyVolumeResponse, error) {
	handle, err := call.Volume(request.GetVolumeId())
	if err != nil {
		return nil, err
	}
	change, err := volumeparams.ParseChange(request.GetMutableParameters())
	if err != nil {
		return nil, status.From(err)
	}
	// ControllerExpandVolume has another key, so that both calls at once become one call to Azure.
	return &csi.ControllerModifyVolumeResponse{},
		s.Do(ctx, "the modification of "+handle.VolumeName(),
			func(ctx context.Context) error { return s.modify(ctx, handle, change) })
}

func (s *Provisioner) modify(ctx context.Context, handle volumehandle.Handle, change volumeparams.Change) error {
	if err := s.learn(ctx, handle); err != nil {
		return err
	}
	waited, caching := false, ""
	access := call.Access{Pattern: apiv1.AccessSingleNode}
	v, err := s.rewrite(ctx, handle, access,
		func(v *apiv1.AzVolume, spec *apiv1.AzVolumeSpec) error {
			before := existingParameters(v, spec)
			after, err := before.With(change, max(spec.CapacityBytes, v.Status.SizeBytes))
			if _, larger := before.With(change, ampleSize); err != nil && larger == nil && !waited {
				waited = true
				return s.awaitGrowth(ctx, v)
			}
			if err != nil {
				return err
			}
			spec.Disk.DiskSettings, caching = after.DiskSettings, after.ModifiedCachingMode
			spec.Disk.IOPSPerGiB = after.IOPSPerGiB
			return s.changeable(ctx, v, spec)
		})
	if err != nil {
		return err
	}
	if err := s.awaitSettings(ctx, v); err != nil {
		return err
	}
	// The caching concerns the next attach, and Azure is not asked now. It is written when the rest
	// of the class was accepted, so that a class that Azure refuses does not change it.
	_, err = s.rewrite(ctx, handle, access, func(_ *apiv1.AzVolume, spec *apiv1.AzVolumeSpec) error {
		spec.Disk.ModifiedCachingMode = caching
		return nil
	})
	return err
}

// learn writes to the AzVolume what was changed of its disk at Azure outside the driver. A class
// whose values are those of the outdated AzVolume would change nothing otherwise.
func (s *Provisioner) learn(ctx context.Context, handle volumehandle.Handle) error {
	learnt := false
	access := call.Access{Pattern: apiv1.AccessSingleNode}
	v, err := s.rewrite(ctx, handle, access, func(v *apiv1.AzVolume, spec *apiv1.AzVolumeSpec) error {
		learnt = false
		if !disk.Settled(v) {
			return nil
		}
		found, err := s.Disk(ctx, handle)
		if err != nil || found.ID == "" {
			return err
		}
		has, changed := disk.ChangedOutside(v, &found)
		if learnt = changed; changed {
			spec.Disk.DiskSettings = has
		}
		return nil
	})
	if err != nil || !learnt {
		return err
	}
	return s.awaitSettings(ctx, v)
}

// awaitSettings waits until the disk has the settings of v.
func (s *Provisioner) awaitSettings(ctx context.Context, v *apiv1.AzVolume) error {
	wanted := v.Spec.Disk.DiskSettings
	_, err := s.awaitUpdate(ctx, v,
		func(is apiv1.AzVolumeStatus) bool {
			if is.Applied == nil || disk.UpdateUncertain(&is) {
				return false
			}
			refused := is.RefusedSettings != nil && is.RefusedSettings.Generation >= v.Generation
			return equality.Semantic.DeepEqual(is.Applied.DiskSettings, wanted) || !refused &&
				is.Applied.Generation >= v.Generation
		},
		func(is apiv1.AzVolumeStatus) *apiv1.Refusal { return is.RefusedSettings })
	return err
}

const (
	// ampleSize is a size that is large enough for every parameter.
	ampleSize = 32767 * volumeparams.GiB
	// companionWait is how long a modification that needs a larger disk waits for the call that
	// expands the disk.
	companionWait = time.Second
)

// awaitGrowth waits for a call that expands the disk. An edit of both size and class of a
// PersistentVolumeClaim causes two calls, in any order.
func (s *Provisioner) awaitGrowth(ctx context.Context, v *apiv1.AzVolume) error {
	ctx, cancel := context.WithTimeout(ctx, companionWait)
	defer cancel()
	current := &apiv1.AzVolume{}
	err := s.Watch.Until(ctx, func() (bool, error) {
		err := s.Client.Get(ctx, s.Key(v.Name), current)
		return err == nil && current.Spec.CapacityBytes > v.Spec.CapacityBytes, client.IgnoreNotFound(err)
	}, cluster.VolumeNamed(v.Name))
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return cluster.ErrChanged
}

// changeable returns a FailedPrecondition for changes of the settings that Azure does not allow on
// an unshared disk in use, and for those of a shared one that Azure has refused before.
func (s *Provisioner) changeable(ctx context.Context, v *apiv1.AzVolume, spec *apiv1.AzVolumeSpec) error {
	changed := v.DeepCopy()
	changed.Spec = *spec.DeepCopy()
	changed.Spec.CapacityBytes = 0 // only the settings matter here
	caching := disk.Caching(v)
	converts := spec.Disk.SKUName != v.Spec.Disk.SKUName && spec.Disk.SKUName == volumeparams.PremiumV2LRS
	switch err := s.unused(ctx, v); {
	case err == nil:
		return nil
	case grpcstatus.Code(err) != codes.FailedPrecondition:
		return err
	case disk.ChangesAlone(changed):
		return s.refusedBefore(ctx, v, spec)
	case converts && caching != volumeparams.CachingNone:
		return grpcstatus.Errorf(codes.FailedPrecondition,
			"Azure converts a disk to %s only without host caching, and it is attached with cachingMode %s; it can be converted while no node uses it: %s",
			spec.Disk.SKUName, caching, grpcstatus.Convert(err).Message())
	}
	return nil
}

// refusedBefore returns what Azure answered when it refused the same change of a shared disk, if a node
// uses the volume. Without that, a claim that asks for the impossible would cost each restart of its pod
// the time of a detach and an attach.
func (s *Provisioner) refusedBefore(ctx context.Context, v *apiv1.AzVolume, spec *apiv1.AzVolumeSpec) error {
	changed := v.DeepCopy()
	changed.Spec = *spec.DeepCopy()
	r := disk.RefusedBefore(changed)
	if r == nil {
		return nil
	}
	if err := s.unused(ctx, v); grpcstatus.Code(err) != codes.FailedPrecondition {
		return err
	}
	return call.Failure(&r.Error)
}

// existingParameters returns the parameters of a disk as a StorageClass would name them.
func existingParameters(v *apiv1.AzVolume, spec *apiv1.AzVolumeSpec) volumeparams.Parameters {
	tags := spec.Disk.Tags
	p := volumeparams.Parameters{
		DiskParameters: *spec.Disk.DeepCopy(),
		VolumeName:     cmp.Or(tags[volumeparams.TagVolumeName], v.Name),
		ClaimName:      tags[volumeparams.TagClaimName],
		ClaimNamespace: tags[volumeparams.TagClaimNamespace],
	}
	p.CachingMode = cmp.Or(p.ModifiedCachingMode, p.CachingMode)
	if claim := v.Claim(); claim.Name != "" {
		p.ClaimName, p.ClaimNamespace = claim.Name, claim.Namespace
	}
	if fs := spec.Filesystem; fs != nil {
		p.FSType, p.FilesystemOptions = fs.Type, fs.FilesystemOptions
	}
	return p
}
