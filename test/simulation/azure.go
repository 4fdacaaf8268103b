package simulation

import (
	"context"
	"runtime"
	"strings"
	"time"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/fake"
)

const (
	subscription = "sub"
	group        = "rg"
	location     = "eastus"
	prefix       = "/subscriptions/" + subscription + "/resourceGroups/" + group + "/providers/Microsoft.Compute/"
	vmSize       = "Standard_D2s_v3"
	slots        = 4
)

func vmOf(node string) string { return prefix + "virtualMachines/" + node }
func lastOf(id string) string { return id[strings.LastIndex(id, "/")+1:] }

// volumeOf returns the name of the AzVolume of a disk, and diskOf the ID of the disk of an
// AzVolume.
func volumeOf(disk string) string { return apiv1.VolumeName(subscription, group, lastOf(disk)) }
func diskOf(volume string) string { return prefix + "disks/" + volume[:strings.LastIndex(volume, "-")] }

// platform is what the simulation knows of the platform, including what the platform does not
// report to the driver.
type platform struct {
	w *world
	// operations by token, of all processes.
	operations map[string]*began
	// changed says that state must be read again.
	changed bool
	last    fake.State
	// forceWaits says that the platform does not answer forced detaches yet.
	forceWaits bool
	// listed is the last answer of a list of VMs, and listedAt its time.
	listed   map[string][]provisioner.Attachment
	listedAt time.Time
}

// began is an operation that the platform accepted.
type began struct {
	vm, disk string
	attach   bool
	ends     time.Time
}

// state is the present state of the platform.
func (p *platform) state() fake.State {
	if p.changed {
		p.last, p.changed = p.w.cloud.State(), false
		p.w.ghosts(p.last)
	}
	return p.last
}

// holds reports whether the platform has the disk at the VM, and at which LUN.
func (p *platform) holds(vm, disk string) (int32, bool) {
	for _, i := range p.state().Instances {
		if !strings.EqualFold(i.ID, vm) {
			continue
		}
		for _, d := range i.DataDisks {
			if strings.EqualFold(d.DiskID, disk) {
				return d.LUN, true
			}
		}
	}
	return 0, false
}

// free reports whether a call for the VM does not wait for another call inside the platform, where
// the simulation cannot control the order.
func (p *platform) free(vm, disk string, attach, shared bool) bool {
	now := p.w.now()
	for _, op := range p.operations {
		if !op.ends.After(now) {
			continue
		}
		same := strings.EqualFold(op.disk, disk)
		switch here := strings.EqualFold(op.vm, vm); {
		case here && !(same && op.attach == attach):
			return false
		case !here && shared && attach && same && op.attach:
			return false
		}
	}
	return true
}

// azureClient is one process' client of the platform.
type azureClient struct {
	w  *world
	by *owner
	provisioner.Cloud
}

type azureDisks struct{ azureClient }
type azureAttachments struct{ azureClient }
type azureInstances struct{ azureClient }
type azureSKUs struct{ azureClient }

func (c azureClient) Disks() provisioner.Disks             { return azureDisks{c} }
func (c azureClient) Attachments() provisioner.Attachments { return azureAttachments{c} }
func (c azureClient) Instances() provisioner.Instances     { return azureInstances{c} }
func (c azureClient) SKUs() provisioner.SKUs               { return azureSKUs{c} }

// request is one call to the platform.
type request struct {
	method   fake.Method
	vm, disk string
	writes   bool
	ready    func() bool
}

// ask makes a call when it may be made.
func ask[T any](ctx context.Context, c azureClient, r request, do func() (T, error)) (T, error) {
	var none T
	what := "Azure " + string(r.method) + " " + strings.TrimSpace(lastOf(r.vm)+" "+lastOf(r.disk))
	v := c.w.yield(ctx, &access{
		by:     c.by,
		what:   what,
		over:   overAzure,
		writes: r.writes,
		ready:  r.ready,
	})
	if v == expired {
		return none, ctx.Err()
	}
	if v == refuse {
		if c.w.steps%2 == 0 {
			return none, &provisioner.Error{
				Kind:       provisioner.RateLimited,
				Message:    "slow down",
				RetryAfter: time.Second,
			}
		}
		return none, provisioner.Errorf(provisioner.Unavailable, "Azure did not answer")
	}
	if v == spoil {
		remove := c.w.cloud.Inject(fake.Fault{
			Method:       r.method,
			Times:        1,
			OperationErr: provisioner.Errorf(provisioner.Unavailable, "the operation failed"),
		})
		defer remove()
	}
	result, err := do()
	c.w.azure.changed = true
	switch v {
	case dieAfter:
		runtime.Goexit()
	case lose:
		return none, provisioner.Errorf(provisioner.Unavailable, "the answer was lost")
	}
	return result, err
}

// operate is ask for a call that begins an operation, which takes latency.
func operate(ctx context.Context, c azureClient, r request, latency time.Duration,
	do func() (provisioner.Operation, error)) (provisioner.Operation, error) {
	r.writes = true
	return ask(ctx, c, r, func() (provisioner.Operation, error) {
		op, err := do()
		if err != nil {
			return nil, err
		}
		known := c.w.azure.operations[op.Token()]
		if known == nil {
			known = &began{
				vm:     r.vm,
				disk:   r.disk,
				attach: r.method == fake.AttachmentsAttach,
				ends:   c.w.now(),
			}
			if op.Token() != "" {
				known.ends = c.w.now().Add(latency)
				c.w.azure.operations[op.Token()] = known
			}
		}
		return operation{op, c, known}, nil
	})
}

type operation struct {
	provisioner.Operation
	c     azureClient
	began *began
}

// Wait implements provisioner.Operation.
func (o operation) Wait(ctx context.Context) error {
	r := request{
		method: "Operation.Wait",
		vm:     o.began.vm,
		disk:   o.began.disk,
		ready:  func() bool { return !o.began.ends.After(o.c.w.now()) },
	}
	if o.c.absent(o.began.vm, o.began.disk) && !o.began.attach {
		return nil
	}
	_, err := ask(ctx, o.c, r, func() (struct{}, error) { return struct{}{}, o.Operation.Wait(ctx) })
	if o.began.attach && o.c.present(o.began.vm, o.began.disk) {
		return nil
	}
	return err
}

func (c azureClient) resume(ctx context.Context, method fake.Method, token string,
	do func(context.Context, string) (provisioner.Operation, error)) (provisioner.Operation, error) {
	known := c.w.azure.operations[token]
	if known == nil {
		known = &began{}
	}
	return ask(ctx, c, request{
		method: method,
		vm:     known.vm,
		disk:   known.disk,
	}, func() (provisioner.Operation, error) {
		op, err := do(ctx, token)
		if err != nil {
			return nil, err
		}
		return operation{op, c, known}, nil
	})
}

func (d azureDisks) Create(ctx context.Context, spec provisioner.DiskSpec) (provisioner.Operation, error) {
	return operate(ctx, d.azureClient, request{
		method: fake.DisksCreate,
		disk:   spec.ID,
	}, d.w.latency.CreateDisk, func() (provisioner.Operation, error) { return d.Cloud.Disks().Create(ctx, spec) })
}

func (d azureDisks) Get(ctx context.Context, id string) (provisioner.Disk, error) {
	return ask(ctx, d.azureClient, request{method: fake.DisksGet, disk: id}, func() (provisioner.Disk, error) {
		disk, err := d.Cloud.Disks().Get(ctx, id)
		return d.w.unseen(ctx, disk), err
	})
}

func (d azureDisks) List(ctx context.Context, scope provisioner.Scope) ([]provisioner.Disk, error) {
	return ask(ctx, d.azureClient, request{method: fake.DisksList},
		func() ([]provisioner.Disk, error) { return d.Cloud.Disks().List(ctx, scope) })
}

func (d azureDisks) Update(ctx context.Context, id string, change provisioner.DiskChange) (provisioner.Operation, error) {
	return operate(ctx, d.azureClient, request{
		method: fake.DisksUpdate,
		disk:   id,
	}, d.w.latency.UpdateDisk, func() (provisioner.Operation, error) { return d.Cloud.Disks().Update(ctx, id, change) })
}

func (d azureDisks) Delete(ctx context.Context, id string) (provisioner.Operation, error) {
	return operate(ctx, d.azureClient, request{
		method: fake.DisksDelete,
		disk:   id,
	}, d.w.latency.DeleteDisk, func() (provisioner.Operation, error) { return d.Cloud.Disks().Delete(ctx, id) })
}

func (d azureDisks) Resume(ctx context.Context, token string) (provisioner.Operation, error) {
	return d.resume(ctx, fake.DisksResume, token, d.Cloud.Disks().Resume)
}

func (a azureAttachments) Attach(ctx context.Context, r provisioner.AttachRequest) (provisioner.Operation, error) {
	ready := func() bool { return a.w.azure.free(r.VMID, r.DiskID, true, r.Shared) }
	if a.w.options.AnyLUN {
		r.OtherLUNs = nil
	}
	return operate(ctx, a.azureClient, request{
		method: fake.AttachmentsAttach,
		vm:     r.VMID,
		disk:   r.DiskID,
		ready:  ready,
	}, a.w.latency.Attach,
		func() (provisioner.Operation, error) { return a.Cloud.Attachments().Attach(ctx, r) })
}

func (a azureAttachments) Detach(ctx context.Context, vm, disk string) (provisioner.Operation, error) {
	ready := func() bool { return a.w.azure.free(vm, disk, false, false) }
	return operate(ctx, a.azureClient, request{
		method: fake.AttachmentsDetach,
		vm:     vm,
		disk:   disk,
		ready:  ready,
	}, a.w.latency.Detach, func() (provisioner.Operation, error) {
		if a.w.keptRefused(vm, disk) {
			return a.Cloud.Attachments().Detach(ctx, vmOf("nowhere"), disk)
		}
		a.w.takenFrom(vm, disk)
		return a.Cloud.Attachments().Detach(ctx, vm, disk)
	})
}

func (a azureAttachments) ForceDetach(ctx context.Context, vm, disk string) (provisioner.Operation, error) {
	if a.spared(vm) || a.leftAttached(vm) || a.absent(vm, disk) {
		a.w.spared[vm+disk] = a.spared(vm) || a.leftAttached(vm)
		return operate(ctx, a.azureClient, request{
			method: fake.AttachmentsForceDetach,
			vm:     vm,
			disk:   disk,
		}, 0,
			func() (provisioner.Operation, error) { return a.Cloud.Attachments().Detach(ctx, vmOf("nowhere"), disk) })
	}
	ready := func() bool { return !a.w.azure.forceWaits }
	return operate(ctx, a.azureClient, request{
		method: fake.AttachmentsForceDetach,
		vm:     vm,
		disk:   disk,
		ready:  ready,
	}, a.w.latency.ForceDetach, func() (provisioner.Operation, error) {
		a.w.flushing(vm, disk)
		return a.Cloud.Attachments().ForceDetach(ctx, vm, disk)
	})
}

func (a azureAttachments) List(ctx context.Context, vm string) ([]provisioner.Attachment, error) {
	disks, err := ask(ctx, a.azureClient, request{
		method: fake.AttachmentsList,
		vm:     vm,
	}, func() ([]provisioner.Attachment, error) { return a.Cloud.Attachments().List(ctx, vm) })
	return a.hide(vm, disks), err
}

// listLag is how far a list of VMs lags behind at most.
const listLag = time.Minute

// ListMany answers every other time with what was there at the call before, if that was not long
// ago: lists may lag behind.
func (a azureAttachments) ListMany(ctx context.Context, vms []string) (map[string][]provisioner.Attachment, error) {
	found, err := ask(ctx, a.azureClient, request{method: fake.AttachmentsListMany},
		func() (map[string][]provisioner.Attachment, error) { return a.Cloud.Attachments().ListMany(ctx, vms) })
	for _, vm := range vms {
		if disks, ok := found[strings.ToLower(vm)]; ok {
			found[strings.ToLower(vm)] = a.hide(vm, disks)
		}
	}
	lagging, age := a.w.azure.listed, a.w.now().Sub(a.w.azure.listedAt)
	a.w.azure.listed, a.w.azure.listedAt = found, a.w.now()
	if err == nil && a.w.steps%2 == 0 && lagging != nil && age <= listLag {
		return lagging, nil
	}
	return found, err
}

func (a azureAttachments) Resume(ctx context.Context, token string) (provisioner.Operation, error) {
	return a.resume(ctx, fake.AttachmentsResume, token, a.Cloud.Attachments().Resume)
}

func (azureAttachments) Waiting(string, string) provisioner.Waiting { return provisioner.Waiting{} }

func (i azureInstances) Get(ctx context.Context, vm string) (provisioner.Instance, error) {
	return ask(ctx, i.azureClient, request{
		method: fake.InstancesGet,
		vm:     vm,
	}, func() (provisioner.Instance, error) {
		if i.unseen(vm) {
			return provisioner.Instance{}, provisioner.Errorf(provisioner.Unavailable, "not seen by the mutant")
		}
		found, err := i.Cloud.Instances().Get(ctx, vm)
		if i.w.options.Mutant == StoppedIsOff && found.Power == provisioner.PowerStopped {
			found.Power = provisioner.PowerDeallocated
		}
		return found, err
	})
}

func (s azureSKUs) VM(ctx context.Context, location, size string) (provisioner.VMLimits, error) {
	return ask(ctx, s.azureClient, request{
		method: fake.SKUsVM,
		vm:     size,
	}, func() (provisioner.VMLimits, error) { return s.Cloud.SKUs().VM(ctx, location, size) })
}

func (s azureSKUs) Quota(ctx context.Context, subscriptionID, location, sku string) (provisioner.DiskQuota, error) {
	return ask(ctx, s.azureClient, request{method: fake.SKUsQuota, disk: sku}, func() (provisioner.DiskQuota, error) {
		return s.Cloud.SKUs().Quota(ctx, subscriptionID, location, sku)
	})
}

func (s azureSKUs) Disk(ctx context.Context, location, sku string, size int64) (provisioner.DiskLimits, error) {
	return ask(ctx, s.azureClient, request{
		method: fake.SKUsDisk,
		disk:   sku,
	}, func() (provisioner.DiskLimits, error) { return s.Cloud.SKUs().Disk(ctx, location, sku, size) })
}
