package controller

import (
	"slices"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
)

// place is where a disk can be: a region and a zone of it, as in "1"; "" for none.
type place struct{ location, zone string }

func (s *Server) topologyKey() string { return "topology." + s.DriverName + "/zone" }

// places returns the places that a requirement names, those preferred first, without repetition. A zone is
// written "<region>-<n>", and "" means outside of the zones.
func (s *Server) places(requirement *csi.TopologyRequirement) ([]place, error) {
	var found []place
	for _, t := range slices.Concat(requirement.GetPreferred(), requirement.GetRequisite()) {
		value, ok := t.GetSegments()[s.topologyKey()]
		if !ok {
			value, ok = t.GetSegments()[corev1.LabelTopologyZone]
		}
		if !ok {
			continue
		}
		p := place{}
		if value != "" {
			i := strings.LastIndex(value, "-")
			if i <= 0 || i == len(value)-1 {
				return nil, invalidArgument("topology %s: value %q is not allowed; allowed: <region>-<zone>, or empty", s.topologyKey(), value)
			}
			p = place{location: strings.ToLower(value[:i]), zone: value[i+1:]}
		}
		if !slices.Contains(found, p) {
			found = append(found, p)
		}
	}
	return found, nil
}

// choose picks the place for a new disk: the first that goes with the location that the StorageClass names, if it names one.
// Without a requirement the disk is outside of the zones.
func (s *Server) choose(requirement *csi.TopologyRequirement, location string) (place, error) {
	places, err := s.places(requirement)
	if err != nil {
		return place{}, err
	}
	fallback := location
	if fallback == "" {
		fallback = s.Location
	}
	if len(places) == 0 {
		return place{location: fallback}, nil
	}
	for _, p := range places {
		switch {
		case p.location == "":
			return place{location: fallback}, nil
		case location == "" || location == p.location:
			return p, nil
		}
	}
	return place{}, invalidArgument("parameter location: value %q is not allowed; allowed by the topology requirement: %s", location, locations(places))
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
