// Package conformance is the contract of provisioner.Cloud as a suite of tests. Every
// implementation runs it: the fake in memory, and package azure over the simulator.
//
// The tests use what a Harness offers and nothing else of the platform; each makes its
// own VMs and disks, so that they may run side by side on one platform.
package conformance

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/utils/clock"

	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// Harness is a platform under test.
type Harness struct {
	// Cloud under test.
	Cloud provisioner.Cloud
	// Reopen makes another instance over the same platform that shares no memory with
	// Cloud, as a process that was started again.
	Reopen func() provisioner.Cloud
	// Scope that resources are made in; it exists.
	Scope provisioner.Scope
	// Location of the VMs.
	Location string
	// OtherLocation is another region of the platform.
	OtherLocation string
	// SmallSize is a VM size with SmallSlots data disks, SmallSlots at most 8. LargeSize has at
	// least 16.
	SmallSize, LargeSize string
	SmallSlots           int32
	// NewVM makes a running VM without data disks; zone may be "". NewScaleSetVM makes an instance
	// of a uniform scale set, NewFlexibleVM a VM in a flexible one.
	NewVM, NewScaleSetVM, NewFlexibleVM func(t *testing.T, size, zone string) string
	// NewLinked makes the disk encryption set or disk access of that ID; nil if the platform does
	// not check that it exists.
	NewLinked func(t *testing.T, id string)
	// DeleteVM deletes a VM and waits.
	DeleteVM func(t *testing.T, id string)
	// SetPower stops, deallocates or starts a VM and waits.
	SetPower func(t *testing.T, id string, power provisioner.PowerState)
	// Slow keeps operations of that name that begin from now on in flight for long enough that a
	// test can act before they end: at least half a second, or until release is called.
	Slow func(t *testing.T, operation Operation) (release func())
	// Refuse makes the platform refuse the next call of any kind as an error of the kind
	// Unauthorized, RateLimited or Unavailable, until release is called.
	Refuse func(t *testing.T, kind provisioner.Kind) (release func())
	// SetQuota allows n more disks of a SKU in Location, until release is called.
	SetQuota func(t *testing.T, skuName string, n int64) (release func())
	// PollInterval is how often tests look for a condition.
	PollInterval time.Duration
}

// Operation names what Harness.Slow slows down.
type Operation string

// The operations.
const (
	CreateDisk     Operation = "create disk"
	Attach         Operation = "attach"
	Detach         Operation = "detach"
	CreateSnapshot Operation = "create snapshot"
)

// GiB is the unit of disk sizes.
const GiB = int64(1) << 30

// limit is how long any single step may take.
const limit = 2 * time.Minute

// Run runs the suite; factory is called once for each test and may give all of them one platform.
func Run(t *testing.T, factory func(t *testing.T) Harness) {
	RunIn(t, func(t *testing.T, test func(*testing.T, Harness)) { test(t, factory(t)) })
}

// RunIn is Run for tests that run inside something, such as a bubble of testing/synctest. It calls
// in once for each test; in makes the platform and calls the test.
func RunIn(t *testing.T, in func(t *testing.T, test func(*testing.T, Harness))) {
	for _, group := range []struct {
		name  string
		tests []test
	}{
		{"disks", diskTests()},
		{"changes of disks", changeTests()},
		{"snapshots", snapshotTests()},
		{"attachments", attachmentTests()},
		{"joining", joiningTests()},
		{"instances and SKUs", instanceTests()},
		{"platform failures", failureTests()},
	} {
		t.Run(group.name, func(t *testing.T) {
			for _, test := range group.tests {
				t.Run(test.name, func(t *testing.T) { in(t, test.on) })
			}
		})
	}
}

// on runs the test on a platform.
func (c test) on(t *testing.T, platform Harness) {
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	c.run(&run{
		T:       t,
		Harness: platform,
		ctx:     ctx,
	})
}

type test struct {
	name string
	run  func(r *run)
}

// run is one test on one harness. Its methods fail the test when a step fails.
type run struct {
	*testing.T
	Harness
	ctx context.Context
}

var serial atomic.Int64

// id makes a resource ID that no test has used on any platform.
func (r *run) id(kind string) string {
	return fmt.Sprintf("/subscriptions/%s/resourceGroups/%s/providers/Microsoft.Compute/%s/t%d-%s",
		r.Scope.SubscriptionID, r.Scope.ResourceGroup, kind, serial.Add(1), strings.ToLower(rand.Text()))
}

// linked makes something that disks refer to.
func (r *run) linked(kind string) string {
	r.Helper()
	id := r.id(kind)
	if r.NewLinked != nil {
		r.NewLinked(r.T, id)
	}
	return id
}

func (r *run) spec() provisioner.DiskSpec {
	return provisioner.DiskSpec{
		ID:        r.id("disks"),
		Location:  r.Location,
		SizeBytes: 10 * GiB,
		MaxShares: 1,
		DiskSettings: provisioner.DiskSettings{
			SKUName: "Premium_LRS",
			Tags:    map[string]string{"suite": "conformance"},
		},
	}
}

// disk makes a disk and waits for it.
func (r *run) disk(change func(*provisioner.DiskSpec)) string {
	r.Helper()
	spec := r.spec()
	if change != nil {
		change(&spec)
	}
	op, err := r.Cloud.Disks().Create(r.ctx, spec)
	r.done(op, err)
	return spec.ID
}

func shared(n int32) func(*provisioner.DiskSpec) {
	return func(spec *provisioner.DiskSpec) { spec.MaxShares = n }
}

// sharedDisk makes a shared disk for n VMs.
func (r *run) sharedDisk(n int32) string {
	r.Helper()
	return r.disk(func(spec *provisioner.DiskSpec) {
		spec.MaxShares, spec.SizeBytes = n, 16*GiB
		if n > 3 {
			spec.SizeBytes = 1024 * GiB // the smallest tier with 5 shares
		}
	})
}

// done waits for an operation that must succeed.
func (r *run) done(op provisioner.Operation, err error) {
	r.Helper()
	if err != nil {
		r.Fatalf("not accepted: %v", err)
	}
	if err := op.Wait(r.ctx); err != nil {
		r.Fatalf("accepted, then failed: %v", err)
	}
}

// fails checks that a call failed with the kind, at once or in its operation.
func (r *run) fails(kind provisioner.Kind, op provisioner.Operation, err error) {
	r.Helper()
	if err == nil && op != nil {
		err = op.Wait(r.ctx)
	}
	if !errors.Is(err, kind) {
		r.Fatalf("want %s, got %v (kind %q)", kind, err, provisioner.KindOf(err))
	}
}

// refused checks that a call was not accepted, with an error of the kind.
func (r *run) refused(kind provisioner.Kind, op provisioner.Operation, err error) {
	r.Helper()
	if err == nil {
		r.Fatalf("want %s from the call itself, it was accepted", kind)
	}
	r.fails(kind, op, err)
}

func (r *run) attach(vmID, diskID string, shared bool) (provisioner.Operation, error) {
	return r.Cloud.Attachments().Attach(r.ctx, provisioner.AttachRequest{
		VMID:        vmID,
		DiskID:      diskID,
		CachingMode: "None",
		Shared:      shared,
	})
}

func (r *run) attached(vmID, diskID string) (provisioner.Attachment, bool) {
	r.Helper()
	return r.attachedBy(r.Cloud, vmID, diskID)
}

func (r *run) attachedBy(cloud provisioner.Cloud, vmID, diskID string) (provisioner.Attachment, bool) {
	r.Helper()
	list, err := cloud.Attachments().List(r.ctx, vmID)
	if err != nil {
		r.Fatalf("list %s: %v", vmID, err)
	}
	for _, a := range list {
		if strings.EqualFold(a.DiskID, diskID) {
			return a, true
		}
	}
	return provisioner.Attachment{}, false
}

func (r *run) mustBeAttached(vmID, diskID string) provisioner.Attachment {
	r.Helper()
	a, ok := r.attached(vmID, diskID)
	if !ok || a.Detaching {
		r.Fatalf("%s is not attached to %s", diskID, vmID)
	}
	return a
}

func (r *run) mustNotBeAttached(vmID, diskID string) {
	r.Helper()
	if _, ok := r.attached(vmID, diskID); ok {
		r.Fatalf("%s is attached to %s", diskID, vmID)
	}
}

// eventually waits for a condition.
func (r *run) eventually(what string, holds func() bool) {
	r.Helper()
	interval := max(r.PollInterval, 5*time.Millisecond)
	ticker := clock.RealClock{}.NewTicker(interval)
	defer ticker.Stop()
	for !holds() {
		select {
		case <-r.ctx.Done():
			r.Fatalf("%s: did not come true", what)
		case <-ticker.C():
		}
	}
}

// otherCase is the same ID in another case.
func otherCase(id string) string { return strings.ToUpper(id) }
