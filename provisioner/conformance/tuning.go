package conformance

import (
	"reflect"
	"strings"

	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// readsBackTuning creates a disk for each group of parameters that go together, and reads them
// back.
func (r *run) readsBackTuning() {
	number, size := func(n int64) *int64 { return &n }, int32(512)
	set, access := r.linked("diskEncryptionSets"), r.linked("diskAccesses")
	for what, change := range map[string]func(*provisioner.DiskSpec){
		"a tier, bursting and frequent attach": func(s *provisioner.DiskSpec) {
			s.SKUName, s.SizeBytes, s.Tier = "Premium_LRS", 1024*GiB, "P40"
			s.BurstingEnabled, s.OptimizedForFrequentAttach = true, true
		},
		"performance of a disk of its own": func(s *provisioner.DiskSpec) {
			s.SKUName, s.Zone, s.SizeBytes, s.MaxShares, s.LogicalSectorSizeBytes = "UltraSSD_LRS", "1", 64*GiB, 2, &size
			s.DiskIOPSReadWrite, s.DiskMBpsReadWrite, s.DiskIOPSReadOnly, s.DiskMBpsReadOnly = number(2000), number(200), number(
				700), number(20)
		},
		"performance plus": func(s *provisioner.DiskSpec) { s.SizeBytes, s.PerformancePlusEnabled = 513*GiB, true },
		"access and encryption": func(s *provisioner.DiskSpec) {
			s.NetworkAccessPolicy, s.PublicNetworkAccess, s.DiskAccessID = "AllowPrivate", "Disabled", access
			s.DiskEncryptionSetID, s.DiskEncryptionType = set, "EncryptionAtRestWithCustomerKey"
		},
		"an action on a delay": func(s *provisioner.DiskSpec) { s.ActionOnDiskDelay = "AutomaticReattach" },
	} {
		spec := r.spec()
		change(&spec)
		op, err := r.Cloud.Disks().Create(r.ctx, spec)
		r.done(op, err)
		d, err := r.Cloud.Disks().Get(r.ctx, spec.ID)
		if err != nil {
			r.Fatal(err)
		}
		if lost := append(lost(spec.DiskSettings, d.Named(spec.DiskSettings)),
			lost(spec.ImmutableDiskSettings, d.ImmutableDiskSettings)...); len(lost) > 0 {
			r.Errorf("%s: lost or changed: %s", what, strings.Join(lost, ", "))
		}
	}
}

// lost names the fields that were asked for and that the disk does not have. The platform may fill
// in more.
func lost(asked, found any) (names []string) {
	want, got := reflect.ValueOf(asked), reflect.ValueOf(found)
	for i := range want.NumField() {
		w, g := want.Field(i), got.Field(i)
		same := w.IsZero() || reflect.DeepEqual(w.Interface(), g.Interface()) || w.Kind() == reflect.String &&
			strings.EqualFold(w.String(), g.String())
		if !same {
			names = append(names, want.Type().Field(i).Name)
		}
	}
	return names
}
