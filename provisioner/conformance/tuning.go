package conformance

import (
	"strings"

	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// readsBackTuning creates a disk for each group of parameters that go together, and reads them back.
func (r *run) readsBackTuning() {
	number, size, on := func(n int64) *int64 { return &n }, int32(512), true
	set := "/subscriptions/" + r.Scope.SubscriptionID + "/resourceGroups/" + r.Scope.ResourceGroup + "/providers/Microsoft.Compute/diskEncryptionSets/set"
	access := strings.Replace(set, "diskEncryptionSets", "diskAccesses", 1)
	for what, change := range map[string]func(*provisioner.DiskSpec){
		"a tier, bursting and frequent attach": func(s *provisioner.DiskSpec) {
			s.SKUName, s.SizeBytes, s.Tier, s.Bursting, s.OptimizedForFrequentAttach = "Premium_LRS", 1024*GiB, "P40", &on, &on
		},
		"performance of a disk of its own": func(s *provisioner.DiskSpec) {
			s.SKUName, s.Zone, s.SizeBytes, s.MaxShares, s.LogicalSectorSize = "UltraSSD_LRS", "1", 64*GiB, 2, &size
			s.IOPSReadWrite, s.MBpsReadWrite, s.IOPSReadOnly, s.MBpsReadOnly = number(2000), number(200), number(700), number(20)
		},
		"performance plus": func(s *provisioner.DiskSpec) { s.SizeBytes, s.PerformancePlus = 513*GiB, &on },
		"access and encryption": func(s *provisioner.DiskSpec) {
			s.NetworkAccessPolicy, s.PublicNetworkAccess, s.DiskAccessID = "AllowPrivate", "Disabled", access
			s.EncryptionSetID, s.EncryptionType = set, "EncryptionAtRestWithCustomerKey"
		},
		"an availability policy": func(s *provisioner.DiskSpec) { s.ActionOnDiskDelay = "AutomaticReattach" },
	} {
		spec := r.spec()
		change(&spec)
		op, err := r.Cloud.Disks().Create(r.ctx, spec)
		r.done(op, err)
		d, err := r.Cloud.Disks().Get(r.ctx, spec.ID)
		if err != nil {
			r.Fatal(err)
		}
		if lost := lostTuning(spec.DiskTuning, d.DiskTuning); len(lost) > 0 {
			r.Errorf("%s: lost or changed: %s", what, strings.Join(lost, ", "))
		}
	}
}

// lostTuning names what was asked for and is not there. The platform may fill in more.
func lostTuning(asked, found provisioner.DiskTuning) (lost []string) {
	check := func(name string, is bool) {
		if !is {
			lost = append(lost, name)
		}
	}
	for name, pair := range map[string][2]string{
		"Tier": {asked.Tier, found.Tier}, "NetworkAccessPolicy": {asked.NetworkAccessPolicy, found.NetworkAccessPolicy},
		"PublicNetworkAccess": {asked.PublicNetworkAccess, found.PublicNetworkAccess}, "DiskAccessID": {asked.DiskAccessID, found.DiskAccessID},
		"EncryptionSetID": {asked.EncryptionSetID, found.EncryptionSetID}, "EncryptionType": {asked.EncryptionType, found.EncryptionType},
		"ActionOnDiskDelay": {asked.ActionOnDiskDelay, found.ActionOnDiskDelay},
	} {
		check(name, pair[0] == "" || strings.EqualFold(pair[0], pair[1]))
	}
	check("IOPSReadWrite", kept(asked.IOPSReadWrite, found.IOPSReadWrite))
	check("MBpsReadWrite", kept(asked.MBpsReadWrite, found.MBpsReadWrite))
	check("IOPSReadOnly", kept(asked.IOPSReadOnly, found.IOPSReadOnly))
	check("MBpsReadOnly", kept(asked.MBpsReadOnly, found.MBpsReadOnly))
	check("LogicalSectorSize", kept(asked.LogicalSectorSize, found.LogicalSectorSize))
	check("Bursting", kept(asked.Bursting, found.Bursting))
	check("PerformancePlus", kept(asked.PerformancePlus, found.PerformancePlus))
	check("OptimizedForFrequentAttach", kept(asked.OptimizedForFrequentAttach, found.OptimizedForFrequentAttach))
	return lost
}

func kept[T comparable](asked, found *T) bool {
	return asked == nil || found != nil && *found == *asked
}
