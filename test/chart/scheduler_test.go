package chart_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/config"
	"github.com/azuredisk-csi/azuredisk/internal/scheduler"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/apiserver"
)

// The chart's configuration, a real kube-scheduler and the extender put a pod on the node with the
// replica of its disk, one among several equal nodes, and never on one without a node plug-in, that
// is lost, or without room.
func TestARealKubeSchedulerOfTheChartPrefersTheReplica(t *testing.T) {
	kube, driverNamespace := apiserver.Client(t), apiserver.Namespace(t)
	extender := startExtender(t, driverNamespace)
	create := func(objects ...client.Object) { createWithStatus(t, kube, objects...) }
	for i := range 6 {
		name := fmt.Sprintf("worker-%d", i)
		create(clusterNode(name))
		switch i {
		case 0: // has no node plug-in
		case 1:
			create(lost(driverNode(driverNamespace, name)))
		case 3: // has no room
			create(full(driverNode(driverNamespace, name)))
		default:
			create(driverNode(driverNamespace, name))
		}
	}
	bound := func(name string) (*corev1.PersistentVolumeClaim, *corev1.PersistentVolume) {
		return boundClaim(driverNamespace, name)
	}
	for i, replicaAt := range []string{"worker-4", "worker-2", "worker-5"} {
		claim, volume := bound(fmt.Sprintf("disk-%d", i))
		create(volume, claim, attachment(driverNamespace, claim.Name, replicaAt),
			podWith(driverNamespace, fmt.Sprintf("pod-%d", i), claim.Name))
	}
	// These replicas help no pod: one without a node plug-in, one on a lost node, and one of two
	// without room for the other.
	helpless := map[string]string{
		"pod-without-plug-in": "worker-0",
		"pod-of-lost-node":    "worker-1",
		"pod-without-room":    "worker-3",
	}
	for name, replicaAt := range helpless {
		claim, volume := bound("disk-of-" + name)
		other, otherVolume := bound("other-disk-of-" + name)
		create(volume, claim, otherVolume, other, attachment(driverNamespace, claim.Name, replicaAt),
			podWith(driverNamespace, name, claim.Name, other.Name))
	}
	// A pod that can only go where it may not stays, and says why.
	claim, volume := bound("disk-stuck")
	stuck := podWith(driverNamespace, "pod-stuck", claim.Name)
	stuck.Spec.NodeSelector = map[string]string{corev1.LabelHostname: "worker-1"}
	create(volume, claim, stuck)

	startKubeScheduler(t, extender)
	nodeOf := func(name string) (string, error) {
		var pod corev1.Pod
		if err := kube.Get(t.Context(), client.ObjectKey{Namespace: driverNamespace, Name: name}, &pod); err != nil {
			return "", err
		}
		if pod.Spec.NodeName == "" {
			return "", fmt.Errorf("pod %s is not scheduled: %v", name, pod.Status.Conditions)
		}
		return pod.Spec.NodeName, nil
	}
	for pod, want := range map[string]string{"pod-0": "worker-4", "pod-1": "worker-2", "pod-2": "worker-5"} {
		var got string
		eventually(t, pod+" is scheduled", func() (err error) { got, err = nodeOf(pod); return err })
		if got != want {
			t.Errorf("%s went to %s, and the replica is at %s", pod, got, want)
		}
	}
	for pod, not := range helpless {
		var got string
		eventually(t, pod+" is scheduled", func() (err error) { got, err = nodeOf(pod); return err })
		if got == not || got == "worker-0" || got == "worker-1" || got == "worker-3" {
			t.Errorf("%s went to %s", pod, got)
		}
	}
	eventually(t, "the pod that cannot go anywhere says why", func() error {
		if node, err := nodeOf("pod-stuck"); err == nil {
			t.Fatalf("it went to %s", node)
		} else if !strings.Contains(err.Error(), "found the node lost: NodeLost: no answer") {
			return err
		}
		return nil
	})
}

// createWithStatus creates objects with their status, and deletes them at the end of the test.
func createWithStatus(t *testing.T, kube client.Client, objects ...client.Object) {
	t.Helper()
	for _, object := range objects {
		status := object.DeepCopyObject().(client.Object)
		must(t, kube.Create(t.Context(), object))
		t.Cleanup(func() { _ = kube.Delete(context.Background(), object, client.GracePeriodSeconds(0)) })
		status.SetResourceVersion(object.GetResourceVersion())
		status.SetUID(object.GetUID())
		if node, is := object.(*corev1.Node); is {
			// Kubernetes taints a new node until its controllers, which are not here, find it
			// ready.
			node.Spec.Taints = nil
			must(t, kube.Update(t.Context(), node))
			status.SetResourceVersion(node.ResourceVersion)
		}
		if _, isPod := object.(*corev1.Pod); isPod {
			continue
		}
		must(t, kube.Status().Update(t.Context(), status))
	}
}

// lost is a node as the controller sees it that has just found it lost.
func lost(node *apiv1.AzDriverNode) *apiv1.AzDriverNode {
	node.Status.Conditions = append(node.Status.Conditions, metav1.Condition{
		Type:               apiv1.NodeConditionReachable,
		Status:             metav1.ConditionFalse,
		Reason:             apiv1.ReasonNodeLost,
		Message:            "no answer",
		LastTransitionTime: metav1.Now(),
	})
	return node
}

// full is a node whose VM has one slot left.
func full(node *apiv1.AzDriverNode) *apiv1.AzDriverNode {
	node.Spec.VMSize = "Standard_D2s_v3"
	node.Status.Capacity = &apiv1.NodeCapacity{VMSize: node.Spec.VMSize, MaxDataDisks: 4, ForeignDisks: 3}
	return node
}

// startExtender runs the extender as its program does and returns its address once it is ready.
func startExtender(t *testing.T, driverNamespace string) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	registry := prometheus.NewRegistry()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- scheduler.Run(ctx, scheduler.Options{
			Config:          apiserver.Config(t),
			Namespace:       driverNamespace,
			DriverName:      config.DriverName,
			Listener:        listener,
			MaxRequestBytes: 1 << 20,
			LeaseNamespace:  driverNamespace,
			Identity:        "test",
			Registry:        registry,
			Clock:           clock.RealClock{},
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	address := listener.Addr().String()
	eventually(t, "the extender is ready", func() error {
		response, err := http.Get("http://" + address + "/readyz")
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return errors.New(response.Status)
		}
		return nil
	})
	eventually(t, "the extender holds the lease", func() error {
		families, err := registry.Gather()
		if err != nil {
			return err
		}
		for _, family := range families {
			if family.GetName() == "azuredisk_scheduler_leader" && family.GetMetric()[0].GetGauge().GetValue() == 1 {
				return nil
			}
		}
		return errors.New("not the leader")
	})
	return address
}

// startKubeScheduler runs kube-scheduler with the stanza that the chart prints for an extender in the
// host's network, with only the addresses changed.
func startKubeScheduler(t *testing.T, extender string) {
	t.Helper()
	dir := t.TempDir()
	printed, err := helm(t, "install", release, chartDir(), "--dry-run=client", "--take-ownership",
		"--set", "csiDriver.attachRequired=false", "--kubeconfig", apiserver.Kubeconfig(t), "--set", "scheduler.hostNetwork=true")
	must(t, err)
	from, to := strings.Index(printed, "  percentageOfNodesToScore: "), strings.Index(printed, "\nTry it with a volume")
	if from < 0 || to < from || !strings.Contains(printed[from:to], "http://127.0.0.1:29706") {
		t.Fatalf("the notes do not name the extender:\n%s", printed)
	}
	stanza := strings.ReplaceAll(printed[from:to], "127.0.0.1:29706", extender)
	text := "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n" +
		"leaderElection: {leaderElect: false}\nprofiles: [{schedulerName: azuredisk-scheduler}]\n" +
		"clientConnection: {kubeconfig: " + apiserver.Kubeconfig(t) + "}\n" +
		strings.ReplaceAll(stanza, "\n  ", "\n")[2:] + "\n"
	file := filepath.Join(dir, "scheduler.yaml")
	must(t, os.WriteFile(file, []byte(text), 0o600))
	runKubeScheduler(t, "--config", file)
}

func runKubeScheduler(t *testing.T, args ...string) {
	t.Helper()
	cmd := exec.Command(program(t, "kube-scheduler"),
		append(args, "--secure-port=0", "--authorization-always-allow-paths=/healthz")...)
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Log(output.String())
		}
	})
}

func clusterNode(name string) *corev1.Node {
	capacity := corev1.ResourceList{
		corev1.ResourceCPU:    resource.MustParse("4"),
		corev1.ResourceMemory: resource.MustParse("8Gi"),
		corev1.ResourcePods:   resource.MustParse("110"),
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}},
		Status: corev1.NodeStatus{
			Capacity:    capacity,
			Allocatable: capacity,
			Conditions:  []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		},
	}
}

func driverNode(namespace, name string) *apiv1.AzDriverNode {
	return &apiv1.AzDriverNode{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       apiv1.AzDriverNodeSpec{VMID: "/vm/" + name},
		Status: apiv1.AzDriverNodeStatus{
			HeartbeatTime:          ptr.To(metav1.NowMicro()),
			HeartbeatPeriodSeconds: 3600,
			Conditions: []metav1.Condition{{
				Type:               apiv1.NodeConditionPluginReady,
				Status:             metav1.ConditionTrue,
				Reason:             "Serving",
				LastTransitionTime: metav1.Now(),
			}},
		},
	}
}

func boundClaim(namespace, name string) (*corev1.PersistentVolumeClaim, *corev1.PersistentVolume) {
	size := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	modes := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: namespace + "-" + name}}
	pv.Spec = corev1.PersistentVolumeSpec{
		Capacity:                      size,
		AccessModes:                   modes,
		PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
		StorageClassName:              "none",
		ClaimRef:                      &corev1.ObjectReference{Kind: "PersistentVolumeClaim", Namespace: namespace, Name: name},
	}
	pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{
		Driver:       config.DriverName,
		VolumeHandle: "/subscriptions/00000000-0000-0000-0000-000000000001/resourceGroups/g/providers/Microsoft.Compute/disks/" + name,
	}
	pv.Status.Phase = corev1.VolumeBound
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace:   namespace,
		Name:        name,
		Annotations: map[string]string{"pv.kubernetes.io/bind-completed": "yes"},
	}}
	claim.Spec = corev1.PersistentVolumeClaimSpec{
		VolumeName:       pv.Name,
		AccessModes:      modes,
		StorageClassName: ptr.To("none"),
		Resources:        corev1.VolumeResourceRequirements{Requests: size},
	}
	claim.Status = corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound, AccessModes: modes, Capacity: size}
	return claim, pv
}

// attachment is of the disk of a claim of boundClaim.
func attachment(namespace, claim, node string) *apiv1.AzVolumeAttachment {
	volume := apiv1.VolumeName("00000000-0000-0000-0000-000000000001", "g", claim)
	return &apiv1.AzVolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: apiv1.AttachmentName(volume, node)},
		Spec:       apiv1.AzVolumeAttachmentSpec{VolumeName: volume, NodeName: node, Role: apiv1.RoleReplica},
		Status:     apiv1.AzVolumeAttachmentStatus{State: apiv1.AttachmentAttached, Role: apiv1.RoleReplica},
	}
}

func podWith(namespace, name string, claims ...string) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: corev1.PodSpec{
			SchedulerName:      "azuredisk-scheduler",
			ServiceAccountName: "default",
			Containers:         []corev1.Container{{Name: "c", Image: "none"}},
		},
	}
	for _, claim := range claims {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: claim, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}})
	}
	return pod
}
