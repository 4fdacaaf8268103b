package attachment

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cluster"
	"github.com/azuredisk-csi/azuredisk/internal/controller/work"
	"github.com/azuredisk-csi/azuredisk/internal/plan/lostnode"
	"github.com/azuredisk-csi/azuredisk/internal/plan/nodehealth"
	"github.com/azuredisk-csi/azuredisk/internal/plan/operation"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/expect"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/fakeapi"
	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/fake"
)

// healthy is a judge to whom the heartbeat of every node is fresh.
type healthy struct{}

func (healthy) Health(string) nodehealth.Judgement {
	return nodehealth.Judgement{State: nodehealth.Healthy}
}

// deserted is a volume that was unpublished long ago from a node whose kubelet is dead, as the
// cache and the API server show it.
type deserted struct {
	*Reconciler
	cache, api client.WithWatch
	events     *events.FakeRecorder
}

const desertedNode = "a"

func longAgo() metav1.Time { return metav1.NewTime(time.Now().Add(-time.Hour).Truncate(time.Second)) }

// desertedVolume is the name of the AzVolume.
var desertedVolume = apiv1.VolumeName("s", "g", "pvc-0")

// serving is an API server with copies of the objects.
func serving(objects []client.Object) client.WithWatch {
	b := fakeapi.With().
		WithIndex(&apiv1.AzVolumeAttachment{}, cluster.AttachmentVolume, cluster.AttachmentVolumeKeys).
		WithIndex(&apiv1.AzVolumeAttachment{}, cluster.AttachmentNode, cluster.AttachmentNodeKeys).
		WithIndex(&corev1.PersistentVolume{}, cluster.PersistentVolumeVolume,
			cluster.PersistentVolumeKeys("disk.csi.azure.com")).
		WithIndex(&corev1.Pod{}, cluster.PodNode, cluster.PodNodeKeys).
		WithIndex(&apiv1.AzDriverNode{}, cluster.NodeVM, cluster.NodeVMKeys).WithIndex(&corev1.Node{}, cluster.NodeVM,
		cluster.NodeVMKeys)
	for _, o := range objects {
		b = b.WithObjects(o.DeepCopyObject().(client.Object))
	}
	return b.Build()
}

func newDeserted(t *testing.T) *deserted {
	t.Helper()
	since := longAgo()
	disk := apiv1.DiskParameters{SubscriptionID: "s", ResourceGroup: "g", Name: "pvc-0", MaxShares: 2}
	objects := []client.Object{
		&apiv1.AzVolume{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: desertedVolume},
			Spec: apiv1.AzVolumeSpec{Access: apiv1.AccessSingleNode, Disk: disk},
			Status: apiv1.AzVolumeStatus{State: apiv1.VolumeCreated, DiskID: compute + "disks/pvc-0",
				Primary: &apiv1.Ownership{NodeName: desertedNode, Epoch: 1, State: apiv1.OwnershipReleasing,
					Cause: apiv1.CauseUnpublished, LastTransitionTime: &since}}},
		&apiv1.AzVolumeAttachment{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: apiv1.AttachmentName(desertedVolume, desertedNode),
				Finalizers: []string{apiv1.FinalizerAttachment}},
			Spec: apiv1.AzVolumeAttachmentSpec{VolumeName: desertedVolume, NodeName: desertedNode, Role: apiv1.RolePrimary,
				Epoch: 1}, Status: apiv1.AzVolumeAttachmentStatus{State: apiv1.AttachmentAttached, VMID: lostVM}},
		&apiv1.AzDriverNode{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: desertedNode},
			Spec: apiv1.AzDriverNodeSpec{VMID: lostVM}},
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: desertedNode},
			Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady,
				Status: corev1.ConditionUnknown, LastTransitionTime: since}}}},
		&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}, Spec: corev1.PersistentVolumeSpec{
			ClaimRef: &corev1.ObjectReference{Namespace: "shop", Name: "cart"},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
				Driver: "disk.csi.azure.com", VolumeHandle: compute + "disks/pvc-0",
			}},
		}},
		&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "cart"},
			Spec: corev1.PersistentVolumeClaimSpec{VolumeName: "pv"}},
	}
	d := &deserted{cache: serving(objects), api: serving(objects), events: events.NewFakeRecorder(20)}
	cloud := fake.New(fake.Options{})
	cloud.AddDisk(provisioner.Disk{ID: compute + "disks/pvc-0", MaxShares: 2})
	cloud.AddVM(provisioner.Instance{ID: lostVM, DataDisks: []provisioner.Attachment{{DiskID: compute + "disks/pvc-0"}}})
	r, err := New(Options{
		Client: d.cache,
		Reader: d.api,
		Cloud:  cloud,
		Jobs:   work.New(t.Context(), clock.RealClock{}, 1),
		Clock:  clock.RealClock{},
		Nodes:  cluster.NewNodes(d.cache, "ns", clock.RealClock{}, healthy{}),
		Events: d.events,
	})
	expect.Must(t, err)
	d.Reconciler = r
	return d
}

// reconcile takes a step, and reports whether it began a fence, in the status and at the platform.
func (d *deserted) reconcile(t *testing.T) (recorded, begun bool) {
	t.Helper()
	key := client.ObjectKey{Namespace: "ns", Name: apiv1.AttachmentName(desertedVolume, desertedNode)}
	_, err := d.Reconcile(t.Context(), reconcile.Request{NamespacedName: key})
	expect.Must(t, err)
	a := &apiv1.AzVolumeAttachment{}
	expect.Must(t, d.cache.Get(t.Context(), key, a))
	return a.Status.State == apiv1.AttachmentDetaching, d.Jobs.Job(a).Work == operation.WorkFence
}

// changeStatus changes the status of an object of the driver.
func changeStatus[T any, P interface {
	*T
	client.Object
}](t *testing.T, c client.Client, name string, change func(P)) error {
	o := P(new(T))
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: name}, o); err != nil {
		return err
	}
	change(o)
	return c.Status().Update(t.Context(), o)
}

func podOn(node string, change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "p"},
		Spec: corev1.PodSpec{NodeName: node, Volumes: []corev1.Volume{
			{
				Name: "data",
				VolumeSource: corev1.VolumeSource{
					PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "cart"},
				},
			},
		}},
	}
	for _, c := range change {
		c(p)
	}
	return p
}

func TestADesertedVolumeIsFencedIfTheAPIServerItselfShowsNoUser(t *testing.T) {
	t.Parallel()
	ending := func(p *corev1.Pod) { now := longAgo(); p.DeletionTimestamp, p.Finalizers = &now, []string{"test/f"} }
	readOnDisk := func(p *corev1.Pod) {
		p.Spec.Volumes[0].VolumeSource = corev1.VolumeSource{AzureDisk: &corev1.AzureDiskVolumeSource{DataDiskURI: compute +
			"disks/pvc-0"}}
	}
	of := func(phase corev1.PodPhase) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Status.Phase = phase } }
	anotherClaim := func(p *corev1.Pod) { p.Spec.Volumes[0].PersistentVolumeClaim.ClaimName = "other" }
	anotherNamespace := func(p *corev1.Pod) { p.Namespace = "elsewhere" }
	for name, test := range map[string]struct {
		pod    *corev1.Pod
		cached bool             // the cache shows the pod as well
		ready  bool             // the API server shows the Node as Ready
		phase  apiv1.StagePhase // of the volume in the report at the API server
		fenced bool
	}{
		"no pod is there":                                     {fenced: true},
		"a pod uses it":                                       {pod: podOn(desertedNode), cached: true},
		"a pod uses it, and the cache is behind":              {pod: podOn(desertedNode)},
		"a pod that is being deleted uses it":                 {pod: podOn(desertedNode, ending)},
		"a pod uses the disk without a PersistentVolumeClaim": {pod: podOn(desertedNode, readOnDisk)},
		"a pod that failed does not use it":                   {pod: podOn(desertedNode, of(corev1.PodFailed)), fenced: true},
		"a pod that succeeded does not use it":                {pod: podOn(desertedNode, of(corev1.PodSucceeded)), fenced: true},
		"a pod with another PersistentVolumeClaim does not":   {pod: podOn(desertedNode, anotherClaim), fenced: true},
		"a pod with a PersistentVolumeClaim of another namespace does not": {pod: podOn(desertedNode, anotherNamespace),
			fenced: true},
		"nor a pod on another node":                                            {pod: podOn("b"), fenced: true},
		"the Node is Ready, and the cache is behind":                           {ready: true},
		"the node plug-in is unmounting and flushing, and the cache is behind": {phase: apiv1.PhaseUnstaging},
		"the volume is staged, and the kubelet does not call":                  {phase: apiv1.PhaseStaged, fenced: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDeserted(t)
			if test.pod != nil && test.cached {
				expect.Must(t, d.cache.Create(t.Context(), test.pod.DeepCopy()))
			}
			if test.pod != nil {
				expect.Must(t, d.api.Create(t.Context(), test.pod.DeepCopy()))
			}
			if test.ready {
				n := &corev1.Node{}
				expect.Must(t, d.api.Get(t.Context(), client.ObjectKey{Name: desertedNode}, n))
				n.Status.Conditions[0].Status = corev1.ConditionTrue
				expect.Must(t, d.api.Status().Update(t.Context(), n))
			}
			if test.phase != "" {
				// The release has lasted for longer than the grace, and for less than a flush may take.
				since := metav1.NewTime(time.Now().Add(-time.Minute))
				expect.Must(t, changeStatus(t, d.cache, desertedVolume, func(v *apiv1.AzVolume) {
					v.Status.Primary.LastTransitionTime = &since
				}))
				expect.Must(t, changeStatus(t, d.api, desertedNode, func(n *apiv1.AzDriverNode) {
					n.Status.StagedVolumes = []apiv1.StagedVolume{{VolumeName: desertedVolume, Epoch: 1, Phase: test.phase}}
				}))
			}
			if recorded, begun := d.reconcile(t); recorded != test.fenced || begun != test.fenced {
				t.Errorf("got a fence recorded %t, begun %t; want %t", recorded, begun, test.fenced)
			}
		})
	}
}

// Seed 184258: the cache had the attachment of the new epoch, and the ownership of the epoch
// before, which was being released.
func TestNoNodeIsFencedByAnOwnershipThatIsOlderThanTheAttachment(t *testing.T) {
	t.Parallel()
	d := newDeserted(t)
	for _, c := range []client.Client{d.cache, d.api} {
		a := &apiv1.AzVolumeAttachment{}
		expect.Must(t, c.Get(t.Context(), client.ObjectKey{
			Namespace: "ns",
			Name:      apiv1.AttachmentName(desertedVolume, desertedNode),
		}, a))
		a.Spec.Epoch = 2
		expect.Must(t, c.Update(t.Context(), a))
	}
	v := &apiv1.AzVolume{}
	expect.Must(t, d.api.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: desertedVolume}, v))
	v.Status.Primary = &apiv1.Ownership{NodeName: desertedNode, Epoch: 2, State: apiv1.OwnershipHeld}
	expect.Must(t, d.api.Status().Update(t.Context(), v))
	if recorded, begun := d.reconcile(t); recorded || begun {
		t.Errorf("got a fence recorded %t, begun %t under the ownership of epoch 1; want none, because the node holds epoch 2",
			recorded, begun)
	}
}

func TestEventsOfADesertedVolumeSayOnceWhyItIsFenced(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		annotations map[string]string
		optOut      bool
	}{
		"a PersistentVolumeClaim":                {nil, false},
		"a PersistentVolumeClaim that opted out": {map[string]string{apiv1.AnnotationFailover: apiv1.FailoverDisabled}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDeserted(t)
			claim := &corev1.PersistentVolumeClaim{}
			expect.Must(t, d.cache.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "cart"}, claim))
			claim.Annotations = test.annotations
			expect.Must(t, d.cache.Update(t.Context(), claim))
			d.reconcile(t)
			d.reconcile(t)
			var started []string
			for len(d.events.Events) > 0 {
				if e := <-d.events.Events; strings.Contains(e, apiv1.ReasonFailoverStarted) {
					started = append(started, e)
				}
			}
			if len(started) != 3 { // Node, AzVolume and PersistentVolumeClaim
				t.Fatalf("got %d events %q, want one each about Node, volume and PersistentVolumeClaim", len(started), started)
			}
			last := started[2]
			if !strings.Contains(last, "node a is not Ready since") ||
				strings.Contains(last, lostnode.OptOutEnds) != test.optOut {
				t.Errorf("got event on the PersistentVolumeClaim %q; want it to say that the node is not Ready, and that the opt-out has ended: %t",
					last, test.optOut)
			}
		})
	}
}
