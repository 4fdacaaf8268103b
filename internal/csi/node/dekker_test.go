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
	"github.com/azuredisk-csi/azuredisk/internal/csi/node"
	"github.com/azuredisk-csi/azuredisk/internal/plan"
)

// world is what all parties share: the API server's objects of one volume, and the mounts of the nodes. A step of an
// actor is one atomic access to it. Replicas make every node have the disk attached all the time, which is the worst case.
type world struct {
	claim       apiv1.PrimaryClaim
	version     int // of the claim, for compare-and-swap
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
		claim:       apiv1.PrimaryClaim{State: apiv1.ClaimReleased},
		attachments: map[string]apiv1.AzVolumeAttachment{}, reports: map[string]apiv1.AzDriverNode{}, mounted: map[string]bool{},
	}
	for _, name := range nodes {
		w.attachments[name] = apiv1.AzVolumeAttachment{
			Spec:   apiv1.AzVolumeAttachmentSpec{VolumeName: "v", NodeName: name, Role: apiv1.RoleReplica},
			Status: apiv1.AzVolumeAttachmentStatus{State: apiv1.AttachmentAttached, LUN: ptr.To[int32](0)},
		}
		w.reports[name] = apiv1.AzDriverNode{ObjectMeta: metav1.ObjectMeta{Name: name}}
	}
	return w
}

func (w *world) volume() *apiv1.AzVolume {
	claim := w.claim
	return &apiv1.AzVolume{ObjectMeta: metav1.ObjectMeta{Name: "v"}, Status: apiv1.AzVolumeStatus{Primary: &claim}}
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

// step is one atomic access, and returns the step that follows; nil at the end of the call.
type step func(w *world) step

// actor is a process that does one call at a time.
type actor struct {
	name string
	next step
}

// The node's side: the order of the steps of Server.stage and Server.unstage, with the real MayStage between them.

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
		attachment := w.attachments[name]
		decision := node.MayStage(name, volume, &attachment)
		if decision.Verdict != node.Stage {
			return withdraw
		}
		epoch = decision.Epoch
		return func(w *world) step { // the effect, any time later
			if !w.mounted[name] {
				w.mounts++
			}
			w.mounted[name] = true
			return func(w *world) step {
				w.setEntries(name, apiv1.StagedVolume{VolumeName: "v", Epoch: epoch, Phase: apiv1.PhaseStaged})
				return nil
			}
		}
	}
	return func(w *world) step {
		w.setEntries(name, apiv1.StagedVolume{VolumeName: "v", Epoch: w.attachments[name].Spec.Epoch, Phase: apiv1.PhaseStaging})
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

// The controller's side: the steps of the decision record, with the real decisions of internal/plan.

func publishSteps(name string) step {
	return func(w *world) step {
		claim, version := w.claim, w.version
		next, changed, err := plan.Claim(&claim, name, time.Unix(1, 0))
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
			w.claim, w.version = next, w.version+1
			w.moves++
			return promote
		}
	}
}

func unpublishSteps(name string) step {
	return func(w *world) step {
		claim, version := w.claim, w.version
		releasing, holder, changed := plan.Releasing(&claim, name, apiv1.CauseUnpublished, time.Unix(1, 0))
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
			w.claim, w.version = releasing, w.version+1
			return prove(w.version)
		}
	}
}

func proofSteps(name string, releasing apiv1.PrimaryClaim, version int) step {
	return func(w *world) step {
		report := w.reports[name]
		proof, _ := plan.Unstaged(&report, "v", releasing.Epoch, time.Unix(1, 0))
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
				w.claim, w.version = plan.Released(releasing, time.Unix(1, 0)), w.version+1
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

// TestLaw1NoTwoWriters runs the protocol with its steps in random order, with kills between any two, and with calls
// that come at the wrong time. It prints the seed and the steps of a run that fails.
func TestLaw1NoTwoWriters(t *testing.T) {
	const runs, steps = 4000, 400
	mounts, moves := 0, 0
	for seed := range uint64(runs) {
		w := run(t, seed, steps, stageSteps)
		mounts, moves = mounts+w.mounts, moves+w.moves
	}
	// A protocol under which nothing ever happens is safe as well.
	if mounts < runs || moves < runs {
		t.Errorf("%d mounts and %d claims in %d runs: the test does not exercise the protocol", mounts, moves, runs)
	}
	t.Logf("%d runs of %d steps: %d claims, %d mounts", runs, steps, moves, mounts)
}

// TestTheSimulationFindsTheRace shows that the test above would see a node that reads the claim before it writes its report.
func TestTheSimulationFindsTheRace(t *testing.T) {
	wrongOrder := func(name string) step {
		return func(w *world) step {
			volume, attachment := w.volume(), w.attachments[name]
			if node.MayStage(name, volume, &attachment).Verdict != node.Stage {
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
	for seed := range uint64(4000) {
		if simulate(newWorld(), seed, 400, wrongOrder).writers() > 1 {
			return
		}
	}
	t.Error("4000 runs of a protocol with a known race did not show it")
}

func run(t *testing.T, seed uint64, steps int, stage func(string) step) *world {
	t.Helper()
	w := simulate(newWorld(), seed, steps, stage)
	if w.writers() > 1 {
		again := newWorld()
		again.tracing = true
		simulate(again, seed, steps, stage)
		t.Fatalf("seed %d: two writers after:\n%s", seed, strings.Join(again.trace, "\n"))
	}
	return w
}

// simulate runs until there are two writers, or all steps are done.
func simulate(w *world, seed uint64, steps int, stage func(string) step) *world {
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
			stepPlugin(w, plugins[i], random, stage)
		} else {
			stepController(w, controllers[i-len(plugins)], random)
		}
		if w.writers() > 1 {
			return w
		}
	}
	return w
}

func stepPlugin(w *world, p *actor, random *rand.Rand, stage func(string) step) {
	switch roll := random.IntN(100); {
	case roll < 3: // killed; the mounts stay
		w.log("%s is killed", p.name)
		p.next = restart(p.name)
	case roll < 4: // rebooted
		w.log("%s reboots", p.name)
		w.mounted[p.name] = false
		p.next = restart(p.name)
	case roll < 5: // its AzDriverNode is deleted, and made again by a plug-in that starts
		w.log("%s loses its report", p.name)
		w.reports[p.name] = apiv1.AzDriverNode{ObjectMeta: metav1.ObjectMeta{Name: p.name}}
		p.next = restart(p.name)
	case p.next != nil:
		p.next = p.next(w)
		w.log("%s goes on; mounted %v, claim %+v", p.name, w.mounted[p.name], w.claim)
	case roll < 60:
		p.next = stage(p.name)
	default:
		p.next = unstageSteps(p.name)
	}
}

func stepController(w *world, c *actor, random *rand.Rand) {
	name := nodes[random.IntN(len(nodes))]
	switch roll := random.IntN(100); {
	case roll < 5:
		w.log("%s is killed", c.name)
		c.next = nil
	case c.next != nil:
		c.next = c.next(w)
		w.log("%s goes on; claim %+v", c.name, w.claim)
	case roll < 50:
		w.log("%s publishes to %s", c.name, name)
		c.next = publishSteps(name)
	default:
		w.log("%s unpublishes from %s", c.name, name)
		c.next = unpublishSteps(name)
	}
}

func (w *world) log(format string, args ...any) {
	w.trace = append(w.trace, fmt.Sprintf(format, args...))
}
