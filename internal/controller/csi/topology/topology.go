// Package topology translates between the topologies of CSI and the regions and zones of Azure.
package topology

import (
	"slices"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/parameters/volumeparams"
	"github.com/azuredisk-csi/azuredisk/internal/plan/placement"
)

// Place is where a disk can be: a region and a zone of it, as in "1"; "" for none.
type Place struct{ Location, Zone string }

func (p Place) String() string {
	if p.Zone == "" {
		return p.Location + " outside of the zones"
	}
	return "zone " + p.Location + "-" + p.Zone
}

// Key is the driver's own key of topologies.
type Key string

// KeyOf returns the key of a driver.
func KeyOf(driverName string) Key { return Key(apiv1.ZoneLabel(driverName)) }

// Places returns the places that a requirement names, those preferred first, without repetition. A
// zone is written "<region>-<n>", and "" means outside of the zones.
func (k Key) Places(requirement *csi.TopologyRequirement) ([]Place, error) {
	var found []Place
	for _, t := range slices.Concat(requirement.GetPreferred(), requirement.GetRequisite()) {
		p, ok, err := k.Of(t)
		if err != nil {
			return nil, err
		}
		if ok && !slices.Contains(found, p) {
			found = append(found, p)
		}
	}
	return found, nil
}

// Of returns the place that a topology names, by the driver's own key or the well-known one; ok is
// false if it names none.
func (k Key) Of(t *csi.Topology) (p Place, ok bool, err error) {
	key := string(k)
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
		return Place{}, ok, nil
	}
	i := strings.LastIndex(value, "-")
	if i <= 0 || i == len(value)-1 {
		return Place{}, false, grpcstatus.Errorf(codes.InvalidArgument,
			"topology %s: value %q is not allowed; allowed: <region>-<zone>, or empty", key, value)
	}
	return Place{Location: strings.ToLower(value[:i]), Zone: value[i+1:]}, true, nil
}

// Zonal says of a SKU that its disks are in a zone wherever the region has zones.
func Zonal(skuName string) bool {
	return skuName == volumeparams.UltraSSDLRS || skuName == volumeparams.PremiumV2LRS
}

// Locations names the regions of places.
func Locations(places []Place) string {
	var names []string
	for _, p := range places {
		if !slices.Contains(names, p.Location) {
			names = append(names, p.Location)
		}
	}
	return strings.Join(names, ", ")
}

// Fits reports whether a disk that exists satisfies a requirement.
func (k Key) Fits(disk apiv1.DiskParameters, requirement *csi.TopologyRequirement) bool {
	places, err := k.Places(requirement)
	if err != nil || len(places) == 0 || placement.ZoneRedundant(disk.SKUName) {
		return err == nil
	}
	return slices.ContainsFunc(places, func(p Place) bool {
		return p.Zone == disk.Zone && (p.Location == "" || strings.EqualFold(p.Location, disk.Location))
	})
}

// Accessible returns the places from which a disk can be used: its zone, or every zone of its
// region and outside of the zones too.
func (k Key) Accessible(disk apiv1.DiskParameters) []*csi.Topology {
	zones := []string{""}
	switch {
	case placement.ZoneRedundant(disk.SKUName):
		zones = []string{disk.Location + "-1", disk.Location + "-2", disk.Location + "-3", disk.Location + "-4", ""}
	case disk.Zone != "":
		zones = []string{disk.Location + "-" + disk.Zone}
	}
	topologies := make([]*csi.Topology, 0, len(zones))
	for _, zone := range zones {
		topologies = append(topologies, &csi.Topology{Segments: map[string]string{string(k): zone}})
	}
	return topologies
}
