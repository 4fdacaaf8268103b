package observer

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/azuredisk-csi/azuredisk/playground/timeline"
)

const handle = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks/pvc-1"

// playground is an API server in memory with one of a scenario's volumes in it.
type playground struct {
	kube   *fake.Clientset
	driver *dynamicfake.FakeDynamicClient
	view   *View
	events *timeline.Log
}

func newPlayground(t *testing.T) playground {
	t.Helper()
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pvc-1"}}
	pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{VolumeHandle: handle}
	pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "ns", Name: "data-w-0"}
	foreign := pv.DeepCopy()
	foreign.Name, foreign.Spec.ClaimRef.Namespace, foreign.Spec.CSI.VolumeHandle = "pvc-2", "other", handle+"2"
	kube := fake.NewClientset(pv, foreign)
	driver := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{
		azVolumes: "AzVolumeList", azAttachments: "AzVolumeAttachmentList", azDriverNodes: "AzDriverNodeList",
	})
	log := &timeline.Log{}
	view, err := NewView(t.Context(), kube, driver, "ns", NewObserver(log, clock.RealClock{}))
	if err != nil {
		t.Fatal(err)
	}
	return playground{kube, driver, view, log}
}

func (p playground) await(t *testing.T, condition func() bool) {
	t.Helper()
	if err := p.view.Await(t.Context(), 10*time.Second, "it is so", condition); err != nil {
		t.Fatalf("%v; events are %+v", err, p.events.All())
	}
}

func (p playground) awaitStep(t *testing.T, step string) timeline.Event {
	t.Helper()
	var found timeline.Event
	p.await(t, func() bool {
		for _, e := range p.events.All() {
			if e.Step == step {
				found = e
				return true
			}
		}
		return false
	})
	return found
}

func TestAConditionIsAwaitedAndATimeoutNamesIt(t *testing.T) {
	t.Parallel()
	p := newPlayground(t)
	go func() {
		_, _ = p.kube.CoreV1().Pods("ns").Create(context.Background(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "w-0"}},
			metav1.CreateOptions{})
	}()
	p.await(t, func() bool { return p.view.Pod("w-0") != nil })
	err := p.view.Await(t.Context(), time.Millisecond, "pigs fly", func() bool { return false })
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "pigs fly") {
		t.Errorf("got the error %v, want a timeout that names the condition", err)
	}
}

func TestTheLifeOfAPodBecomesEvents(t *testing.T) {
	t.Parallel()
	p := newPlayground(t)
	pods := p.kube.CoreV1().Pods("ns")
	pod, err := pods.Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: "w-0",
		UID:  "u",
	}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	p.awaitStep(t, "new pod is made")
	pod.Spec.NodeName = "node-3"
	pod.Status.Phase = corev1.PodRunning
	if _, err := pods.Update(t.Context(), pod, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	p.awaitStep(t, "scheduled to node-3")
	if IsRunning(pod) {
		t.Error("a pod that is not Ready passes for running")
	}
	pod = pod.DeepCopy()
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	if _, err := pods.Update(t.Context(), pod, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if e := p.awaitStep(t, "pod runs on node-3"); e.Lane != timeline.Kubernetes {
		t.Errorf("in lane %s, want %s", e.Lane, timeline.Kubernetes)
	}
	if err := pods.Delete(t.Context(), "w-0", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	p.awaitStep(t, "pod on node-3 is gone")
}

func attachmentOf(pv, node string, attached bool) *storagev1.VolumeAttachment {
	return &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: "va-" + pv + node},
		Spec: storagev1.VolumeAttachmentSpec{
			NodeName: node,
			Source:   storagev1.VolumeAttachmentSource{PersistentVolumeName: ptr.To(pv)},
		},
		Status: storagev1.VolumeAttachmentStatus{Attached: attached},
	}
}

func TestOnlyTheScenariosOwnVolumesBecomeEvents(t *testing.T) {
	t.Parallel()
	p := newPlayground(t)
	for _, va := range []*storagev1.VolumeAttachment{attachmentOf("pvc-2", "node-9", true),
		attachmentOf("pvc-1", "node-3", true)} {
		if _, err := p.kube.StorageV1().VolumeAttachments().Create(t.Context(), va, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	p.awaitStep(t, "attached to node-3")
	for _, e := range p.events.All() {
		if strings.Contains(e.Step, "node-9") {
			t.Errorf("another namespace's volume became %q", e.Step)
		}
	}
}

func TestAKubeletThatLetsGoBecomesAnEvent(t *testing.T) {
	t.Parallel()
	p := newPlayground(t)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}
	node.Status.VolumesInUse = []corev1.UniqueVolumeName{"kubernetes.io/csi/disk.csi.azure.com^" + handle,
		"kubernetes.io/csi/disk.csi.azure.com^" + handle + "2"}
	node, err := p.kube.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	node = node.DeepCopy()
	node.Status.VolumesInUse = nil
	if _, err := p.kube.CoreV1().Nodes().Update(t.Context(), node, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	p.awaitStep(t, "Node node-1: not in use")
	if !p.view.Observer.ReportedUse("node-1").IsZero() {
		t.Error("a volume that is not used any more passes for one that is")
	}
	node = node.DeepCopy()
	node.Status.VolumesInUse = []corev1.UniqueVolumeName{"kubernetes.io/csi/disk.csi.azure.com^" + handle}
	if _, err := p.kube.CoreV1().Nodes().Update(t.Context(), node, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	p.await(t, func() bool { return !p.view.Observer.ReportedUse("node-1").IsZero() })
	if !p.view.Observer.ReportedUse("node-2").IsZero() {
		t.Error("the time of the report is not kept")
	}
}

// azVolume1 is the name of the AzVolume of the disk pvc-1.
const azVolume1 = "pvc-1-0123456789"

func driverObject(kind, name string, spec, status map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "disk.csi.azure.com/v1", "kind": kind, "metadata": map[string]any{
			"name":      name,
			"namespace": DriverNamespace,
		},
		"spec": spec, "status": status,
	}}
}

func TestTheDriversObjectsBecomeEvents(t *testing.T) {
	t.Parallel()
	p := newPlayground(t)
	put := func(resource schema.GroupVersionResource, object *unstructured.Unstructured) {
		t.Helper()
		client := p.driver.Resource(resource).Namespace(DriverNamespace)
		_, err := client.Create(t.Context(), object, metav1.CreateOptions{})
		if err != nil {
			_, err = client.Update(t.Context(), object, metav1.UpdateOptions{})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	primary := func(node, state string, epoch int64) map[string]any {
		return map[string]any{"primary": map[string]any{"nodeName": node, "state": state, "epoch": epoch}}
	}
	put(azVolumes, driverObject("AzVolume", azVolume1, nil, primary("node-1", "Held", 3)))
	p.awaitStep(t, "epoch 3: held by node-1")
	put(azVolumes, driverObject("AzVolume", azVolume1, nil, primary("node-1", "Releasing", 3)))
	p.awaitStep(t, "epoch 3: to be released")
	put(azAttachments, driverObject("AzVolumeAttachment", azVolume1+"-node-1",
		map[string]any{"volumeName": azVolume1, "nodeName": "node-1", "role": "Replica"}, map[string]any{"state": "Attached"}))
	p.awaitStep(t, "node-1: replica, Attached")
	want := Attachment{Name: azVolume1 + "-node-1", Volume: "pvc-1", Node: "node-1", Role: "Replica", State: "Attached"}
	if got := p.view.Attachments("pvc-1")["node-1"]; got != want {
		t.Errorf("attachment is %+v, want %+v", got, want)
	}
	staged := func(phase string) map[string]any {
		return map[string]any{"stagedVolumes": []any{map[string]any{"volumeName": azVolume1, "phase": phase}}}
	}
	put(azDriverNodes, driverObject("AzDriverNode", "node-1", nil, staged("Staged")))
	p.awaitStep(t, "reports Staged")
	put(azDriverNodes, driverObject("AzDriverNode", "node-1", nil, map[string]any{}))
	if e := p.awaitStep(t, "reports unstaged"); e.Lane != timeline.Node("node-1") {
		t.Errorf("in lane %s, want %s", e.Lane, timeline.Node("node-1"))
	}
}

func TestALostNodeBecomesMilestones(t *testing.T) {
	t.Parallel()
	p := newPlayground(t)
	put := func(resource schema.GroupVersionResource, object *unstructured.Unstructured) {
		t.Helper()
		client := p.driver.Resource(resource).Namespace(DriverNamespace)
		if _, err := client.Update(t.Context(), object, metav1.UpdateOptions{}); err != nil {
			if _, err = client.Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	awaitMark := func(want Milestone) {
		t.Helper()
		p.await(t, func() bool {
			m := First(p.view.Observer.Marks(), time.Time{}, want)
			return !m.At.IsZero() && m.Detail == want.Detail
		})
	}
	reachable := func(status, reason string) map[string]any {
		return map[string]any{"conditions": []any{map[string]any{
			"type":    "Reachable",
			"status":  status,
			"reason":  reason,
			"message": "why",
		}}}
	}
	put(azDriverNodes, driverObject("AzDriverNode", "node-1", nil, reachable("True", "HeartbeatFresh")))
	awaitMark(Milestone{Kind: nodeReachable, Node: "node-1"})
	put(azDriverNodes, driverObject("AzDriverNode", "node-1", nil, reachable("False", "NodeLost")))
	awaitMark(Milestone{Kind: NodeUnreachable, Node: "node-1", Detail: "NodeLost"})
	put(azVolumes, driverObject("AzVolume", azVolume1, nil, map[string]any{"primary": map[string]any{
		"nodeName": "node-1", "state": "Releasing", "epoch": int64(3), "cause": "NodeLost",
	}}))
	awaitMark(Milestone{Kind: FenceDecided, Node: "node-1", Volume: "pvc-1"})
	put(azAttachments, driverObject("AzVolumeAttachment", azVolume1+"-node-1",
		map[string]any{"volumeName": azVolume1, "nodeName": "node-1", "role": "Primary"},
		map[string]any{
			"state": "Detaching",
			"proof": map[string]any{"type": "Detached", "epoch": int64(3), "provenTime": "2026-11-21T12:00:00Z",
				"message": "gone"},
		}))
	awaitMark(Milestone{Kind: ReleaseProven, Node: "node-1", Volume: "pvc-1", Detail: "Detached"})
	p.awaitStep(t, "node-1: proof Detached")

	node, err := p.kube.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}},
		metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, taints := range [][]corev1.Taint{{{
		Key:    corev1.TaintNodeOutOfService,
		Value:  "nodeshutdown",
		Effect: corev1.TaintEffectNoExecute,
	}}, nil} {
		node = node.DeepCopy()
		node.Spec.Taints = taints
		if node, err = p.kube.CoreV1().Nodes().Update(t.Context(), node, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	awaitMark(Milestone{Kind: TaintedOut, Node: "node-1"})
	awaitMark(Milestone{Kind: Untainted, Node: "node-1"})
}

func TestOnlyTheDriversOwnEventsAreTold(t *testing.T) {
	t.Parallel()
	p := newPlayground(t)
	now := metav1.NewTime(time.Now().Add(time.Minute))
	for name, by := range map[string]string{"theirs": "kubelet", "ours": "azuredisk-failover"} {
		event := &corev1.Event{
			ObjectMeta:          metav1.ObjectMeta{Name: name, Namespace: "ns", CreationTimestamp: now},
			InvolvedObject:      corev1.ObjectReference{Kind: "Pod", Name: "w-0", Namespace: "ns"},
			ReportingController: by,
			Reason:              "FailedOver",
			Message:             "moved",
		}
		if _, err := p.kube.CoreV1().Events("ns").Create(t.Context(), event, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if e := p.awaitStep(t, "event FailedOver"); e.Subject != "w" {
		t.Errorf("its subject is %q, want %q", e.Subject, "w")
	}
}
