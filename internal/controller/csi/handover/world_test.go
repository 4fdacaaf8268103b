package handover_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cluster"
	"github.com/azuredisk-csi/azuredisk/internal/controller/csi/adoption"
	"github.com/azuredisk-csi/azuredisk/internal/controller/csi/call"
	"github.com/azuredisk-csi/azuredisk/internal/controller/csi/handover"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/expect"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/fakeapi"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/memapi"
	"github.com/azuredisk-csi/azuredisk/provisioner"
	cloudfake "github.com/azuredisk-csi/azuredisk/provisioner/fake"
)

const (
	driverName = "disk.csi.azure.com"
	namespace  = "ns"
	group      = "/subscriptions/s/resourceGroups/rg/providers/Microsoft.Compute"
	vms        = group + "/virtualMachines/"
	diskID     = group + "/disks/vol"
)

// tooMany accesses are those of a call that repeats itself without end: time stands still for it.
const tooMany = 10_000

var (
	scheme     = fakeapi.Scheme()
	volumeName = apiv1.VolumeName("s", "rg", "vol")
)

// world is a cluster in virtual time: an API server in memory, a cache of it, Azure, and a Publisher.
// It has the Ready nodes a, b and c, whose node plug-ins have scanned their mounts, and a single-node
// volume that was never published, with one wanted replica. reconcile, once a second, stands for the
// attachment reconciler.
type world struct {
	*testing.T
	store *memapi.Store
	cache *memapi.Cache
	// api is the test's own client.
	api       *memapi.Client
	cloud     *cloudfake.Cloud
	publisher *handover.Publisher
	metrics   *prometheus.Registry
	// before and after are called at each access of the Publisher to the API server, to the cache and
	// to Azure. An error of theirs is the answer.
	before, after func(access string) error
	// server are the accesses to the API server, and passed is the number of all.
	mu     sync.Mutex
	server []string
	passed atomic.Int32
	// behind keeps the cache as it is, and idle the attachment reconciler from its work.
	behind, idle atomic.Bool
	// refuse is Azure's answer to each attach.
	refuse atomic.Pointer[apiv1.Error]
}

// given prepares a world.
type given func(w *world)

// in runs a test in a world.
func in(t *testing.T, test func(w *world), prepare ...given) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		for _, f := range prepare {
			f(w)
		}
		test(w)
	})
}

func newWorld(t *testing.T) *world {
	w := &world{T: t, cloud: cloudfake.New(cloudfake.Options{}), metrics: prometheus.NewRegistry()}
	w.store = memapi.New(scheme, clock.RealClock{})
	w.cache = memapi.NewCache(w.store, cluster.CacheOptions(namespace))
	w.must(cluster.AddIndexes(t.Context(), w.cache, driverName))
	w.api = memapi.NewClient(w.store, memapi.Open, nil)
	w.cloud.AddDisk(provisioner.Disk{
		ID: diskID, Location: "eastus", SizeBytes: 10 << 30, MaxShares: 2,
		DiskSettings: provisioner.DiskSettings{SKUName: "Premium_LRS"},
	})
	w.put(&apiv1.AzVolume{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: volumeName, UID: "vol",
			Finalizers: []string{apiv1.FinalizerVolume}},
		Spec: apiv1.AzVolumeSpec{
			Origin: apiv1.OriginProvisioned, Access: apiv1.AccessSingleNode, CapacityBytes: 10 << 30, MaxMountReplicaCount: 1,
			Disk: apiv1.DiskParameters{SubscriptionID: "s", ResourceGroup: "rg", Name: "vol", MaxShares: 2, CachingMode: "None"},
		},
		Status: apiv1.AzVolumeStatus{State: apiv1.VolumeCreated, ConfirmedUID: "vol"},
	})
	for _, name := range []string{"a", "b", "c"} {
		w.addNode(name)
	}
	watch := cluster.NewWatch()
	w.must(watch.Register(t.Context(), w.cache))
	records := &cluster.Records{
		Client:    cached{memapi.NewClient(w.store, w.gate, w.cache), w},
		Reader:    memapi.NewClient(w.store, w.gate, nil),
		Watch:     watch,
		Namespace: namespace,
	}
	var err error
	w.publisher, err = handover.New(&adoption.Adopter{Records: records, Disks: disks{w.cloud.Disks(), w}, DriverName: driverName},
		call.New(clock.RealClock{}, time.Minute), clock.RealClock{}, w.metrics)
	w.must(err)
	w.publisher.ByVolumeAttachments = true
	go func() {
		for tick := time.Tick(time.Second); ; {
			select {
			case <-t.Context().Done():
				return
			case <-tick:
				w.reconcile()
				w.deliver()
			}
		}
	}()
	return w
}

func (w *world) addNode(name string) {
	w.cloud.AddVM(provisioner.Instance{ID: vms + name})
	w.put(&corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.NodeSpec{ProviderID: "azure://" + vms + name},
		Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
	})
	w.put(&apiv1.AzDriverNode{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       apiv1.AzDriverNodeSpec{VMID: vms + name},
		Status:     apiv1.AzDriverNodeStatus{MountsScannedTime: &metav1.MicroTime{Time: time.Now()}},
	})
}

// gate passes the accesses to the API server.
func (w *world) gate(_ context.Context, access memapi.Call, do func() error) error {
	name := access.Verb + " " + access.Kind
	w.mu.Lock()
	w.server = append(w.server, name)
	w.mu.Unlock()
	return w.pass(name, do)
}

func (w *world) pass(access string, do func() error) error {
	if w.passed.Add(1) > tooMany {
		panic("the call does not end")
	}
	if w.before != nil {
		if err := w.before(access); err != nil {
			return err
		}
	}
	err := do()
	w.deliver()
	if err == nil && w.after != nil {
		err = w.after(access)
	}
	return err
}

// disks passes the reads of the disk at Azure.
type disks struct {
	provisioner.Disks
	w *world
}

func (d disks) Get(ctx context.Context, id string) (disk provisioner.Disk, err error) {
	err = d.w.pass("get disk", func() (err error) { disk, err = d.Disks.Get(ctx, id); return err })
	return disk, err
}

// cached is a client that reads from the cache.
type cached struct {
	*memapi.Client
	w *world
}

func (c cached) Get(ctx context.Context, key client.ObjectKey, o client.Object, all ...client.GetOption) error {
	return c.w.pass(fmt.Sprintf("cached get %T", o), func() error { return c.Client.Get(ctx, key, o, all...) })
}

func (c cached) List(ctx context.Context, list client.ObjectList, all ...client.ListOption) error {
	return c.w.pass(fmt.Sprintf("cached list %T", list), func() error { return c.Client.List(ctx, list, all...) })
}

// deliver brings the cache up to date.
func (w *world) deliver() {
	for _, kind := range w.cache.Pending() {
		for !w.behind.Load() && w.cache.Deliver(kind) {
		}
	}
}

// reconcile attaches the disk for each new attachment, and removes each that is being deleted and may
// go.
func (w *world) reconcile() {
	for _, a := range w.attachments() {
		switch {
		case w.idle.Load():
		case a.DeletionTimestamp != nil && (a.Spec.Role == apiv1.RoleReplica || ownership.HasProof(&a)):
			a.Finalizers = nil
			w.written(w.api.Update(w.Context(), &a))
		case a.DeletionTimestamp == nil && a.Status.State == "":
			a.Status.State, a.Status.VMID, a.Status.UID = apiv1.AttachmentAttached, vms+a.Spec.NodeName, a.UID
			if refuse := w.refuse.Load(); refuse != nil {
				a.Status.State, a.Status.Error, a.Status.ObservedGeneration = apiv1.AttachmentFailed, refuse, a.Generation
			}
			w.written(w.api.Status().Update(w.Context(), &a))
		}
	}
}

// written checks a write of the attachment reconciler, which it makes again later if the attachment has
// changed.
func (w *world) written(err error) {
	if !cluster.IsChanged(err) {
		w.must(err)
	}
}

func (w *world) must(err error) { w.Helper(); expect.Must(w, err) }

// put writes objects as they are, with their status.
func (w *world) put(objects ...client.Object) {
	for _, o := range objects {
		w.store.Restore(o)
	}
	w.deliver()
}

// erase removes objects without regard for finalizers.
func (w *world) erase(objects ...client.Object) {
	for _, o := range objects {
		w.store.Erase(o)
	}
	w.deliver()
}

// read returns an object of the API server; ok is false if there is none.
func read[T any, Object interface {
	*T
	client.Object
}](w *world, namespace, name string) (o Object, ok bool) {
	o = new(T)
	return o, w.store.Get(types.NamespacedName{Namespace: namespace, Name: name}, o) == nil
}

func (w *world) volume() *apiv1.AzVolume {
	v, ok := read[apiv1.AzVolume](w, namespace, volumeName)
	if !ok {
		return nil
	}
	return v
}

func (w *world) attachment(node string) *apiv1.AzVolumeAttachment {
	a, ok := read[apiv1.AzVolumeAttachment](w, namespace, apiv1.AttachmentName(volumeName, node))
	if !ok {
		return nil
	}
	return a
}

func (w *world) attachments() []apiv1.AzVolumeAttachment {
	var list apiv1.AzVolumeAttachmentList
	w.must(w.api.List(context.Background(), &list))
	return list.Items
}

// state is the ownership of the volume and its attachments, as in
// "Released 1; a R1 Unstaged 1; b P1 deleted": nodes a and b have a replica and a primary of epoch 1.
// The first has the proof Unstaged for that epoch, and the second is being deleted.
func (w *world) state() string {
	synctest.Wait() // what later prepares is several writes, and the call may end between them
	parts := []string{"no AzVolume"}
	if v := w.volume(); v != nil && v.Status.Primary == nil {
		parts[0] = "unowned"
	} else if v != nil {
		o := v.Status.Primary
		parts[0] = strings.TrimSpace(fmt.Sprintf("%s %d %s", o.State, o.Epoch, o.NodeName))
	}
	for _, a := range w.attachments() {
		text := fmt.Sprintf("%s %.1s%d", a.Spec.NodeName, a.Spec.Role, a.Spec.Epoch)
		if p := a.Status.Proof; p != nil {
			text += fmt.Sprintf(" %s %d", p.Type, p.Epoch)
		}
		if a.DeletionTimestamp != nil {
			text += " deleted"
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, "; ")
}

// counted returns the value of the counter of a label value.
func (w *world) counted(name, label string) float64 {
	families, err := w.metrics.Gather()
	w.must(err)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name && m.GetLabel()[0].GetValue() == label {
				return m.GetCounter().GetValue()
			}
		}
	}
	return 0
}

// act is a call of the Publisher.
type act func(w *world) error

// publish publishes the volume to a node for a filesystem, unless as changes the request.
func publish(node string, as ...func(*csi.ControllerPublishVolumeRequest)) act {
	return func(w *world) error {
		ctx, cancel := context.WithTimeout(w.Context(), time.Minute)
		defer cancel()
		request := &csi.ControllerPublishVolumeRequest{VolumeId: diskID, NodeId: node, VolumeCapability: &csi.VolumeCapability{
			AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}},
			AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
		}}
		for _, f := range as {
			f(request)
		}
		_, err := w.publisher.ControllerPublishVolume(ctx, request)
		return err
	}
}

func readOnly(r *csi.ControllerPublishVolumeRequest) { r.Readonly = true }

// shared asks for raw block on several nodes.
func shared(r *csi.ControllerPublishVolumeRequest) {
	r.VolumeCapability = &csi.VolumeCapability{
		AccessType: &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}},
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER},
	}
}

// unpublish unpublishes the volume from a node; "" for all.
func unpublish(node string) act {
	return func(w *world) error {
		ctx, cancel := context.WithTimeout(w.Context(), time.Minute)
		defer cancel()
		request := &csi.ControllerUnpublishVolumeRequest{VolumeId: diskID, NodeId: node}
		_, err := w.publisher.ControllerUnpublishVolume(ctx, request)
		return err
	}
}
