package conformance

import (
	"errors"
	"sync"

	"github.com/azuredisk-csi/azuredisk/provisioner"
)

func joiningTests() []test {
	return []test{
		{"many disks at once to one VM", func(r *run) {
			vm := r.NewVM(r.T, r.LargeSize, "")
			ids := make([]string, 12)
			for i := range ids {
				ids[i] = r.disk(nil)
			}
			r.together(len(ids), func(i int) error { return r.outcome(r.attach(vm, ids[i], false)) })
			luns := map[int32]string{}
			for _, id := range ids {
				a := r.mustBeAttached(vm, id)
				if other, taken := luns[a.LUN]; taken {
					r.Fatalf("LUN %d for %s and %s", a.LUN, id, other)
				}
				luns[a.LUN] = id
			}
			r.together(len(ids), func(i int) error {
				return r.outcome(r.Cloud.Attachments().Detach(r.ctx, vm, ids[i]))
			})
			for _, id := range ids {
				r.mustNotBeAttached(vm, id)
			}
		}},
		{"attaches and detaches at once", func(r *run) {
			vm := r.NewVM(r.T, r.LargeSize, "")
			ids := make([]string, 8)
			for i := range ids {
				ids[i] = r.disk(nil)
			}
			r.together(4, func(i int) error { return r.outcome(r.attach(vm, ids[i], false)) })
			r.together(8, func(i int) error {
				if i < 4 {
					return r.outcome(r.Cloud.Attachments().Detach(r.ctx, vm, ids[i]))
				}
				return r.outcome(r.attach(vm, ids[i], false))
			})
			for i, id := range ids {
				if _, attached := r.attached(vm, id); attached != (i >= 4) {
					r.Fatalf("disk %d: attached is %v", i, attached)
				}
			}
		}},
		{"a detach followed by an attach of the same disk ends attached", func(r *run) {
			vm, id := r.NewVM(r.T, r.SmallSize, ""), r.disk(nil)
			op, err := r.attach(vm, id, false)
			r.done(op, err)
			release := r.Slow(r.T, Detach)
			defer release()
			detach, err := r.Cloud.Attachments().Detach(r.ctx, vm, id)
			if err != nil {
				r.Fatal(err)
			}
			go release()
			op, err = r.attach(vm, id, false)
			r.done(op, err)
			r.done(detach, nil)
			r.mustBeAttached(vm, id)
		}},
		{"a bad request fails alone", func(r *run) {
			vm := r.NewVM(r.T, r.LargeSize, "1")
			good := make([]string, 6)
			for i := range good {
				good[i] = r.disk(func(s *provisioner.DiskSpec) { s.Zone = "1" })
			}
			elsewhere := r.disk(func(s *provisioner.DiskSpec) { s.Zone = "1" })
			op, err := r.attach(r.NewVM(r.T, r.SmallSize, "1"), elsewhere, false)
			r.done(op, err)
			bad := map[string]provisioner.Kind{
				r.disk(func(s *provisioner.DiskSpec) { s.Zone = "2" }): provisioner.InvalidArgument,
				r.id("disks"): provisioner.NotFound,
				elsewhere:     provisioner.FailedPrecondition,
			}
			all := append([]string(nil), good...)
			for id := range bad {
				all = append([]string{id}, all...)
			}
			r.together(len(all), func(i int) error {
				err := r.outcome(r.attach(vm, all[i], false))
				if kind, isBad := bad[all[i]]; isBad {
					if !errors.Is(err, kind) {
						return errors.Join(errors.New("want "+string(kind)), err)
					}
					return nil
				}
				return err
			})
			for _, id := range good {
				r.mustBeAttached(vm, id)
			}
		}},
		{"no more disks than slots, and the others are told", func(r *run) {
			vm := r.NewVM(r.T, r.SmallSize, "")
			ids := make([]string, int(r.SmallSlots)+3)
			for i := range ids {
				ids[i] = r.disk(nil)
			}
			var mu sync.Mutex
			full := 0
			r.together(len(ids), func(i int) error {
				err := r.outcome(r.attach(vm, ids[i], false))
				if errors.Is(err, provisioner.InsufficientCapacity) {
					mu.Lock()
					defer mu.Unlock()
					full++
					return nil
				}
				return err
			})
			if list, err := r.Cloud.Attachments().List(r.ctx, vm); err != nil || len(list) != int(r.SmallSlots) || full != 3 {
				r.Fatalf("%d attached, %d told that there is no slot, %v", len(list), full, err)
			}
		}},
		{"a shared disk to several VMs at once, none in Conflict", func(r *run) {
			id, second := r.sharedDisk(5), r.sharedDisk(5)
			var vms []string
			for range 4 {
				vms = append(vms, r.NewVM(r.T, r.SmallSize, ""))
			}
			r.together(8, func(i int) error {
				if i%2 == 0 {
					return r.outcome(r.attach(vms[i/2], id, true))
				}
				return r.outcome(r.attach(vms[i/2], second, true))
			})
			for _, vm := range vms {
				r.mustBeAttached(vm, id)
				r.mustBeAttached(vm, second)
			}
		}},
		{"one attach asked for many times at once", func(r *run) {
			vm, id := r.NewVM(r.T, r.SmallSize, ""), r.disk(nil)
			r.together(6, func(int) error { return r.outcome(r.attach(vm, id, false)) })
			r.mustBeAttached(vm, id)
			r.together(6, func(int) error { return r.outcome(r.Cloud.Attachments().Detach(r.ctx, vm, id)) })
			r.mustNotBeAttached(vm, id)
		}},
	}
}

// outcome is how a call and its operation ended.
func (r *run) outcome(op provisioner.Operation, err error) error {
	if err != nil {
		return err
	}
	return op.Wait(r.ctx)
}

// together runs n calls at once and fails the test for each error.
func (r *run) together(n int, call func(i int) error) {
	r.Helper()
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			if err := call(i); err != nil {
				r.Errorf("call %d: %v (kind %q)", i, err, provisioner.KindOf(err))
			}
		})
	}
	all.Wait()
	if r.Failed() {
		r.FailNow()
	}
}
