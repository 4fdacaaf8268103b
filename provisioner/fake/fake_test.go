package fake_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/conformance"
	"github.com/azuredisk-csi/azuredisk/provisioner/fake"
)

const group = "/subscriptions/s/resourceGroups/group/providers/Microsoft.Compute/"

func TestFakeConformsAtOnce(t *testing.T) {
	conformance.Run(t, func(*testing.T) conformance.Harness { return harness(fake.Latency{}, false) })
}

func TestFakeConformsIfVMsListWhatTheyAreToHave(t *testing.T) {
	latency := fake.Latency{Attach: 3 * time.Millisecond, Detach: 2 * time.Millisecond, ForceDetach: time.Millisecond}
	conformance.Run(t, func(*testing.T) conformance.Harness { return harness(latency, true) })
}

func TestFakeConformsWithLatency(t *testing.T) {
	ms := time.Millisecond
	conformance.Run(t, func(*testing.T) conformance.Harness {
		return harness(fake.Latency{
			CreateDisk:     ms,
			UpdateDisk:     ms,
			DeleteDisk:     ms,
			CreateSnapshot: ms,
			DeleteSnapshot: ms,
			Attach:         3 * ms,
			Detach:         2 * ms,
			ForceDetach:    ms,
			BackgroundCopy: 10 * ms,
		}, false)
	})
}

func harness(latency fake.Latency, goalState bool) conformance.Harness {
	cloud := fake.New(fake.Options{Latency: latency, GoalState: goalState, ResourceGroups: []string{"group"}})
	var n atomic.Int64
	newVM := func(kind string) func(*testing.T, string, string) string {
		return func(_ *testing.T, size, zone string) string {
			id := fmt.Sprintf("%s%s%d", group, kind, n.Add(1))
			cloud.AddVM(provisioner.Instance{ID: id, Size: size, Zone: zone})
			return id
		}
	}
	return conformance.Harness{
		Cloud:         cloud,
		Reopen:        func() provisioner.Cloud { return cloud.Reopen() },
		Scope:         provisioner.Scope{SubscriptionID: "s", ResourceGroup: "group"},
		Location:      "eastus",
		OtherLocation: "westus2",
		SmallSize:     "Standard_D2s_v3",
		SmallSlots:    4,
		LargeSize:     "Standard_D16s_v5",
		NewVM:         newVM("virtualMachines/vm"),
		NewScaleSetVM: newVM("virtualMachineScaleSets/set/virtualMachines/"),
		NewFlexibleVM: newVM("virtualMachines/flex_"),
		DeleteVM:      func(_ *testing.T, id string) { cloud.RemoveVM(id) },
		SetPower:      func(_ *testing.T, id string, power provisioner.PowerState) { cloud.SetPower(id, power) },
		Slow: func(_ *testing.T, operation conformance.Operation) func() {
			release := cloud.HoldAll(map[conformance.Operation]fake.Method{
				conformance.CreateDisk: fake.DisksCreate, conformance.CreateSnapshot: fake.SnapshotsCreate,
				conformance.Attach: fake.AttachmentsAttach, conformance.Detach: fake.AttachmentsDetach,
			}[operation])
			var released atomic.Bool
			return func() {
				if !released.Swap(true) {
					release()
				}
			}
		},
		SetQuota: func(_ *testing.T, sku string, n int64) func() {
			cloud.SetQuota(sku, provisioner.DiskQuota{Disks: n, SizeBytes: provisioner.Unlimited})
			return func() {
				cloud.SetQuota(sku, provisioner.DiskQuota{Disks: provisioner.Unlimited, SizeBytes: provisioner.Unlimited})
			}
		},
		Refuse: func(_ *testing.T, kind provisioner.Kind) func() {
			return cloud.Inject(fake.Fault{Err: &provisioner.Error{
				Kind:       kind,
				Message:    "as asked for",
				RetryAfter: time.Second,
			}})
		},
	}
}

func TestOperationsEndByTheInjectedClock(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Unix(1000, 0))
	cloud := fake.New(fake.Options{Clock: clock, Latency: fake.Latency{CreateDisk: 3 * time.Second}})
	op, err := cloud.Disks().Create(t.Context(), provisioner.DiskSpec{
		ID:           group + "disks/d",
		Location:     "eastus",
		SizeBytes:    1 << 30,
		MaxShares:    1,
		DiskSettings: provisioner.DiskSettings{SKUName: "Premium_LRS"},
	})
	if err != nil || op.Token() == "" {
		t.Fatalf("%v, token %q", err, op.Token())
	}
	ended := make(chan error, 1)
	go func() { ended <- op.Wait(t.Context()) }()
	clock.Step(2 * time.Second)
	if d, err := cloud.Disks().Get(t.Context(), group+"disks/d"); err != nil || d.Ready {
		t.Fatalf("after 2 of 3 s: %+v, %v", d, err)
	}
	clock.Step(time.Second)
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if state := cloud.State(); state.InFlight != 0 || len(state.Disks) != 1 || !state.Disks[0].Ready {
		t.Fatalf("%+v", state)
	}
}

func TestFaults(t *testing.T) {
	cloud := fake.New(fake.Options{})
	cloud.AddVM(provisioner.Instance{ID: group + "virtualMachines/v", Size: "Standard_D2s_v3"})
	cloud.AddDisk(provisioner.Disk{
		ID:           group + "disks/d",
		SizeBytes:    1 << 30,
		DiskSettings: provisioner.DiskSettings{SKUName: "Premium_LRS"},
	})
	request := provisioner.AttachRequest{VMID: group + "virtualMachines/v", DiskID: group + "disks/d"}

	cloud.FailNext(fake.AttachmentsAttach, 1, provisioner.Errorf(provisioner.Unavailable, "out"))
	if _, err := cloud.Attachments().Attach(t.Context(), request); !errors.Is(err, provisioner.Unavailable) {
		t.Fatalf("the next call: %v", err)
	}
	cloud.Inject(fake.Fault{
		ID:           request.DiskID,
		Times:        1,
		OperationErr: provisioner.Errorf(provisioner.Conflict, "lost"),
	})
	op, err := cloud.Attachments().Attach(t.Context(), request)
	if err != nil {
		t.Fatalf("a call whose operation is to fail: %v", err)
	}
	if err := op.Wait(t.Context()); !errors.Is(err, provisioner.Conflict) {
		t.Fatalf("its operation: %v", err)
	}
	if list, err := cloud.Attachments().List(t.Context(), request.VMID); err != nil || len(list) != 0 {
		t.Fatalf("a failed attach left %v, %v", list, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	remove := cloud.Inject(fake.Fault{Method: fake.DisksGet, Delay: time.Hour})
	if _, err := cloud.Disks().Get(ctx, request.DiskID); !errors.Is(err, context.Canceled) {
		t.Fatalf("a delayed call: %v", err)
	}
	remove()
	if op, err = cloud.Attachments().Attach(t.Context(), request); err != nil || op.Wait(t.Context()) != nil {
		t.Fatalf("after the faults: %v", err)
	}
	if n := cloud.CallCount(fake.AttachmentsAttach); n != 3 {
		t.Fatalf("%d attaches in the log", n)
	}
}
