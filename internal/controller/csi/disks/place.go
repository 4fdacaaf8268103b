package disks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/go-logr/logr"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cluster"
	"github.com/azuredisk-csi/azuredisk/internal/controller/csi/call"
	"github.com/azuredisk-csi/azuredisk/internal/controller/csi/topology"
	"github.com/azuredisk-csi/azuredisk/internal/parameters/paramtable"
	"github.com/azuredisk-csi/azuredisk/internal/parameters/snapshotparams"
	"github.com/azuredisk-csi/azuredisk/internal/parameters/volumeparams"
	"github.com/azuredisk-csi/azuredisk/internal/plan/placement"
	"github.com/azuredisk-csi/azuredisk/internal/volumehandle"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// need is a disk that needs a place.
type need struct {
	// volume is the name of the volume, by which volumes spread over the zones if the requirement
	// names none.
	volume    string
	skuName   string
	sizeBytes int64
	// location that the StorageClass names; "" for any that the requirement allows, and without a
	// requirement the cluster's.
	location string
}

// choose picks the place for a new disk: the first that the requirement names, that is in the
// location of the StorageClass, and in which Azure offers the SKU. Without a requirement the disk
// is outside of the zones, unless its SKU must be in one. A Premium SSD v2 is outside of the zones only
// if no zone is left: Azure allows it in some regions. If no place is left, ResourceExhausted makes the
// caller try another topology; a SKU that the region does not have is InvalidArgument.
func (s *Provisioner) choose(ctx context.Context, requirement *csi.TopologyRequirement, n need) (topology.Place, error) {
	places, err := s.Topology.Places(requirement)
	if err != nil {
		return topology.Place{}, err
	}
	fallback := cmp.Or(n.location, s.Location)
	if len(places) == 0 {
		return s.anywhere(ctx, fallback, n)
	}
	var reasons []string
	var untried *topology.Place
	nowhere := true // in these regions
	for _, p := range places {
		if p.Location == "" {
			p.Location = fallback
		}
		if n.location != "" && n.location != p.Location {
			continue
		}
		o, err := s.offer(ctx, p, n)
		switch {
		case err != nil:
			return topology.Place{}, err
		case o.refused == "" && placement.ZoneRedundant(n.skuName):
			return topology.Place{Location: p.Location}, nil
		case o.refused == "":
			return p, nil
		case o.mayTry && untried == nil:
			untried = &p
		}
		nowhere = nowhere && o.nowhere
		if !slices.Contains(reasons, o.refused) {
			reasons = append(reasons, o.refused)
		}
	}
	switch {
	case untried != nil:
		return *untried, nil
	case len(reasons) == 0:
		return topology.Place{}, call.InvalidArgument(
			"parameter location: value %q is not allowed; allowed by the topology requirement: %s", n.location,
			topology.Locations(places))
	case nowhere:
		return topology.Place{}, provisioner.Errorf(provisioner.InvalidArgument, "parameter skuName: %s",
			strings.Join(reasons, "; "))
	}
	return topology.Place{}, provisioner.Errorf(provisioner.InsufficientCapacity,
		"no place that the topology requirement allows can have the disk: %s", strings.Join(reasons, "; "))
}

// anywhere picks a place in a region if the requirement names none.
func (s *Provisioner) anywhere(ctx context.Context, location string, n need) (topology.Place, error) {
	p := topology.Place{Location: location}
	o, err := s.offer(ctx, p, n)
	switch {
	case err != nil:
		return topology.Place{}, err
	case o.refused == "":
		return p, nil
	case o.nowhere || len(o.zones) == 0:
		return topology.Place{}, provisioner.Errorf(provisioner.InvalidArgument, "parameter skuName: %s", o.refused)
	}
	zones, err := s.withNodes(ctx, location, o.zones)
	if err != nil {
		return topology.Place{}, err
	}
	spread := fnv.New32a()
	_, _ = spread.Write([]byte(n.volume)) // Write of a hash returns no error
	p.Zone = zones[int(spread.Sum32()%uint32(len(zones)))]
	return p, nil
}

// withNodes returns the zones that have nodes, or all zones if none has.
func (s *Provisioner) withNodes(ctx context.Context, location string, zones []string) ([]string, error) {
	nodes, err := cluster.Identities(ctx, s.Client, s.Namespace)
	if err != nil {
		return nil, err
	}
	has := map[string]bool{}
	for _, identity := range nodes {
		if identity.VMID != "" && strings.EqualFold(identity.Location, location) {
			has[identity.Zone] = true
		}
	}
	populated := slices.DeleteFunc(slices.Clone(zones), func(zone string) bool { return !has[zone] })
	if len(populated) == 0 {
		populated = slices.Clone(zones)
	}
	slices.Sort(populated)
	return populated, nil
}

// offer is what Azure offers of a SKU in a place.
type offer struct {
	// unknown is why the offer is not known: then Azure decides when the disk is created. nil if
	// the offer is known.
	unknown error
	limits  provisioner.DiskLimits
	// zones of the region that have the SKU.
	zones []string
	// refused says why a disk cannot be created in the place; "" if it can. nowhere says that the
	// whole region cannot have it.
	refused string
	nowhere bool
	// mayTry reports that Azure's list does not say whether it would refuse, too.
	mayTry bool
}

// offer returns whether a disk can be created in a place.
func (s *Provisioner) offer(ctx context.Context, p topology.Place, n need) (offer, error) {
	limits, err := s.SKUs.Disk(ctx, p.Location, n.skuName, n.sizeBytes)
	switch {
	case errors.Is(err, provisioner.NotFound):
		return offer{nowhere: true, refused: fmt.Sprintf("%s is not offered in %s", n.skuName, p.Location)}, nil
	case errors.Is(err, provisioner.InvalidArgument) || (err != nil && ctx.Err() != nil):
		return offer{}, err
	case err != nil:
		logr.FromContextOrDiscard(ctx).Error(err, "cannot look up where Azure offers the SKU; Azure decides", "sku", n.skuName,
			"location", p.Location)
		return offer{unknown: err}, nil
	}
	o := offer{limits: limits, zones: limits.Zones}
	switch {
	case placement.ZoneRedundant(n.skuName) || len(limits.Zones) == 0:
	case p.Zone == "" && topology.Zonal(n.skuName):
		o.refused = fmt.Sprintf("%s disks must be in a zone in %s, which has zones %s", n.skuName, p.Location,
			strings.Join(limits.Zones, ", "))
		o.mayTry = n.skuName == volumeparams.PremiumV2LRS
	case p.Zone != "" && !slices.Contains(limits.Zones, p.Zone):
		o.refused = fmt.Sprintf("%s is not offered in %s", n.skuName, p)
	}
	return o, nil
}

// origin is the source of a volume: the properties that decide about the volume.
type origin struct {
	source *apiv1.VolumeSource
	// what names it in messages, as in "snapshot /subscriptions/…".
	what      string
	sizeBytes int64
	// location of the source, which the volume shares.
	location string
	// zone that the volume has to be in; "" if it is free to choose.
	zone string
}

// fromSource limits a request with a content source to what the source allows: no smaller than the
// source, in its region and, for a clone of a disk of one zone, in its zone. Without a content
// source it returns the request unchanged. Errors: NotFound for a source that does not exist,
// Unavailable for a source that is not complete yet, OutOfRange, InvalidArgument, ResourceExhausted.
func (s *Provisioner) fromSource(ctx context.Context, request *csi.CreateVolumeRequest,
	p *volumeparams.Parameters) (*csi.CreateVolumeRequest, *apiv1.VolumeSource, error) {
	if request.GetVolumeContentSource() == nil {
		return request, nil, nil
	}
	o, err := s.originOf(ctx, request, p)
	if err != nil {
		return nil, nil, err
	}
	if p.Location != "" && p.Location != o.location {
		return nil, nil, paramtable.Invalid(
			[]string{paramtable.Fault("location", p.Location, o.location+", where "+o.what+" is")})
	}
	p.Location = o.location
	narrowed := proto.CloneOf(request)
	if narrowed.CapacityRange, err = o.capacity(request.GetCapacityRange()); err != nil {
		return nil, nil, err
	}
	if narrowed.AccessibilityRequirements, err = s.within(o, request.GetAccessibilityRequirements()); err != nil {
		return nil, nil, err
	}
	return narrowed, o.source, nil
}

// originOf reads the source at Azure. The source may be deleted if the volume was created from it
// already.
func (s *Provisioner) originOf(ctx context.Context, request *csi.CreateVolumeRequest,
	p *volumeparams.Parameters) (origin, error) {
	var o origin
	var err error
	content := request.GetVolumeContentSource()
	switch {
	case content.GetSnapshot() != nil:
		o, err = s.snapshotOrigin(ctx, content.GetSnapshot().GetSnapshotId())
	case content.GetVolume() != nil:
		o, err = s.diskOrigin(ctx, content.GetVolume().GetVolumeId(), p)
	default:
		return o, call.InvalidArgument("volume content source: neither a snapshot nor a volume")
	}
	if !errors.Is(err, provisioner.NotFound) || o.source == nil {
		return o, err
	}
	name := p.NameDisk(request.GetName())
	made, readErr := s.Volume(ctx, volumehandle.Handle{
		SubscriptionID: cmp.Or(p.SubscriptionID, s.SubscriptionID),
		ResourceGroup:  cmp.Or(p.ResourceGroup, s.ResourceGroup),
		DiskName:       name,
	})
	if readErr != nil {
		return o, readErr
	}
	if made == nil || made.Spec.Source == nil || *made.Spec.Source != *o.source {
		return o, err
	}
	o.location, o.zone = made.Spec.Disk.Location, made.Spec.Disk.Zone
	if request.GetCapacityRange().GetRequiredBytes() == 0 {
		o.sizeBytes = made.Spec.CapacityBytes
	}
	return o, nil
}

func (s *Provisioner) snapshotOrigin(ctx context.Context, id string) (origin, error) {
	handle, ok := snapshotparams.ParseID(id, s.SubscriptionID, s.ResourceGroup)
	if !ok {
		return origin{}, provisioner.Errorf(provisioner.NotFound, "there is no snapshot %q", id)
	}
	o := origin{source: &apiv1.VolumeSource{SnapshotID: handle.String()}, what: "snapshot " + handle.String()}
	found, err := s.Snapshots.Get(ctx, handle.String())
	switch {
	case errors.Is(err, provisioner.NotFound):
		return o, provisioner.Errorf(provisioner.NotFound, "there is no %s", o.what)
	case err != nil:
		return o, fmt.Errorf("read snapshot: %w", err)
	case !found.Ready:
		return o, provisioner.Errorf(provisioner.Unavailable, "%s is not ready to use: %.0f %% of it is complete", o.what,
			found.CompletionPercent)
	}
	o.sizeBytes, o.location = found.SizeBytes, paramtable.Location(found.Location)
	return o, nil
}

// diskOrigin is for a clone. Its size is the size of the source, whatever the source was created
// from. Azure copies a disk of a zone only within the zone, unless the copy is zone-redundant.
func (s *Provisioner) diskOrigin(ctx context.Context, id string, p *volumeparams.Parameters) (origin, error) {
	handle, err := volumehandle.Parse(id)
	if err != nil {
		return origin{}, provisioner.Errorf(provisioner.NotFound, "%w", err)
	}
	o := origin{source: &apiv1.VolumeSource{DiskID: handle.String()}, what: "disk " + handle.String()}
	found, err := s.Disk(ctx, handle)
	switch {
	case err != nil:
		return o, err
	case found.ID == "":
		return o, provisioner.Errorf(provisioner.NotFound, "there is no %s", o.what)
	case !found.Ready:
		return o, provisioner.Errorf(provisioner.Unavailable, "%s is not ready to be copied", o.what)
	}
	o.sizeBytes, o.location = found.SizeBytes, paramtable.Location(found.Location)
	if !placement.ZoneRedundant(p.SKU()) {
		o.zone = found.Zone
	}
	return o, nil
}

// capacity is the requested size, or the size of the source if the request has none.
func (o origin) capacity(asked *csi.CapacityRange) (*csi.CapacityRange, error) {
	required, limit := asked.GetRequiredBytes(), asked.GetLimitBytes()
	wholeGiB := (required + volumeparams.GiB - 1) / volumeparams.GiB * volumeparams.GiB
	switch {
	case required > 0 && wholeGiB < o.sizeBytes:
		return nil, grpcstatus.Errorf(codes.OutOfRange,
			"capacity range: required %d bytes are less than the %d bytes of %s; ask for at least as many, or for none", required,
			o.sizeBytes, o.what)
	case limit > 0 && limit < o.sizeBytes:
		return nil, grpcstatus.Errorf(codes.OutOfRange, "capacity range: the limit of %d bytes is less than the %d bytes of %s",
			limit, o.sizeBytes, o.what)
	case required == 0:
		required = o.sizeBytes
	}
	return &csi.CapacityRange{RequiredBytes: required, LimitBytes: limit}, nil
}

// within returns the part of a requirement that is in the source's region and, if the source has a
// zone, in its zone.
func (s *Provisioner) within(o origin, requirement *csi.TopologyRequirement) (*csi.TopologyRequirement, error) {
	places, err := s.Topology.Places(requirement)
	if err != nil {
		return nil, err
	}
	if len(places) == 0 {
		if o.zone == "" {
			return requirement, nil
		}
		return &csi.TopologyRequirement{Requisite: []*csi.Topology{{Segments: map[string]string{string(s.Topology): o.location +
			"-" + o.zone}}}}, nil
	}
	admitted := func(all []*csi.Topology) []*csi.Topology {
		return slices.DeleteFunc(slices.Clone(all), func(t *csi.Topology) bool {
			p, ok, err := s.Topology.Of(t)
			return err != nil || !ok || !o.admits(p)
		})
	}
	narrowed := &csi.TopologyRequirement{
		Preferred: admitted(requirement.GetPreferred()),
		Requisite: admitted(requirement.GetRequisite()),
	}
	if len(narrowed.Preferred)+len(narrowed.Requisite) == 0 {
		where := o.location
		if o.zone != "" {
			where += "-" + o.zone
		}
		return nil, grpcstatus.Errorf(codes.ResourceExhausted,
			"%s is in %s, where its copy has to be too, and the topology requirement allows: %s", o.what, where,
			describePlaces(places))
	}
	return narrowed, nil
}

func (o origin) admits(p topology.Place) bool {
	return (p.Location == "" || p.Location == o.location) && (o.zone == "" || p.Zone == o.zone)
}

func describePlaces(places []topology.Place) string {
	names := make([]string, 0, len(places))
	for _, p := range places {
		name := p.Location + "-" + p.Zone
		if p.Zone == "" {
			name = "outside of the zones"
		}
		names = append(names, name)
	}
	return strings.Join(names, ", ")
}
