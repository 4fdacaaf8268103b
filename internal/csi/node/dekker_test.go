package node_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
)

// world is what all parties share: the API server's objects of one volume, and the mounts of the
// nodes. A step of an actor is one atomic access to it. Replicas make every node have the disk
// attached all the time, which is the worst case.
type world struct {
	multiNode   bool
	primary     apiv1.Ownership
	version     int // of the primary, for compare-and-swap
	attachments map[string]apiv1.AzVolumeAttachment
	reports     map[string]apiv1.AzDriverNode
	mounted     map[string]bool
	mounts      int
	moves       int
	tracing     bool
	trace       []string
}

var nodes = []string{"a", "b", "c"}

func newWorld() *world {
	w := &world{
		primary:     apiv1.Ownership{State: apiv1.OwnershipReleased},
		attachments: map[string]apiv1.AzVolumeAttachment{},
		reports:     map[string]apiv1.AzDriverNode{},
		mounted:     map[string]bool{},
	}
	for _, name := range nodes {
		w.attachments[name] = apiv1.AzVolumeAttachment{
			Spec: apiv1.AzVolumeAttachmentSpec{
				VolumeName: "v",
				NodeName:   name,
				Role:       apiv1.RoleReplica,
			},
			Status: apiv1.AzVolumeAttachmentStatus{State: apiv1.AttachmentAttached, LUN: ptr.To[int32](0)},
		}
		w.reports[name] = apiv1.AzDriverNode{ObjectMeta: metav1.ObjectMeta{Name: name}}
	}
	return w
}

// attachment is the node's as it is now; nil if it has none.
func (w *world) attachment(name string) *apiv1.AzVolumeAttachment {
	a, found := w.attachments[name]
	if !found {
		return nil
	}
	return &a
}

func (w *world) volume() *apiv1.AzVolume {
	if w.multiNode {
		return &apiv1.AzVolume{ObjectMeta: metav1.ObjectMeta{Name: "v"}, Spec: apiv1.AzVolumeSpec{Access: apiv1.AccessMultiNode}}
	}
	primary := w.primary
	return &apiv1.AzVolume{ObjectMeta: metav1.ObjectMeta{Name: "v"}, Status: apiv1.AzVolumeStatus{Primary: &primary}}
}

func (w *world) setEntries(name string, entries ...apiv1.StagedVolume) {
	report := w.reports[name]
	report.Status.StagedVolumes = entries
	w.reports[name] = report
}

func (w *world) writers() int {
	count := 0
	for _, mounted := range w.mounted {
		if mounted {
			count++
		}
	}
	return count
}

// protocol is what nodes and controllers do, and what must never come of it.
type protocol struct {
	stage, publish, unpublish func(name string) step
	wrong                     func(*world) bool
	world                     func() *world
}

func oneNode() protocol {
	return protocol{stageSteps, publishSteps, unpublishSteps, func(w *world) bool { return w.writers() > 1 }, newWorld}
}

// step is one atomic access, and returns the step that follows; nil at the end of the call.
type step func(w *world) step

// actor is a process that does one call at a time.
type actor struct {
	name string
	next step
}

// The node's side: the order of the steps of Server.stage and Server.unstage, with the real
// MayStage between them.

func stageSteps(name string) step {
	var volume *apiv1.AzVolume
	var epoch int64
	withdraw := func(w *world) step {
		if !w.mounted[name] {
			w.setEntries(name)
		}
		return nil
	}
	decide := func(w *world) step {
		decision := ownership.MayStage(name, "vm", volume, w.attachment(name))
		if decision.Outcome != ownership.StageAllowed {
			return withdraw
		}
		epoch = decision.Epoch
		return func(w *world) step { // the effect, any time later
			if !w.mounted[name] {
				w.mounts++
			}
			w.mounted[name] = true
			return func(w *world) step {
				w.setEntries(name, apiv1.StagedVolume{
					VolumeName: "v",
					Epoch:      epoch,
					Phase:      apiv1.PhaseStaged,
				})
				return nil
			}
		}
	}
	return func(w *world) step {
		w.setEntries(name, apiv1.StagedVolume{
			VolumeName: "v",
			Epoch:      w.attachments[name].Spec.Epoch,
			Phase:      apiv1.PhaseStaging,
		})
		return func(w *world) step {
			volume = w.volume()
			return decide
		}
	}
}

func unstageSteps(name string) step {
	return func(w *world) step {
		return func(w *world) step {
			w.mounted[name] = false
			return func(w *world) step {
				w.setEntries(name)
				return nil
			}
		}
	}
}

// restart is what a node plug-in does first: compare, then report.
func restart(name string) step {
	return func(w *world) step {
		mounted := w.mounted[name]
		return func(w *world) step {
			report := w.reports[name]
			report.Status.StagedVolumes = nil
			if mounted {
				report.Status.StagedVolumes = []apiv1.StagedVolume{{VolumeName: "v", Phase: apiv1.PhaseStaged}}
			}
			report.Status.MountsScannedTime = ptr.To(metav1.NewMicroTime(time.Unix(1, 0)))
			w.reports[name] = report
			return nil
		}
	}
}

// The controller's side: the steps of the decision record, with the real decisions of
// internal/plan.

func publishSteps(name string) step {
	return func(w *world) step {
		primary, version := w.primary, w.version
		next, changed, err := ownership.Acquire(&primary, name, 0, time.Unix(1, 0))
		if err != nil {
			return nil
		}
		promote := func(w *world) step {
			attachment := w.attachments[name]
			if attachment.Spec.Epoch < next.Epoch {
				attachment.Spec.Role, attachment.Spec.Epoch = apiv1.RolePrimary, next.Epoch
				w.attachments[name] = attachment
			}
			return nil
		}
		if !changed {
			return promote
		}
		return func(w *world) step {
			if w.version != version {
				return nil
			}
			w.primary, w.version = next, w.version+1
			w.moves++
			return promote
		}
	}
}

func unpublishSteps(name string) step {
	return func(w *world) step {
		primary, version := w.primary, w.version
		releasing, holder, changed := ownership.StartRelease(&primary, name, apiv1.CauseUnpublished, time.Unix(1, 0))
		if !holder {
			return nil
		}
		prove := func(version int) step { return proofSteps(name, releasing, version) }
		if !changed {
			return prove(version)
		}
		return func(w *world) step {
			if w.version != version {
				return nil
			}
			w.primary, w.version = releasing, w.version+1
			return prove(w.version)
		}
	}
}

func proofSteps(name string, releasing apiv1.Ownership, version int) step {
	return func(w *world) step {
		report := w.reports[name]
		proof, _ := ownership.UnstagedProof(&report, "v", releasing.Epoch, time.Unix(1, 0))
		if proof == nil {
			return nil // ABORTED; the caller tries again
		}
		return func(w *world) step {
			attachment := w.attachments[name]
			attachment.Status.Proof = proof
			w.attachments[name] = attachment
			return func(w *world) step {
				if w.version != version {
					return nil
				}
				w.primary, w.version = ownership.CompleteRelease(releasing, time.Unix(1, 0)), w.version+1
				return func(w *world) step {
					attachment := w.attachments[name]
					if attachment.Spec.Epoch == releasing.Epoch {
						attachment.Spec.Role = apiv1.RoleReplica
						w.attachments[name] = attachment
					}
					return nil
				}
			}
		}
	}
}

// TestLaw1NoTwoWriters runs the protocol with its steps in random order, with kills between any
// two, and with calls that come at the wrong time. It prints the seed and the steps of a run that
// fails.
func TestLaw1NoTwoWriters(t *testing.T) {
	const runs, steps = 4000, 400
	mounts, moves := 0, 0
	for seed := range uint64(runs) {
		w := run(t, seed, steps, oneNode())
		mounts, moves = mounts+w.mounts, moves+w.moves
	}
	// A protocol under which nothing ever happens is safe as well.
	if mounts < runs || moves < runs {
		t.Errorf("%d mounts and %d acquisitions in %d runs: the test does not exercise the protocol", mounts, moves, runs)
	}
	t.Logf("%d runs of %d steps: %d acquisitions, %d mounts", runs, steps, moves, mounts)
}

// TestTheSimulationFindsTheRace shows that the test above finds a node that reads the ownership
// before it writes its report.
func TestTheSimulationFindsTheRace(t *testing.T) {
	wrongOrder := func(name string) step {
		return func(w *world) step {
			if ownership.MayStage(name, "vm", w.volume(), w.attachment(name)).Outcome != ownership.StageAllowed {
				return nil
			}
			return func(w *world) step {
				w.setEntries(name, apiv1.StagedVolume{VolumeName: "v"})
				return func(w *world) step {
					w.mounted[name] = true
					return nil
				}
			}
		}
	}
	p := oneNode()
	p.stage = wrongOrder
	mustGoWrong(t, p)
}

func mustGoWrong(t *testing.T, p protocol) {
	t.Helper()
	for seed := range uint64(4000) {
		if p.wrong(p.simulate(p.world(), seed, 400)) {
			return
		}
	}
	t.Error("4000 runs of a protocol with a known race did not show it")
}

func run(t *testing.T, seed uint64, steps int, p protocol) *world {
	t.Helper()
	w := p.simulate(p.world(), seed, steps)
	if p.wrong(w) {
		again := p.world()
		again.tracing = true
		p.simulate(again, seed, steps)
		t.Fatalf("seed %d: wrong after:\n%s", seed, strings.Join(again.trace, "\n"))
	}
	return w
}

// simulate runs until something is wrong, or all steps are done.
func (p protocol) simulate(w *world, seed uint64, steps int) *world {
	random := rand.New(rand.NewPCG(seed, 1))
	var plugins, controllers []*actor
	for _, name := range nodes {
		plugins = append(plugins, &actor{name: name, next: restart(name)})
	}
	for i := range 3 {
		controllers = append(controllers, &actor{name: fmt.Sprintf("controller-%d", i)})
	}
	for range steps {
		i := random.IntN(len(plugins) + len(controllers))
		if i < len(plugins) {
			p.stepPlugin(w, plugins[i], random)
		} else {
			p.stepController(w, controllers[i-len(plugins)], random)
		}
		if p.wrong(w) {
			return w
		}
	}
	return w
}

func (p protocol) stepPlugin(w *world, a *actor, random *rand.Rand) {
	switch roll := random.IntN(100); {
	case roll < 3: // killed; the mounts stay
		w.log("%s is killed", a.name)
		a.next = restart(a.name)
	case roll < 4: // rebooted
		w.log("%s reboots", a.name)
		w.mounted[a.name] = false
		a.next = restart(a.name)
	case roll < 5: // its AzDriverNode is deleted, and made again by a plug-in that starts
		w.log("%s loses its report", a.name)
		w.reports[a.name] = apiv1.AzDriverNode{ObjectMeta: metav1.ObjectMeta{Name: a.name}}
		a.next = restart(a.name)
	case a.next != nil:
		a.next = a.next(w)
		w.log("%s goes on; mounted %v, primary %+v", a.name, w.mounted[a.name], w.primary)
	case roll < 60:
		a.next = p.stage(a.name)
	default:
		a.next = unstageSteps(a.name)
	}
}

func (p protocol) stepController(w *world, c *actor, random *rand.Rand) {
	name := nodes[random.IntN(len(nodes))]
	switch roll := random.IntN(100); {
	case roll < 5:
		w.log("%s is killed", c.name)
		c.next = nil
	case c.next != nil:
		c.next = c.next(w)
		w.log("%s goes on; primary %+v", c.name, w.primary)
	case roll < 50:
		w.log("%s publishes to %s", c.name, name)
		c.next = p.publish(name)
	default:
		w.log("%s unpublishes from %s", c.name, name)
		c.next = p.unpublish(name)
	}
}

func (w *world) log(format string, args ...any) {
	w.trace = append(w.trace, fmt.Sprintf(format, args...))
}
