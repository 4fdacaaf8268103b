package conformance

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/azuredisk-csi/azuredisk/provisioner"
)

func attachmentTests() []test {
	return []test{
		{"the disks of many VMs are listed together", func(r *run) {
			var vms []string
			for range 2 {
				vms = append(vms, r.NewVM(r.T, r.SmallSize, ""), r.NewScaleSetVM(r.T, r.SmallSize, ""),
					r.NewFlexibleVM(r.T, r.SmallSize, ""))
			}
			id, other := r.disk(nil), r.disk(nil)
			for vm, disk := range map[string]string{vms[0]: id, vms[1]: other} {
				op, err := r.attach(vm, disk, false)
				r.done(op, err)
			}
			missing := r.id("virtualMachines")
			found, err := r.Cloud.Attachments().ListMany(r.ctx, append([]string{missing}, vms...))
			if err != nil {
				r.Fatal(err)
			}
			if disks, ok := found[strings.ToLower(missing)]; ok {
				r.Errorf("got the disks %v for a VM that does not exist, want no answer", disks)
			}
			for n, vm := range vms {
				want, err := r.Cloud.Attachments().List(r.ctx, vm)
				if err != nil {
					r.Fatal(err)
				}
				// Each new instance is of a scale set of its own, for which a list is not worth it.
				if got, ok := found[strings.ToLower(vm)]; (n%3 != 1 || ok) && !slices.Equal(got, want) {
					r.Errorf("VM %s: got %v in the list (%t), want %v", vm, got, ok, want)
				}
			}
		}},
		{"a disk is attached to a VM and detached, each again a success",
			attachAndDetach(func(r *run) string { return r.NewVM(r.T, r.SmallSize, "1") })},
		{"a disk is attached to a scale-set instance and detached",
			attachAndDetach(func(r *run) string { return r.NewScaleSetVM(r.T, r.SmallSize, "1") })},
		{"missing VMs and disks", func(r *run) {
			vm, missingVM := r.NewVM(r.T, r.SmallSize, ""), r.id("virtualMachines")
			id, missing := r.disk(nil), r.id("disks")
			op, err := r.attach(missingVM, id, false)
			r.refused(provisioner.NotFound, op, err)
			op, err = r.attach(vm, missing, false)
			r.refused(provisioner.NotFound, op, err)
			op, err = r.Cloud.Attachments().Detach(r.ctx, missingVM, id)
			r.done(op, err)
			op, err = r.Cloud.Attachments().ForceDetach(r.ctx, missingVM, id)
			r.done(op, err)
			op, err = r.Cloud.Attachments().Detach(r.ctx, vm, missing)
			r.done(op, err)
			op, err = r.Cloud.Attachments().ForceDetach(r.ctx, vm, id)
			r.done(op, err)
			_, err = r.Cloud.Attachments().List(r.ctx, missingVM)
			r.refused(provisioner.NotFound, nil, err)
			op, err = r.attach("vm-1", id, false)
			r.refused(provisioner.InvalidArgument, op, err)
		}},
		{"a disk gets no LUN at which another is recorded", func(r *run) {
			vm := r.NewVM(r.T, r.SmallSize, "")
			op, err := r.Cloud.Attachments().Attach(r.ctx, provisioner.AttachRequest{
				VMID:        vm,
				DiskID:      r.disk(nil),
				CachingMode: "None",
				OtherLUNs:   func(context.Context) ([]int32, error) { return []int32{0, 2}, nil },
			})
			r.done(op, err)
			list, err := r.Cloud.Attachments().List(r.ctx, vm)
			if err != nil || len(list) != 1 || list[0].LUN != 1 {
				r.Fatalf("got %+v, %v, want one disk at LUN 1", list, err)
			}
		}},
		{"a deleted VM has lost its disks", func(r *run) {
			vm, id := r.NewVM(r.T, r.SmallSize, ""), r.disk(nil)
			op, err := r.attach(vm, id, false)
			r.done(op, err)
			r.DeleteVM(r.T, vm)
			op, err = r.Cloud.Attachments().Detach(r.ctx, vm, id)
			r.done(op, err)
			if d, err := r.Cloud.Disks().Get(r.ctx, id); err != nil || len(d.AttachedTo) != 0 {
				r.Fatalf("%+v, %v", d, err)
			}
		}},
		{"the wrong zone is InvalidArgument", func(r *run) {
			id := r.disk(func(s *provisioner.DiskSpec) { s.Zone = "2" })
			for _, zone := range []string{"1", ""} {
				op, err := r.attach(r.NewVM(r.T, r.SmallSize, zone), id, false)
				r.refused(provisioner.InvalidArgument, op, err)
			}
		}},
		{"a zone-redundant disk goes to any zone", func(r *run) {
			id := r.disk(func(s *provisioner.DiskSpec) { s.SKUName, s.MaxShares = "Premium_ZRS", 3 })
			for _, zone := range []string{"1", "2", ""} {
				op, err := r.attach(r.NewVM(r.T, r.SmallSize, zone), id, true)
				r.done(op, err)
			}
		}},
		{"caching of a shared disk is InvalidArgument", func(r *run) {
			op, err := r.Cloud.Attachments().Attach(r.ctx, provisioner.AttachRequest{
				VMID:        r.NewVM(r.T, r.SmallSize, ""),
				DiskID:      r.sharedDisk(2),
				CachingMode: "ReadWrite",
				Shared:      true,
			})
			r.refused(provisioner.InvalidArgument, op, err)
		}},
		{"a disk that is not shared goes to one VM", func(r *run) {
			first, second, id := r.NewVM(r.T, r.SmallSize, ""), r.NewVM(r.T, r.SmallSize, ""), r.disk(nil)
			op, err := r.attach(first, id, false)
			r.done(op, err)
			op, err = r.attach(second, id, false)
			r.refused(provisioner.FailedPrecondition, op, err)
			op, err = r.Cloud.Attachments().Detach(r.ctx, first, id)
			r.done(op, err)
			op, err = r.attach(second, id, false)
			r.done(op, err)
			r.mustBeAttached(second, id)
		}},
		{"a shared disk goes to as many VMs as it has shares", func(r *run) {
			id := r.sharedDisk(2)
			vms := []string{r.NewVM(r.T, r.SmallSize, ""), r.NewVM(r.T, r.SmallSize, ""), r.NewVM(r.T, r.SmallSize, "")}
			for _, vm := range vms[:2] {
				op, err := r.attach(vm, id, true)
				r.done(op, err)
			}
			op, err := r.attach(vms[2], id, true)
			r.refused(provisioner.InsufficientCapacity, op, err)
			if d, err := r.Cloud.Disks().Get(r.ctx, id); err != nil || len(d.AttachedTo) != 2 {
				r.Fatalf("%+v, %v", d, err)
			}
		}},
		{"a VM without a free slot is InsufficientCapacity", func(r *run) {
			vm := r.NewVM(r.T, r.SmallSize, "")
			var last string
			for range r.SmallSlots {
				last = r.disk(nil)
				op, err := r.attach(vm, last, false)
				r.done(op, err)
			}
			id := r.disk(nil)
			op, err := r.attach(vm, id, false)
			r.refused(provisioner.InsufficientCapacity, op, err)
			op, err = r.Cloud.Attachments().Detach(r.ctx, vm, last)
			r.done(op, err)
			op, err = r.attach(vm, id, false)
			r.done(op, err)
		}},
		{"a forced detach takes the disk off", func(r *run) {
			vm, id := r.NewVM(r.T, r.SmallSize, ""), r.disk(nil)
			op, err := r.attach(vm, id, false)
			r.done(op, err)
			op, err = r.Cloud.Attachments().ForceDetach(r.ctx, otherCase(vm), otherCase(id))
			r.done(op, err)
			d, err := r.Cloud.Disks().Get(r.ctx, id)
			if err != nil || len(d.AttachedTo) > 0 {
				r.Fatalf("got the disk %+v, %v; want it at no VM", d, err)
			}
			if i, err := r.Cloud.Instances().Get(r.ctx, vm); err != nil || !i.Settled {
				r.Fatalf("got the VM %+v, %v; want it settled", i, err)
			}
			r.mustNotBeAttached(vm, id)
		}},
		{"a forced detach does not wait for a detach in flight", forcedOverDetach},
		{"a forced detach takes the place of an attach of the same disk, which ends in Conflict", forcedOverAttach},
		{"other operations of the VM survive a forced detach", forcedBesideOthers},
		{"an attach and a detach in flight are resumed by another process", resumeAttachAndDetach},
		{"a context that ends frees the caller", func(r *run) {
			vm, id := r.NewVM(r.T, r.SmallSize, ""), r.disk(nil)
			release := r.Slow(r.T, Attach)
			defer release()
			op, err := r.attach(vm, id, false)
			if err != nil {
				r.Fatal(err)
			}
			ctx, cancel := context.WithCancel(r.ctx)
			cancel()
			if err := op.Wait(ctx); !errors.Is(err, context.Canceled) {
				r.Fatalf("Wait: %v", err)
			}
			if _, err := r.Cloud.Attachments().Detach(ctx, vm, id); !errors.Is(err, context.Canceled) {
				r.Fatalf("Detach: %v", err)
			}
			if _, err := r.Cloud.Disks().Get(ctx, id); !errors.Is(err, context.Canceled) {
				r.Fatalf("Get: %v", err)
			}
			release()
			r.done(op, nil)
			r.mustBeAttached(vm, id)
		}},
	}
}

func attachAndDetach(newVM func(r *run) string) func(r *run) {
	return func(r *run) {
		vm, id := newVM(r), r.disk(func(s *provisioner.DiskSpec) { s.Zone = "1" })
		op, err := r.attach(vm, id, false)
		r.done(op, err)
		first := r.mustBeAttached(vm, id)
		op, err = r.attach(otherCase(vm), otherCase(id), false)
		r.done(op, err)
		if second := r.mustBeAttached(vm, id); second.LUN != first.LUN {
			r.Fatalf("LUN %d became %d", first.LUN, second.LUN)
		}
		other := r.disk(func(s *provisioner.DiskSpec) { s.Zone = "1" })
		op, err = r.attach(vm, other, false)
		r.done(op, err)
		if r.mustBeAttached(vm, other).LUN == first.LUN {
			r.Fatal("two disks with one LUN")
		}
		op, err = r.Cloud.Attachments().Detach(r.ctx, otherCase(vm), otherCase(id))
		r.done(op, err)
		r.mustNotBeAttached(vm, id)
		op, err = r.Cloud.Attachments().Detach(r.ctx, vm, id)
		r.done(op, err)
		r.mustBeAttached(vm, other)
	}
}

func forcedOverDetach(r *run) {
	vm, id := r.NewVM(r.T, r.SmallSize, ""), r.disk(nil)
	op, err := r.attach(vm, id, false)
	r.done(op, err)
	release := r.Slow(r.T, Detach)
	defer release()
	orderly, err := r.Cloud.Attachments().Detach(r.ctx, vm, id)
	if err != nil {
		r.Fatal(err)
	}
	forced, err := r.Cloud.Attachments().ForceDetach(r.ctx, vm, id)
	r.done(forced, err)
	r.mustNotBeAttached(vm, id)
	release()
	// What the orderly one was asked for has come true, so it may not fail.
	r.done(orderly, nil)
}

func forcedOverAttach(r *run) {
	vm, id := r.NewVM(r.T, r.SmallSize, ""), r.disk(nil)
	release := r.Slow(r.T, Attach)
	defer release()
	attach, err := r.attach(vm, id, false)
	if err != nil {
		r.Fatal(err)
	}
	forced, err := r.Cloud.Attachments().ForceDetach(r.ctx, vm, id)
	r.done(forced, err)
	r.fails(provisioner.Conflict, attach, nil)
	r.mustNotBeAttached(vm, id)
	release()
}

func forcedBesideOthers(r *run) {
	vm, lost, wanted := r.NewVM(r.T, r.SmallSize, ""), r.disk(nil), r.disk(nil)
	op, err := r.attach(vm, lost, false)
	r.done(op, err)
	release := r.Slow(r.T, Attach)
	defer release()
	attach, err := r.attach(vm, wanted, false)
	if err != nil {
		r.Fatal(err)
	}
	forced, err := r.Cloud.Attachments().ForceDetach(r.ctx, vm, lost)
	r.done(forced, err)
	release()
	r.done(attach, nil)
	r.mustBeAttached(vm, wanted)
	r.mustNotBeAttached(vm, lost)
}

func resumeAttachAndDetach(r *run) {
	vm, id := r.NewVM(r.T, r.SmallSize, ""), r.disk(nil)
	inFlight := func(operation Operation, begin func() (provisioner.Operation, error)) {
		r.Helper()
		release := r.Slow(r.T, operation)
		defer release()
		op, err := begin()
		if err != nil {
			r.Fatal(err)
		}
		if op.Token() == "" {
			r.Fatal("no token for an operation in flight")
		}
		cloud := r.Reopen()
		resumed, err := cloud.Attachments().Resume(r.ctx, op.Token())
		if err != nil {
			r.Fatalf("resume: %v", err)
		}
		release()
		r.done(resumed, nil)
		_, attached := r.attachedBy(cloud, vm, id)
		if attached != (operation == Attach) {
			r.Fatalf("after a resumed %s: attached is %v", operation, attached)
		}
		r.done(op, nil)
		// A token outlives its operation for a while, and then says the same.
		again, err := r.Reopen().Attachments().Resume(r.ctx, op.Token())
		r.done(again, err)
	}
	inFlight(Attach, func() (provisioner.Operation, error) { return r.attach(vm, id, false) })
	inFlight(Detach, func() (provisioner.Operation, error) { return r.Cloud.Attachments().Detach(r.ctx, vm, id) })
}
