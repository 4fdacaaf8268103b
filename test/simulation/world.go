package simulation

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/memapi"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/sharedisk"
	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/fake"
)

// outcome is the result of an access.
type outcome int

const (
	// pass: it happens and the caller learns of it.
	pass outcome = iota
	// lose: it happens, and the caller gets an error.
	lose
	// refuse: it does not happen, and the caller gets an error.
	refuse
	// spoil: Azure accepts it, and its operation fails.
	spoil
	// die: the caller is killed before it.
	die
	// dieAfter: it happens, and the caller is killed before it learns of it.
	dieAfter
	// expired: the caller's context ended while it waited.
	expired
)

func (v outcome) String() string {
	return [...]string{"", " (answer lost)", " (refused)", " (will fail)", " (killed before)", " (killed after)", " (expired)"}[v]
}

// way is what an access goes over.
type way int

const (
	overAPI way = iota
	overAzure
	local
)

// owner is a process that makes accesses.
type owner struct {
	name string
	dead bool
	// cutOff says that the process cannot reach the API server, paused that it gets no time at all.
	cutOff, paused bool
}

// access is one that waits for its turn.
type access struct {
	by   *owner
	what string
	over way
	// of is the call, if it is one to the API server.
	of memapi.Call
	// writes says that its answer may be lost or its caller killed after it.
	writes bool
	// ready says that it can happen; nil for always.
	ready  func() bool
	resume chan outcome
	// arrived is the step in which it began to wait, twins are accesses that nothing tells apart
	// from it.
	arrived int
	twins   []*access
}

// world is everything in one history.
type world struct {
	seed    uint64
	options Options
	random  *rand.Rand
	began   time.Time
	store   *memapi.Store
	cloud   *fake.Cloud
	latency fake.Latency

	mu      sync.Mutex
	waiting []*access

	azure     *platform
	machines  []*machine
	processes []*process
	volumes   []*volumeModel
	calls     []*call
	// byPods says that the driver has no VolumeAttachments: pods alone say where a volume is
	// wanted.
	byPods bool
	// kubelets says that pods come and go, and that models of kubelets make the calls to the nodes.
	kubelets  bool
	pods      []*podModel
	podSerial int
	// attaching are the VolumeAttachments of a history with kubelets.
	attaching map[share]*attaching
	// faults says that people detach disks, that mounts leak, and that volumes have no records.
	faults bool
	// openers says that processes outside of the pods keep devices open.
	openers bool
	// scenes says that situations which rarely happen by chance are played after the faults have
	// stopped.
	scenes bool
	// liar is a machine whose node plug-in lies, the last of machines; nil for none.
	liar *machine
	// mislaid says that an attachment to the liar may not be as its object says: a person edited
	// the object, or detached the disk at Azure.
	mislaid bool
	// byPerson are the machines, each with a disk, that a person detached from them. No driver can
	// prevent that, so such a machine is not forgotten while it guards against another one.
	byPerson map[string]bool
	// clusters says that another cluster uses a disk, and elsewhere is its VM; nil while there is
	// none.
	clusters  bool
	elsewhere *elsewhere
	// edits says that people restore and edit objects, and editing that they do so just now.
	// moments are those that all can be restored to.
	edits, editing bool
	moments        []int64
	// overlaps says that two processes lead at once now and then.
	overlaps bool
	// hibernates says that VMs are hibernated, and goalState that they list what they are to have.
	hibernates, goalState bool
	// pauses says that machines and processes stand still now and then; announced counts the events
	// that Azure has announced.
	pauses    bool
	announced int
	// nights says that most machines are switched off once.
	nights bool
	// people says that there are retained disks, and that people delete AzVolumes.
	people bool

	// apiDown and trouble are faults: no API server, and how many of 100 accesses to Azure and the
	// API server go wrong.
	apiDown bool
	trouble int

	// content of the disks, and how many filesystems were made.
	content map[string]provisioner.Filesystem
	uuids   int
	// reservations says that the disks have reservations, and shared is what they are. preempted
	// are the attachments whose nodes were fenced by them, by name.
	reservations bool
	// paths and oneInitiator say what the disks take for an initiator; formerPaths counts the paths
	// that are gone.
	paths, oneInitiator bool
	formerPaths         int
	// forgets says that a disk forgets what a machine has registered and reserved when it is
	// detached from the machine, and when Azure deallocates the VM.
	forgets   bool
	shared    map[string]*sharedisk.Disk
	preempted map[string]*apiv1.AzVolumeAttachment
	// spared are the disks of VMs that a mutant has not cut off.
	spared map[string]bool
	// largest size that each disk has had, by its unique ID.
	largest map[string]int64
	// data is what pods have written.
	data *data
	// reached are the states of the volumes so far, if options.States asks for them.
	reached map[uint64]struct{}

	trace     []string
	steps     int
	violation string
}

func (w *world) now() time.Time { return time.Now() } // the bubble's

// note adds a line to the history.
func (w *world) note(format string, args ...any) {
	w.trace = append(w.trace, fmt.Sprintf("%9.3fs  ", w.now().Sub(w.began).Seconds())+fmt.Sprintf(format, args...))
}

// broken records the first violation of a law.
func (w *world) broken(format string, args ...any) {
	if w.violation == "" {
		w.violation = fmt.Sprintf(format, args...)
		w.note("!!! %s", w.violation)
	}
}

// yield waits until the access may happen, and says how it does. It does not return if the caller
// is killed.
func (w *world) yield(ctx context.Context, a *access) outcome {
	a.resume = make(chan outcome)
	w.mu.Lock()
	a.arrived, a.twins = w.steps, nil
	dead := a.by.dead
	if !dead {
		w.waiting = append(w.waiting, a)
	}
	w.mu.Unlock()
	if dead {
		runtime.Goexit()
	}
	select {
	case v := <-a.resume:
		if v == die {
			runtime.Goexit()
		}
		return v
	case <-ctx.Done():
		w.forget(a)
		if a.by.dead {
			runtime.Goexit()
		}
		return expired
	}
}

// forget takes an access out of those that wait, and reports whether it was there.
func (w *world) forget(a *access) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := len(w.waiting)
	w.waiting = slices.DeleteFunc(w.waiting, func(other *access) bool { return other == a })
	return len(w.waiting) < before
}

// accesses are those that wait, in an order that does not depend on how goroutines were scheduled.
// Those of one name that came in one step are one choice: which of them is which would be Go's to
// decide.
func (w *world) accesses() []*access {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := slices.Clone(w.waiting)
	slices.SortStableFunc(all, func(a, b *access) int {
		return cmp.Or(strings.Compare(a.by.name, b.by.name), strings.Compare(a.what, b.what), a.arrived-b.arrived)
	})
	var told []*access
	for _, a := range all {
		a.twins = nil
		if n := len(told); n > 0 && told[n-1].by == a.by && told[n-1].what == a.what && told[n-1].arrived == a.arrived {
			told[n-1].twins = append(told[n-1].twins, a)
			continue
		}
		told = append(told, a)
	}
	return told
}

func (w *world) possible(a *access) bool {
	switch {
	case a.by.dead, a.by.paused:
		return false
	case a.over == overAPI && (w.apiDown || a.by.cutOff || w.edits && w.withheld(a)):
		return false
	}
	return a.ready == nil || a.ready()
}

// let opens the gate for an access.
func (w *world) let(a *access, v outcome) {
	for _, a := range append([]*access{a}, a.twins...) {
		if !w.forget(a) {
			continue // its twin ended it
		}
		w.note("%s: %s%s", a.by.name, a.what, v)
		a.resume <- v
		synctest.Wait()
	}
}

func (w *world) outcomeFor(a *access) outcome {
	if a.over == local || w.trouble == 0 {
		return pass
	}
	if w.goalState && strings.HasPrefix(a.what, "Azure "+string(fake.AttachmentsAttach)+" ") && w.random.IntN(3) == 0 {
		return spoil // the VM lists the disk nevertheless
	}
	if w.random.IntN(100) >= w.trouble {
		return pass
	}
	switch n := w.random.IntN(3); {
	case !a.writes, n == 0:
		return refuse
	case n == 1 && a.over == overAzure:
		return spoil
	default:
		return lose
	}
}

// step lets one thing happen, if there is any, or time pass.
func (w *world) step() {
	w.steps++
	w.endOverlap()
	w.followHibernation()
	var choices []func()
	for _, a := range w.accesses() {
		if w.possible(a) {
			choices = append(choices, func() { w.let(a, w.outcomeFor(a)) })
		}
	}
	for _, p := range w.processes {
		choices = append(choices, p.choices()...)
	}
	for _, m := range w.machines {
		choices = append(choices, m.kubelet.choices()...)
	}
	choices = append(choices, w.attachDetach()...)
	if len(choices) == 0 || w.random.IntN(50) == 0 {
		w.pause(len(choices) == 0)
	} else {
		choices[w.random.IntN(len(choices))]()
	}
	w.check()
	w.use()
	if w.options.States != nil {
		w.reach()
	}
}

// pause lets time pass.
func (w *world) pause(idle bool) {
	d := time.Duration(1+w.random.IntN(300)) * time.Millisecond
	if idle {
		d = time.Duration(100+w.random.IntN(900)) * time.Millisecond
	}
	w.pass(d)
}

// pass lets time pass. The lock orders what was done before it with what goroutines do that a timer
// wakes.
func (w *world) pass(d time.Duration) {
	w.mu.Lock()
	w.azure.changed = true
	w.mu.Unlock()
	time.Sleep(d)
	synctest.Wait()
	w.azure.changed = true
}

// kill ends a process: some of its accesses in progress still happen, and no caller gets their
// results.
func (w *world) kill(o *owner, cancel context.CancelFunc) {
	o.dead = true
	for _, a := range w.accesses() {
		if a.by != o {
			continue
		}
		v := die
		if a.writes && !o.cutOff && (a.ready == nil || a.ready()) && w.random.IntN(2) == 0 && (a.over != overAPI || !w.apiDown) {
			v = dieAfter
		}
		w.let(a, v)
	}
	cancel()
	synctest.Wait()
	w.azure.changed = true
}

// gate is the gate of a process before the API server.
func (w *world) gate(o *owner) memapi.Gate {
	return func(ctx context.Context, c memapi.Call, do func() error) error {
		v := w.yield(ctx, &access{
			by:     o,
			what:   actorOf(ctx) + c.String(),
			over:   overAPI,
			of:     c,
			writes: c.Writes(),
		})
		switch v {
		case refuse:
			return w.unanswered()
		case lose:
			_ = do()
			return w.unanswered()
		case dieAfter:
			_ = do()
			runtime.Goexit()
		case expired:
			return fmt.Errorf("%s: %w", c, ctx.Err())
		}
		err := do()
		if w.edits {
			w.edited(o, c, err)
		}
		return err
	}
}

type actorKey struct{}

// withActor names those on whose behalf a context is, so that histories can be read and accesses
// told apart.
func withActor(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, actorKey{}, name+" ")
}

func actorOf(ctx context.Context) string {
	name, _ := ctx.Value(actorKey{}).(string)
	return name
}

var bubbleClock = clock.RealClock{} // inside a bubble the real clock is the bubble's
