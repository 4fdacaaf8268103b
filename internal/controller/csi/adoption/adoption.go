// Package adoption creates AzVolumes for disks that the driver did not create: a user, the V1
// driver or Kubernetes' in-tree plug-in created their PersistentVolumes.
package adoption

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cluster"
	"github.com/azuredisk-csi/azuredisk/internal/controller/csi/call"
	"github.com/azuredisk-csi/azuredisk/internal/controller/csi/topology"
	"github.com/azuredisk-csi/azuredisk/internal/kube"
	"github.com/azuredisk-csi/azuredisk/internal/parameters/volumeparams"
	plan "github.com/azuredisk-csi/azuredisk/internal/plan/disk"
	"github.com/azuredisk-csi/azuredisk/internal/volumehandle"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// +kubebuilder:rbac:groups="",resources=persistentvolumes,verbs=get;list;watch

// Adopter creates AzVolumes for disks that exist.
type Adopter struct {
	*cluster.Records
	Disks provisioner.Disks
	// DriverName by which PersistentVolumes name the driver.
	DriverName string
}

// Disk reads a disk at Azure. It returns one without an ID if there is none. While the disk's AzVolume is
// paused it is refused.
func (s *Adopter) Disk(ctx context.Context, handle volumehandle.Handle) (provisioner.Disk, error) {
	if err := s.Unpaused(ctx, handle, "read disk "+handle.DiskName); err != nil {
		return provisioner.Disk{}, err
	}
	disk, err := s.Disks.Get(ctx, handle.String())
	if errors.Is(err, provisioner.NotFound) {
		return provisioner.Disk{}, nil
	}
	if err != nil {
		return provisioner.Disk{}, fmt.Errorf("read disk: %w", err)
	}
	return disk, nil
}

// Adopt creates an AzVolume for a disk that exists at Azure and that a node is going to use.
// attributes are the PersistentVolume's. If they are nil, because the request does not contain
// them, Adopt takes them and the access from the PersistentVolume, if there is one. It changes
// neither the disk nor its content. A disk that does not exist is NotFound; an attribute that the
// driver cannot obey is InvalidArgument.
func (s *Adopter) Adopt(ctx context.Context, handle volumehandle.Handle, attributes map[string]string,
	a call.Access) (*apiv1.AzVolume, error) {
	return s.adopt(ctx, handle, attributes, a, true)
}

// AdoptUnused is Adopt for an operation that uses no attribute: to detach, to change, to expand or
// to delete a disk. An attribute that the driver cannot obey counts as not given. A later publish
// refuses it.
func (s *Adopter) AdoptUnused(ctx context.Context, handle volumehandle.Handle, a call.Access) (*apiv1.AzVolume, error) {
	return s.adopt(ctx, handle, nil, a, false)
}

// adopt does the work. obey makes an attribute that the driver cannot obey an error.
func (s *Adopter) adopt(
	ctx context.Context, handle volumehandle.Handle, attributes map[string]string, a call.Access, obey bool,
) (*apiv1.AzVolume, error) {
	described, err := s.described(ctx, handle)
	if err != nil {
		return nil, err
	}
	asking := ctx
	if len(described) == 0 {
		asking = provisioner.Deferrable(ctx) // a user's pod may name any number of disks
	}
	disk, err := s.Disk(asking, handle)
	if err != nil {
		return nil, err
	}
	if disk.ID == "" {
		return nil, provisioner.Errorf(provisioner.NotFound, "there is no disk %s", handle)
	}
	// The access pattern cannot be changed later, and the caller may only guess it.
	if len(described) == 0 {
		if described, err = s.describedNow(ctx, handle); err != nil {
			return nil, err
		}
	}
	// A PersistentVolume is an administrator's. A request may be made for a pod that names the disk.
	if len(described) > 0 && (attributes == nil || !named(described, attributes)) {
		attributes, a = described[0].attributes, described[0].access
	}
	v, err := s.adopted(handle, disk, attributes, a)
	if err != nil && obey {
		return nil, err
	}
	pv, err := cluster.PersistentVolume(ctx, s.Client, v)
	if err != nil {
		return nil, err
	}
	if pv != nil {
		v.Spec.ClaimRef = plan.ClaimOf(pv)
		v.Labels = apiv1.ClaimLabels(v.Spec.ClaimRef)
	}
	if err := s.Client.Create(ctx, v); err != nil && !apierrors.IsAlreadyExists(err) {
		return nil, fmt.Errorf("adopt disk: %w", err)
	}
	current, err := s.Volume(ctx, handle)
	if err == nil && current == nil {
		return nil, grpcstatus.Errorf(codes.Aborted, "AzVolume %s was deleted during the adoption of its disk", v.Name)
	}
	return current, err
}

// adopted returns the AzVolume of a disk. It has the properties that Azure reports of the disk;
// only what Azure does not report is taken from the attributes. The error names the attributes that
// the AzVolume cannot have; the AzVolume is then the one without them.
func (s *Adopter) adopted(handle volumehandle.Handle, disk provisioner.Disk, attributes map[string]string,
	a call.Access) (*apiv1.AzVolume, error) {
	wanted, fault := volumeparams.ParseAttributes(attributes, a.Block)
	p := volumeparams.Parameters{DiskParameters: parametersOf(handle, disk), MaxMountReplicaCount: wanted.MaxMountReplicaCount}
	multiNode := a.Pattern == apiv1.AccessMultiNode
	replicas, err := p.Replicas(multiNode)
	if err != nil {
		p.MaxMountReplicaCount = nil
		replicas, _ = p.Replicas(multiNode)
	}
	p.CachingMode = wanted.CachingMode
	p.CachingMode = p.Caching(disk.SizeBytes)
	p.FSType = wanted.FSType
	if topology.Zonal(disk.SKUName) {
		p.IOPSPerGiB = wanted.IOPSPerGiB
	}
	return &apiv1.AzVolume{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:  s.Namespace,
			Name:       handle.VolumeName(),
			Finalizers: []string{apiv1.FinalizerVolume},
		},
		Spec: apiv1.AzVolumeSpec{
			Origin:               apiv1.OriginAdopted,
			Access:               a.Pattern,
			CapacityBytes:        max(disk.SizeBytes, 1),
			MaxMountReplicaCount: replicas,
			Disk:                 p.DiskParameters,
			Filesystem:           p.Filesystem(),
		},
	}, cmp.Or(fault, err)
}

// parametersOf returns the parameters that Azure reports of a disk.
func parametersOf(handle volumehandle.Handle, disk provisioner.Disk) apiv1.DiskParameters {
	p := apiv1.DiskParameters{
		SubscriptionID:          handle.SubscriptionID,
		ResourceGroup:           handle.ResourceGroup,
		Name:                    handle.DiskName,
		Location:                disk.Location,
		Zone:                    disk.Zone,
		MaxShares:               max(disk.MaxShares, 1),
		WriteAcceleratorEnabled: volumeparams.WriteAccelerator(disk.Tags),
		DiskSettings:            apiv1.DiskSettings(disk.DiskSettings),
		ImmutableDiskSettings:   apiv1.ImmutableDiskSettings(disk.ImmutableDiskSettings),
	}
	if p.DiskEncryptionSetID == "" {
		p.DiskEncryptionType = ""
	}
	// Azure reports the performance of every disk; only with these SKUs is it a parameter.
	if !topology.Zonal(disk.SKUName) {
		p.DiskIOPSReadWrite, p.DiskMBpsReadWrite, p.DiskIOPSReadOnly, p.DiskMBpsReadOnly = nil, nil, nil, nil
	}
	if !volumeparams.HasTiers(disk.SKUName) || disk.Tier == volumeparams.BaselineTier(disk.SizeBytes) {
		p.Tier = ""
	}
	return p
}

// description is what a PersistentVolume says of its disk.
type description struct {
	attributes map[string]string
	access     call.Access
}

// described returns what the PersistentVolumes of a disk say of it.
func (s *Adopter) described(ctx context.Context, handle volumehandle.Handle) ([]description, error) {
	cached, err := cluster.PersistentVolumes(ctx, s.Client, handle.VolumeName())
	if err != nil {
		return nil, err
	}
	var described []description
	for _, trimmed := range cached {
		// The cache does not hold the attributes.
		pv, err := kube.Find[corev1.PersistentVolume](ctx, s.Reader, client.ObjectKeyFromObject(trimmed))
		if err != nil {
			return nil, err
		}
		if pv == nil {
			continue
		}
		described = s.describe(described, pv, handle)
	}
	return described, nil
}

// describedNow is described without the cache, which may not have a new PersistentVolume yet. It lists
// every PersistentVolume of the cluster.
func (s *Adopter) describedNow(ctx context.Context, handle volumehandle.Handle) ([]description, error) {
	var list corev1.PersistentVolumeList
	if err := s.Reader.List(ctx, &list); err != nil {
		return nil, fmt.Errorf("list PersistentVolumes: %w", err)
	}
	var described []description
	for i := range list.Items {
		described = s.describe(described, &list.Items[i], handle)
	}
	return described, nil
}

// describe appends what a PersistentVolume says of a disk, if it is of that disk.
func (s *Adopter) describe(described []description, pv *corev1.PersistentVolume, handle volumehandle.Handle) []description {
	if of, err := volumehandle.Parse(cluster.DiskNamedBy(pv, s.DriverName)); err != nil || !of.Same(handle) {
		return described
	}
	return append(described, description{attributes: attributesOf(pv), access: usedAs(pv)})
}

// named reports whether one of the PersistentVolumes names the caching mode that attributes name.
func named(described []description, attributes map[string]string) bool {
	// The mode is empty if it is not named, and without regard to case. A fault does not matter here.
	wanted, _ := volumeparams.ParseAttributes(attributes, true)
	return slices.ContainsFunc(described, func(d description) bool {
		says, _ := volumeparams.ParseAttributes(d.attributes, true)
		return says.CachingMode == wanted.CachingMode
	})
}

// attributesOf returns the attributes of a PersistentVolume. An in-tree PersistentVolume is
// translated as Kubernetes does it.
func attributesOf(pv *corev1.PersistentVolume) map[string]string {
	attributes := map[string]string{}
	switch source := pv.Spec.PersistentVolumeSource; {
	case source.CSI != nil:
		attributes["fsType"] = source.CSI.FSType
		maps.Copy(attributes, source.CSI.VolumeAttributes)
	case source.AzureDisk != nil:
		if mode := source.AzureDisk.CachingMode; mode != nil {
			attributes["cachingMode"] = string(*mode)
		}
		if fs := source.AzureDisk.FSType; fs != nil {
			attributes["fsType"] = *fs
		}
	}
	return attributes
}

// usedAs returns the access pattern that follows from the access modes and the volume mode of a
// PersistentVolume.
func usedAs(pv *corev1.PersistentVolume) call.Access {
	a := call.Access{
		Pattern: apiv1.AccessSingleNode,
		Block:   pv.Spec.VolumeMode != nil && *pv.Spec.VolumeMode == corev1.PersistentVolumeBlock,
	}
	if cluster.ForSeveralNodes(pv) {
		a.Pattern = apiv1.AccessMultiNode
	}
	return a
}

// ApplyCachingMode writes to an AzVolume the caching mode that its PersistentVolume names. They
// differ if the PersistentVolume was created, or created again, after the AzVolume. A mode that only
// a pod names, as azureDisk, is written if no claim has the disk. An attribute that a publish or the
// stage after it cannot obey is InvalidArgument.
func (s *Adopter) ApplyCachingMode(ctx context.Context, v *apiv1.AzVolume, attributes map[string]string, block bool) error {
	wanted, err := volumeparams.ParseAttributes(attributes, block)
	if err != nil || wanted.CachingMode == "" {
		return err
	}
	p := volumeparams.Parameters{DiskParameters: v.Spec.Disk}
	p.CachingMode = wanted.CachingMode
	mode := p.Caching(max(v.Status.SizeBytes, v.Spec.CapacityBytes))
	if mode == v.Spec.Disk.CachingMode {
		return nil
	}
	described, err := s.described(ctx, volumehandle.Of(v.Spec.Disk))
	if err != nil {
		return err
	}
	if len(described) == 0 && v.Claim().Name != "" || len(described) > 0 && !named(described, attributes) {
		return nil
	}
	before := v.DeepCopy()
	v.Spec.Disk.CachingMode = mode
	if err := kube.Patch(ctx, s.Client, v, before); err != nil {
		return fmt.Errorf("change caching mode: %w", err)
	}
	return nil
}
