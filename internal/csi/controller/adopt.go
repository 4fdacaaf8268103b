package controller

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/volumehandle"
	"github.com/azuredisk-csi/azuredisk/internal/volumeparams"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// volume reads an AzVolume from the API server. It returns nil if there is none, and
// an error if the one of that name is of another disk.
func (s *Server) volume(ctx context.Context, handle volumehandle.Handle) (*apiv1.AzVolume, error) {
	v := &apiv1.AzVolume{}
	err := s.Reader.Get(ctx, s.key(handle.VolumeName()), v)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read AzVolume: %w", err)
	}
	return v, belongsTo(v, handle)
}

// adopt makes an AzVolume for a disk that exists at Azure: that of a PersistentVolume that was made by hand or by the
// V1 driver. attributes are the PersistentVolume's; single says what it is used as. A disk that does not exist is NotFound.
func (s *Server) adopt(ctx context.Context, handle volumehandle.Handle, attributes map[string]string, a access) (*apiv1.AzVolume, error) {
	disk, err := s.Disks.Get(ctx, handle.String())
	if errors.Is(err, provisioner.NotFound) {
		return nil, grpcstatus.Errorf(codes.NotFound, "there is no disk %s", handle)
	}
	if err != nil {
		return nil, fmt.Errorf("read disk: %w", err)
	}
	p, err := volumeparams.Parse(known(attributes))
	if err != nil {
		return nil, err
	}
	// What the disk is, and not what somebody wrote about it, decides.
	p.SKUName, p.MaxShares = disk.SKUName, disk.MaxShares
	if p.MaxMountReplicaCount != nil && *p.MaxMountReplicaCount > p.Shares()-1 {
		return nil, invalidArgument("volume attribute maxMountReplicaCount: value %d is not allowed; allowed: 0 to %d, which is the disk's maxShares - 1", *p.MaxMountReplicaCount, p.Shares()-1)
	}
	replicas, err := p.Replicas(a.pattern == apiv1.AccessMultiNode)
	if err != nil {
		return nil, err
	}
	if p.Shares() > 1 {
		p.CachingMode = volumeparams.CachingNone
	}
	fs := ""
	if !a.block {
		fs = p.FSType
	}
	v := &apiv1.AzVolume{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: handle.VolumeName(), Finalizers: []string{apiv1.Finalizer}},
		Spec: apiv1.AzVolumeSpec{
			Origin: apiv1.OriginAdopted, Access: a.pattern, CapacityBytes: max(disk.SizeBytes, 1), MaxMountReplicaCount: replicas,
			Disk: apiv1.DiskParameters{
				SubscriptionID: handle.SubscriptionID, ResourceGroup: handle.ResourceGroup, Name: handle.DiskName,
				Location: disk.Location, Zone: disk.Zone, SKUName: disk.SKUName, MaxShares: p.Shares(), CachingMode: p.Caching(disk.SizeBytes), FSType: fs,
				DiskEncryptionSetID: p.DiskEncryptionSetID, WriteAcceleratorEnabled: p.WriteAcceleratorEnabled,
			},
		},
	}
	if err := s.Client.Create(ctx, v); err != nil && !apierrors.IsAlreadyExists(err) {
		return nil, fmt.Errorf("adopt disk: %w", err)
	}
	current, err := s.volume(ctx, handle)
	if err == nil && current == nil {
		return nil, grpcstatus.Errorf(codes.Aborted, "volume %s has just gone", v.Name)
	}
	return current, err
}

// known leaves out what a PersistentVolume's attributes hold besides parameters.
func known(attributes map[string]string) map[string]string {
	parameters := map[string]string{}
	for key, value := range attributes {
		if volumeparams.Known(key) {
			parameters[key] = value
		}
	}
	return parameters
}
