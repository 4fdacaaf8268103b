package azure_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7"

	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// v1Driver attaches and detaches disks as the V1 driver does. The source is cloud-provider-azure's
// azure_controller_standard.go and azure_controller_vmss.go: it writes the whole list of the VM's
// data disks, starting from the list that it has read up to ten minutes ago, and sends no If-Match.
// After a write it keeps the list of the answer, and after an error it reads the VM again.
type v1Driver struct {
	*bed
	uniform bool
	list    []*armcompute.DataDisk
}

func (v *v1Driver) read() {
	v.Helper()
	var storage *armcompute.StorageProfile
	if v.uniform {
		got, err := v.instances.Get(v.Context(), group, setOf(v.vm), "0", nil)
		if err != nil {
			v.Fatal(err)
		}
		storage = got.Properties.StorageProfile
	} else {
		got, err := v.vms.Get(v.Context(), group, nameOf(v.vm), nil)
		if err != nil {
			v.Fatal(err)
		}
		storage = got.Properties.StorageProfile
	}
	v.list = storage.DataDisks
}

// write sends the list and waits until Azure has ended the operation.
func (v *v1Driver) write(list []*armcompute.DataDisk) error {
	end, err := v.begin(list)
	if err != nil {
		return err
	}
	return end()
}

// begin sends the list. It returns when Azure has accepted it; end waits for the end of the
// operation.
func (v *v1Driver) begin(list []*armcompute.DataDisk) (end func() error, err error) {
	storage := &armcompute.StorageProfile{DataDisks: list}
	if v.uniform {
		p, err := v.instances.BeginUpdate(v.Context(), group, setOf(v.vm), "0", armcompute.VirtualMachineScaleSetVM{
			Properties: &armcompute.VirtualMachineScaleSetVMProperties{StorageProfile: storage},
		}, nil)
		return ending(v, p, func(got armcompute.VirtualMachineScaleSetVMsClientUpdateResponse) *armcompute.StorageProfile {
			return got.Properties.StorageProfile
		}), err
	}
	p, err := v.vms.BeginCreateOrUpdate(v.Context(), group, nameOf(v.vm), armcompute.VirtualMachine{
		Location: to.Ptr("eastus"), Properties: &armcompute.VirtualMachineProperties{StorageProfile: storage},
	}, nil)
	return ending(v, p, func(got armcompute.VirtualMachinesClientCreateOrUpdateResponse) *armcompute.StorageProfile {
		return got.Properties.StorageProfile
	}), err
}

func ending[T any](v *v1Driver, p *runtime.Poller[T], storage func(T) *armcompute.StorageProfile) func() error {
	return func() error {
		got, err := p.PollUntilDone(v.Context(), &runtime.PollUntilDoneOptions{Frequency: 2 * time.Millisecond})
		if err == nil {
			v.list = storage(got).DataDisks
		}
		return err
	}
}

// attach attaches a disk at the lowest LUN that is free in V1's list. It tries again with a new
// list if Azure refuses the first write, as V1's caller does.
func (v *v1Driver) attach(i int) {
	v.Helper()
	if err := v.write(append(slices.Clone(v.list), v.entry(i))); err == nil {
		return
	}
	v.read()
	if err := v.write(append(slices.Clone(v.list), v.entry(i))); err != nil {
		v.Fatalf("V1 attaches disk %d: %v", i, err)
	}
}

func (v *v1Driver) entry(i int) *armcompute.DataDisk {
	lun := int32(0)
	for slices.ContainsFunc(v.list, func(d *armcompute.DataDisk) bool { return *d.Lun == lun }) {
		lun++
	}
	return &armcompute.DataDisk{
		Name:         to.Ptr(nameOf(v.disks[i])),
		Lun:          &lun,
		Caching:      to.Ptr(armcompute.CachingTypesNone),
		CreateOption: to.Ptr(armcompute.DiskCreateOptionTypesAttach),
		ManagedDisk:  &armcompute.ManagedDiskParameters{ID: &v.disks[i]},
	}
}

func (v *v1Driver) detach(i int) {
	v.Helper()
	for _, d := range v.list {
		d.ToBeDetached = to.Ptr(d.ManagedDisk != nil && strings.EqualFold(*d.ManagedDisk.ID, v.disks[i]))
	}
	if err := v.write(v.list); err != nil {
		v.Fatalf("V1 detaches disk %d: %v", i, err)
	}
}

// besideV1 runs a test with both drivers on one VM: a single VM, or one of a uniform scale set, as
// in AKS's node pools. Disks 0 to 3 are V1's, 4 to 7 are ours.
func besideV1(t *testing.T, test func(t *testing.T, b *bed, v1 *v1Driver)) {
	t.Helper()
	for _, uniform := range []bool{false, true} {
		name := map[bool]string{false: "a single VM", true: "a VM of a uniform scale set"}[uniform]
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inVirtualTime(t, func(t *testing.T) {
				b := newBed(t, 8)
				if uniform {
					b.vm = b.newScaleSetVM(t, "Standard_D8s_v5", "")
				}
				test(t, b, &v1Driver{bed: b, uniform: uniform})
			})
		})
	}
}

func (b *bed) mustAttach(i int) {
	b.Helper()
	if err := b.outcome(b.attach(i)); err != nil {
		b.Fatal(err)
	}
}

func (b *bed) mustDetach(i int) {
	b.Helper()
	if err := b.outcome(b.cloud.Attachments().Detach(b.Context(), b.vm, b.disks[i])); err != nil {
		b.Fatal(err)
	}
}

// expectDisks checks which disks the VM has.
func (b *bed) expectDisks(what string, want ...int) {
	b.Helper()
	attached := b.attached()
	var got []int
	for i := range b.disks {
		if attached[strings.ToLower(b.disks[i])] {
			got = append(got, i)
		}
	}
	if !slices.Equal(got, want) {
		b.Errorf("%s: the VM has the disks %v, want %v (0 to 3 are V1's)", what, got, want)
	}
}

// This driver names the disks that it attaches and detaches, and no others.
func TestBesideV1NoCallOfThisDriverDetachesADiskOfV1(t *testing.T) {
	besideV1(t, func(_ *testing.T, b *bed, v1 *v1Driver) {
		v1.read()
		v1.attach(0)
		v1.attach(1)
		b.mustAttach(4)
		b.mustAttach(5)
		b.mustDetach(4)
		if err := b.outcome(b.cloud.Attachments().ForceDetach(b.Context(), b.vm, b.disks[5])); err != nil {
			b.Fatal(err)
		}
		b.expectDisks("after attaches and detaches of this driver", 0, 1)
		v1.read()
		v1.detach(0)
		b.expectDisks("after V1's detach", 1)
	})
}

// V1 keeps what its list has. A list that V1 has read after the last change of this driver has
// everything.
func TestBesideV1ACurrentListOfV1KeepsTheDisksOfThisDriver(t *testing.T) {
	besideV1(t, func(_ *testing.T, b *bed, v1 *v1Driver) {
		b.mustAttach(4)
		v1.read()
		v1.attach(0)
		v1.attach(1)
		v1.detach(0)
		b.expectDisks("V1 has read the list after the attach", 1, 4)
		b.mustDetach(4)
		v1.read()
		v1.attach(2)
		b.expectDisks("V1 has read the list after the detach", 1, 2)
	})
}

// This is when a disk is lost, and why values-aks-trial.yaml keeps V1 off the trial's nodes: V1
// writes a list that it has read before this driver attached the disk. Azure detaches what a list
// lacks, and V1 sends no If-Match that Azure could refuse.
func TestBesideV1AnOldListOfV1DetachesTheDisksOfThisDriver(t *testing.T) {
	besideV1(t, func(t *testing.T, b *bed, v1 *v1Driver) {
		v1.read()
		v1.attach(0)
		v1.attach(1)
		b.mustAttach(4)
		v1.detach(0)
		b.expectDisks("V1 detaches a disk with a list from before the attach", 1)

		b.mustAttach(5)
		v1.read()
		b.mustDetach(5)
		v1.attach(2)
		b.expectDisks("V1 attaches a disk with a list from before the detach", 1, 2, 5)
		// The reconciler of AzDriverNodes finds both differences in this list:
		// internal/controller/drivernode.
		if list, err := b.cloud.Attachments().List(t.Context(), b.vm); err != nil || len(list) != 3 {
			t.Errorf("this driver sees %v, %v; want 3 disks", list, err)
		}
	})
}

// An old list can also be refused: this driver's disk has the LUN that V1 chooses. V1 then reads
// the VM again.
func TestBesideV1AnOldListThatWantsTheSameLUNIsRefused(t *testing.T) {
	besideV1(t, func(_ *testing.T, b *bed, v1 *v1Driver) {
		v1.read()
		b.mustAttach(4)
		v1.attach(0)
		b.expectDisks("both drivers chose the lowest LUN", 0, 4)
	})
}

// While Azure executes a write of V1, it refuses the calls of this driver, and a write of V1
// interrupts a call of this driver. Both end with a Conflict, and the reconciler then repeats the
// call.
func TestBesideV1WritesAtTheSameTimeLoseNoDisk(t *testing.T) {
	besideV1(t, func(t *testing.T, b *bed, v1 *v1Driver) {
		v1.read()
		v1.attach(0)
		b.fault(t, map[string]any{"stage": "operation", "operation": "vm.update", "delay": "3s", "times": 1})
		end, err := v1.begin(append(slices.Clone(v1.list), v1.entry(1)))
		if err != nil {
			t.Fatal(err)
		}
		if err := b.outcome(b.attach(4)); !errors.Is(err, provisioner.Conflict) {
			t.Errorf("the attach during V1's write ended with %v, want Conflict", err)
		}
		if err := end(); err != nil {
			t.Errorf("V1's write ended with %v, want success", err)
		}
		b.mustAttach(4)
		b.expectDisks("this driver attaches during a write of V1", 0, 1, 4)

		v1.read()
		remove := b.fault(t, map[string]any{"stage": "operation", "operation": "vm.disks", "delay": "1h", "times": 1})
		op, err := b.attach(5)
		if err != nil {
			t.Fatal(err)
		}
		v1.detach(1)
		if err := op.Wait(t.Context()); !errors.Is(err, provisioner.Conflict) {
			t.Errorf("the interrupted attach ended with %v, want Conflict", err)
		}
		remove() // the interrupted operation may have ended before the fault
		b.mustAttach(5)
		b.expectDisks("V1 writes during an attach of this driver", 0, 4, 5)
	})
}
