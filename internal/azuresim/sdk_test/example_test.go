package sdk_test

import (
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7"

	"github.com/azuredisk-csi/azuredisk/azuresim/simtest"
)

// An example for other projects: a disk is made with the stock SDK on a simulator in the same process.
func TestAStockClientMakesADisk(t *testing.T) {
	azure := simtest.Start(t)
	clients, err := armcompute.NewClientFactory(simtest.Subscription, azure.Credential(), azure.ClientOptions())
	if err != nil {
		t.Fatal(err)
	}
	poller, err := clients.NewDisksClient().BeginCreateOrUpdate(t.Context(), "default", "data", armcompute.Disk{
		Location: to.Ptr("eastus"),
		SKU:      &armcompute.DiskSKU{Name: to.Ptr(armcompute.DiskStorageAccountTypesPremiumLRS)},
		Properties: &armcompute.DiskProperties{
			CreationData: &armcompute.CreationData{CreateOption: to.Ptr(armcompute.DiskCreateOptionEmpty)},
			DiskSizeGB:   to.Ptr[int32](64),
			MaxShares:    to.Ptr[int32](3),
		},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	disk, err := poller.PollUntilDone(t.Context(), &runtime.PollUntilDoneOptions{Frequency: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if *disk.Properties.DiskState != armcompute.DiskStateUnattached || *disk.Properties.Tier != "P6" {
		t.Errorf("got %s, tier %s, want Unattached and P6", *disk.Properties.DiskState, *disk.Properties.Tier)
	}
}
