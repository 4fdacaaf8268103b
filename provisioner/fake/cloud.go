package fake

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// Options of New. The zero value is a platform where all resource groups exist and
// every operation ends at once.
type Options struct {
	// Clock that operations end by; the real one if nil.
	Clock clock.Clock
	// Latency of the operations.
	Latency Latency
	// ResourceGroups that exist; all of them if empty.
	ResourceGroups []string
	// Sizes are the VM sizes and their largest number of data disks; DefaultSizes if nil.
	Sizes map[string]int32
	// MaxDisks is the quota on disks; 0 for none.
	MaxDisks int
	// GoalState makes VMs list what they are to have: a disk from the moment at which its attach is
	// accepted, and no more from the moment at which its detach is, also after the attach or the
	// detach has failed. The next operation of the VM that succeeds attaches such a disk. Otherwise
	// VMs list what they have.
	GoalState bool
}

// Latency is how long operations take.
type Latency struct {
	CreateDisk, UpdateDisk, DeleteDisk time.Duration
	CreateSnapshot, DeleteSnapshot     time.Duration
	Attach, Detach, ForceDetach        time.Duration
	// BackgroundCopy is how long the content of a copy takes to arrive after its creation has
	// ended: of a snapshot of a snapshot, of a snapshot of an Ultra or Premium v2 disk, and of such
	// a disk made from a snapshot.
	BackgroundCopy time.Duration
}

// DefaultSizes are the VM sizes that a platform offers if Options name none.
func DefaultSizes() map[string]int32 {
	return map[string]int32{
		"Standard_A2_v2":   4,
		"Standard_D2s_v3":  4,
		"Standard_D4s_v5":  8,
		"Standard_D8s_v5":  16,
		"Standard_D16s_v5": 32,
		"Standard_M128s":   64,
	}
}

// Cloud is one client of a platform in memory. Reopen gives further ones.
type Cloud struct{ p *platform }

var _ provisioner.Cloud = (*Cloud)(nil)

// New makes an empty platform and a client of it.
func New(options Options) *Cloud {
	if options.Clock == nil {
		options.Clock = clock.RealClock{}
	}
	if options.Sizes == nil {
		options.Sizes = DefaultSizes()
	}
	return &Cloud{p: &platform{
		options:    options,
		disks:      map[string]*disk{},
		snapshots:  map[string]*snapshot{},
		vms:        map[string]*vm{},
		operations: map[string]*operation{},
		quotas:     map[string]provisioner.DiskQuota{},
		withdrawn:  map[string][]string{},
	}}
}

// Reopen returns another client of the same platform, as a process that was started again has it.
func (c *Cloud) Reopen() *Cloud { return &Cloud{p: c.p} }

// Disks returns the disks of the platform.
func (c *Cloud) Disks() provisioner.Disks { return disks{c.p} }

// Snapshots returns the snapshots of the platform.
func (c *Cloud) Snapshots() provisioner.Snapshots { return snapshots{c.p} }

// Attachments returns the attachments of the platform.
func (c *Cloud) Attachments() provisioner.Attachments { return attachments{c.p} }

// Instances returns the VMs of the platform.
func (c *Cloud) Instances() provisioner.Instances { return instances{c.p} }

// SKUs returns the offers of the platform.
func (c *Cloud) SKUs() provisioner.SKUs { return skus{c.p} }

// platform is the state behind all clients. Everything in it is guarded by mu.
type platform struct {
	options Options

	mu         sync.Mutex
	disks      map[string]*disk
	snapshots  map[string]*snapshot
	vms        map[string]*vm
	operations map[string]*operation // every operation that did not end at once, by token
	inFlight   []*operation          // in the order of their begin
	faults     []*fault
	calls      []Call
	quotas     map[string]provisioner.DiskQuota // limits by disk SKU
	withdrawn  map[string][]string              // zones by disk SKU that does not come there any more
	serial     int
}

type disk struct {
	provisioner.Disk
	op         *operation // create, update or delete in flight
	deleting   bool
	copy       backgroundCopy
	conversion backgroundCopy // to another SKU, which delays no call
}

type snapshot struct {
	provisioner.Snapshot
	spec     provisioner.SnapshotSpec
	clock    clock.PassiveClock
	op       *operation
	deleting bool
	copy     backgroundCopy
}

type vm struct {
	provisioner.Instance // without DataDisks
	slots                []*slot
	lane                 lane
	failed               bool // the last operation
}

// slot is a disk on a VM, or on its way there or away.
type slot struct {
	diskID    string
	lun       int32
	attaching *operation
	detaching *operation
	unlisted  bool // by the goal state: its detach was accepted
	absent    bool // its attach has failed, and the goal state has it
	request   provisioner.AttachRequest
}

func key(id string) string { return strings.ToLower(strings.TrimSuffix(id, "/")) }

// now settles what is due. The caller holds mu.
func (p *platform) now() time.Time {
	now := p.options.Clock.Now()
	for {
		ended := false
		for _, op := range slices.Clone(p.inFlight) {
			ended = op.endIfDue(now) || ended
		}
		if !ended {
			return now
		}
	}
}

// begin starts an operation that calls apply, under mu, when it ends without an error of the
// fault plan, and abort when it ends with one. The caller holds mu.
func (p *platform) begin(latency time.Duration, plan effect, apply func() error, abort func()) *operation {
	op := &operation{
		p:     p,
		ends:  p.options.Clock.Now().Add(latency),
		hold:  plan.hold,
		fail:  plan.operationErr,
		done:  make(chan struct{}),
		apply: apply,
		abort: abort,
	}
	p.inFlight = append(p.inFlight, op)
	p.now()
	if !op.ended {
		p.serial++
		op.token = fmt.Sprintf("fake-operation-%d", p.serial)
		p.operations[op.token] = op
	}
	return op
}

// ended is an operation for which there was nothing to do. The caller need not hold mu.
func (p *platform) ended() *operation {
	op := &operation{
		p:     p,
		done:  make(chan struct{}),
		ended: true,
	}
	close(op.done)
	return op
}

func (p *platform) resume(ctx context.Context, method Method, token string) (provisioner.Operation, error) {
	_, err := p.enter(ctx, method, token, "")
	if err != nil {
		return nil, p.leave(method, token, "", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	op, ok := p.operations[token]
	if !ok {
		return nil, p.logLocked(method, token, "",
			provisioner.Errorf(provisioner.InvalidArgument, "resume: %q is no token of an operation", token))
	}
	p.now()
	return op, p.logLocked(method, token, "", nil)
}

func (p *platform) groupExists(group string) bool {
	return len(p.options.ResourceGroups) == 0 ||
		slices.ContainsFunc(p.options.ResourceGroups, func(g string) bool { return strings.EqualFold(g, group) })
}
