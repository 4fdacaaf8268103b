package disks

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"strconv"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/go-logr/logr"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/controller/csi/call"
	"github.com/azuredisk-csi/azuredisk/internal/controller/csi/topology"
	"github.com/azuredisk-csi/azuredisk/internal/kube"
	"github.com/azuredisk-csi/azuredisk/internal/parameters/paramtable"
	"github.com/azuredisk-csi/azuredisk/internal/parameters/volumeparams"
	"github.com/azuredisk-csi/azuredisk/internal/plan/placement"
	"github.com/azuredisk-csi/azuredisk/internal/rpc/v1metrics"
	"github.com/azuredisk-csi/azuredisk/internal/volumehandle"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// CreateVolume creates an AzVolume and waits until its disk is created. A repeated call finds the
// AzVolume of the first call; a call with another request and the same name is AlreadyExists.
func (s *Provisioner) CreateVolume(ctx context.Context, request *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	if request.GetName() == "" {
		return nil, call.InvalidArgument("name: missing")
	}
	response, err := s.createVolume(ctx, request)
	if err != nil {
		return nil, call.Settle(ctx, err, func(ctx context.Context) (string, error) { return s.leftOfVolume(ctx, request) })
	}
	return response, nil
}

func (s *Provisioner) createVolume(ctx context.Context, request *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	wanted, parameters, err := s.wanted(ctx, request)
	if err != nil {
		return nil, err
	}
	v1metrics.SKUOf(ctx, wanted.Spec.Disk.SKUName)
	if source := wanted.Spec.Source; source != nil && source.SnapshotID != "" {
		v1metrics.VariantOf(ctx, v1metrics.FromSnapshot)
	} else if source != nil {
		v1metrics.VariantOf(ctx, v1metrics.FromVolume)
	}
	ctx, end, err := s.Begin(ctx, wanted.Name)
	if err != nil {
		return nil, err
	}
	defer end()
	v, err := s.ensureVolume(ctx, wanted, request, parameters.TagTemplates())
	if err != nil {
		return nil, err
	}
	v, err = s.awaitCreatedOrDeleted(ctx, v)
	if err != nil {
		return nil, err
	}
	return &csi.CreateVolumeResponse{Volume: &csi.Volume{
		VolumeId:           v.Status.DiskID,
		CapacityBytes:      v.Status.SizeBytes,
		VolumeContext:      volumeContext(requested(request), v, parameters),
		AccessibleTopology: s.Topology.Accessible(v.Spec.Disk),
		ContentSource:      request.GetVolumeContentSource(),
	}}, nil
}

// requested returns the parameters of a request. The VolumeAttributesClass takes precedence over
// the StorageClass.
func requested(request *csi.CreateVolumeRequest) map[string]string {
	return volumeparams.Overlay(request.GetParameters(), request.GetMutableParameters())
}

// wanted returns the AzVolume that a request asks for.
func (s *Provisioner) wanted(ctx context.Context, request *csi.CreateVolumeRequest) (*apiv1.AzVolume, volumeparams.Parameters,
	error) {
	p, access, err := s.asked(ctx, request)
	if err != nil {
		return nil, p, err
	}
	request, source, err := s.fromSource(ctx, request, &p)
	if err != nil {
		return nil, p, err
	}
	size, err := p.Size(request.GetCapacityRange().GetRequiredBytes(), request.GetCapacityRange().GetLimitBytes())
	if err != nil {
		return nil, p, err
	}
	filesystem, err := fsType(p, access)
	if err != nil {
		return nil, p, err
	}
	p.SetFilesystem(filesystem)
	p.SetDefaultPerformance(size)
	if err := p.CheckSize(size); err != nil {
		return nil, p, err
	}
	replicas, err := p.Replicas(access.Pattern == apiv1.AccessMultiNode)
	if err != nil {
		return nil, p, err
	}
	where, err := s.choose(ctx, request.GetAccessibilityRequirements(), need{
		volume:    request.GetName(),
		skuName:   p.SKU(),
		sizeBytes: size,
		location:  p.Location,
	})
	if err != nil {
		return nil, p, err
	}
	if len(p.WithoutEffect) > 0 {
		logr.FromContextOrDiscard(ctx).Info("parameters have no effect", "parameters", p.WithoutEffect)
	}
	disk := s.diskParameters(p, p.NameDisk(request.GetName()), size, where)
	v := &apiv1.AzVolume{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:  s.Namespace,
			Name:       volumehandle.Of(disk).VolumeName(),
			Finalizers: []string{apiv1.FinalizerVolume},
		},
		Spec: apiv1.AzVolumeSpec{
			Origin:               apiv1.OriginProvisioned,
			Access:               access.Pattern,
			CapacityBytes:        size,
			MaxMountReplicaCount: replicas,
			Disk:                 disk,
			Filesystem:           p.Filesystem(),
			Source:               source,
		},
	}
	if p.ClaimName != "" && p.ClaimNamespace != "" {
		v.Spec.ClaimRef = &apiv1.ClaimReference{Namespace: p.ClaimNamespace, Name: p.ClaimName}
		v.Labels = apiv1.ClaimLabels(v.Spec.ClaimRef)
	}
	return v, p, nil
}

// asked returns the parameters and the access that a request has, with the claim's tags.
func (s *Provisioner) asked(ctx context.Context, request *csi.CreateVolumeRequest) (p volumeparams.Parameters,
	access call.Access, err error) {
	if p, err = volumeparams.ParseWith(request.GetParameters(), request.GetMutableParameters()); err != nil {
		return p, access, err
	}
	if err := s.fillTags(ctx, &p); err != nil {
		return p, access, err
	}
	access, fault, err := call.AccessOf(request.GetVolumeCapabilities(), p.Shares())
	if err != nil {
		return p, access, err
	}
	if fault != "" {
		return p, access, call.InvalidArgument("%s", fault)
	}
	return p, access, call.CheckMountOptions(request.GetVolumeCapabilities())
}

// +kubebuilder:rbac:groups="",resources=persistentvolumeclaims;namespaces,verbs=get

// fillTags replaces the templates of labels and annotations in the tags. It reads from the API server:
// the cache has neither labels nor annotations of claims.
func (s *Provisioner) fillTags(ctx context.Context, p *volumeparams.Parameters) error {
	templates := p.TagTemplates()
	if len(templates) == 0 {
		return nil
	}
	if p.ClaimName == "" {
		return call.InvalidArgument(
			"parameter tags: templates of labels and annotations need the flag --extra-create-metadata of csi-provisioner")
	}
	claim, err := kube.Find[corev1.PersistentVolumeClaim](ctx, s.Reader, client.ObjectKey{
		Namespace: p.ClaimNamespace,
		Name:      p.ClaimName,
	})
	if err != nil {
		return err
	}
	if claim == nil {
		return provisioner.Errorf(provisioner.Unavailable,
			"PersistentVolumeClaim %s/%s, whose labels and annotations the tags name, does not exist", p.ClaimNamespace, p.ClaimName)
	}
	namespace := &corev1.Namespace{}
	if volumeparams.ReadsNamespace(templates) {
		err := s.Reader.Get(ctx, client.ObjectKey{Name: p.ClaimNamespace}, namespace)
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("read the namespace of the claim: %w", err)
		}
	}
	return p.FillTags(claim.ObjectMeta, namespace.ObjectMeta)
}

const defaultFSType = "ext4"

// fsType returns the filesystem to create. The StorageClass takes precedence over the capability,
// as in the V1 driver.
func fsType(p volumeparams.Parameters, a call.Access) (string, error) {
	switch {
	case a.Block:
		return "", nil
	case p.FSType != "":
		return p.FSType, nil
	case a.FSType == "":
		return defaultFSType, nil
	}
	checked, err := volumeparams.Parse(map[string]string{"fsType": a.FSType})
	return checked.FSType, err
}

func (s *Provisioner) diskParameters(p volumeparams.Parameters, name string, size int64,
	where topology.Place) apiv1.DiskParameters {
	disk := p.Disk(size)
	disk.SubscriptionID, disk.ResourceGroup, disk.Name = cmp.Or(p.SubscriptionID, s.SubscriptionID), cmp.Or(p.ResourceGroup,
		s.ResourceGroup), name
	disk.Location, disk.Zone = where.Location, where.Zone
	if placement.ZoneRedundant(disk.SKUName) {
		disk.Zone = ""
	}
	return disk
}

// ensureVolume creates the AzVolume, or returns the existing AzVolume if it equals the wanted one.
// templates are the tags whose values may have changed since an earlier call.
func (s *Provisioner) ensureVolume(ctx context.Context, wanted *apiv1.AzVolume,
	request *csi.CreateVolumeRequest, templates map[string]string) (*apiv1.AzVolume, error) {
	v := wanted.DeepCopy()
	if paramtable.AddTags(v.Spec.Disk.Tags, s.ExtraTags); len(v.Spec.Disk.Tags) > volumeparams.MaxTags {
		return nil, call.InvalidArgument(
			"parameter tags: the disk would have %d tags with those that the driver is configured to add; allowed: %d",
			len(v.Spec.Disk.Tags), volumeparams.MaxTags)
	}
	err := s.Client.Create(ctx, v)
	if err == nil {
		return v, nil
	}
	if apierrors.IsInvalid(err) {
		return nil, call.InvalidArgument("%s", err)
	}
	if !apierrors.IsAlreadyExists(err) {
		return nil, err
	}
	if err := s.Reader.Get(ctx, s.Key(wanted.Name), v); apierrors.IsNotFound(err) {
		return nil, grpcstatus.Errorf(codes.Aborted, "create AzVolume %s: that of an earlier call was deleted during this call",
			wanted.Name)
	} else if err != nil {
		return nil, err
	}
	if v.Leaving() {
		return nil, grpcstatus.Errorf(codes.Aborted, "create AzVolume %s: that of an earlier call is still being deleted", v.Name)
	}
	if differs := s.difference(v, wanted, request, templates); differs != "" {
		return nil, grpcstatus.Errorf(codes.AlreadyExists, "volume %s exists with another %s", v.Name, differs)
	}
	return v, nil
}

// difference names the first property in which an AzVolume that exists differs from the request, or
// returns "".
func (s *Provisioner) difference(v, wanted *apiv1.AzVolume, request *csi.CreateVolumeRequest,
	templates map[string]string) string {
	have, want := v.Spec.DeepCopy(), wanted.Spec.DeepCopy()
	limit := request.GetCapacityRange().GetLimitBytes()
	if have.CapacityBytes < request.GetCapacityRange().GetRequiredBytes() || (limit > 0 && have.CapacityBytes > limit) {
		return "size"
	}
	if !s.Topology.Fits(have.Disk, request.GetAccessibilityRequirements()) {
		return "zone"
	}
	switch {
	case have.Origin != want.Origin:
		return "origin"
	case have.Access != want.Access:
		return "access mode"
	case have.MaxMountReplicaCount != want.MaxMountReplicaCount:
		return "maxMountReplicaCount"
	case !equality.Semantic.DeepEqual(have.Source, want.Source):
		return "content source"
	}
	// The place was compared with the requirement above. It may differ from the place of a new
	// disk.
	want.Disk.Zone, want.Disk.Location = have.Disk.Zone, have.Disk.Location
	if !strings.EqualFold(have.Disk.Name, want.Disk.Name) {
		return "disk name"
	}
	want.Disk.Name = have.Disk.Name
	maps.DeleteFunc(want.Disk.Tags, func(name, _ string) bool { _, changes := templates[name]; return changes })
	// The extra tags may have changed since the AzVolume was created, so they make no difference.
	maps.DeleteFunc(have.Disk.Tags, func(name, _ string) bool { _, wanted := want.Disk.Tags[name]; return !wanted })
	if !equality.Semantic.DeepEqual(have.Disk, want.Disk) {
		return "set of parameters"
	}
	return ""
}

// volumeContext returns the parameters as the V1 driver returns them, so that a PersistentVolume
// works with both drivers. A parameter keeps the spelling of the StorageClass, by which tools look
// for it.
func volumeContext(parameters map[string]string, v *apiv1.AzVolume, p volumeparams.Parameters) map[string]string {
	values := map[string]string{}
	maps.Copy(values, parameters)
	set := func(key, value string) {
		given := false
		for spelling := range parameters {
			if strings.EqualFold(spelling, key) {
				values[spelling], given = value, true
			}
		}
		if !given {
			values[key] = value
		}
	}
	set("kind", "Managed")
	set("cachingMode", v.Spec.Disk.CachingMode)
	set("requestedsizegib", strconv.FormatInt(v.Spec.CapacityBytes/volumeparams.GiB, 10))
	if p.MaxShares > 0 {
		set("maxShares", strconv.Itoa(int(p.MaxShares)))
	}
	if fs := v.FilesystemType(); fs != "" {
		set("fsType", fs)
	}
	return values
}

// leftOfVolume names the AzVolume of a request, if there is one.
func (s *Provisioner) leftOfVolume(ctx context.Context, request *csi.CreateVolumeRequest) (string, error) {
	// If the parameters are not allowed any more, Parse returns the default names.
	p, _ := volumeparams.ParseWith(request.GetParameters(), request.GetMutableParameters())
	name := apiv1.VolumeName(cmp.Or(p.SubscriptionID, s.SubscriptionID), cmp.Or(p.ResourceGroup, s.ResourceGroup),
		p.NameDisk(request.GetName()))
	v, err := kube.Find[apiv1.AzVolume](ctx, s.Reader, s.Key(name))
	if err != nil || v == nil || v.Spec.Origin != apiv1.OriginProvisioned {
		return "", err
	}
	return "AzVolume " + v.Name, nil
}
