package controllerplugin

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"

	"github.com/azuredisk-csi/azuredisk/internal/testkit/controlplane"
	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/fake"
)

const (
	gib = int64(1) << 30
	eib = int64(1) << 60
)

// noOffers has the platform refuse to tell what it offers.
func noOffers(p *controlplane.ControlPlane) {
	p.Cloud.Inject(fake.Fault{
		Method: fake.SKUsDisk,
		Err:    provisioner.Errorf(provisioner.Unauthorized, "not allowed to read SKUs"),
	})
}

func TestCapacityIsWhatAPlaceCanTake(t *testing.T) {
	sku := func(name string) map[string]string { return map[string]string{"skuName": name} }
	for name, test := range map[string]struct {
		parameters              map[string]string
		topology                *csi.Topology
		capabilities            []*csi.VolumeCapability
		available, largest, low int64
		code                    codes.Code
		says                    string
	}{
		"a zone, and no limit":          {topology: in(region + "-1"), available: eib, largest: 32767 * gib, low: gib},
		"both keys, as nodes have them": {topology: both(region + "-1"), available: eib, largest: 32767 * gib, low: gib},
		"outside of the zones":          {topology: in(""), available: eib, largest: 32767 * gib, low: gib},
		"no topology: the region":       {available: eib, largest: 32767 * gib, low: gib},
		"what the quota leaves": {parameters: sku("Premium_LRS"), topology: in(region + "-2"), available: 2 * 32767 * gib,
			largest: 32767 * gib, low: gib},
		"much is rounded, so that the answer rarely changes": {parameters: sku("StandardSSD_ZRS"), topology: in(region + "-1"),
			available: 64 << 40, largest: 32767 * gib, low: gib},
		"a quota of none": {parameters: sku("Standard_LRS"), topology: in(region + "-2")},
		"a quota of size": {parameters: sku("UltraSSD_LRS"), topology: in(region + "-2"), available: 100 * gib,
			largest: 100 * gib, low: 4 * gib},
		"a quota of size that is used up":  {parameters: sku("PremiumV2_LRS"), topology: in(region + "-2")},
		"a zone without the SKU":           {parameters: sku("PremiumV2_LRS"), topology: in(region + "-3")},
		"Ultra disks outside of the zones": {parameters: sku("UltraSSD_LRS"), topology: in("")},
		"Ultra disks of the region": {
			parameters: sku("UltraSSD_LRS"), available: 100 * gib, largest: 100 * gib, low: 4 * gib},
		"disks of another region": {parameters: map[string]string{"location": "westus"}, topology: in(region + "-1")},
		"ZRS disks": {parameters: sku("Premium_ZRS"), topology: in(region + "-3"), available: eib, largest: 32767 * gib,
			low: gib},
		"shares need a size": {parameters: map[string]string{"skuName": "Premium_ZRS", "maxShares": "5"},
			topology: in(region + "-1"), available: eib, largest: 32767 * gib, low: 513 * gib},
		"bursting needs a size": {parameters: map[string]string{"skuName": "Premium_ZRS", "enableBursting": "true"},
			topology: in(region + "-1"), available: eib, largest: 32767 * gib, low: 513 * gib},
		"what the provisioner keeps for itself": {parameters: map[string]string{"csi.storage.k8s.io/fstype": "xfs"},
			topology: in(region + "-1"), available: eib, largest: 32767 * gib, low: gib},
		"a capability that cannot be had": {capabilities: []*csi.VolumeCapability{controlplane.Shared()},
			topology: in(region + "-1")},
		"a capability that can": {parameters: map[string]string{"maxShares": "2"},
			capabilities: []*csi.VolumeCapability{controlplane.Shared()}, available: eib, largest: 32767 * gib, low: gib},
		"a parameter that is not known": {parameters: map[string]string{"skuNam": "x"}, topology: in(region + "-1"),
			available: eib},
		"parameters that no disk has": {parameters: map[string]string{"skuName": "Standard_LRS", "maxShares": "2"},
			topology: in(region + "-3"), available: eib},
		"a topology that is none": {topology: in("somewhere"), code: codes.InvalidArgument, says: ownKey},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := controlplane.NewInMemory(t, controlplane.Options{Quiet: true})
				p.Cloud.Withdraw("PremiumV2_LRS", "3")
				p.Cloud.SetQuota("Premium_LRS", provisioner.DiskQuota{Disks: 2, SizeBytes: provisioner.Unlimited})
				p.Cloud.SetQuota("StandardSSD_ZRS", provisioner.DiskQuota{Disks: 1000, SizeBytes: 100 << 40})
				p.Cloud.SetQuota("Standard_LRS", provisioner.DiskQuota{Disks: 0, SizeBytes: provisioner.Unlimited})
				p.Cloud.SetQuota("UltraSSD_LRS", provisioner.DiskQuota{Disks: 10, SizeBytes: 100 * gib})
				p.Cloud.SetQuota("PremiumV2_LRS", provisioner.DiskQuota{Disks: 10, SizeBytes: 0})
				got, err := p.CSI.GetCapacity(t.Context(), &csi.GetCapacityRequest{
					Parameters:         test.parameters,
					AccessibleTopology: test.topology,
					VolumeCapabilities: test.capabilities,
				})
				expectCode(t, err, test.code)
				if err != nil {
					if !strings.Contains(err.Error(), test.says) {
						t.Errorf("%q does not name %q", err, test.says)
					}
					return
				}
				if got.GetAvailableCapacity() != test.available || got.GetMaximumVolumeSize().GetValue() != test.largest ||
					got.GetMinimumVolumeSize().GetValue() != test.low || got.GetMaximumVolumeSize() == nil &&
					test.available == 0 {
					t.Errorf("%v; want %d available, from %d to %d", got, test.available, test.low, test.largest)
				}
			})
		})
	}
}

func TestAZoneWhoseVMsCannotHaveTheDiskHasNoCapacity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := controlplane.NewInMemory(t, controlplane.Options{Quiet: true})
		available := func(sku, zone string) int64 {
			t.Helper()
			got, err := p.CSI.GetCapacity(t.Context(), &csi.GetCapacityRequest{
				Parameters:         map[string]string{"skuName": sku},
				AccessibleTopology: in(zone),
			})
			must(t, err)
			return got.GetAvailableCapacity()
		}
		awaited := func(sku, zone string, want int64) {
			t.Helper()
			p.Eventually(sku+" in "+zone, func() string {
				if got := available(sku, zone); got != want {
					return fmt.Sprintf("%d available, want %d", got, want)
				}
				return ""
			})
		}
		if available("Premium_LRS", region+"-1") == 0 {
			t.Error("got no capacity for a zone without nodes, about which nothing is known")
		}
		p.AddNode("ca-plain", "1", "Standard_A2_v2")
		p.AddNode("ca-regional", "", size)
		awaited("Premium_LRS", region+"-1", 0)
		awaited("PremiumV2_LRS", region+"-1", 0)
		awaited("UltraSSD_LRS", region+"-1", 0)
		awaited("StandardSSD_LRS", region+"-1", eib)
		awaited("Premium_LRS", region+"-2", eib)
		awaited("Premium_LRS", "", eib)
		p.AddNode("ca-premium", "1", size)
		awaited("Premium_LRS", region+"-1", eib)
		awaited("UltraSSD_LRS", region+"-1", eib)
	})
}

func TestCapacityWithoutAzuresWord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := controlplane.NewInMemory(t, controlplane.Options{Quiet: true})
		request := &csi.GetCapacityRequest{AccessibleTopology: in(region + "-1")}
		// A role of V1's time may not read quotas; nothing must hang on that.
		remove := p.Cloud.Inject(fake.Fault{Method: fake.SKUsQuota,
			Err: provisioner.Errorf(provisioner.Unauthorized, "not allowed")})
		got, err := p.CSI.GetCapacity(t.Context(), request)
		if err != nil || got.GetAvailableCapacity() != eib {
			t.Errorf("quotas that may not be read: %v, %v", got, err)
		}
		remove()
		// What is known only for a moment not makes the caller keep what it has.
		for _, method := range []fake.Method{fake.SKUsQuota, fake.SKUsDisk} {
			remove = p.Cloud.Inject(fake.Fault{Method: method, Err: provisioner.Errorf(provisioner.RateLimited, "slow down")})
			_, err = p.CSI.GetCapacity(t.Context(), request)
			expectCode(t, err, codes.Unavailable)
			remove()
		}
		noOffers(p)
		got, err = p.CSI.GetCapacity(t.Context(), request)
		if err != nil || got.GetAvailableCapacity() != eib || got.GetMaximumVolumeSize().GetValue() == 0 {
			t.Errorf("offers that may not be read: %v, %v", got, err)
		}
	})
}
