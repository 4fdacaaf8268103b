package controller

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/paramtable"
	"github.com/azuredisk-csi/azuredisk/internal/volumehandle"
	"github.com/azuredisk-csi/azuredisk/internal/volumeparams"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// origin is what a volume is made from, as far as it decides about the volume.
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

// fromSource narrows a request with a content source down to what can be made from it: no smaller than the source, in its region and, for
// a clone of a disk of one zone, in its zone. Without a content source the request comes back as it is. Errors: NotFound for a source that is
// missing, Unavailable for one that is not complete yet, OutOfRange, InvalidArgument, ResourceExhausted.
func (s *Server) fromSource(ctx context.Context, request *csi.CreateVolumeRequest, p *volumeparams.Parameters) (*csi.CreateVolumeRequest, *apiv1.VolumeSource, error) {
	if request.GetVolumeContentSource() == nil {
		return request, nil, nil
	}
	o, err := s.originOf(ctx, request, p)
	if err != nil {
		return nil, nil, err
	}
	if p.Location != "" && p.Location != o.location {
		return nil, nil, paramtable.Invalid([]string{paramtable.Fault("location", p.Location, o.location+", where "+o.what+" is")})
	}
	p.Location = o.location
	narrowed, ok := proto.Clone(request).(*csi.CreateVolumeRequest)
	if !ok {
		return nil, nil, errors.New("the request cannot be copied")
	}
	if narrowed.CapacityRange, err = o.capacity(request.GetCapacityRange()); err != nil {
		return nil, nil, err
	}
	if narrowed.AccessibilityRequirements, err = s.within(o, request.GetAccessibilityRequirements()); err != nil {
		return nil, nil, err
	}
	return narrowed, o.source, nil
}

// originOf reads the source at Azure. The source of a volume that has been made from it already need not be there any more.
func (s *Server) originOf(ctx context.Context, request *csi.CreateVolumeRequest, p *volumeparams.Parameters) (origin, error) {
	var o origin
	var err error
	content := request.GetVolumeContentSource()
	switch {
	case content.GetSnapshot() != nil:
		o, err = s.snapshotOrigin(ctx, content.GetSnapshot().GetSnapshotId())
	case content.GetVolume() != nil:
		o, err = s.diskOrigin(ctx, content.GetVolume().GetVolumeId(), p)
	default:
		return o, invalidArgument("volume content source: neither a snapshot nor a volume")
	}
	if !errors.Is(err, provisioner.NotFound) || o.source == nil {
		return o, err
	}
	name := p.NameDisk(request.GetName())
	made, readErr := s.volume(ctx, volumehandle.Handle{
		SubscriptionID: first(p.SubscriptionID, s.SubscriptionID), ResourceGroup: first(p.ResourceGroup, s.ResourceGroup), DiskName: name,
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

func (s *Server) snapshotOrigin(ctx context.Context, id string) (origin, error) {
	handle, ok := s.snapshotHandle(id)
	if !ok {
		return origin{}, provisioner.Errorf(provisioner.NotFound, "there is no snapshot %q", id)
	}
	o := origin{source: &apiv1.VolumeSource{SnapshotURI: handle.String()}, what: "snapshot " + handle.String()}
	found, err := s.Snapshots.Get(ctx, handle.String())
	switch {
	case errors.Is(err, provisioner.NotFound):
		return o, provisioner.Errorf(provisioner.NotFound, "there is no %s", o.what)
	case err != nil:
		return o, fmt.Errorf("read snapshot: %w", err)
	case !found.Ready:
		return o, provisioner.Errorf(provisioner.Unavailable, "%s is not ready to use: %.0f %% of it are there", o.what, found.CompletionPercent)
	}
	o.sizeBytes, o.location = found.SizeBytes, paramtable.Location(found.Location)
	return o, nil
}

// diskOrigin is for a clone. Its size is the source's own, whatever that one was made from. Azure copies a disk of a zone only within the
// zone, unless the copy is zone-redundant.
func (s *Server) diskOrigin(ctx context.Context, id string, p *volumeparams.Parameters) (origin, error) {
	handle, err := volumehandle.Parse(id)
	if err != nil {
		return origin{}, provisioner.Errorf(provisioner.NotFound, "%w", err)
	}
	o := origin{source: &apiv1.VolumeSource{DiskURI: handle.String()}, what: "disk " + handle.String()}
	found, err := s.Disks.Get(ctx, handle.String())
	switch {
	case errors.Is(err, provisioner.NotFound):
		return o, provisioner.Errorf(provisioner.NotFound, "there is no %s", o.what)
	case err != nil:
		return o, fmt.Errorf("read disk: %w", err)
	case !found.Ready:
		return o, provisioner.Errorf(provisioner.Unavailable, "%s is not ready to be copied", o.what)
	}
	o.sizeBytes, o.location = found.SizeBytes, paramtable.Location(found.Location)
	if !zoneRedundant(p.SKU()) {
		o.zone = found.Zone
	}
	return o, nil
}

// capacity is the size that was asked for, or the source's if none was.
func (o origin) capacity(asked *csi.CapacityRange) (*csi.CapacityRange, error) {
	required, limit := asked.GetRequiredBytes(), asked.GetLimitBytes()
	wholeGiB := (required + volumeparams.GiB - 1) / volumeparams.GiB * volumeparams.GiB
	switch {
	case required > 0 && wholeGiB < o.sizeBytes:
		return nil, grpcstatus.Errorf(codes.OutOfRange, "capacity range: required %d bytes are less than the %d bytes of %s; ask for at least as many, or for none", required, o.sizeBytes, o.what)
	case limit > 0 && limit < o.sizeBytes:
		return nil, grpcstatus.Errorf(codes.OutOfRange, "capacity range: the limit of %d bytes is less than the %d bytes of %s", limit, o.sizeBytes, o.what)
	case required == 0:
		required = o.sizeBytes
	}
	return &csi.CapacityRange{RequiredBytes: required, LimitBytes: limit}, nil
}

// within leaves of a requirement what is in the source's region, and in its zone for one that is tied to it.
func (s *Server) within(o origin, requirement *csi.TopologyRequirement) (*csi.TopologyRequirement, error) {
	places, err := s.places(requirement)
	if err != nil {
		return nil, err
	}
	if len(places) == 0 {
		if o.zone == "" {
			return requirement, nil
		}
		return &csi.TopologyRequirement{Requisite: []*csi.Topology{{Segments: map[string]string{s.topologyKey(): o.location + "-" + o.zone}}}}, nil
	}
	narrowed := &csi.TopologyRequirement{}
	keep := func(from []*csi.Topology, to *[]*csi.Topology) error {
		for _, t := range from {
			found, err := s.places(&csi.TopologyRequirement{Requisite: []*csi.Topology{t}})
			if err != nil {
				return err
			}
			if len(found) == 1 && o.admits(found[0]) {
				*to = append(*to, t)
			}
		}
		return nil
	}
	if err := errors.Join(keep(requirement.GetPreferred(), &narrowed.Preferred), keep(requirement.GetRequisite(), &narrowed.Requisite)); err != nil {
		return nil, err
	}
	if len(narrowed.Preferred)+len(narrowed.Requisite) == 0 {
		where := o.location
		if o.zone != "" {
			where += "-" + o.zone
		}
		return nil, grpcstatus.Errorf(codes.ResourceExhausted, "%s is in %s, where its copy has to be too, and the topology requirement allows: %s", o.what, where, describePlaces(places))
	}
	return narrowed, nil
}

func (o origin) admits(p place) bool {
	return (p.location == "" || p.location == o.location) && (o.zone == "" || p.zone == o.zone)
}

func describePlaces(places []place) string {
	names := make([]string, 0, len(places))
	for _, p := range places {
		name := p.location + "-" + p.zone
		if p.zone == "" {
			name = "outside of the zones"
		}
		names = append(names, name)
	}
	return strings.Join(names, ", ")
}
