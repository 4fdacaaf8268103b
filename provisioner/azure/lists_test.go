package azure_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/azuredisk-csi/azuredisk/internal/azuresim/audit"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/compute"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// newVMs makes VMs, and returns their IDs in the order of their names.
func (l *lab) newVMs(n int) []string {
	l.Helper()
	ids, size := make([]string, n), "Standard_M64s"
	for i := range ids {
		id := compute.ID{
			Subscription: subscription,
			Group:        group,
			Kind:         compute.KindVM,
			Name:         fmt.Sprintf("many-%03d", i),
		}
		location := "eastus"
		if _, err := l.sim.PutVM(id, compute.VMInput{
			Location:   &location,
			Size:       &size,
			Properties: osProfile(l.T, id.Name),
		}); err != nil {
			l.Fatal(err)
		}
		ids[i] = id.String()
	}
	time.Sleep(5 * time.Minute) // in virtual time: until they run
	return ids
}

func osProfile(t *testing.T, name string) map[string]json.RawMessage {
	t.Helper()
	profile, err := json.Marshal(map[string]string{"computerName": name})
	if err != nil {
		t.Fatal(err)
	}
	return map[string]json.RawMessage{"osProfile": profile}
}

// newInstances makes a uniform scale set, and returns the IDs of its instances.
func (l *lab) newInstances(n int) []string {
	l.Helper()
	id := compute.ID{
		Subscription: subscription,
		Group:        group,
		Kind:         compute.KindScaleSet,
		Name:         "pool",
	}
	location, size, mode, capacity := "eastus", "Standard_M64s", "Uniform", n
	if _, err := l.sim.PutScaleSet(id, compute.ScaleSetInput{
		Location: &location,
		SKU:      &size,
		Mode:     &mode,
		Capacity: &capacity,
	}); err != nil {
		l.Fatal(err)
	}
	time.Sleep(5 * time.Minute)
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprintf("%s/virtualMachines/%d", id, i)
	}
	return ids
}

// callsOf counts the driver's calls of an API since a time; all if api is "".
func (l *lab) callsOf(api string, since time.Time) int {
	return len(slices.DeleteFunc(l.since(since), func(r audit.Record) bool { return api != "" && r.API != api }))
}

func TestTheDisksOfManyVMsTakeOneCallForEachPage(t *testing.T) {
	for name, test := range map[string]struct {
		make func(*lab, int) []string
		api  string
	}{
		"VMs of a resource group":          {(*lab).newVMs, "VirtualMachines.List"},
		"instances of a uniform scale set": {(*lab).newInstances, "VirtualMachineScaleSetVMs.List"},
	} {
		t.Run(name, func(t *testing.T) {
			inLab(t, calm(), 1, func(l *lab) {
				vms := test.make(l, 250)
				disk := l.newDisks(1)[0]
				l.must(l.attach(vms[7], disk))
				began := time.Now()
				found, err := l.cloud.Attachments().ListMany(l.Context(), vms)
				if err != nil || len(found) != len(vms) {
					t.Fatalf("got %d answers and error %v, want %d answers", len(found), err, len(vms))
				}
				want := []provisioner.Attachment{{DiskID: disk}}
				if got := found[strings.ToLower(vms[7])]; !slices.Equal(got, want) {
					t.Errorf("got the disks %v, want %v", got, want)
				}
				if lists, all := l.callsOf(test.api, began), l.callsOf("", began); lists != 3 || all != 3 {
					t.Errorf("got %d lists in %d calls, want 3 lists and no other calls: a page has 100 VMs", lists, all)
				}

				time.Sleep(time.Second)
				began = time.Now()
				if found, err = l.cloud.Attachments().ListMany(l.Context(), vms[:3]); err != nil || len(found) != 0 ||
					l.callsOf("", began) != 0 {
					t.Errorf("3 VMs: got %d answers, %d calls, error %v; want none: 3 reads cost no more than a list of 3 pages",
						len(found), l.callsOf("", began), err)
				}
				if found, err = l.cloud.Attachments().ListMany(l.Context(), vms[:4]); err != nil || len(found) != 250 {
					t.Errorf("4 VMs: got %d answers and error %v, want those of the list", len(found), err)
				}
			})
		})
	}
}

func TestAListEndsWhenItCostsMoreThanOneReadForEachVM(t *testing.T) {
	inLab(t, calm(), 1, func(l *lab) {
		vms := l.newVMs(450)
		began := time.Now()
		for range 2 {
			if _, err := l.cloud.Attachments().ListMany(l.Context(), vms[:2]); err != nil {
				t.Fatal(err)
			}
		}
		if calls := l.callsOf("", began); calls != 2 {
			t.Errorf("got %d calls, want 2: after 2 of 5 pages it is known that 2 VMs are not worth a list", calls)
		}
	})
}

func TestReadsThatCanWaitLeaveTheReserveForAFence(t *testing.T) {
	inLab(t, calm(), 1, func(l *lab) {
		vms := l.newVMs(300)
		began := time.Now()
		var work sync.WaitGroup
		for _, vm := range vms {
			work.Go(func() {
				if _, err := l.cloud.Attachments().List(provisioner.Deferrable(l.Context()), vm); err != nil {
					t.Error(err)
				}
			})
		}
		time.Sleep(2 * time.Second)
		asked := time.Now()
		for _, vm := range vms[:50] { // as the fences of 50 nodes do
			work.Go(func() {
				if _, err := l.cloud.Instances().Get(l.Context(), vm); err != nil {
					t.Error(err)
				}
				if took := time.Since(asked); took > 300*time.Millisecond {
					t.Errorf("a read that cannot wait took %v, want at most 0.3 s", took)
				}
			})
		}
		work.Wait()
		t.Logf("300 reads that can wait took %v", time.Since(began))
		for _, c := range l.since(began) {
			if c.Status == http.StatusTooManyRequests {
				t.Fatalf("Azure refused %s %s", c.Method, c.Path)
			}
		}
	})
}
