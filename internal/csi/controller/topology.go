package controller

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/nodeidentity"
	"github.com/azuredisk-csi/azuredisk/internal/volumeparams"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// place is where a disk can be: a region and a zone of it, as in "1"; "" for none.
type place struct{ location, zone string }

func (p place) String() string {
	if p.zone == "" {
		return p.location + " outside of the zones"
	}
	return "zone " + p.location + "-" + p.zone
}

// need is a disk for which a place is sought.
type need struct {
	// volume is the name of the volume, by which volumes spread over the zones where nobody says which.
	volume    string
	skuName   string
	sizeBytes int64
	// location that the StorageClass names; "" for any that the requirement allows, and without a requirement the cluster's.
	location string
}

func (s *Server) topologyKey() string { return "topology." + s.DriverName + "/zone" }

// places returns the places that a requirement names, those preferred first, without repetition. A zone is
// written "<region>-<n>", and "" means outside of the zones.
func (s *Server) places(requirement *csi.TopologyRequirement) ([]place, error) {
	var found []place
	for _, t := range slices.Concat(requirement.GetPreferred(), requirement.GetRequisite()) {
		p, ok, err := s.placeOf(t)
		if err != nil {
			return nil, err
		}
		if ok && !slices.Contains(found, p) {
			found = append(found, p)
		}
	}
	return found, nil
}

// placeOf returns the place that a topology names, by the driver's own key or the well-known one; ok is false if it names none.
func (s *Server) placeOf(t *csi.Topology) (p place, ok bool, err error) {
	key := s.topologyKey()
	value, ok := t.GetSegments()[key]
	if !ok {
		key = corev1.LabelTopologyZone
		value, ok = t.GetSegments()[key]
		// Without a zone, Azure's cloud provider writes the number of the fault domain there.
		if ok && !strings.Contains(value, "-") {
			value = ""
		}
	}
	if !ok || value == "" {
		return place{}, ok, nil
	}
	i := strings.LastIndex(value, "-")
	if i <= 0 || i == len(value)-1 {
		return place{}, false, invalidArgument("topology %s: value %q is not allowed; allowed: <region>-<zone>, or empty", key, value)
	}
	return place{location: strings.ToLower(value[:i]), zone: value[i+1:]}, true, nil
}

// choose picks the place for a new disk: the first that the requirement names, that goes with the location of the StorageClass, and in
// which Azure offers the SKU. Without a requirement the disk is outside of the zones, unless its SKU must be in one. Where
// nothing is left, ResourceExhausted has the caller look elsewhere; a SKU that the region does not have is InvalidArgument.
func (s *Server) choose(ctx context.Context, requirement *csi.TopologyRequirement, n need) (place, error) {
	places, err := s.places(requirement)
	if err != nil {
		return place{}, err
	}
	fallback := first(n.location, s.Location)
	if len(places) == 0 {
		return s.anywhere(ctx, fallback, n)
	}
	var reasons []string
	elsewhere := true // nowhere in these regions
	for _, p := range places {
		if p.location == "" {
			p.location = fallback
		}
		if n.location != "" && n.location != p.location {
			continue
		}
		o, err := s.offer(ctx, p, n)
		switch {
		case err != nil:
			return place{}, err
		case o.refused == "" && zoneRedundant(n.skuName):
			return place{location: p.location}, nil
		case o.refused == "":
			return p, nil
		}
		elsewhere = elsewhere && o.nowhere
		if !slices.Contains(reasons, o.refused) {
			reasons = append(reasons, o.refused)
		}
	}
	switch {
	case len(reasons) == 0:
		return place{}, invalidArgument("parameter location: value %q is not allowed; allowed by the topology requirement: %s", n.location, locations(places))
	case elsewhere:
		return place{}, provisioner.Errorf(provisioner.InvalidArgument, "parameter skuName: %s", strings.Join(reasons, "; "))
	}
	return place{}, provisioner.Errorf(provisioner.InsufficientCapacity, "no place that the topology requirement allows can have the disk: %s", strings.Join(reasons, "; "))
}

// anywhere picks a place in a region where nobody says which.
func (s *Server) anywhere(ctx context.Context, location string, n need) (place, error) {
	p := place{location: location}
	o, err := s.offer(ctx, p, n)
	switch {
	case err != nil:
		return place{}, err
	case o.refused == "":
		return p, nil
	case o.nowhere || len(o.zones) == 0:
		return place{}, provisioner.Errorf(provisioner.InvalidArgument, "parameter skuName: %s", o.refused)
	}
	zones, err := s.withNodes(ctx, location, o.zones)
	if err != nil {
		return place{}, err
	}
	spread := fnv.New32a()
	_, _ = spread.Write([]byte(n.volume)) // a hash takes everything
	p.zone = zones[int(spread.Sum32()%uint32(len(zones)))]
	return p, nil
}

// withNodes leaves those of the zones that have nodes, or all of them if none has.
func (s *Server) withNodes(ctx context.Context, location string, zones []string) ([]string, error) {
	nodes, err := nodeidentity.All(ctx, s.Client, s.Namespace)
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
	// unknown is why it is not known, and then Azure decides when the disk is created; nil if it is.
	unknown error
	limits  provisioner.DiskLimits
	// zones of the region that have the SKU.
	zones []string
	// refused says why a disk cannot be had in the place; "" if it can. nowhere says that it cannot in the whole region.
	refused string
	nowhere bool
}

// offer finds out whether a disk can be had in a place.
func (s *Server) offer(ctx context.Context, p place, n need) (offer, error) {
	limits, err := s.SKUs.Disk(ctx, p.location, n.skuName, n.sizeBytes)
	switch {
	case errors.Is(err, provisioner.NotFound):
		return offer{nowhere: true, refused: fmt.Sprintf("%s is not offered in %s", n.skuName, p.location)}, nil
	case errors.Is(err, provisioner.InvalidArgument) || (err != nil && ctx.Err() != nil):
		return offer{}, err
	case err != nil:
		logr.FromContextOrDiscard(ctx).Error(err, "cannot look up where Azure offers the SKU; Azure decides", "sku", n.skuName, "location", p.location)
		return offer{unknown: err}, nil
	}
	o := offer{limits: limits, zones: limits.Zones}
	switch {
	case zoneRedundant(n.skuName) || len(limits.Zones) == 0:
	case p.zone == "" && zonal(n.skuName):
		o.refused = fmt.Sprintf("%s disks must be in a zone in %s, which has zones %s", n.skuName, p.location, strings.Join(limits.Zones, ", "))
	case p.zone != "" && !slices.Contains(limits.Zones, p.zone):
		o.refused = fmt.Sprintf("%s is not offered in %s", n.skuName, p)
	}
	return o, nil
}

// zonal says of a SKU that its disks are in a zone wherever the region has zones.
func zonal(skuName string) bool {
	return skuName == volumeparams.UltraSSDLRS || skuName == volumeparams.PremiumV2LRS
}

func locations(places []place) string {
	var names []string
	for _, p := range places {
		if !slices.Contains(names, p.location) {
			names = append(names, p.location)
		}
	}
	return strings.Join(names, ", ")
}

// fits says whether a disk that exists satisfies a requirement.
func (s *Server) fits(disk apiv1.DiskParameters, requirement *csi.TopologyRequirement) bool {
	places, err := s.places(requirement)
	if err != nil || len(places) == 0 || zoneRedundant(disk.SKUName) {
		return err == nil
	}
	return slices.ContainsFunc(places, func(p place) bool {
		return p.zone == disk.Zone && (p.location == "" || strings.EqualFold(p.location, disk.Location))
	})
}

func zoneRedundant(skuName string) bool { return strings.HasSuffix(skuName, "_ZRS") }

// accessible returns from where a disk can be used: its zone, or every zone of its region and outside of the zones too.
func (s *Server) accessible(disk apiv1.DiskParameters) []*csi.Topology {
	zones := []string{""}
	switch {
	case zoneRedundant(disk.SKUName):
		zones = []string{disk.Location + "-1", disk.Location + "-2", disk.Location + "-3", disk.Location + "-4", ""}
	case disk.Zone != "":
		zones = []string{disk.Location + "-" + disk.Zone}
	}
	topologies := make([]*csi.Topology, 0, len(zones))
	for _, zone := range zones {
		topologies = append(topologies, &csi.Topology{Segments: map[string]string{s.topologyKey(): zone}})
	}
	return topologies
}
