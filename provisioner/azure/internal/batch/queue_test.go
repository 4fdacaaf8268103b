package batch

import (
	"fmt"
	"slices"
	"testing"

	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/azure/internal/operation"
)

func put(q *queues, vm, disk string, k operation.Kind, shared bool) *request {
	r := newRequest(k, provisioner.AttachRequest{
		VMID:   vm,
		DiskID: disk,
		Shared: shared,
	})
	q.add(r)
	return r
}

// filled begins the only batch that can begin, and fills it.
func filled(t *testing.T, q *queues) *batch {
	t.Helper()
	started := q.start()
	if len(started) != 1 {
		t.Fatalf("%d batches begin, want 1", len(started))
	}
	q.fill(started[0])
	return started[0]
}

// check compares the requests of a batch.
func check(t *testing.T, what string, got []*request, want ...*request) {
	t.Helper()
	names := func(requests []*request) (out []string) {
		for _, r := range requests {
			out = append(out, fmt.Sprintf("%s %s at %s", r.kind, r.disk, r.vm))
		}
		return out
	}
	if !slices.Equal(got, want) {
		t.Fatalf("%s: got %q, want %q", what, names(got), names(want))
	}
}

func TestRequestsThatArriveDuringTheReadAreInTheBatch(t *testing.T) {
	q := newQueues()
	first := put(q, "vm", "a", operation.Attach, false)
	started := q.start()
	if len(started) != 1 {
		t.Fatalf("%d batches begin, want 1", len(started))
	}
	during := put(q, "vm", "b", operation.Detach, false)
	q.fill(started[0])
	check(t, "the first batch", started[0].requests, first, during)
	later, last := put(q, "vm", "c", operation.Attach, false), put(q, "vm", "d", operation.Detach, false)
	if again := q.start(); len(again) != 0 {
		t.Fatalf("%d batches begin while one is in flight, want 0", len(again))
	}
	q.end(started[0])
	check(t, "the next batch", filled(t, q).requests, later, last)
}

func TestRequestsForOneDiskKeepTheirOrder(t *testing.T) {
	q := newQueues()
	out, in := put(q, "vm", "a", operation.Detach, false), put(q, "vm", "a", operation.Attach, false)
	b := filled(t, q)
	check(t, "the first batch", b.requests, out)
	q.end(b)
	check(t, "the next batch", filled(t, q).requests, in)
}

func TestAForcedDetachOvertakesAnOrdinaryBatch(t *testing.T) {
	q := newQueues()
	a := put(q, "vm", "a", operation.Attach, false)
	ordinary := filled(t, q)
	put(q, "vm", "b", operation.ForceDetach, false)
	forced := filled(t, q)
	if !forced.forced {
		t.Fatal("an ordinary batch begins, want a forced one")
	}
	q.putBack(a)
	q.end(ordinary)
	if again := q.start(); len(again) != 0 {
		t.Fatalf("%d batches begin while a forced one is in flight, want 0", len(again))
	}
	q.end(forced)
	check(t, "after the forced batch", filled(t, q).requests, a)
}

func TestLaterForcedDetachesWaitForTheOneInFlight(t *testing.T) {
	q := newQueues()
	first := put(q, "vm", "a", operation.ForceDetach, false)
	b := filled(t, q)
	check(t, "the batch", b.requests, first)
	again, second := put(q, "vm", "a", operation.ForceDetach, false), put(q, "vm", "b", operation.ForceDetach, false)
	if started := q.start(); len(started) != 0 {
		t.Fatalf("%d batches begin while a forced one is in flight, want 0", len(started))
	}
	q.end(b)
	check(t, "the next batch", filled(t, q).requests, again, second)
}

func TestASharedDiskIsAttachedToOneVMAtATime(t *testing.T) {
	q := newQueues()
	first := put(q, "vm1", "shared", operation.Attach, true)
	one := filled(t, q)
	check(t, "VM 1", one.requests, first)
	second, other := put(q, "vm2", "shared", operation.Attach, true), put(q, "vm2", "other", operation.Attach, false)
	two := filled(t, q)
	check(t, "VM 2", two.requests, other)
	q.end(two)
	if again := q.start(); len(again) != 0 {
		t.Fatalf("%d batches begin with a shared disk that another VM attaches, want 0", len(again))
	}
	q.end(one)
	check(t, "VM 2 after VM 1", filled(t, q).requests, second)
}

// Only an attach of a shared disk waits, and only for another one.
func TestWhatASharedDiskInFlightHoldsUp(t *testing.T) {
	const attach, detach = operation.Attach, operation.Detach
	for name, test := range map[string]struct {
		first       operation.Kind
		firstShared bool
		then        operation.Kind
		thenShared  bool
		waits       bool
	}{
		"an attach after an attach":              {attach, true, attach, true, true},
		"a detach after an attach":               {attach, true, detach, true, false},
		"an attach that is not shared":           {attach, true, attach, false, false},
		"an attach after one that is not shared": {attach, false, attach, true, false},
		"an attach after a detach":               {detach, true, attach, true, false},
	} {
		q := newQueues()
		put(q, "vm1", "disk", test.first, test.firstShared)
		one := filled(t, q)
		then := put(q, "vm2", "disk", test.then, test.thenShared)
		if waits := len(q.start()) == 0; waits != test.waits {
			t.Errorf("%s waits: %t, want %t", name, waits, test.waits)
		}
		if !test.waits {
			continue
		}
		if q.withdraw(then); len(q.vms) != 1 {
			t.Errorf("got %d VMs after the last request for VM 2 was withdrawn, want VM 1 alone", len(q.vms))
		}
		q.end(one)
	}
}

func TestAResumedAttachHoldsItsSharedDisk(t *testing.T) {
	q := newQueues()
	resumed := newRequest(operation.Attach, provisioner.AttachRequest{VMID: "vm1", DiskID: "disk", Shared: true})
	q.beginResumed(resumed)
	then := put(q, "vm2", "disk", operation.Attach, true)
	if again := q.start(); len(again) != 0 {
		t.Fatalf("%d batches begin with a shared disk that a resumed call attaches, want 0", len(again))
	}
	q.endResumed(resumed)
	check(t, "after the resumed call", filled(t, q).requests, then)
}

func TestAVMIsKnownUntilItsForcedBatchEnds(t *testing.T) {
	q := newQueues()
	resumed := newRequest(operation.Attach, provisioner.AttachRequest{VMID: "vm", DiskID: "a"})
	q.beginResumed(resumed)
	put(q, "vm", "b", operation.ForceDetach, false)
	forced := filled(t, q)
	if q.endResumed(resumed); len(q.vms) != 1 {
		t.Errorf("got %d VMs while a forced batch is in flight, want 1", len(q.vms))
	}
	if q.end(forced); len(q.vms) != 0 {
		t.Errorf("got %d VMs at the end, want none", len(q.vms))
	}
}

func TestOnlyAFilledBatchIsInFlight(t *testing.T) {
	q := newQueues()
	put(q, "vm", "a", operation.Attach, false)
	b := q.start()[0]
	if q.ordinaryInFlight("vm") != nil || q.ordinaryInFlight("vm2") != nil {
		t.Error("got a batch in flight before it has requests, or of a VM without requests, want none")
	}
	if q.fill(b); q.ordinaryInFlight("vm") != b {
		t.Error("got no batch in flight, want the filled one")
	}
}

func TestASplitBatchIsSentInHalvesApartFromOtherRequests(t *testing.T) {
	q := newQueues()
	a, b, c := put(q, "vm", "a", operation.Attach, false), put(q, "vm", "b", operation.Attach, false), put(q, "vm", "c",
		operation.Attach, false)
	whole := filled(t, q)
	late := put(q, "vm", "late", operation.Attach, false)
	q.split(whole.requests...)
	q.end(whole)
	for _, want := range [][]*request{{a}, {b, c}, {late}} {
		next := filled(t, q)
		check(t, "the next batch", next.requests, want...)
		q.end(next)
	}
}

func TestABatchWithoutRequestsEndsOnce(t *testing.T) {
	q := newQueues()
	r := put(q, "vm", "a", operation.Attach, false)
	empty := q.start()[0]
	q.withdraw(r)
	q.fill(empty)
	later := put(q, "vm", "b", operation.Attach, false)
	next := filled(t, q)
	q.end(empty)
	if again := q.start(); len(again) != 0 || q.ordinaryInFlight("vm") != next {
		t.Errorf("got %d batches that begin while the next one is in flight, want 0", len(again))
	}
	check(t, "the next batch", next.requests, later)
}
