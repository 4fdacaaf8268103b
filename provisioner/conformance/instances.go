package conformance

import (
	"errors"
	"slices"
	"strings"

	"github.com/azuredisk-csi/azuredisk/provisioner"
)

func instanceTests() []test {
	return []test{
		{"a VM and a scale-set instance read back", func(r *run) {
			for _, vm := range []string{r.NewVM(r.T, r.SmallSize, "2"), r.NewScaleSetVM(r.T, r.SmallSize, "2")} {
				i, err := r.Cloud.Instances().Get(r.ctx, otherCase(vm))
				if err != nil {
					r.Fatal(err)
				}
				if !strings.EqualFold(i.ID, vm) || i.Size != r.SmallSize || i.Zone != "2" || i.Location != r.Location ||
					i.Power != provisioner.PowerRunning || i.Name == "" || len(i.DataDisks) != 0 {
					r.Fatalf("%+v", i)
				}
			}
		}},
		{"the power state and the disks of a VM are the platform's",
			powerStates(func(r *run) string { return r.NewVM(r.T, r.SmallSize, "") })},
		{"the power state and the disks of a scale-set instance are the platform's",
			powerStates(func(r *run) string { return r.NewScaleSetVM(r.T, r.SmallSize, "") })},
		{"the power state and the disks of a VM in a flexible scale set are the platform's",
			powerStates(func(r *run) string { return r.NewFlexibleVM(r.T, r.SmallSize, "") })},
		{"a missing VM is NotFound", func(r *run) {
			for _, kind := range []string{"virtualMachines", "virtualMachineScaleSets"} {
				id := r.id(kind)
				if kind == "virtualMachineScaleSets" {
					id += "/virtualMachines/7"
				}
				_, err := r.Cloud.Instances().Get(r.ctx, id)
				r.refused(provisioner.NotFound, nil, err)
			}
		}},
		{"what a VM size takes", func(r *run) {
			limits, err := r.Cloud.SKUs().VM(r.ctx, r.Location, strings.ToUpper(r.SmallSize))
			if err != nil || limits.MaxDataDisks != r.SmallSlots || !limits.PremiumIO || limits.UncachedIOPS <= 0 ||
				limits.UncachedBytesPerSecond <= 0 ||
				!slices.Contains(limits.UltraZones, "1") || limits.UltraRegional {
				r.Fatalf("%+v, %v", limits, err)
			}
			_, err = r.Cloud.SKUs().VM(r.ctx, r.Location, "Standard_Imaginary")
			r.refused(provisioner.NotFound, nil, err)
		}},
		{"the quota of a disk SKU", func(r *run) {
			release := r.SetQuota(r.T, "StandardSSD_ZRS", 1)
			defer release()
			left, err := r.Cloud.SKUs().Quota(r.ctx, r.Scope.SubscriptionID, strings.ToUpper(r.Location), "StandardSSD_ZRS")
			if err != nil || left.Disks != 1 || left.SizeBytes != provisioner.Unlimited {
				r.Fatalf("%+v, %v", left, err)
			}
			zoneRedundant := func(spec *provisioner.DiskSpec) { spec.SKUName = "StandardSSD_ZRS" }
			id := r.disk(zoneRedundant)
			spec := r.spec()
			zoneRedundant(&spec)
			op, err := r.Cloud.Disks().Create(r.ctx, spec)
			r.fails(provisioner.InsufficientCapacity, op, err)
			// The same disk once more is no further disk.
			spec.ID = id
			op, err = r.Cloud.Disks().Create(r.ctx, spec)
			r.done(op, err)
			left, err = r.Reopen().SKUs().Quota(r.ctx, "", r.Location, "StandardSSD_ZRS")
			if err != nil || left.Disks != 0 {
				r.Fatalf("%+v, %v", left, err)
			}
			_, err = r.Cloud.SKUs().Quota(r.ctx, "", r.Location, "Golden_LRS")
			r.refused(provisioner.NotFound, nil, err)
		}},
		{"what a disk may have", func(r *run) {
			for size, shares := range map[int64]int32{10 * GiB: 3, 512 * GiB: 3, 513 * GiB: 5, 4096 * GiB: 5, 4097 * GiB: 10} {
				limits, err := r.Cloud.SKUs().Disk(r.ctx, r.Location, "Premium_LRS", size)
				if err != nil || limits.MaxShares != shares || limits.MinSizeBytes > 4*GiB || limits.MaxSizeBytes < 32767*GiB ||
					!slices.Contains(limits.Zones, "1") {
					r.Fatalf("%d GiB: %+v, %v", size/GiB, limits, err)
				}
			}
			_, err := r.Cloud.SKUs().Disk(r.ctx, r.Location, "Golden_LRS", GiB)
			r.refused(provisioner.NotFound, nil, err)
			_, err = r.Cloud.SKUs().Disk(r.ctx, r.Location, "Premium_LRS", 40000*GiB)
			r.refused(provisioner.InvalidArgument, nil, err)
		}},
	}
}

// powerStates follows a VM through its life: its power state proves that a lost node cannot write.
func powerStates(newVM func(r *run) string) func(r *run) {
	return func(r *run) {
		vm, id := newVM(r), r.disk(nil)
		op, err := r.attach(vm, id, false)
		r.done(op, err)
		for _, power := range []provisioner.PowerState{provisioner.PowerStopped, provisioner.PowerDeallocated,
			provisioner.PowerRunning} {
			r.SetPower(r.T, vm, power)
			i, err := r.Cloud.Instances().Get(r.ctx, otherCase(vm))
			if err != nil || i.Power != power || len(i.DataDisks) != 1 || !strings.EqualFold(i.DataDisks[0].DiskID, id) {
				r.Fatalf("want %s, got %+v, %v", power, i, err)
			}
		}
		r.DeleteVM(r.T, vm)
		_, err = r.Cloud.Instances().Get(r.ctx, vm)
		r.refused(provisioner.NotFound, nil, err)
	}
}

func failureTests() []test {
	var tests []test
	for _, kind := range []provisioner.Kind{provisioner.Unauthorized, provisioner.RateLimited, provisioner.Unavailable} {
		tests = append(tests, test{"a platform that answers " + string(kind), func(r *run) { platformAnswers(r, kind) }})
	}
	return tests
}

func platformAnswers(r *run, kind provisioner.Kind) {
	vm, id, spec := r.NewVM(r.T, r.SmallSize, ""), r.disk(nil), r.spec()
	release := r.Refuse(r.T, kind)
	_, err := r.Cloud.Disks().Get(r.ctx, id)
	check := func(what string, err error) {
		if !errors.Is(err, kind) {
			r.Errorf("%s: want %s, got %v", what, kind, err)
		}
		if kind == provisioner.RateLimited && provisioner.RetryAfter(err) <= 0 {
			r.Errorf("%s: got no RetryAfter, want one above 0", what)
		}
	}
	check("Disks.Get", err)
	_, err = r.Cloud.Disks().Create(r.ctx, spec)
	check("Disks.Create", err)
	_, err = r.Cloud.Disks().Delete(r.ctx, id)
	check("Disks.Delete", err)
	_, err = r.Cloud.Instances().Get(r.ctx, vm)
	check("Instances.Get", err)
	_, err = r.attach(vm, id, false)
	check("Attachments.Attach", err)
	_, err = r.Cloud.Attachments().List(r.ctx, vm)
	check("Attachments.List", err)
	release()
	r.eventually("the platform answers again", func() bool {
		_, err := r.Cloud.Disks().Get(r.ctx, id)
		return err == nil
	})
	_, err = r.Cloud.Disks().Get(r.ctx, spec.ID)
	r.refused(provisioner.NotFound, nil, err)
	r.eventually("the disk can be attached", func() bool {
		op, err := r.attach(vm, id, false)
		return err == nil && op.Wait(r.ctx) == nil
	})
	r.mustBeAttached(vm, id)
}
