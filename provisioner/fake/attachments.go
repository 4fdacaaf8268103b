package fake

import (
	"context"
	"slices"
	"strings"

	"github.com/azuredisk-csi/azuredisk/provisioner"
)

type attachments struct{ p *platform }

// lane holds the operations of one VM in flight. Requests that come while there are any
// wait until they have ended, and then go together: generation counts these departures.
type lane struct {
	generation int
	inFlight   []*operation
}

func (l *lane) prune() {
	l.inFlight = slices.DeleteFunc(l.inFlight, func(op *operation) bool { return op.ended })
}

// Attach implements provisioner.Attachments.
func (a attachments) Attach(ctx context.Context, request provisioner.AttachRequest) (provisioner.Operation, error) {
	return a.p.vmCall(ctx, vmCall{
		method: AttachmentsAttach,
		vmID:   request.VMID,
		diskID: request.DiskID,
		shared: request.Shared,
		do:     func(plan effect) (*operation, error) { return a.p.attach(ctx, request, plan) },
	})
}

// Detach implements provisioner.Attachments.
func (a attachments) Detach(ctx context.Context, vmID, diskID string) (provisioner.Operation, error) {
	return a.p.vmCall(ctx, vmCall{
		method: AttachmentsDetach,
		vmID:   vmID,
		diskID: diskID,
		do:     func(plan effect) (*operation, error) { return a.p.detach(vmID, diskID, plan, false) },
	})
}

// ForceDetach implements provisioner.Attachments.
func (a attachments) ForceDetach(ctx context.Context, vmID, diskID string) (provisioner.Operation, error) {
	return a.p.vmCall(ctx, vmCall{
		method:   AttachmentsForceDetach,
		vmID:     vmID,
		diskID:   diskID,
		preempts: true,
		do:       func(plan effect) (*operation, error) { return a.p.detach(vmID, diskID, plan, true) },
	})
}

// Waiting implements provisioner.Attachments: it says nothing.
func (attachments) Waiting(string, string) provisioner.Waiting { return provisioner.Waiting{} }

type vmCall struct {
	method           Method
	vmID, diskID     string
	shared, preempts bool
	do               func(effect) (*operation, error)
}

// vmCall runs a call that changes a VM's disks when it is its turn.
func (p *platform) vmCall(ctx context.Context, call vmCall) (provisioner.Operation, error) {
	plan, err := p.enter(ctx, call.method, call.vmID, call.diskID)
	if err != nil {
		return nil, p.leave(call.method, call.vmID, call.diskID, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.awaitTurn(ctx, call); err != nil {
		return nil, p.logLocked(call.method, call.vmID, call.diskID, err)
	}
	op, err := call.do(plan)
	if p.logLocked(call.method, call.vmID, call.diskID, err) != nil {
		return nil, err
	}
	if v, ok := p.vms[key(call.vmID)]; ok && !op.ended && !slices.Contains(v.lane.inFlight, op) {
		v.lane.inFlight = append(v.lane.inFlight, op)
	}
	return op, nil
}

// awaitTurn returns when no call that this one must wait for is in flight. It is called, and
// returns, with mu held.
func (p *platform) awaitTurn(ctx context.Context, call vmCall) error {
	arrived := -1
	for {
		p.now()
		op := p.ahead(call, &arrived)
		if op == nil {
			return nil
		}
		p.mu.Unlock()
		err := op.await(ctx)
		p.mu.Lock()
		if err != nil {
			return err
		}
	}
}

// ahead returns an operation that call must wait for, if there is one.
func (p *platform) ahead(call vmCall, arrived *int) *operation {
	v, ok := p.vms[key(call.vmID)]
	if !ok || call.preempts {
		return nil
	}
	if s := v.slot(call.diskID); s != nil && (s.attaching != nil) == (call.method == AttachmentsAttach) &&
		(s.attaching != nil || s.detaching != nil) {
		return nil // the same is under way: the call shares its operation
	}
	if call.shared {
		for _, other := range p.vms {
			if s := other.slot(call.diskID); other != v && s != nil && s.attaching != nil {
				return s.attaching
			}
		}
	}
	v.lane.prune()
	if *arrived < 0 {
		*arrived = v.lane.generation
	}
	if len(v.lane.inFlight) == 0 {
		v.lane.generation++
		return nil
	}
	// Calls that arrived while the previous batch was being sent join the first of them.
	if *arrived == v.lane.generation-1 && arrivedBefore(call, v) {
		return nil
	}
	return v.lane.inFlight[0]
}

// arrivedBefore reports whether call may share the departure in flight: not if that is still at
// work on the same disk.
func arrivedBefore(call vmCall, v *vm) bool {
	s := v.slot(call.diskID)
	return s == nil || (s.attaching == nil && s.detaching == nil)
}

func (p *platform) attach(ctx context.Context, request provisioner.AttachRequest, plan effect) (*operation, error) {
	v, d, err := p.attachable(request)
	if err != nil {
		return nil, err
	}
	if s := v.slot(d.ID); s != nil {
		switch {
		case s.detaching != nil:
			return nil, stillDetaching("disk %s is being detached from %s", d.ID, v.ID)
		case s.attaching != nil:
			return s.attaching, nil
		case s.unlisted:
			return nil, stillDetaching("the last detach of disk %s from %s has failed: detach it again", d.ID, v.ID)
		case !s.absent:
			return p.ended(), nil
		}
		return p.beginAttach(v, d, s, plan), nil
	}
	if err := p.room(v, d); err != nil {
		return nil, err
	}
	var others []int32
	if request.OtherLUNs != nil {
		if others, err = request.OtherLUNs(ctx); err != nil {
			return nil, err
		}
	}
	taken := &slot{
		diskID:  d.ID,
		lun:     v.freeLUN(others),
		request: request,
	}
	v.slots = append(v.slots, taken)
	return p.beginAttach(v, d, taken, plan), nil
}

func stillDetaching(format string, args ...any) error {
	err := provisioner.Errorf(provisioner.Conflict, format, args...)
	err.StillDetaching = true
	return err
}

// beginAttach begins the operation that attaches the disk of a slot.
func (p *platform) beginAttach(v *vm, d *disk, taken *slot, plan effect) *operation {
	named := func() {
		if !slices.Contains(d.AttachedTo, v.ID) {
			d.AttachedTo = append(d.AttachedTo, v.ID)
		}
	}
	op := p.begin(p.options.Latency.Attach, plan, func() error {
		if p.vms[key(v.ID)] != v {
			return noVM(v.ID)
		}
		taken.attaching, taken.absent = nil, false
		v.reached()
		named()
		return nil
	}, func() {
		v.failed = true
		if taken.attaching = nil; !p.options.GoalState || plan.operationErr == nil {
			v.drop(taken)
			p.release(d.ID, v.ID)
			return
		}
		taken.absent = true
		named()
	})
	if !op.ended {
		taken.attaching = op
	}
	return op
}

// attachable checks what does not depend on other attachments.
func (p *platform) attachable(request provisioner.AttachRequest) (*vm, *disk, error) {
	if _, err := parseKind(request.VMID, kindVM, kindScaleSetVM); err != nil {
		return nil, nil, err
	}
	if _, err := parseKind(request.DiskID, kindDisk); err != nil {
		return nil, nil, err
	}
	v, ok := p.vms[key(request.VMID)]
	if !ok {
		return nil, nil, noVM(request.VMID)
	}
	d, ok := p.disks[key(request.DiskID)]
	if !ok {
		return nil, nil, noDisk(request.DiskID)
	}
	switch {
	case d.op != nil || !d.Ready || d.copy.percent() < 100:
		return nil, nil, provisioner.Errorf(provisioner.Conflict, "another operation on disk %s is in flight", d.ID)
	case !slices.Contains([]string{"", "None", "ReadOnly", "ReadWrite"}, request.CachingMode):
		return nil, nil, provisioner.Errorf(provisioner.InvalidArgument, "caching mode %q does not exist", request.CachingMode)
	case d.MaxShares > 1 && request.CachingMode != "" && request.CachingMode != "None":
		return nil, nil, provisioner.Errorf(provisioner.InvalidArgument, "caching mode %s: a shared disk has none",
			request.CachingMode)
	case (provisioned(d.SKUName) || d.SizeBytes >= 4096*gib) && request.CachingMode != "" && request.CachingMode != "None":
		return nil, nil, provisioner.Errorf(provisioner.InvalidArgument, "caching mode %s: a %s disk of %d GiB has none",
			request.CachingMode, d.SKUName, d.SizeBytes/gib)
	case d.Zone != v.Zone && (d.Zone != "" || offers()[d.SKUName].zonal):
		return nil, nil, provisioner.Errorf(provisioner.InvalidArgument, "disk zone %q is not VM zone %q", d.Zone, v.Zone)
	}
	return v, d, nil
}

// AttachedAs returns the request by which a disk was attached to a VM; ok is false if it is not
// attached.
func (c *Cloud) AttachedAs(vmID, diskID string) (request provisioner.AttachRequest, ok bool) {
	c.p.mu.Lock()
	defer c.p.mu.Unlock()
	v, ok := c.p.vms[key(vmID)]
	if !ok {
		return request, false
	}
	s := v.slot(diskID)
	if s == nil {
		return request, false
	}
	return s.request, true
}

// room checks slots and shares.
func (p *platform) room(v *vm, d *disk) error {
	holders := p.holders(d.ID)
	switch {
	case len(holders) > 0 && d.MaxShares <= 1:
		return provisioner.Errorf(provisioner.FailedPrecondition, "disk %s is attached to %s", d.ID, holders[0])
	case len(holders) >= int(d.MaxShares):
		return provisioner.Errorf(provisioner.InsufficientCapacity, "all %d shares of disk %s are taken", d.MaxShares, d.ID)
	}
	slots, ok := p.maxDataDisks(v.Size)
	if !ok {
		slots = 64
	}
	if len(v.slots) >= int(slots) {
		return provisioner.Errorf(provisioner.InsufficientCapacity, "VM %s has all of its %d data disks", v.ID, slots)
	}
	return nil
}

func (p *platform) detach(vmID, diskID string, plan effect, force bool) (*operation, error) {
	if _, err := parseKind(vmID, kindVM, kindScaleSetVM); err != nil {
		return nil, err
	}
	if _, err := parseKind(diskID, kindDisk); err != nil {
		return nil, err
	}
	v, ok := p.vms[key(vmID)]
	if !ok {
		return p.ended(), nil
	}
	latency := p.options.Latency.Detach
	if force {
		latency = p.options.Latency.ForceDetach
		if s := v.slot(diskID); s != nil && s.attaching != nil {
			failed := v.failed
			s.attaching.preempt("a forced detach")
			v.failed = failed
		}
	}
	s := v.slot(diskID)
	switch {
	case s == nil:
		return p.ended(), nil
	case v.Power == provisioner.PowerHibernated:
		return nil, provisioner.Errorf(provisioner.FailedPrecondition,
			"disk %s cannot be detached from VM %s, which is hibernated", diskID, vmID)
	case s.detaching != nil && !force:
		return s.detaching, nil
	}
	before := s.detaching
	s.unlisted = true
	op := p.begin(latency, plan, func() error {
		v.drop(s)
		v.reached()
		p.release(diskID, vmID)
		if before != nil {
			before.end(nil) // what it was asked for is done
		}
		return nil
	}, func() { s.detaching, v.failed = before, true })
	if !op.ended {
		s.detaching = op
	}
	return op, nil
}

// List implements provisioner.Attachments.
func (a attachments) List(ctx context.Context, vmID string) ([]provisioner.Attachment, error) {
	v, err := a.p.getVM(ctx, AttachmentsList, vmID)
	return v.DataDisks, err
}

// ListMany implements provisioner.Attachments. It has an answer for each VM that exists, also for a
// single one.
func (a attachments) ListMany(ctx context.Context, vmIDs []string) (map[string][]provisioner.Attachment, error) {
	return read(ctx, a.p, AttachmentsListMany, "", func() (map[string][]provisioner.Attachment, error) {
		found := map[string][]provisioner.Attachment{}
		for _, id := range vmIDs {
			if v, ok := a.p.vms[key(id)]; ok {
				found[strings.ToLower(id)] = v.seen(a.p.options.GoalState).DataDisks
			}
		}
		return found, nil
	})
}

// Resume implements provisioner.Attachments.
func (a attachments) Resume(ctx context.Context, token string) (provisioner.Operation, error) {
	return a.p.resume(ctx, AttachmentsResume, token)
}
