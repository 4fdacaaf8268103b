package simulation

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing/synctest"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/node/nodereport"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/memapi"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/sharedisk"
	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/fake"
)

const volumeSize = 10 << 30

// Options of Run.
type Options struct {
	// Directory for the nodes' records. No two histories of one seed may run in one directory at
	// once.
	Directory string
	// Mutant is the law that the driver breaks; "" for none.
	Mutant Mutant
	// Restores makes histories with edits sometimes restore all of the driver's objects. The driver
	// does not yet survive every such restore.
	Restores bool
	// AnyLUN lets a disk get any free LUN, also one at which another disk is recorded, as if a tool
	// that is not the driver had attached it.
	AnyLUN bool
	// Without are the behaviours that are left out; see Behaviours.
	Without []string
	// States takes the states that the history reaches; nil for none.
	States *States
}

// The behaviours. Some of the histories have each of them.
const (
	behaviourKubelets = "kubelets"
	behaviourFaults   = "faults"
	behaviourOverlap  = "overlap"
	behaviourLiars    = "liars"
	behaviourEdits    = "edits"
	behaviourScenes   = "scenes"

	behaviourReservations = "reservations"
	behaviourClusters     = "clusters"
	behaviourForgets      = "forgets"
	behaviourHibernation  = "hibernation"
	behaviourGoalState    = "goalstate"
	// behaviourPaths: a disk that is attached again is another path, and the disk keeps the
	// registration of the former one.
	behaviourPaths = "paths"
	// behaviourInitiators: the disks take all nodes for one initiator.
	behaviourInitiators = "initiators"
	behaviourPauses     = "pauses"
	behaviourNights     = "nights"
	// behaviourOpeners: processes outside of the pods keep devices open, and write to them.
	behaviourOpeners = "openers"
)

// Behaviours are the names of the behaviours that can be left out, to find those on which a history
// depends.
func Behaviours() []string {
	return []string{
		behaviourKubelets, behaviourFaults, behaviourOverlap, behaviourLiars, behaviourEdits, behaviourScenes,
		behaviourReservations, behaviourClusters, behaviourForgets, behaviourHibernation, behaviourGoalState,
		behaviourPaths, behaviourInitiators, behaviourPauses, behaviourNights, behaviourOpeners,
	}
}

// has reports whether the history has a behaviour: the remainder of the seed divided by of is below
// share.
func (w *world) has(behaviour string, of, share uint64) bool {
	return w.seed%of < share && !slices.Contains(w.options.Without, behaviour)
}

// Result of a history.
type Result struct {
	// Violation is the first law that was broken; "" for none.
	Violation string
	// Steps that were taken, and how long the history lasted in its own time.
	Steps   int
	Lasted  time.Duration
	History []string
}

// volumeModel is a volume as the simulation's users see it.
type volumeModel struct {
	name      string
	shares    int
	replicas  int
	creation  *call
	published map[string]bool
	want      string
	// several says that it is a volume of several nodes at once, and wants are the nodes that want
	// it.
	several bool
	wants   []string
	// retained says that the disk is to be kept; made, that there is a disk; mayGo, that CSI was
	// asked to delete it; forgettable, that the driver can know that Kubernetes does not use it any
	// more.
	retained, made, mayGo, forgettable bool
	// edited says that its AzVolume was lost, restored or edited.
	edited bool
	// erased are the nodes whose attachment a person removed, until the node has read it again:
	// until then the node uses what it read before.
	erased map[string]bool
	// grown and classes count the requests for a larger disk and for other parameters.
	grown, classes int
}

// call is a call to a CSI server, in progress or completed.
type call struct {
	what string
	done bool
	err  error
}

// Run runs the history of a seed. It must be called inside a synctest bubble.
func Run(seed uint64, options Options) Result {
	w := newWorld(seed, options)
	w.found()
	if w.violation == "" {
		w.live()
	}
	if w.violation == "" {
		w.settle()
	}
	if w.violation == "" {
		w.dataIsKept()
	}
	for _, p := range w.processes {
		if !p.dead {
			p.stop()
		}
	}
	for _, m := range w.machines {
		m.stopPlugin()
	}
	// The calls that remain wait for the end of their contexts, which is soon.
	w.pass(time.Minute)
	w.must(os.RemoveAll(w.directory()))
	if options.States != nil {
		options.States.add(w.reached)
	}
	return Result{
		Violation: w.violation,
		Steps:     w.steps,
		Lasted:    w.now().Sub(w.began),
		History:   w.trace,
	}
}

func newWorld(seed uint64, options Options) *world {
	w := &world{
		seed:      seed,
		options:   options,
		random:    rand.New(rand.NewPCG(seed, 0)),
		began:     time.Now(),
		content:   map[string]provisioner.Filesystem{},
		shared:    map[string]*sharedisk.Disk{},
		preempted: map[string]*apiv1.AzVolumeAttachment{},
		byPerson:  map[string]bool{},
		spared:    map[string]bool{},
		largest:   map[string]int64{},
		reached:   map[uint64]struct{}{},
		data:      newData(seed),
	}
	// These do not use the random numbers, so that the other histories do not change.
	w.byPods, w.people = seed%4 == 0, seed%3 == 0
	scheme := scheme()
	w.kubelets, w.attaching = w.has(behaviourKubelets, 7, 3), map[share]*attaching{}
	w.faults, w.overlaps = w.has(behaviourFaults, 11, 3), w.has(behaviourOverlap, 1, 1)
	w.edits, w.scenes = w.has(behaviourEdits, 17, 4), w.has(behaviourScenes, 19, 3)
	w.reservations, w.clusters = w.has(behaviourReservations, 3, 2), w.has(behaviourClusters, 23, 5)
	w.forgets = w.reservations && w.has(behaviourForgets, 5, 3)
	w.hibernates, w.goalState = w.has(behaviourHibernation, 29, 8), w.has(behaviourGoalState, 31, 14)
	w.paths, w.oneInitiator = !w.forgets && w.has(behaviourPaths, 2, 1), w.has(behaviourInitiators, 37, 3)
	w.pauses, w.nights = w.has(behaviourPauses, 41, 8), w.has(behaviourNights, 43, 6)
	w.openers = w.has(behaviourOpeners, 43, 12)
	w.store = memapi.New(scheme, bubbleClock)
	w.store.OnChange, w.store.IgnoreVersions = w.changed, options.Mutant == NoCompareAndSwap
	w.must(os.RemoveAll(w.directory()))
	some := func(most int) time.Duration { return time.Duration(1+w.random.IntN(most)) * 100 * time.Millisecond }
	w.latency = fake.Latency{
		CreateDisk:  some(10),
		UpdateDisk:  some(10),
		DeleteDisk:  some(10),
		Attach:      some(60),
		Detach:      some(60),
		ForceDetach: some(80),
	}
	w.cloud = fake.New(fake.Options{
		Clock:     bubbleClock,
		Latency:   w.latency,
		GoalState: w.goalState,
	})
	w.azure = &platform{
		w:          w,
		operations: map[string]*began{},
		changed:    true,
	}
	for i := range 2 + w.random.IntN(3) {
		w.addMachine(fmt.Sprintf("node-%d", i))
	}
	if w.has(behaviourLiars, 13, 3) && len(w.machines) > 2 {
		w.liar = w.machines[len(w.machines)-1]
	}
	for i := range 1 + w.random.IntN(3) {
		v := &volumeModel{
			name:      volumeOf(fmt.Sprintf("vol-%d", i)),
			shares:    1 + w.random.IntN(3),
			published: map[string]bool{},
			erased:    map[string]bool{},
		}
		v.replicas = w.random.IntN(v.shares)
		v.retained = w.people && w.random.IntN(2) == 0
		if v.several = seed%5 == 0 && v.shares > 1; v.several {
			v.replicas = 0
		}
		w.volumes = append(w.volumes, v)
	}
	for _, id := range []string{"a", "b"} {
		w.processes = append(w.processes, &process{w: w, id: id})
	}
	return w
}

// scheme is shared: it does not change after it is created.
var scheme = func() func() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, apiv1.AddToScheme} {
		if err := add(s); err != nil {
			panic(err)
		}
	}
	return func() *runtime.Scheme { return s }
}()

// directory is that of this history's nodes.
func (w *world) directory() string { return filepath.Join(w.options.Directory, fmt.Sprint(w.seed)) }

func (w *world) addMachine(name string) {
	m := &machine{
		w:       w,
		name:    name,
		records: nodereport.Records{Dir: filepath.Join(w.directory(), name)},
	}
	if w.kubelets {
		m.kubelet = newKubelet(m)
	}
	w.machines = append(w.machines, m)
	w.cloud.AddVM(provisioner.Instance{
		ID:       vmOf(name),
		Name:     name,
		Size:     vmSize,
		Location: location,
		Zone:     "1",
	})
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}},
		Spec:       corev1.NodeSpec{ProviderID: "azure://" + vmOf(name)},
	}
	w.must(w.store.Create(n))
	n.Status.Conditions = []corev1.NodeCondition{{
		Type:               corev1.NodeReady,
		Status:             corev1.ConditionTrue,
		LastTransitionTime: metav1.NewTime(w.now()),
	}}
	w.must(w.store.Update(n, true))
}

func (w *world) must(err error) {
	if err != nil {
		panic(err)
	}
}

// found starts the world: processes, machines and volumes.
func (w *world) found() {
	for _, p := range w.processes {
		w.must(p.start())
	}
	w.must(w.processes[0].lead())
	for _, m := range w.machines {
		m.boot()
	}
	for _, v := range w.volumes {
		w.create(v)
	}
	w.until("the volumes are created", 2*time.Minute, func() string {
		for _, v := range w.volumes {
			if !v.creation.done || v.creation.err != nil {
				return v.name
			}
			v.made = true
		}
		return ""
	})
	for _, v := range w.volumes { // Kubernetes creates them after the disks, and the driver depends on that order
		w.addPersistentVolume(v)
	}
}

func (w *world) create(v *volumeModel) {
	p := w.processes[0]
	v.creation = w.begin(p.owner, "CreateVolume "+v.name, time.Minute, func(ctx context.Context) error {
		_, err := p.csi.CreateVolume(ctx, &csi.CreateVolumeRequest{
			Name:               lastOf(diskOf(v.name)),
			CapacityRange:      &csi.CapacityRange{RequiredBytes: volumeSize},
			VolumeCapabilities: []*csi.VolumeCapability{v.capability()},
			Parameters: map[string]string{
				"skuName":              "Premium_LRS",
				"maxShares":            fmt.Sprint(v.shares),
				"maxMountReplicaCount": fmt.Sprint(v.replicas),
			},
			AccessibilityRequirements: &csi.TopologyRequirement{Requisite: []*csi.Topology{
				{Segments: map[string]string{"topology." + driverName + "/zone": location + "-1"}},
			}},
		})
		return err
	})
}

// capability is a filesystem for one node, or raw block for several.
func (v *volumeModel) capability() *csi.VolumeCapability {
	if v.several {
		return &csi.VolumeCapability{
			AccessType: &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}},
			AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER},
		}
	}
	return &csi.VolumeCapability{
		AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: "ext4"}},
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
	}
}

// begin begins a call to a process. The call ends after timeout at the latest.
func (w *world) begin(by *owner, what string, timeout time.Duration, do func(context.Context) error) *call {
	c := &call{what: what, err: errKilled}
	timeout += time.Duration(1+w.random.IntN(1e6)) * time.Nanosecond // so that nothing else ends at that moment
	w.note("→ %s: %s", by.name, what)
	w.calls = append(w.calls, c)
	go func() {
		_ = roomy(0)
		defer func() { c.done = true }()
		defer w.recovered(what)
		ctx, cancel := context.WithTimeout(logr.NewContext(withActor(context.Background(), what), logr.Discard()), timeout)
		defer cancel()
		err := do(ctx)
		// Calls that end at one moment, as their time is up, return one after the other.
		w.yield(context.Background(), &access{
			by:   by,
			what: what + " returns",
			over: local,
		})
		c.err = err
		w.note("← %s: %s: %v", by.name, what, err)
	}()
	synctest.Wait()
	return c
}

var errKilled = fmt.Errorf("the process was killed")

func (w *world) publish(p *process, v *volumeModel, node string, timeout time.Duration) *call {
	v.published[node] = true // whatever the result: the volume has to be unpublished
	return w.begin(p.owner, "Publish "+v.name+" "+node, timeout, func(ctx context.Context) error {
		_, err := p.csi.ControllerPublishVolume(ctx, &csi.ControllerPublishVolumeRequest{
			VolumeId:         diskOf(v.name),
			NodeId:           node,
			VolumeCapability: v.capability(),
		})
		return err
	})
}

func (w *world) unpublish(p *process, v *volumeModel, node string, timeout time.Duration) *call {
	return w.begin(p.owner, "Unpublish "+v.name+" "+node, timeout, func(ctx context.Context) error {
		_, err := p.csi.ControllerUnpublishVolume(ctx, &csi.ControllerUnpublishVolumeRequest{
			VolumeId: diskOf(v.name),
			NodeId:   node,
		})
		return err
	})
}

func (w *world) stage(m *machine, v *volumeModel, timeout time.Duration) *call {
	server := m.server
	return w.begin(m.plugin, "Stage "+v.name, timeout, func(ctx context.Context) error {
		_, err := server.NodeStageVolume(ctx, &csi.NodeStageVolumeRequest{
			VolumeId:          diskOf(v.name),
			StagingTargetPath: m.staging(v.name),
			VolumeCapability:  v.capability(),
		})
		if err == nil && v.several {
			_, err = server.NodePublishVolume(ctx, &csi.NodePublishVolumeRequest{
				VolumeId:          diskOf(v.name),
				StagingTargetPath: m.staging(v.name),
				TargetPath:        rawTarget(v.name),
				VolumeCapability:  v.capability(),
			})
		}
		return err
	})
}

func (w *world) unstage(m *machine, v *volumeModel, timeout time.Duration) *call {
	server := m.server
	return w.begin(m.plugin, "Unstage "+v.name, timeout, func(ctx context.Context) error {
		if v.several {
			if _, err := server.NodeUnpublishVolume(ctx, &csi.NodeUnpublishVolumeRequest{
				VolumeId:   diskOf(v.name),
				TargetPath: rawTarget(v.name),
			}); err != nil {
				return err
			}
		}
		_, err := server.NodeUnstageVolume(ctx, &csi.NodeUnstageVolumeRequest{
			VolumeId:          diskOf(v.name),
			StagingTargetPath: m.staging(v.name),
		})
		return err
	})
}

// until runs the world until check returns "". After limit it reports a violation.
func (w *world) until(what string, limit time.Duration, check func() string) {
	end := w.now().Add(limit)
	for w.violation == "" {
		complaint := check()
		if complaint == "" {
			return
		}
		if w.now().After(end) {
			w.broken("the world does not settle: not after %s: %s: %s", limit, what, complaint)
			return
		}
		w.step()
	}
}
