package collect_test

import (
	"context"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cli/collect"
	"github.com/azuredisk-csi/azuredisk/internal/cli/explain"
	"github.com/azuredisk-csi/azuredisk/internal/cluster"
	"github.com/azuredisk-csi/azuredisk/internal/plan/attaching"
	"github.com/azuredisk-csi/azuredisk/internal/plan/disk"
	"github.com/azuredisk-csi/azuredisk/internal/plan/nodehealth"
	"github.com/azuredisk-csi/azuredisk/internal/plan/operation"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/fakeapi"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/objects"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

const (
	driverName = "disk.csi.azure.com"
	driverNS   = apiv1.DefaultNamespace
	shop       = "shop"
	claimUID   = "7f6b"
)

// stage is a cluster of two nodes in which one pod uses one volume on node b: everything is fine. A
// fault changes some of it.
type stage struct {
	subject     explain.Subject
	class       *storagev1.StorageClass
	csi         *storagev1.CSIDriver
	controller  *appsv1.Deployment
	leases      map[string]*coordinationv1.Lease
	nodes       map[string]*node
	pod         *corev1.Pod // cart-0, on node b
	claim       *corev1.PersistentVolumeClaim
	pv          *corev1.PersistentVolume
	volume      *apiv1.AzVolume
	attachments map[string]*apiv1.AzVolumeAttachment
	more        []client.Object
}

type node struct {
	node   *corev1.Node
	driver *apiv1.AzDriverNode
	csi    *storagev1.CSINode
}

func vmID(node string) string {
	return "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/" + node
}

func newNode(name, zone string) *node {
	n := &node{
		node: &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
				corev1.LabelTopologyRegion: "eastus", corev1.LabelTopologyZone: "eastus-" + zone,
				"topology.disk.csi.azure.com/zone": "eastus-" + zone,
			}},
			Spec: corev1.NodeSpec{ProviderID: "azure://" + vmID(name)},
		},
		driver: objects.Report(name),
		csi: &storagev1.CSINode{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: driverName, NodeID: name}}},
		},
	}
	n.ready(corev1.ConditionTrue, time.Hour)
	n.driver.Namespace = driverNS
	n.driver.Spec = apiv1.AzDriverNodeSpec{VMID: vmID(name), VMSize: "Standard_D4s_v5", Location: "eastus", Zone: zone}
	n.driver.Status.Capacity = &apiv1.NodeCapacity{MaxDataDisks: 8, VMSize: "Standard_D4s_v5"}
	n.condition(apiv1.NodeConditionPluginReady, metav1.ConditionTrue, "Registered", "")
	n.judged(nodehealth.Judgement{State: nodehealth.Healthy, Evidence: "the heartbeat is fresh"})
	return n
}

func (n *node) ready(status corev1.ConditionStatus, since time.Duration) {
	n.node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status,
		LastTransitionTime: *objects.Ago(since)}}
}

func (n *node) condition(kind string, status metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(&n.driver.Status.Conditions, metav1.Condition{
		Type: kind, Status: status, Reason: reason, Message: message, LastTransitionTime: *objects.Ago(10 * time.Second),
	})
}

// judged publishes a judgement as the controller does.
func (n *node) judged(j nodehealth.Judgement) {
	c := nodehealth.Condition(j)
	n.condition(c.Type, c.Status, c.Reason, c.Message)
}

func (n *node) stages(volume string, epoch int64) {
	n.driver.Status.StagedVolumes = []apiv1.StagedVolume{{VolumeName: volume, Epoch: epoch, Phase: apiv1.PhaseStaged}}
}

func newLease(name string) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: driverNS, Name: name},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: ptr.To("azuredisk-controller-1"), LeaseDurationSeconds: ptr.To(int32(15)),
			RenewTime: &metav1.MicroTime{Time: objects.Now.Add(-time.Second)},
		},
	}
}

func newPod(name, nodeName string, claims ...string) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: shop, Name: name, UID: types.UID(name), CreationTimestamp: *objects.Ago(10 * time.Second),
			OwnerReferences: []metav1.OwnerReference{{Kind: "StatefulSet", Name: "cart", Controller: ptr.To(true)}},
		},
		Spec:   corev1.PodSpec{NodeName: nodeName, Containers: []corev1.Container{{Name: "db"}}},
		Status: corev1.PodStatus{Phase: corev1.PodPending},
	}
	for _, claim := range claims {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: claim, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
		}})
	}
	if nodeName != "" {
		p.Status.Conditions = []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: *objects.Ago(10 * time.Second),
		}}
	}
	return p
}

func runs(p *corev1.Pod) *corev1.Pod {
	p.Status.Phase = corev1.PodRunning
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: "db", ContainerID: "containerd://1", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
	}}
	return p
}

// ends is a pod that is being deleted. The fake API server takes one only with a finalizer.
func ends(p *corev1.Pod) *corev1.Pod {
	at := metav1.NewTime(objects.Now.Add(20 * time.Second))
	p.DeletionTimestamp, p.Finalizers = &at, []string{"test/keep"}
	return p
}

func newStage() *stage {
	mode := storagev1.VolumeBindingImmediate
	s := &stage{
		subject: explain.Subject{Kind: explain.KindPod, Namespace: shop, Name: "cart-0"},
		class: &storagev1.StorageClass{
			ObjectMeta:        metav1.ObjectMeta{Name: "azuredisk"},
			Provisioner:       driverName,
			VolumeBindingMode: &mode,
		},
		csi: &storagev1.CSIDriver{
			ObjectMeta: metav1.ObjectMeta{Name: driverName},
			Spec:       storagev1.CSIDriverSpec{AttachRequired: ptr.To(false)},
		},
		controller: &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Namespace: driverNS, Name: "azuredisk-controller", Labels: map[string]string{
				explain.LabelPartOf: "azuredisk", explain.LabelComponent: explain.ControllerComponent,
			}},
			Spec: appsv1.DeploymentSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{
				Name: "controller", Args: []string{"controller", "--attach-required=false", "--failover-enabled=true"},
			}}}}},
		},
		leases: map[string]*coordinationv1.Lease{},
		nodes:  map[string]*node{"a": newNode("a", "1"), "b": newNode("b", "1")},
		pod:    newPod("cart-0", "b", "data"),
		claim: &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: "data", UID: claimUID,
				CreationTimestamp: *objects.Ago(time.Hour)},
			Spec:   corev1.PersistentVolumeClaimSpec{StorageClassName: ptr.To("azuredisk"), VolumeName: "pv"},
			Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound},
		},
		volume: objects.NewVolume(objects.Owned("b", 4, apiv1.OwnershipHeld), func(v *apiv1.AzVolume) {
			v.Namespace, v.Name = driverNS, apiv1.VolumeName("s", "g", "vol")
			v.Spec.MaxMountReplicaCount, v.Status.Fencing = 0, apiv1.FencingForcedDetach
		}),
		attachments: map[string]*apiv1.AzVolumeAttachment{},
	}
	for _, name := range explain.LeaseNames(driverName) {
		s.leases[name] = newLease(name)
	}
	s.pv = &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pv"},
		Spec: corev1.PersistentVolumeSpec{
			ClaimRef: &corev1.ObjectReference{Namespace: shop, Name: "data", UID: claimUID},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
				Driver: driverName, VolumeHandle: "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks/vol",
			}},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{
					Key: "topology.disk.csi.azure.com/zone", Operator: corev1.NodeSelectorOpIn, Values: []string{"eastus-1"},
				}},
			}}}},
		},
		Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeBound},
	}
	s.attached("b", apiv1.RolePrimary, 4)
	return s
}

// attached gives a node an attachment that the driver has seen through.
func (s *stage) attached(node string, role apiv1.Role, epoch int64) *apiv1.AzVolumeAttachment {
	a := s.attachment(node, role, epoch)
	a.Status = attaching.Next(s.attaching(a, operation.Job{
		Work: operation.WorkAttach, Phase: operation.PhaseEnded, Ended: objects.Now,
		Truth: operation.Truth{VMID: vmID(node), Attached: true, LUN: 1},
	})).Status
	return a
}

// attachment is one without a status.
func (s *stage) attachment(node string, role apiv1.Role, epoch int64) *apiv1.AzVolumeAttachment {
	a := objects.NewAttachment(node, role, epoch, "")
	a.Namespace, a.Name, a.Spec.VolumeName = driverNS, apiv1.AttachmentName(s.volume.Name, node), s.volume.Name
	a.CreationTimestamp, a.Finalizers = *objects.Ago(20 * time.Second), []string{apiv1.FinalizerAttachment}
	s.attachments[node] = a
	return a
}

// attaching is the input of the driver's decision about an attachment.
func (s *stage) attaching(a *apiv1.AzVolumeAttachment, job operation.Job) attaching.Input {
	return attaching.Input{
		Now: objects.Now, Attachment: a, Volume: s.volume, VMID: vmID(a.Spec.NodeName), HasFinalizer: true, Job: job,
	}
}

// step lets the driver decide about an attachment, and records what it decides.
func (s *stage) step(in attaching.Input) *apiv1.AzVolumeAttachment {
	in.Attachment.Status = attaching.Next(in).Status
	return in.Attachment
}

// refused is the end of a job that Azure has refused.
func refused(work operation.Work, kind provisioner.Kind, code string) operation.Job {
	return operation.Job{Work: work, Phase: operation.PhaseEnded, Ended: objects.Now, Err: &provisioner.Error{
		Kind: kind, Code: code, Message: "Azure answered " + code,
	}}
}

// cold is a stage in which the disk is not attached to the pod's node yet.
func cold() *stage {
	s := newStage()
	s.attachment("b", apiv1.RolePrimary, 4)
	return s
}

// unprovisioned is a stage in which the claim has no volume yet, and an AzVolume for it as far as
// job says.
func unprovisioned(job *operation.Job) *stage {
	s := newStage()
	s.claim.Status.Phase, s.claim.Spec.VolumeName, s.pv = corev1.ClaimPending, "", nil
	s.claim.CreationTimestamp = *objects.Ago(5 * time.Second)
	s.subject = explain.Subject{Kind: explain.KindClaim, Namespace: shop, Name: "data"}
	s.pod = newPod("cart-0", "", "data")
	s.attachments = map[string]*apiv1.AzVolumeAttachment{}
	if job == nil {
		s.volume = nil
		return s
	}
	s.volume.Spec.Disk.Name = "pvc-" + claimUID
	s.volume.Name = apiv1.VolumeName("s", "g", s.volume.Spec.Disk.Name)
	s.volume.CreationTimestamp = *objects.Ago(5 * time.Second)
	s.volume.Status = apiv1.AzVolumeStatus{}
	s.diskStep(*job)
	return s
}

// diskStep lets the driver decide about the disk, and records what it decides.
func (s *stage) diskStep(job operation.Job) {
	s.volume.Status = disk.Next(disk.Input{
		Now: objects.Now, Volume: s.volume, HasFinalizer: true, PersistentVolume: s.pv, Job: job,
	}).Status
}

// heldBy is a stage in which node a has the volume, and the pod on node b waits for it.
func heldBy(state apiv1.OwnershipState) *stage {
	s := newStage()
	objects.Owned("a", 4, state)(s.volume)
	s.volume.Status.Primary.LastTransitionTime = objects.Ago(5 * time.Second)
	delete(s.attachments, "b")
	s.attached("a", apiv1.RolePrimary, 4)
	s.nodes["a"].stages(s.volume.Name, 4)
	return s
}

// onLost is a stage in which the pod runs on node a, which is lost.
func onLost(j nodehealth.Judgement) *stage {
	s := heldBy(apiv1.OwnershipHeld)
	s.pod = runs(newPod("cart-0", "a", "data"))
	s.nodes["a"].ready(corev1.ConditionUnknown, 5*time.Second)
	s.nodes["a"].judged(j)
	return s
}

func (s *stage) event(kind explain.Kind, name, reason, message string) {
	namespace := shop
	if kind == explain.KindNode {
		namespace = corev1.NamespaceDefault
	}
	uid := types.UID(name)
	if kind == explain.KindClaim {
		uid = claimUID
	}
	s.more = append(s.more, &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: namespace, Name: strings.ToLower(name + "." + reason)},
		InvolvedObject: corev1.ObjectReference{Kind: string(kind), Namespace: namespace, Name: name, UID: uid},
		Reason:         reason, Message: message, LastTimestamp: *objects.Ago(2 * time.Second),
	})
}

func (s *stage) objects() []client.Object {
	all := s.more
	add := func(there bool, o client.Object) {
		if there {
			all = append(all, o)
		}
	}
	add(s.class != nil, s.class)
	add(s.csi != nil, s.csi)
	add(s.controller != nil, s.controller)
	add(s.pod != nil, s.pod)
	add(s.claim != nil, s.claim)
	add(s.pv != nil, s.pv)
	add(s.volume != nil, s.volume)
	for _, l := range s.leases {
		all = append(all, l)
	}
	for _, n := range s.nodes {
		add(n.node != nil, n.node)
		add(n.driver != nil, n.driver)
		add(n.csi != nil, n.csi)
	}
	for _, a := range s.attachments {
		all = append(all, a)
	}
	return all
}

// explain reads the stage as the command does, and returns the answer.
func (s *stage) explain(t *testing.T) explain.Report {
	t.Helper()
	facts, err := collect.Collect(t.Context(), mapped{indexed(s.objects()...)}, collect.Options{
		Subject: s.subject, DriverName: driverName, DriverNamespace: driverNS, Now: func() time.Time { return objects.Now },
	})
	if err != nil {
		t.Fatalf("collect: got %v, want no error", err)
	}
	return explain.Explain(facts)
}

// mapped is a client that reads only the kinds that the command's own client knows.
type mapped struct{ client.Client }

// known is not the fake client's scheme, to which a read of a kind without a type adds that kind.
var known = fakeapi.Scheme()

func (m mapped) knows(o runtime.Object) error {
	kind, err := apiutil.GVKForObject(o, known)
	if err != nil {
		return err
	}
	one := schema.GroupKind{Group: kind.Group, Kind: strings.TrimSuffix(kind.Kind, "List")}
	_, err = collect.Mapper().RESTMapping(one, kind.Version)
	return err
}

func (m mapped) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	if err := m.knows(into); err != nil {
		return err
	}
	return m.Client.Get(ctx, key, into, options...)
}

func (m mapped) List(ctx context.Context, into client.ObjectList, options ...client.ListOption) error {
	if err := m.knows(into); err != nil {
		return err
	}
	return m.Client.List(ctx, into, options...)
}

// indexed is a client with the field selectors that the API server has.
func indexed(all ...client.Object) client.Client {
	b := fakeapi.With(all...)
	b.WithIndex(&corev1.Pod{}, "spec.nodeName", cluster.PodNodeKeys)
	b.WithIndex(&corev1.Pod{}, "status.phase", func(o client.Object) []string {
		return []string{string(o.(*corev1.Pod).
			Status.Phase)}
	})
	b.WithIndex(&corev1.Event{}, "involvedObject.kind", func(o client.Object) []string {
		return []string{o.(*corev1.Event).InvolvedObject.Kind}
	})
	b.WithIndex(&corev1.Event{}, "involvedObject.name", func(o client.Object) []string {
		return []string{o.(*corev1.Event).InvolvedObject.Name}
	})
	b.WithIndex(&corev1.Event{}, "reason", func(o client.Object) []string { return []string{o.(*corev1.Event).Reason} })
	b.WithIndex(&apiv1.AzVolumeAttachment{}, cluster.AttachmentVolume, cluster.AttachmentVolumeKeys)
	b.WithIndex(&apiv1.AzVolumeAttachment{}, cluster.AttachmentNode, cluster.AttachmentNodeKeys)
	b.WithIndex(&apiv1.AzVolume{}, "spec.disk.name", func(o client.Object) []string {
		return []string{o.(*apiv1.AzVolume).Spec.Disk.Name}
	})
	return b.Build()
}
