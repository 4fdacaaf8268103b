package drivernode_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cluster"
	"github.com/azuredisk-csi/azuredisk/internal/controller/drivernode"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/fakeapi"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/memapi"
	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/fake"
)

const (
	driverName = apiv1.GroupName
	provider   = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/"
	size       = "Standard_D4s_v5" // 8 data disks
)

var scheme = fakeapi.Scheme()

// world is one node with its VM, and a reconciler whose clock the test sets.
type world struct {
	t         *testing.T
	api       client.Client
	cached    client.Client
	cloud     *fake.Cloud
	clock     *testingclock.FakeClock
	namespace string
	node      string
	r         *drivernode.Reconciler
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{
		t:         t,
		cloud:     fake.New(fake.Options{}),
		clock:     testingclock.NewFakeClock(time.Now()),
		namespace: "driver",
	}
	w.node = w.namespace + "-node"
	w.startCache()
	w.restart()
	w.cloud.AddVM(provisioner.Instance{ID: w.vm(), Size: size})
	w.make(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: w.node}})
	w.make(&apiv1.AzDriverNode{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: w.node},
		Spec:       apiv1.AzDriverNodeSpec{VMID: w.vm(), VMSize: size, Location: "eastus", Zone: "1"},
	})
	return w
}

// startCache makes the API server and a cache of it, which learns of each write at once.
func (w *world) startCache() {
	store := memapi.New(scheme, w.clock)
	cache := memapi.NewCache(store, cluster.CacheOptions(w.namespace))
	w.must(cluster.AddIndexes(w.t.Context(), cache, driverName))
	delivered := func(_ context.Context, _ memapi.Call, do func() error) error {
		err := do()
		for _, kind := range cache.Pending() {
			for cache.Deliver(kind) {
			}
		}
		return err
	}
	w.api, w.cached = memapi.NewClient(store, delivered, nil), memapi.NewClient(store, delivered, cache)
}

// restart makes a reconciler that knows nothing yet.
func (w *world) restart() {
	w.r = drivernode.New(drivernode.Options{
		Client:  w.cached,
		Reader:  w.api,
		Cloud:   w.cloud.Reopen(),
		Clock:   w.clock,
		Workers: 1,
	})
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// make creates an object with its status.
func (w *world) make(o client.Object) {
	w.t.Helper()
	withStatus := o.DeepCopyObject().(client.Object)
	w.must(w.api.Create(w.t.Context(), o))
	withStatus.SetResourceVersion(o.GetResourceVersion())
	withStatus.SetUID(o.GetUID())
	if _, has := o.(*corev1.PersistentVolume); !has {
		w.must(w.api.Status().Update(w.t.Context(), withStatus))
	}
}

func (w *world) vm() string { return provider + "virtualMachines/" + w.node }

func disk(name string) string { return provider + "disks/" + name }

// attach attaches a disk at Azure, outside the driver.
func (w *world) attach(id string) {
	w.t.Helper()
	w.cloud.AddDisk(provisioner.Disk{
		ID:           id,
		Location:     "eastus",
		SizeBytes:    1 << 30,
		MaxShares:    2,
		DiskSettings: provisioner.DiskSettings{SKUName: "Premium_LRS"},
	})
	operation, err := w.cloud.Attachments().Attach(w.t.Context(), provisioner.AttachRequest{
		VMID:        w.vm(),
		DiskID:      id,
		CachingMode: "None",
	})
	w.must(err)
	w.must(operation.Wait(w.t.Context()))
}

func (w *world) detach(id string) {
	w.t.Helper()
	operation, err := w.cloud.Attachments().Detach(w.t.Context(), w.vm(), id)
	w.must(err)
	w.must(operation.Wait(w.t.Context()))
}

// named returns the name of the AzVolume of a disk.
func named(disk string) string { return apiv1.VolumeName("s", "g", disk) }

func (w *world) volume(name string, change ...func(*apiv1.AzVolume)) *apiv1.AzVolume {
	v := &apiv1.AzVolume{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: named(name)},
		Spec: apiv1.AzVolumeSpec{
			Origin:        apiv1.OriginProvisioned,
			Access:        apiv1.AccessSingleNode,
			CapacityBytes: 1 << 30,
			Disk: apiv1.DiskParameters{
				SubscriptionID: "s",
				ResourceGroup:  "g",
				Name:           name,
				Location:       "eastus",
				CachingMode:    "None",
				MaxShares:      2,
				DiskSettings:   apiv1.DiskSettings{SKUName: "Premium_LRS"},
			},
		},
		Status: apiv1.AzVolumeStatus{State: apiv1.VolumeCreated, DiskID: disk(name)},
	}
	for _, f := range change {
		f(v)
	}
	w.make(v)
	return v
}

func (w *world) attachment(disk string, state apiv1.AttachmentState) *apiv1.AzVolumeAttachment {
	volume := named(disk)
	a := &apiv1.AzVolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: apiv1.AttachmentName(volume, w.node)},
		Spec:       apiv1.AzVolumeAttachmentSpec{VolumeName: volume, NodeName: w.node, Role: apiv1.RoleReplica},
		Status:     apiv1.AzVolumeAttachmentStatus{State: state},
	}
	w.make(a)
	return a
}

// turnAway lets an attachment fail for want of room.
func (w *world) turnAway(a *apiv1.AzVolumeAttachment) {
	w.t.Helper()
	w.must(w.api.Get(w.t.Context(), client.ObjectKeyFromObject(a), a))
	a.Status = apiv1.AzVolumeAttachmentStatus{State: apiv1.AttachmentFailed, Error: &apiv1.Error{
		Reason:      string(provisioner.InsufficientCapacity),
		Message:     "full",
		FailureTime: metav1.NewTime(w.clock.Now()),
	}}
	w.must(w.api.Status().Update(w.t.Context(), a))
}

// reconcile returns the capacity that was written, after the cache has it.
func (w *world) reconcile() (apiv1.NodeCapacity, time.Duration) {
	w.t.Helper()
	result, err := w.r.Reconcile(w.t.Context(), w.request())
	w.must(err)
	return w.capacity(), result.RequeueAfter
}

func (w *world) request() reconcile.Request {
	return reconcile.Request{NamespacedName: client.ObjectKey{Namespace: w.namespace, Name: w.node}}
}

func (w *world) capacity() apiv1.NodeCapacity {
	w.t.Helper()
	d := &apiv1.AzDriverNode{}
	w.must(w.api.Get(w.t.Context(), w.request().NamespacedName, d))
	if d.Status.Capacity == nil {
		return apiv1.NodeCapacity{}
	}
	return *d.Status.Capacity
}

func room(outside int32) apiv1.NodeCapacity {
	return apiv1.NodeCapacity{
		MaxDataDisks: 8,
		VMSize:       size,
		ForeignDisks: outside,

		UncachedIOPS:           6400,
		UncachedBytesPerSecond: 145_000_000,
	}
}

func TestWhatIsFromOutsideAndWhatIsNot(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		prepare func(*world)
		want    int32
	}{
		"a VM without disks has none":            {func(*world) {}, 0},
		"a disk that no object speaks of is one": {func(w *world) { w.attach(disk("theirs")) }, 1},
		"a disk of ours with an attachment is not": {func(w *world) {
			w.volume("ours")
			w.attach(disk("ours"))
			w.attachment("ours", apiv1.AttachmentAttached)
		}, 0},
		"a disk of ours without an attachment is not, because the attachment is re-created": {func(w *world) {
			w.volume(
				"ours")
			w.attach(disk("ours"))
		}, 0},
		"a replica is not, because it is deleted for a primary": {func(w *world) {
			w.volume(
				"r")
			w.attach(disk("r"))
			w.attachment("r", apiv1.AttachmentAttached)
		}, 0},
		"a disk of the same name in another resource group is one": {func(w *world) {
			w.volume("twin")
			w.attach("/subscriptions/s/resourceGroups/other/providers/Microsoft.Compute/disks/twin")
		}, 1},
		"a disk of a PersistentVolume that was not adopted yet is not": {func(w *world) {
			w.attach(disk("v1-" + w.namespace))
			w.make(persistentVolume(w.namespace, driverName, disk("V1-"+w.namespace)))
		}, 0},
		"a disk of a PersistentVolume of the in-tree plug-in is not": {func(w *world) {
			w.attach(disk("tree-" + w.namespace))
			pv := persistentVolume("tree-"+w.namespace, "", "")
			pv.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{AzureDisk: &corev1.AzureDiskVolumeSource{
				DiskName:    "tree-" + w.namespace,
				DataDiskURI: disk("tree-" + w.namespace),
				Kind:        ptr(corev1.AzureManagedDisk),
			}}
			w.make(pv)
		}, 0},
		"a disk of another driver's PersistentVolume is one": {func(w *world) {
			w.attach(disk("x-" + w.namespace))
			w.make(persistentVolume(w.namespace, "other.example.com", disk("x-"+w.namespace)))
		}, 1},
		"what has no disk's ID is one": {func(w *world) {
			w.cloud.AddVM(provisioner.Instance{
				ID:        w.vm(),
				Size:      size,
				DataDisks: []provisioner.Attachment{{DiskID: "https://account.blob/vhds/data.vhd"}},
			})
		}, 1},
		"a VM that is gone has none": {func(w *world) { w.cloud.RemoveVM(w.vm()) }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			test.prepare(w)
			if got, next := w.reconcile(); got != room(test.want) || next != 5*time.Minute {
				t.Errorf("got %+v, again in %s, want %+v, again in 5m", got, next, room(test.want))
			}
		})
	}
}

func persistentVolume(name, driver, handle string) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeSpec{
		Capacity:    corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		PersistentVolumeSource: corev1.PersistentVolumeSource{
			CSI: &corev1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: handle},
		},
	}}
}

func TestTheCountIsKeptCurrentWithFewReadsFromAzure(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	looks := func() int { return w.cloud.CallCount(fake.AttachmentsList) }
	if got, _ := w.reconcile(); got != room(0) || looks() != 1 {
		t.Fatalf("at first: %+v after %d looks", got, looks())
	}
	w.attach(disk("theirs"))
	w.clock.Step(4 * time.Minute)
	if got, next := w.reconcile(); got != room(0) || next != time.Minute || looks() != 1 {
		t.Errorf("before it is due: %+v, again in %s, %d looks", got, next, looks())
	}
	w.clock.Step(time.Minute)
	if got, _ := w.reconcile(); got != room(1) || looks() != 2 {
		t.Errorf("when it is due: %+v after %d looks", got, looks())
	}
	before := w.revision()
	w.restart()
	if got, _ := w.reconcile(); got != room(1) || looks() != 3 || w.revision() != before {
		t.Errorf("a restart: %+v after %d looks, and wrote %t", got, looks(), w.revision() != before)
	}
	w.detach(disk("theirs"))
	w.clock.Step(5 * time.Minute)
	if got, _ := w.reconcile(); got != room(0) {
		t.Errorf("when the disk is gone: %+v", got)
	}
}

func ptr[T any](v T) *T { return &v }

func (w *world) revision() string {
	d := &apiv1.AzDriverNode{}
	w.must(w.api.Get(w.t.Context(), w.request().NamespacedName, d))
	return d.ResourceVersion
}

func TestAnAttachmentWithoutRoomHasTheDisksCountedSoon(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.reconcile()
	w.attach(disk("theirs"))
	w.clock.Step(10 * time.Second)
	w.turnAway(w.attachment("late", apiv1.AttachmentPending))
	if got, next := w.reconcile(); got != room(0) || next != 20*time.Second {
		t.Errorf("10 s after the last look: %+v, again in %s", got, next)
	}
	w.clock.Step(20 * time.Second)
	if got, next := w.reconcile(); got != room(1) || next != 5*time.Minute {
		t.Errorf("30 s after it: %+v, again in %s", got, next)
	}
	if _, next := w.reconcile(); next != 5*time.Minute {
		t.Errorf("an old failure asks again in %s", next)
	}
}

func TestTheSizeIsWrittenAlsoWhereTheDisksCannotBeCounted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.attach(disk("theirs"))
	remove := w.cloud.Inject(fake.Fault{
		Method: fake.AttachmentsList,
		Err:    provisioner.Errorf(provisioner.Unavailable, "no answer"),
	})
	if _, err := w.r.Reconcile(t.Context(), w.request()); !errors.Is(err, provisioner.Unavailable) {
		t.Errorf("the failure was not returned: %v", err)
	}
	if got := w.capacity(); got != room(0) {
		t.Errorf("while Azure does not answer: %+v", got)
	}
	remove()
	if got, _ := w.reconcile(); got != room(1) {
		t.Errorf("when it does: %+v", got)
	}
}

func TestACountThatCouldNotBeWrittenIsMadeAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.attach(disk("theirs"))
	w.cloud.FailNext(fake.SKUsVM, 1, provisioner.Errorf(provisioner.Unavailable, "no answer"))
	if _, err := w.r.Reconcile(t.Context(), w.request()); !errors.Is(err, provisioner.Unavailable) {
		t.Errorf("the failure was not returned: %v", err)
	}
	if got, _ := w.reconcile(); got != room(1) {
		t.Errorf("the next time: %+v", got)
	}
}

// types are the types of a node's conditions, in their order.
func types(d *apiv1.AzDriverNode) string {
	var all []string
	for _, c := range d.Status.Conditions {
		all = append(all, c.Type)
	}
	return strings.Join(all, " ")
}

func TestTheFirstConditionsAreWrittenWithTheCapacity(t *testing.T) {
	t.Parallel()
	reachable := metav1.Condition{
		Type:               apiv1.NodeConditionReachable,
		Status:             metav1.ConditionTrue,
		Reason:             apiv1.ReasonHeartbeatFresh,
		LastTransitionTime: metav1.Now(),
	}
	ready := metav1.Condition{
		Type:               apiv1.NodeConditionPluginReady,
		Status:             metav1.ConditionTrue,
		Reason:             "Serving",
		LastTransitionTime: metav1.Now(),
	}
	for name, test := range map[string]struct {
		// meanwhile are the conditions that the node writes between the read and the write of its
		// object.
		meanwhile []metav1.Condition
		want      string
	}{
		"no other writer comes first":                   {nil, "VMKnown FailoverEnabled Reachable"},
		"the node comes first, and its condition stays": {[]metav1.Condition{ready}, "PluginReady"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			read := func() *apiv1.AzDriverNode {
				d := &apiv1.AzDriverNode{}
				w.must(w.api.Get(t.Context(), w.request().NamespacedName, d))
				return d
			}
			w.r.FirstConditions = func(*apiv1.AzDriverNode) []metav1.Condition {
				if test.meanwhile != nil {
					d := read()
					d.Status.Conditions = test.meanwhile
					w.must(w.api.Status().Update(t.Context(), d))
				}
				return []metav1.Condition{reachable}
			}
			if got, _ := w.reconcile(); got != room(0) {
				t.Errorf("got the capacity %+v, want %+v", got, room(0))
			}
			if got := types(read()); got != test.want {
				t.Errorf("got the conditions %s, want %s", got, test.want)
			}
			version := read().ResourceVersion
			w.reconcile()
			if got := read(); !meta.IsStatusConditionTrue(got.Status.Conditions, apiv1.NodeConditionVMKnown) ||
				test.meanwhile == nil && got.ResourceVersion != version {
				t.Errorf("after the next reconciliation: got the conditions %v, want VMKnown, and no write if it was there",
					got.Status.Conditions)
			}
		})
	}
}
