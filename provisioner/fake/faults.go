package fake

import (
	"context"
	"slices"
	"strings"
	"time"
)

// Method names a method of the platform, for faults and in the log of calls.
type Method string

// The methods.
const (
	DisksCreate            Method = "Disks.Create"
	DisksGet               Method = "Disks.Get"
	DisksList              Method = "Disks.List"
	DisksUpdate            Method = "Disks.Update"
	DisksDelete            Method = "Disks.Delete"
	DisksResume            Method = "Disks.Resume"
	SnapshotsCreate        Method = "Snapshots.Create"
	SnapshotsGet           Method = "Snapshots.Get"
	SnapshotsList          Method = "Snapshots.List"
	SnapshotsDelete        Method = "Snapshots.Delete"
	AttachmentsAttach      Method = "Attachments.Attach"
	AttachmentsDetach      Method = "Attachments.Detach"
	AttachmentsForceDetach Method = "Attachments.ForceDetach"
	AttachmentsList        Method = "Attachments.List"
	AttachmentsListMany    Method = "Attachments.ListMany"
	AttachmentsResume      Method = "Attachments.Resume"
	InstancesGet           Method = "Instances.Get"
	SKUsVM                 Method = "SKUs.VM"
	SKUsDisk               Method = "SKUs.Disk"
	SKUsQuota              Method = "SKUs.Quota"
)

// Fault is a failure or delay of the calls that match it. Several faults may match
// one call; the first Err, OperationErr, Before and Hold count, delays add up.
type Fault struct {
	// Method that the fault is for; every one if "".
	Method Method
	// ID of a VM, disk or snapshot that the call names, in any case; every one if "".
	ID string
	// Times that the fault happens; 0 until it is removed.
	Times int
	// Err is the error that the call returns before it has any effect.
	Err error
	// OperationErr is the error with which the operation ends, without any effect.
	OperationErr error
	// Delay before the call is looked at, on the platform's clock.
	Delay time.Duration
	// Before runs before the call is looked at.
	Before func()
	// Hold keeps the operation from ending until the channel is closed.
	Hold <-chan struct{}
}

// Inject adds a fault. Call remove to end it; it may be called again.
func (c *Cloud) Inject(f Fault) (remove func()) {
	added := &fault{Fault: f}
	c.p.mu.Lock()
	defer c.p.mu.Unlock()
	c.p.faults = append(c.p.faults, added)
	return func() {
		c.p.mu.Lock()
		defer c.p.mu.Unlock()
		c.p.faults = slices.DeleteFunc(c.p.faults, func(other *fault) bool { return other == added })
	}
}

// FailNext makes the next times calls of method return err.
func (c *Cloud) FailNext(method Method, times int, err error) {
	c.Inject(Fault{
		Method: method,
		Times:  times,
		Err:    err,
	})
}

// HoldAll keeps the operations that calls of method begin from now on in flight, until release is
// called.
func (c *Cloud) HoldAll(method Method) (release func()) {
	held := make(chan struct{})
	remove := c.Inject(Fault{Method: method, Hold: held})
	return func() {
		remove()
		close(held)
	}
}

// HoldReads keeps the reads of method from being looked at until release is called. began receives
// from the first of them.
func (c *Cloud) HoldReads(method Method) (began <-chan struct{}, release func()) {
	first, held := make(chan struct{}, 1), make(chan struct{})
	remove := c.Inject(Fault{Method: method, Before: func() {
		select {
		case first <- struct{}{}:
		default:
		}
		<-held
	}})
	return first, func() {
		remove()
		close(held)
	}
}

// Call is an entry of the log of calls.
type Call struct {
	Method Method
	// ID of the resource that the call is about: the VM of an attachment.
	ID string
	// DiskID is the disk of an attachment.
	DiskID string
	// Err that the call returned; the outcome of its operation does not count.
	Err error
}

// Calls returns the calls so far that have returned, all clients' in the order of their return.
func (c *Cloud) Calls() []Call {
	c.p.mu.Lock()
	defer c.p.mu.Unlock()
	return slices.Clone(c.p.calls)
}

// CallCount is the number of calls of method that have returned.
func (c *Cloud) CallCount(method Method) int {
	n := 0
	for _, call := range c.Calls() {
		if call.Method == method {
			n++
		}
	}
	return n
}

type fault struct {
	Fault
	happened int
}

// effect is the effect of the faults on one call.
type effect struct {
	err, operationErr error
	hold              <-chan struct{}
	before            func()
}

// enter applies the faults for a call: it waits out their delays and returns the rest.
func (p *platform) enter(ctx context.Context, method Method, id, diskID string) (effect, error) {
	if err := ctx.Err(); err != nil {
		return effect{}, err
	}
	found, delay := p.takeFaults(method, id, diskID)
	if found.before != nil {
		found.before()
	}
	if delay > 0 {
		timer := p.options.Clock.NewTimer(delay)
		defer timer.Stop()
		select {
		case <-ctx.Done():
			return found, ctx.Err()
		case <-timer.C():
		}
	}
	return found, found.err
}

func (p *platform) takeFaults(method Method, ids ...string) (effect, time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var found effect
	var delay time.Duration
	for _, f := range p.faults {
		matches := f.Method == "" || f.Method == method
		matches = matches && (f.ID == "" || slices.ContainsFunc(ids, func(id string) bool { return strings.EqualFold(f.ID, id) }))
		if !matches || (f.Times > 0 && f.happened >= f.Times) {
			continue
		}
		f.happened++
		delay += f.Delay
		if found.before == nil {
			found.before = f.Before
		}
		if found.err == nil {
			found.err = f.Err
		}
		if found.operationErr == nil {
			found.operationErr = f.OperationErr
		}
		if found.hold == nil {
			found.hold = f.Hold
		}
	}
	return found, delay
}

// leave logs a call and returns err.
func (p *platform) leave(method Method, id, diskID string, err error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.logLocked(method, id, diskID, err)
}

func (p *platform) logLocked(method Method, id, diskID string, err error) error {
	p.calls = append(p.calls, Call{
		Method: method,
		ID:     id,
		DiskID: diskID,
		Err:    err,
	})
	return err
}
