package metered_test

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/fake"
	"github.com/azuredisk-csi/azuredisk/provisioner/metered"
)

func TestCallsOperationsAndErrorsAreCounted(t *testing.T) {
	registry := prometheus.NewRegistry()
	platform := fake.New(fake.Options{})
	cloud, err := metered.New(metered.Options{Cloud: platform, Registerer: registry})
	if err != nil {
		t.Fatal(err)
	}
	const id = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks/d"
	op, err := cloud.Disks().Create(t.Context(), provisioner.DiskSpec{ID: id, Location: "eastus", SizeBytes: 1 << 30, MaxShares: 1, DiskSettings: provisioner.DiskSettings{SKUName: "Premium_LRS"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := op.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	platform.FailNext(fake.DisksGet, 1, &provisioner.Error{Kind: provisioner.RateLimited, Code: "TooManyRequests", Message: "slower"})
	if _, err := cloud.Disks().Get(t.Context(), id); provisioner.KindOf(err) != provisioner.RateLimited {
		t.Fatal(err)
	}
	if err := testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP azuredisk_cloud_errors_total Failed calls to the cloud by call, kind of error and the platform's code.
# TYPE azuredisk_cloud_errors_total counter
azuredisk_cloud_errors_total{call="Disks.Get",code="TooManyRequests",kind="RateLimited"} 1
`), "azuredisk_cloud_errors_total"); err != nil {
		t.Fatal(err)
	}
	if n := testutil.CollectAndCount(registry, "azuredisk_cloud_call_duration_seconds"); n != 3 {
		t.Fatalf("%d series of durations, want those of the call, of its operation and of the failure", n)
	}
}
