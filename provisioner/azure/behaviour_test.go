package azure_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7"

	"github.com/azuredisk-csi/azuredisk/azuresim/simtest"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/server"
	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/azure"
)

// bed is a simulator with one client of it, a VM and some disks.
type bed struct {
	*testing.T
	*simulator
	cloud *azure.Cloud
	vm    string
	disks []string
	since uint64 // sequence number of the last call of the preparations
}

func newBed(t *testing.T, disks int, change ...func(*server.Options)) *bed {
	t.Helper()
	return newBedOn(t, startSimulator(t, change...), disks)
}

func newBedOn(t *testing.T, s *simulator, disks int) *bed {
	t.Helper()
	cloud, closeIt := s.open(t)
	t.Cleanup(closeIt)
	b := &bed{T: t, simulator: s, cloud: cloud, vm: s.newVM(t, "Standard_M64s", "")}
	b.disks = make([]string, disks)
	b.together(disks, func(i int) error {
		b.disks[i] = fmt.Sprintf("/subscriptions/%s/resourceGroups/%s/providers/Microsoft.Compute/disks/disk-%d", subscription,
			group, i)
		return b.outcome(cloud.Disks().Create(t.Context(), provisioner.DiskSpec{
			ID:           b.disks[i],
			Location:     "eastus",
			SizeBytes:    4 << 30,
			MaxShares:    1,
			DiskSettings: provisioner.DiskSettings{SKUName: "Premium_LRS"},
		}))
	})
	_, b.since = s.requests(t, 0)
	return b
}

func (b *bed) outcome(op provisioner.Operation, err error) error {
	if err != nil {
		return err
	}
	return op.Wait(b.Context())
}

func (b *bed) together(n int, call func(i int) error) {
	b.Helper()
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			if err := call(i); err != nil {
				b.Errorf("call %d: %v", i, err)
			}
		})
	}
	all.Wait()
	if b.Failed() {
		b.FailNow()
	}
}

func (b *bed) attach(i int) (provisioner.Operation, error) {
	return b.cloud.Attachments().Attach(b.Context(), provisioner.AttachRequest{
		VMID:        b.vm,
		DiskID:      b.disks[i],
		CachingMode: "None",
	})
}

// shareCall has requests that are made at once sent in one call. A call holds the requests that
// arrive until the VM has been read: all of them, if that read takes its time.
func (b *bed) shareCall() {
	b.Helper()
	b.fault(b.T, map[string]any{"method": "GET", "kind": "virtualMachines", "times": 1, "delay": "500ms"})
}

func (b *bed) attached() map[string]bool {
	b.Helper()
	list, err := b.cloud.Attachments().List(b.Context(), b.vm)
	if err != nil {
		b.Fatal(err)
	}
	ids := map[string]bool{}
	for _, a := range list {
		ids[strings.ToLower(a.DiskID)] = true
	}
	return ids
}

func (b *bed) has(i int) bool { return b.attached()[strings.ToLower(b.disks[i])] }

func (b *bed) calls() []seenCall {
	calls, _ := b.requests(b.T, b.since)
	return calls
}

func TestManyDisksForOneVMAreSentInFewCalls(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		b := newBed(t, 40)
		b.together(40, func(i int) error { return b.outcome(b.attach(i)) })
		if n := len(b.attached()); n != 40 {
			t.Fatalf("%d attached", n)
		}
		calls := b.calls()
		if n := vmUpdates(calls); n > 4 {
			t.Errorf("%d updates of the VM", n)
		}
		if n := count(calls, func(c seenCall) bool { return c.Status == 429 }); n > 0 {
			t.Errorf("%d calls were answered 429", n)
		}
		b.together(40, func(i int) error {
			return b.outcome(b.cloud.Attachments().Detach(t.Context(), b.vm, b.disks[i]))
		})
		if n := vmUpdates(b.calls()); n > 8 {
			t.Errorf("%d updates of the VM for 40 attaches and 40 detaches", n)
		}
	})
}

func TestAnAttachThatAnotherProcessPreemptedIsNotRepeated(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		b := newBed(t, 2)
		if err := b.outcome(b.attach(0)); err != nil {
			t.Fatal(err)
		}
		b.fault(t, map[string]any{"stage": "operation", "operation": "vm.disks", "delay": "2s", "times": 1})
		op, err := b.attach(1)
		if err != nil {
			t.Fatal(err)
		}
		before := vmUpdates(b.calls())
		// Another leader fences the VM off.
		p, err := b.vms.BeginAttachDetachDataDisks(t.Context(), group, nameOf(b.vm), armcompute.AttachDetachDataDisksRequest{
			DataDisksToDetach: []*armcompute.DataDisksToDetach{{
				DiskID:       &b.disks[0],
				DetachOption: to.Ptr(armcompute.DiskDetachOptionTypesForceDetach),
			}},
		}, nil)
		finish(t, p, err)
		if err := op.Wait(t.Context()); !errors.Is(err, provisioner.Conflict) {
			t.Errorf("want Conflict, got %v", err)
		}
		if n := vmUpdates(b.calls()) - before; n != 0 || b.has(1) {
			t.Errorf("it was made again: %d updates, attached %v", n, b.has(1))
		}
	})
}

func TestAnAttachWhoseAnswerIsLostIsRepeated(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		b := newBed(t, 1)
		b.fault(t, map[string]any{"stage": "after", "action": "attachDetachDataDisks", "disconnect": true, "times": 1})
		if err := b.outcome(b.attach(0)); err != nil || !b.has(0) {
			t.Errorf("attached %v, %v", b.has(0), err)
		}
	})
}

func TestAnOperationThatFailsForOneDiskDoesNotFailTheOthers(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		b := newBed(t, 4)
		b.shareCall()
		// The first operation fails after Azure has accepted it, and does not name the disk at fault.
		b.fault(t, map[string]any{"stage": "operation", "operation": "vm.disks", "status": 400, "code": "BadRequest", "times": 1})
		b.together(4, func(i int) error { return b.outcome(b.attach(i)) })
		if n := len(b.attached()); n != 4 {
			t.Errorf("%d attached", n)
		}
	})
}

func TestACallThatIsRefusedWithoutAReasonIsSentInHalves(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		b := newBed(t, 4)
		b.shareCall()
		b.fault(t, map[string]any{"action": "attachDetachDataDisks", "status": 400, "code": "BadRequest", "times": 1})
		b.together(4, func(i int) error { return b.outcome(b.attach(i)) })
		if n := len(b.attached()); n != 4 {
			t.Errorf("%d attached", n)
		}
		b.fault(t, map[string]any{"action": "attachDetachDataDisks", "status": 400, "code": "BadRequest"})
		b.together(4, func(i int) error {
			if err := b.outcome(b.cloud.Attachments().Detach(t.Context(), b.vm, b.disks[i])); !errors.Is(err,
				provisioner.InvalidArgument) {
				return fmt.Errorf("want the platform's InvalidArgument, got %w", err)
			}
			return nil
		})
	})
}

func TestOneOperationIsPolledOnceHoweverManyWait(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		b := newBed(t, 1)
		b.fault(t, map[string]any{"stage": "operation", "operation": "vm.disks", "delay": "400ms", "times": 1})
		op, err := b.attach(0)
		if err != nil {
			t.Fatal(err)
		}
		b.together(50, func(int) error {
			if again, err := b.attach(0); err != nil || again.Wait(t.Context()) != nil {
				return fmt.Errorf("again: %w", err)
			}
			return op.Wait(t.Context())
		})
		calls := b.calls()
		if n := count(calls, func(c seenCall) bool { return strings.Contains(c.Path, "/operations/") }); n > 12 {
			t.Errorf("%d polls", n)
		}
		if n := vmUpdates(calls); n != 1 {
			t.Errorf("%d updates", n)
		}
	})
}

// The simulator listens on a socket, as the other host does.
func TestATokenCannotSendTheCredentialElsewhere(t *testing.T) {
	b := newBedOn(t, prepared(t, simtest.Start(t, secured)), 1)
	b.fault(t, map[string]any{"stage": "operation", "operation": "vm.disks", "delay": "300ms", "times": 1})
	op, err := b.attach(0)
	if err != nil {
		t.Fatal(err)
	}
	var reached atomic.Int32
	thief := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Add(1) }))
	defer thief.Close()
	other, closeIt := b.open(t)
	defer closeIt()
	forged := strings.ReplaceAll(op.Token(), b.URL, thief.URL)
	if forged == op.Token() {
		t.Fatal("the token holds no URL to forge")
	}
	resumed, err := other.Attachments().Resume(t.Context(), forged)
	if err == nil {
		err = resumed.Wait(t.Context())
	}
	if err == nil || reached.Load() != 0 {
		t.Errorf("error %v, requests to the other host %d", err, reached.Load())
	}
	if err := op.Wait(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestTheEndOfTheProcessEndsAllWaits(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		s := startSimulator(t)
		cloud, stop := s.open(t)
		b := &bed{T: t, simulator: s, cloud: cloud, vm: s.newVM(t, "Standard_D2s_v3", "")}
		id := fmt.Sprintf("/subscriptions/%s/resourceGroups/%s/providers/Microsoft.Compute/disks/d", subscription, group)
		if err := b.outcome(cloud.Disks().Create(t.Context(), provisioner.DiskSpec{
			ID:           id,
			Location:     "eastus",
			SizeBytes:    4 << 30,
			MaxShares:    1,
			DiskSettings: provisioner.DiskSettings{SKUName: "Premium_LRS"},
		})); err != nil {
			t.Fatal(err)
		}
		s.fault(t, map[string]any{"stage": "operation", "operation": "vm.disks", "delay": "1s", "times": 1})
		b.disks = []string{id}
		op, err := b.attach(0)
		if err != nil {
			t.Fatal(err)
		}
		waiting := make(chan error, 1)
		go func() {
			_, err := cloud.Attachments().Detach(t.Context(), b.vm, id)
			waiting <- err
		}()
		stop()
		for what, err := range map[string]error{"operation": op.Wait(t.Context()), "call": <-waiting} {
			if !errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v", what, err)
			}
		}
		next, closeIt := s.open(t)
		defer closeIt()
		resumed, err := next.Attachments().Resume(t.Context(), op.Token())
		if err != nil {
			t.Fatal(err)
		}
		if err := resumed.Wait(t.Context()); err != nil {
			t.Errorf("the next process: %v", err)
		}
	})
}

func TestTheWrongSecretIsUnauthorized(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		s := startSimulator(t)
		options := s.options(t)
		options.Credential = s.credentials(t, "driver", "wrong")
		cloud, err := azure.New(t.Context(), options)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		if _, err := cloud.Disks().List(ctx, provisioner.Scope{
			SubscriptionID: subscription,
			ResourceGroup:  group,
		}); !errors.Is(err, provisioner.Unauthorized) {
			t.Errorf("want Unauthorized, got %v", err)
		}
	})
}
