package azure

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7"
	"golang.org/x/sync/errgroup"

	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/azure/internal/client"
)

// listsAtOnce is how many lists are read beside one another. The pages of a list are read one after
// the other.
const listsAtOnce = 4

// vmLists reads the disks of many VMs with the lists that Azure has: the VMs of a resource group,
// and the instances of a uniform scale set.
type vmLists struct {
	cloud *Cloud

	mu sync.Mutex
	// pages are the pages of the last read of a list, by its ID.
	pages map[string]int
}

// page are the entries of one page of a list.
type page func(ctx context.Context) (entries []model, more bool, err error)

// ListMany implements provisioner.Attachments.
func (l *vmLists) ListMany(ctx context.Context, vmIDs []string) (map[string][]provisioner.Attachment, error) {
	ctx = provisioner.Deferrable(ctx)
	wanted := map[string][]vmClient{} // by list
	for _, id := range vmIDs {
		v, err := l.cloud.vm(id)
		if err != nil {
			continue // List says why; the others have their answers
		}
		of := v.list()
		wanted[of] = append(wanted[of], v)
	}
	var (
		mu     sync.Mutex
		found  = map[string][]provisioner.Attachment{}
		faults []error
		group  errgroup.Group
	)
	group.SetLimit(listsAtOnce)
	for of, vms := range wanted {
		if !worthAList(len(vms), l.pagesOf(of)) {
			continue
		}
		group.Go(func() error {
			err := l.read(ctx, of, vms[0].pager(), len(vms), func(entries []model) {
				mu.Lock()
				defer mu.Unlock()
				for _, m := range entries {
					// An answer without the storage profile does not say that the VM has no disks.
					if m.storage != nil && m.id != nil {
						found[strings.ToLower(*m.id)] = dataDisksOf(m.storage)
					}
				}
			})
			mu.Lock()
			defer mu.Unlock()
			faults = append(faults, err)
			return nil
		})
	}
	err := errors.Join(group.Wait(), errors.Join(faults...))
	return found, err
}

// worthAList reports whether a list needs fewer requests than one for each VM. The pages of a list
// that was never read are taken for one.
func worthAList(vms, pages int) bool { return vms > max(pages, 1) }

// read reads a list, but not more pages than there are VMs of interest: then one request for each
// VM costs less. It calls use with the entries of each page, and keeps none: 100 VMs take a
// megabyte.
func (l *vmLists) read(ctx context.Context, of string, next page, most int, use func([]model)) error {
	for n := 1; ; n++ {
		entries, more, err := next(ctx)
		if err != nil {
			return l.cloud.api.Translate(err, "list the VMs of %s", of)
		}
		use(entries)
		if more && n < most {
			continue
		}
		if more {
			n++
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.pages[of] = n
		return nil
	}
}

func (l *vmLists) pagesOf(of string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.pages[of]
}

// list is the ID of the list that has the VM: its scale set if that is uniform, else its resource
// group.
func (v vmClient) list() string {
	if v.Is(client.TypeScaleSetVM) {
		return strings.ToLower(v.Parent.String())
	}
	return strings.ToLower(fmt.Sprintf("/subscriptions/%s/resourceGroups/%s", v.SubscriptionID, v.ResourceGroupName))
}

// pager returns the pages of the list that has the VM.
func (v vmClient) pager() page {
	if v.Is(client.TypeScaleSetVM) {
		return pagesFrom(v.ScaleSets.NewListPager(v.ResourceGroupName, v.Parent.Name, nil),
			func(p armcompute.VirtualMachineScaleSetVMsClientListResponse) []*armcompute.VirtualMachineScaleSetVM {
				return p.Value
			},
			modelOfScaleSetVM)
	}
	return pagesFrom(v.VMs.NewListPager(v.ResourceGroupName, nil),
		func(p armcompute.VirtualMachinesClientListResponse) []*armcompute.VirtualMachine { return p.Value }, modelOfVM)
}

func pagesFrom[P, T any](pager *runtime.Pager[P], entries func(P) []*T, translate func(*T) model) page {
	return func(ctx context.Context) ([]model, bool, error) {
		got, err := pager.NextPage(ctx)
		if err != nil {
			return nil, false, err
		}
		var all []model
		for _, entry := range entries(got) {
			if entry != nil {
				all = append(all, translate(entry))
			}
		}
		return all, pager.More(), nil
	}
}
