package attachdetach

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cluster"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/expect"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/fakeapi"
)

const driver = "disk.csi.azure.com"

func disk(group, name string) string {
	return "/subscriptions/s/resourceGroups/" + group + "/providers/Microsoft.Compute/disks/" + name
}

// publisher takes down the calls that it gets. before is called in each of them.
type publisher struct {
	mu     sync.Mutex
	calls  []string
	before func(ctx context.Context, call string) error
}

func (p *publisher) note(ctx context.Context, call string) error {
	p.mu.Lock()
	p.calls = append(p.calls, call)
	p.mu.Unlock()
	if p.before == nil {
		return nil
	}
	return p.before(ctx, call)
}

func (p *publisher) ControllerPublishVolume(ctx context.Context,
	r *csi.ControllerPublishVolumeRequest) (*csi.ControllerPublishVolumeResponse, error) {
	how := ""
	if r.GetVolumeCapability().GetBlock() != nil {
		how = ", raw block"
	}
	return &csi.ControllerPublishVolumeResponse{},
		p.note(ctx, fmt.Sprintf("publish %s to %s by %s, read only %t%s", r.GetVolumeId(), r.GetNodeId(),
			r.GetVolumeContext()["by"], r.GetReadonly(), how))
}

func (p *publisher) ControllerUnpublishVolume(ctx context.Context,
	r *csi.ControllerUnpublishVolumeRequest) (*csi.ControllerUnpublishVolumeResponse, error) {
	return &csi.ControllerUnpublishVolumeResponse{},
		p.note(ctx, fmt.Sprintf("unpublish %s from %s", r.GetVolumeId(), r.GetNodeId()))
}

// setUp makes a Reconciler over objects, for a driver of that name.
func setUp(t *testing.T, driverName string, objects ...client.Object) (*Reconciler, *publisher) {
	t.Helper()
	c := fakeapi.With(objects...).
		WithIndex(&apiv1.AzVolumeAttachment{}, cluster.AttachmentVolume, cluster.AttachmentVolumeKeys).
		WithIndex(&apiv1.AzVolumeAttachment{}, cluster.AttachmentNode, cluster.AttachmentNodeKeys).
		WithIndex(&apiv1.AzVolume{}, cluster.VolumePrimary, cluster.VolumePrimaryKeys).
		WithIndex(&corev1.PersistentVolume{}, cluster.PersistentVolumeVolume, cluster.PersistentVolumeKeys(driverName)).
		WithIndex(&corev1.PersistentVolume{}, cluster.PersistentVolumeClaim, cluster.PersistentVolumeClaimKeys).
		WithIndex(&corev1.Pod{}, cluster.PodClaim, cluster.PodClaimKeys).
		WithIndex(&corev1.Pod{}, cluster.PodDisk, cluster.PodDiskKeys(driverName)).
		WithIndex(&corev1.Pod{}, cluster.PodNode, cluster.PodNodeKeys).
		WithIndex(&corev1.Node{}, cluster.NodeVM, cluster.NodeVMKeys).
		WithIndex(&apiv1.AzDriverNode{}, cluster.NodeVM, cluster.NodeVMKeys).
		Build()
	p := &publisher{}
	return New(Options{
		Client:     c,
		Reader:     c,
		Publisher:  p,
		Events:     events.NewFakeRecorder(100),
		Clock:      clocktesting.NewFakePassiveClock(time.Unix(1000, 0)),
		DriverName: driverName,
	}), p
}

func (p *publisher) expect(t *testing.T, want ...string) {
	t.Helper()
	slices.Sort(p.calls)
	if !slices.Equal(p.calls, want) {
		t.Errorf("calls:\n%s\nwant:\n%s", strings.Join(p.calls, "\n"), strings.Join(want, "\n"))
	}
}

func reconcileOf(t *testing.T, r *Reconciler, disk string) {
	t.Helper()
	expect.Must(t, tryReconcile(t, r, disk))
}

func tryReconcile(t *testing.T, r *Reconciler, disk string) error {
	t.Helper()
	_, err := r.Reconcile(t.Context(), requested(disk))
	return err
}

func requested(disk string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "ns", Name: named(disk)}}
}

func readyNode(name string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	return n
}

func report(node string, staged ...string) *apiv1.AzDriverNode {
	d := &apiv1.AzDriverNode{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: node}}
	d.Status.MountsScannedTime = ptr.To(metav1.NewMicroTime(time.Unix(1, 0)))
	for _, volume := range staged {
		d.Status.StagedVolumes = append(d.Status.StagedVolumes, apiv1.StagedVolume{
			VolumeName: named(volume),
			Epoch:      1,
			Phase:      apiv1.PhaseStaged,
		})
	}
	return d
}

// persistentVolume is one of a disk, bound to a PersistentVolumeClaim.
func persistentVolume(name, handle, namespace, claim, uid string) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		ClaimRef:    &corev1.ObjectReference{Namespace: namespace, Name: claim, UID: types.UID(uid)},
		PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
			Driver:           driver,
			VolumeHandle:     handle,
			VolumeAttributes: map[string]string{"by": name},
		}},
	}}
}

func claim(namespace, name, uid, volume string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace,
			Name:      name,
			UID:       types.UID(uid),
		}, Spec: corev1.PersistentVolumeClaimSpec{VolumeName: volume},
	}
}

func pod(namespace, name, node string, volumes ...corev1.VolumeSource) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(namespace + name)},
		Spec:       corev1.PodSpec{NodeName: node},
	}
	for i, source := range volumes {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: fmt.Sprintf("data-%d", i), VolumeSource: source})
	}
	return p
}

// ending is a pod that is being deleted.
func ending(p *corev1.Pod) *corev1.Pod {
	p.DeletionTimestamp, p.Finalizers = ptr.To(metav1.Now()), []string{"example.com/any"}
	return p
}

// renamed is an AzVolume of another disk than its name says.
func renamed(objects []client.Object) []client.Object {
	objects[0].(*apiv1.AzVolume).Spec.Disk.Name = "another"
	return objects
}

func claimVolume(name string) corev1.VolumeSource {
	return corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}
}

func inline(uri string, change ...func(*corev1.AzureDiskVolumeSource)) corev1.VolumeSource {
	source := &corev1.AzureDiskVolumeSource{DiskName: "d", DataDiskURI: uri, Kind: ptr.To(corev1.AzureManagedDisk)}
	for _, c := range change {
		c(source)
	}
	return corev1.VolumeSource{AzureDisk: source}
}

// named returns the name of the AzVolume of a disk in the resource group of most tests.
func named(disk string) string { return apiv1.VolumeName("s", "rg", disk) }

// volume is an adopted disk that nodes have as primaries; one node has the ownership, unless it is
// a multi-node volume.
func volume(disk string, access apiv1.AccessPattern, nodes ...string) []client.Object {
	name := named(disk)
	v := &apiv1.AzVolume{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Spec: apiv1.AzVolumeSpec{
		Origin: apiv1.OriginAdopted,
		Access: access,
		Disk:   apiv1.DiskParameters{SubscriptionID: "s", ResourceGroup: "rg", Name: disk, MaxShares: 5},
	}}
	objects := []client.Object{v}
	for _, node := range nodes {
		if access == apiv1.AccessSingleNode {
			v.Status.Primary = &apiv1.Ownership{NodeName: node, Epoch: 1, State: apiv1.OwnershipHeld}
		}
		objects = append(objects, &apiv1.AzVolumeAttachment{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: apiv1.AttachmentName(name, node)},
			Spec:       apiv1.AzVolumeAttachmentSpec{VolumeName: name, NodeName: node, Role: apiv1.RolePrimary, Epoch: 1},
			Status:     apiv1.AzVolumeAttachmentStatus{State: apiv1.AttachmentAttached},
		})
	}
	return objects
}

func TestAVolumeIsPublishedByThePersistentVolumeOfItsPods(t *testing.T) {
	const single = apiv1.AccessSingleNode
	nodes := []client.Object{readyNode("a"), readyNode("b"), report("a"), report("b")}
	for name, test := range map[string]struct {
		objects []client.Object
		want    []string
	}{
		"a volume that was released and is kept, and one that was created for the next PersistentVolumeClaim": {
			[]client.Object{persistentVolume("1-kept", disk("rg", "vol"), "apps", "old", "1"),
				persistentVolume("2-new", disk("rg", "vol"), "apps", "new", "2"), claim("apps", "new", "2", "2-new"),
				pod("apps", "p", "a", claimVolume("new"))},
			[]string{"publish " + disk("rg", "vol") + " to a by 2-new, read only false"}},
		"an AzVolume of another disk has the name that the disk's would have": {
			append(renamed(volume("vol", single)), persistentVolume("pv", disk("rg", "vol"), "apps", "data", "1"),
				claim("apps", "data", "1", "pv"), pod("apps", "p", "a", claimVolume("data"))), nil},
		"whatever they are called, or how the disk is spelled": {
			[]client.Object{persistentVolume("2-kept", disk("rg", "vol"), "apps", "old", "1"),
				persistentVolume("1-new", disk("RG", "Vol"), "apps", "new", "2"), claim("apps", "new", "2", "1-new"),
				pod("apps", "p", "a", claimVolume("new"))},
			[]string{"publish " + disk("RG", "Vol") + " to a by 1-new, read only false"}},
		"the next PersistentVolumeClaim has the name of the last": {
			[]client.Object{persistentVolume("1-kept", disk("rg", "vol"), "apps", "data", "1"),
				persistentVolume("2-new", disk("rg", "vol"), "apps", "data", "2"), claim("apps", "data", "2", "2-new"),
				pod("apps", "p", "a", claimVolume("data"))},
			[]string{"publish " + disk("rg", "vol") + " to a by 2-new, read only false"}},
		"a volume that is used stays, whatever else there is of its disk": {
			append(volume("vol", single, "a"), persistentVolume("1-kept", disk("rg", "vol"), "apps", "old", "1"),
				persistentVolume("2-new", disk("rg", "vol"), "apps", "new", "2"), claim("apps", "new", "2", "2-new"),
				pod("apps", "p", "a", claimVolume("new"))), nil},
		"two namespaces share a disk": {
			append(volume("vol", apiv1.AccessMultiNode, "a"), persistentVolume("1-one", disk("rg", "vol"), "one", "data", "1"),
				persistentVolume("2-two", disk("rg", "vol"), "two", "data", "2"), claim("one", "data", "1", "1-one"),
				claim("two", "data", "2", "2-two"), pod("one", "p", "a", claimVolume("data")),
				pod("two", "p", "b", claimVolume("data"))),
			[]string{"publish " + disk("rg", "vol") + " to b by 2-two, read only false"}},
		"another disk of the same name is none of it": {
			append(volume("vol", single), persistentVolume("1-other", disk("elsewhere", "vol"), "one", "data", "1"),
				persistentVolume("2-own", disk("rg", "vol"), "two", "data", "2"), claim("one", "data", "1", "1-other"),
				claim("two", "data", "2", "2-own"), pod("one", "p", "a", claimVolume("data")),
				pod("two", "p", "b", claimVolume("data"))),
			[]string{"publish " + disk("rg", "vol") + " to b by 2-own, read only false"}},
		"a PersistentVolumeClaim that is bound to another volume by now adds no pods": {
			append(volume("vol", single, "a"), persistentVolume("1-kept", disk("rg", "vol"), "apps", "data", "1"),
				claim("apps", "data", "1", "something-else"), pod("apps", "p", "a", claimVolume("data"))),
			[]string{"unpublish " + disk("rg", "vol") + " from a"}},
	} {
		t.Run(name, func(t *testing.T) {
			r, calls := setUp(t, driver, append(nodes, test.objects...)...)
			reconcileOf(t, r, "vol")
			calls.expect(t, test.want...)
		})
	}
}

func TestADiskThatAPodNamesItself(t *testing.T) {
	const single = apiv1.AccessSingleNode
	readOnly := func(s *corev1.AzureDiskVolumeSource) { s.ReadOnly = ptr.To(true) }
	nodes := []client.Object{readyNode("a"), readyNode("b"), report("a"), report("b")}
	for name, test := range map[string]struct {
		driver  string
		objects []client.Object
		want    []string
	}{
		"is published to the pod's node": {driver, []client.Object{pod("apps", "p", "a", inline(disk("rg", "Vol"), readOnly))},
			[]string{"publish " + disk("rg", "Vol") + " to a by , read only true"}},
		"stays while the pod is there, although the node has just been started and has not mounted it": {driver,
			append(volume("vol", single, "a"), pod("apps", "p", "a", inline(disk("rg", "vol")))), nil},
		"is unpublished when the pod has ended": {driver,
			append(volume("vol", single, "a"), pod("apps", "p", "b", inline(disk("rg", "vol")))),
			[]string{"publish " + disk("rg", "vol") + " to b by , read only false",
				"unpublish " + disk("rg", "vol") + " from a"}},
		"of another resource group is another one": {driver,
			append(volume("vol", single, "a"), pod("apps", "p", "b", inline(disk("elsewhere", "vol")))),
			[]string{"unpublish " + disk("rg", "vol") + " from a"}},
		"is the second that the pod names": {driver,
			[]client.Object{pod("apps", "p", "a", inline(disk("rg", "other")), inline(disk("rg", "vol")))},
			[]string{"publish " + disk("rg", "vol") + " to a by , read only false"}},
		"is not the one of an AzVolume that has its name": {driver,
			append(renamed(volume("vol", single)), pod("apps", "p", "a", inline(disk("rg", "vol")))), nil},
		"and by a PersistentVolumeClaim is published once": {driver,
			[]client.Object{persistentVolume("pv", disk("rg", "vol"), "apps", "data", "1"), claim("apps", "data", "1", "pv"),
				pod("apps", "p", "a", inline(disk("rg", "vol")), claimVolume("data"))},
			[]string{"publish " + disk("rg", "vol") + " to a by pv, read only false"}},
		"goes to the pod of its claim, and not to one of another namespace that asked first": {driver,
			[]client.Object{persistentVolume("pv", disk("rg", "vol"), "shop", "data", "1"), claim("shop", "data", "1", "pv"),
				pod("apps", "first", "a", inline(disk("rg", "vol"))), pod("shop", "p", "b", claimVolume("data"))},
			[]string{"publish " + disk("rg", "vol") + " to b by pv, read only false"}},
		"is published to nothing after its claim was deleted: it has the data of that namespace": {driver,
			[]client.Object{persistentVolume("pv", disk("rg", "vol"), "shop", "data", "1"),
				pod("apps", "p", "a", inline(disk("rg", "vol")))}, nil},
		"is published to a pod of the namespace of its claim": {driver,
			[]client.Object{
				persistentVolume("pv", disk("rg", "vol"), "apps", "data", "1"), pod("apps", "p", "a", inline(disk("rg", "vol"))),
			}, []string{"publish " + disk("rg", "vol") + " to a by , read only false"}},
		"is another driver's where this one has another name": {"disk.example.com",
			[]client.Object{pod("apps", "p", "a", inline(disk("rg", "vol")))}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			r, calls := setUp(t, test.driver, append(nodes, test.objects...)...)
			reconcileOf(t, r, "vol")
			calls.expect(t, test.want...)
		})
	}
	t.Run("and brings its pod's changes to its volume", func(t *testing.T) {
		r, _ := setUp(t, driver)
		names, err := r.ofPod(t.Context(),
			pod("apps", "p", "a", inline(disk("rg", "Vol")), inline("https://account.blob.core.windows.net/vhds/x.vhd")))
		if err != nil || !slices.Equal(names, []string{named("vol")}) {
			t.Errorf("got %v, %v, want %s", names, err, named("vol"))
		}
	})
}

func TestAPodThatNamesTheDiskOfAnotherNamespaceIsToldOnce(t *testing.T) {
	r, calls := setUp(t, driver, readyNode("a"), report("a"), persistentVolume("pv", disk("rg", "vol"), "shop", "data", "1"),
		claim("shop", "data", "1", "pv"), pod("apps", "p", "a", inline(disk("rg", "vol"))),
		pod("apps", "unscheduled", "", inline(disk("rg", "vol"))), ending(pod("apps", "ending", "a", inline(disk("rg", "vol")))))
	reconcileOf(t, r, "vol")
	got := recorded(t, r)
	reconcileOf(t, r, "vol")
	calls.expect(t)
	if len(got) != 1 || len(recorded(t, r)) != 0 || !strings.Contains(got[0], "claim shop/data of another namespace has it") {
		t.Errorf("got events %q, want one that names the claim", got)
	}
}

func TestNodesOfAMultiNodeVolumeDoNotWaitForEachOther(t *testing.T) {
	pv := persistentVolume("pv", disk("rg", "vol"), "apps", "data", "1")
	pv.Spec.VolumeMode = ptr.To(corev1.PersistentVolumeBlock)
	objects := append(volume("vol", apiv1.AccessMultiNode, "c"), pv, claim("apps", "data", "1", "pv"))
	for _, node := range []string{"a", "b", "c"} {
		objects = append(objects, readyNode(node), report(node))
	}
	r, calls := setUp(t, driver, append(objects, pod("apps", "p1", "a", claimVolume("data")),
		pod("apps", "p2", "b", claimVolume("data")))...)
	var all sync.WaitGroup
	all.Add(3)
	calls.before = func(ctx context.Context, call string) error {
		all.Done()
		met := make(chan struct{})
		go func() { all.Wait(); close(met) }()
		select {
		case <-met:
			return nil
		case <-ctx.Done():
			return fmt.Errorf("%s waits for another call", call)
		}
	}
	reconcileOf(t, r, "vol")
	calls.expect(t, "publish "+disk("rg", "vol")+" to a by pv, read only false, raw block",
		"publish "+disk("rg", "vol")+" to b by pv, read only false, raw block",
		"unpublish "+disk("rg", "vol")+" from c")
}

// behindReport is a cache that has an older report of a node than the API server.
type behindReport struct {
	client.Client
	report *apiv1.AzDriverNode
}

func (b behindReport) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	if d, ok := into.(*apiv1.AzDriverNode); ok && key.Name == b.report.Name {
		b.report.DeepCopyInto(d)
		return nil
	}
	return b.Client.Get(ctx, key, into, options...)
}

func TestAMultiNodeVolumeThatANodeHasStagedAgainIsNotTakenFromIt(t *testing.T) {
	const single, multi = apiv1.AccessSingleNode, apiv1.AccessMultiNode
	taken := []string{"unpublish " + disk("rg", "vol") + " from a"}
	for name, test := range map[string]struct {
		access   apiv1.AccessPattern
		reported []client.Object
		want     []string
	}{
		"the API server's report names the volume":             {multi, []client.Object{report("a", "vol")}, nil},
		"the API server's report does not name the volume":     {multi, []client.Object{report("a")}, taken},
		"the API server's report names another volume by now":  {multi, []client.Object{report("a", "other")}, taken},
		"the API server has no report":                         {multi, nil, taken},
		"one node at a time can have the volume, as the cache": {single, []client.Object{report("a", "vol")}, taken},
	} {
		t.Run(name, func(t *testing.T) {
			objects := append(volume("vol", test.access, "a"), readyNode("a"))
			r, calls := setUp(t, driver, append(objects, test.reported...)...)
			r.Client = behindReport{r.Client, report("a")}
			reconcileOf(t, r, "vol")
			calls.expect(t, test.want...)
		})
	}
}

// A publish that was cut short leaves an ownership without an attachment.
func TestTheReportOfTheOwnerCountsWithoutAnAttachment(t *testing.T) {
	for name, test := range map[string]struct {
		staged []string
		want   []string
	}{
		"the owner reports the volume":         {[]string{"vol"}, nil},
		"the owner does not report the volume": {nil, []string{"unpublish " + disk("rg", "vol") + " from a"}},
	} {
		t.Run(name, func(t *testing.T) {
			owned := volume("vol", apiv1.AccessSingleNode, "a")[0]
			r, calls := setUp(t, driver, owned, readyNode("a"), report("a", test.staged...))
			reconcileOf(t, r, "vol")
			calls.expect(t, test.want...)
		})
	}
}

// What is published to one node at a time is not offered to the next one while the last one has it.
func TestAnUnpublishThatFailsHoldsTheNextPublishUp(t *testing.T) {
	objects := append(volume("vol", apiv1.AccessSingleNode, "a"), persistentVolume("pv", disk("rg", "vol"), "apps", "data", "1"),
		claim("apps", "data", "1", "pv"),
		readyNode("a"), readyNode("b"), report("a"), report("b"), pod("apps", "p", "b", claimVolume("data")))
	r, calls := setUp(t, driver, objects...)
	calls.before = func(context.Context, string) error { return errors.New("not now") }
	if err := tryReconcile(t, r, "vol"); err == nil {
		t.Error("got no error, want one, so that the call is repeated")
	}
	calls.expect(t, "unpublish "+disk("rg", "vol")+" from a")
}

// That a node has looked at its mounts, or has no report any more, says something of what its
// report does not name.
func TestAScanOfANodeIsAnEventForAllThatItHas(t *testing.T) {
	objects := append(volume("attached", apiv1.AccessMultiNode, "a"), volume("elsewhere", apiv1.AccessMultiNode, "b")...)
	cutShort := volume("owned", apiv1.AccessSingleNode, "a")[:1] // and the process died before it created the attachment
	r, _ := setUp(t, driver, append(append(objects, cutShort...), pod("apps", "p", "a", inline(disk("rg", "wanted"))))...)
	names, err := r.onNode("ns")(t.Context(), report("a"))
	slices.Sort(names)
	if err != nil || !slices.Equal(names, []string{named("attached"), named("owned"), named("wanted")}) {
		t.Errorf("got %v, %v, want those of attached, owned and wanted", names, err)
	}
}

// recorded returns the events since the last call.
func recorded(t *testing.T, r *Reconciler) []string {
	t.Helper()
	recorder, ok := r.Events.(*events.FakeRecorder)
	if !ok {
		t.Fatalf("got a recorder of type %T, want a *events.FakeRecorder", r.Events)
	}
	var all []string
	for len(recorder.Events) > 0 {
		all = append(all, <-recorder.Events)
	}
	return all
}

// fencedVolume is a volume that is taken from the lost node a, and that a pod on node b waits for.
func fencedVolume(failure string) []client.Object {
	objects := append(volume("vol", apiv1.AccessSingleNode, "a"), persistentVolume("pv", disk("rg", "vol"), "apps", "data", "1"),
		claim("apps", "data", "1", "pv"),
		readyNode("b"), report("a", "vol"), report("b"), pod("apps", "p", "b", claimVolume("data")))
	v, a := objects[0].(*apiv1.AzVolume), objects[1].(*apiv1.AzVolumeAttachment)
	v.Status.Primary.State, v.Status.Primary.Cause = apiv1.OwnershipReleasing, apiv1.CauseNodeLost
	if failure != "" {
		a.Status.Error = &apiv1.Error{Reason: "Unavailable", Message: failure}
	}
	return objects
}

func TestAPodThatWaitsForAFenceIsToldWhatAzureAnswersOnce(t *testing.T) {
	for name, publisherGone := range map[string]bool{"without VolumeAttachments": false, "with VolumeAttachments": true} {
		t.Run(name, func(t *testing.T) {
			r, calls := setUp(t, driver, fencedVolume("503 Service Unavailable")...)
			if publisherGone {
				r.Publisher = nil
			}
			reconcileOf(t, r, "vol")
			reconcileOf(t, r, "vol")
			got := recorded(t, r)
			if len(got) != 1 || !strings.HasPrefix(got[0], "Warning "+apiv1.ReasonFailedAttachVolume) ||
				!strings.Contains(got[0], "node a (epoch 1)") || !strings.Contains(got[0], "503") {
				t.Errorf("got events %q, want one Warning %s that names node a, epoch 1 and Azure's answer", got,
					apiv1.ReasonFailedAttachVolume)
			}
			calls.expect(t)
		})
	}
}

// The cache may not show the first publish yet when the second is made.
func TestASecondPublishWritesNoSecondEvent(t *testing.T) {
	r, calls := setUp(t, driver, persistentVolume("pv", disk("rg", "vol"), "apps", "data", "1"), claim("apps", "data", "1", "pv"),
		readyNode("a"), report("a"), pod("apps", "p", "a", claimVolume("data")),
		ending(pod("apps", "ending", "a", claimVolume("data"))), pod("apps", "later", "b", claimVolume("data")))
	reconcileOf(t, r, "vol")
	reconcileOf(t, r, "vol")
	if got := recorded(t, r); len(got) != 1 || !strings.HasPrefix(got[0], "Normal "+apiv1.ReasonSuccessfulAttachVolume) {
		t.Errorf("got events %q after %d publishes, want one Normal %s", got, len(calls.calls),
			apiv1.ReasonSuccessfulAttachVolume)
	}
}

// A stranger is a pod that names the volume's disk and does not get it.
func TestWhatAStrangerWasToldIsForgottenWithIt(t *testing.T) {
	one := stranger{pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "1"}}}
	other := stranger{pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "2"}}}
	var told told
	told.first("vol", one.pod.UID, "stranger")
	if told.keep(observed{name: "vol", strangers: []stranger{one}}); told.first("vol", one.pod.UID, "stranger") {
		t.Error("the pod is told again, want it once")
	}
	if told.keep(observed{name: "vol", strangers: []stranger{other}}); len(told.volumes) != 0 {
		t.Errorf("got %v remembered after the pod is gone, want none", told.volumes)
	}
}

func TestWhatWasToldIsForgottenWithThePod(t *testing.T) {
	objects := fencedVolume("")
	r, _ := setUp(t, driver, objects...)
	reconcileOf(t, r, "vol")
	if len(r.told.volumes) != 1 {
		t.Fatalf("got %d volumes remembered, want 1", len(r.told.volumes))
	}
	expect.Must(t, r.Client.Delete(t.Context(), objects[len(objects)-1]))
	reconcileOf(t, r, "vol") // the wait ends
	reconcileOf(t, r, "vol")
	if len(r.told.volumes)+len(r.told.waits) != 0 {
		t.Errorf("got %v and waits %v remembered after the pod is gone, want none", r.told.volumes, r.told.waits)
	}
}

func TestAPublishThatFailsAgainWritesNoSecondEvent(t *testing.T) {
	r, calls := setUp(t, driver, persistentVolume("pv", disk("rg", "vol"), "apps", "data", "1"), claim("apps", "data", "1", "pv"),
		readyNode("a"), report("a"), pod("apps", "p", "a", claimVolume("data")))
	for _, failure := range []string{
		"the VM is failing (request 1f7c0e2a-0001, 12:00:01)", "the VM is failing (request 77ab09de-0002, 12:00:31)",
		"the subscription is disabled",
	} {
		calls.before = func(context.Context, string) error { return status.Error(codes.Internal, failure) }
		if err := tryReconcile(t, r, "vol"); err == nil {
			t.Fatalf("got no error of a publish that fails with %q", failure)
		}
	}
	got := recorded(t, r)
	if len(got) != 2 || !strings.Contains(got[0], "VM is failing") || !strings.Contains(got[1], "disabled") ||
		strings.Contains(got[0], "rpc error") {
		t.Errorf("got events %q, want one about the VM and one about the subscription, without what only gRPC says", got)
	}
}

// A publish that Azure has not accepted yet, because of its quota for instance, is not a failure:
// the pod is healthy and only waits.
func TestAPodIsWarnedOfAFailureAndNotOfAWait(t *testing.T) {
	for name, test := range map[string]struct {
		err  error
		want string
		wait bool
	}{
		"a wait": {status.Error(codes.Aborted, "Azure's quota for updates of VM a is used up"),
			"Normal WaitingForVolume volume pv is not attached to node a yet: Azure's quota for updates of VM a is used up", true},
		"a failure": {status.Error(codes.ResourceExhausted, "no slot is free"),
			"Warning FailedAttachVolume volume pv cannot be attached to node a: no slot is free", false},
	} {
		t.Run(name, func(t *testing.T) {
			r, p := setUp(t, driver, readyNode("a"), report("a"), persistentVolume("pv", disk("rg", "d"), "ns", "c", "u"),
				claim("ns", "c", "u", "pv"), pod("ns", "p", "a", claimVolume("c")))
			p.before = func(context.Context, string) error { return test.err }
			// A wait is no error of the reconciliation. The calls nevertheless come less and less often.
			for want := firstRetry; want <= 4*firstRetry; want *= 2 {
				result, err := r.Reconcile(t.Context(), requested("d"))
				if test.wait && (err != nil || result.RequeueAfter != want) {
					t.Errorf("got error %v and the next look in %s, want no error and %s", err, result.RequeueAfter, want)
				}
				if !test.wait && want == firstRetry && !errors.Is(err, test.err) {
					t.Errorf("got error %v, want %v", err, test.err)
				}
			}
			if got := <-r.Events.(*events.FakeRecorder).Events; got != test.want {
				t.Errorf("got event %q, want %q", got, test.want)
			}
		})
	}
}

// What a refused publish leaves behind and removes are events of the volume.
func TestAPublishThatFoundNoCapacityIsNotRepeatedAtOnce(t *testing.T) {
	p := pod("default", "db-0", "full", claimVolume("data"))
	r, publisher := setUp(t, driver, readyNode("full"), report("full"), p, claim("default", "data", "c", "pv"),
		persistentVolume("pv", disk("rg", "d"), "default", "data", "c"))
	clock := clocktesting.NewFakePassiveClock(time.Unix(1000, 0))
	r.Clock = clock
	publisher.before = func(context.Context, string) error { return status.Error(codes.ResourceExhausted, "no slot is free") }
	request := reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "ns", Name: named("d")}}
	for _, step := range []struct {
		after time.Duration
		calls int
		wait  time.Duration
	}{{0, 1, 0}, {time.Second, 1, refusedPause - time.Second}, {refusedPause - time.Second, 2, 0}} {
		clock.SetTime(clock.Now().Add(step.after))
		result, err := r.Reconcile(t.Context(), request)
		if (step.wait == 0) != (status.Code(err) == codes.ResourceExhausted) || len(publisher.calls) != step.calls ||
			result.RequeueAfter != step.wait {
			t.Errorf("got %d calls, error %v, the next look in %s; want %d calls, the next look in %s", len(publisher.calls), err,
				result.RequeueAfter, step.calls, step.wait)
		}
	}
	expect.Must(t, r.Client.Delete(t.Context(), p))
	if _, err := r.Reconcile(t.Context(), request); err != nil {
		t.Error(err)
	}
	if len(r.refused.volumes) != 0 {
		t.Errorf("got %v after the pod was deleted, want nothing", r.refused.volumes)
	}
}

// The node was not found, and may be there again at once.
func TestAPublishOfARecordedVolumeThatFoundNothingIsRepeated(t *testing.T) {
	r, publisher := setUp(t, driver, append(volume("vol", apiv1.AccessSingleNode), readyNode("a"), report("a"),
		pod("apps", "p", "a", inline(disk("rg", "vol"))))...)
	publisher.before = func(context.Context, string) error { return status.Error(codes.NotFound, "there is no node") }
	for range 2 {
		if err := tryReconcile(t, r, "vol"); status.Code(err) != codes.NotFound {
			t.Errorf("got error %v, want NotFound", err)
		}
	}
	if got := len(publisher.calls); got != 2 {
		t.Errorf("got %d calls, want 2", got)
	}
}

// A user who may create pods can name any number of disks that do not exist.
func TestAPublishOfADiskThatDoesNotExistIsRepeatedAfterAMinute(t *testing.T) {
	r, publisher := setUp(t, driver, readyNode("a"), report("a"), pod("apps", "p", "a", inline(disk("rg", "none"))))
	clock := clocktesting.NewFakePassiveClock(time.Unix(1000, 0))
	r.Clock = clock
	publisher.before = func(context.Context, string) error { return status.Error(codes.NotFound, "there is no disk") }
	request := reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "ns", Name: named("none")}}
	for second := range 600 {
		clock.SetTime(time.Unix(1000+int64(second), 0))
		_, _ = r.Reconcile(t.Context(), request)
	}
	if got := len(publisher.calls); got != 10 {
		t.Errorf("got %d calls in ten minutes, want one a minute", got)
	}
}
