package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cli/explain"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/apiserver"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/expect"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/objects"
)

func TestMain(m *testing.M) { os.Exit(apiserver.Run(m)) }

var must = expect.Must

// lab is a cluster in which pod cart-0 on node b waits for a volume that pod cart-old uses on node a.
type lab struct {
	kube       client.Client
	namespace  string
	kubeconfig string
	// wrap changes the configuration of the command's client; nil for not.
	wrap func(*rest.Config) *rest.Config
}

// put creates an object with its status.
func (l *lab) put(t *testing.T, o client.Object) {
	t.Helper()
	wanted := o.DeepCopyObject().(client.Object)
	must(t, l.kube.Create(t.Context(), o))
	wanted.SetResourceVersion(o.GetResourceVersion())
	wanted.SetUID(o.GetUID())
	if a, ok := wanted.(*apiv1.AzVolumeAttachment); ok {
		a.Status.UID = a.UID
	}
	switch wanted.(type) {
	case *coordinationv1.Lease, *storagev1.CSIDriver, *storagev1.CSINode, *corev1.Event, *rbacv1.Role, *rbacv1.RoleBinding:
	default:
		must(t, l.kube.Status().Update(t.Context(), wanted))
	}
	t.Cleanup(func() {
		o.SetFinalizers(nil)
		o.SetResourceVersion("")
		_ = l.kube.Patch(context.Background(), o, client.RawPatch("application/merge-patch+json",
			[]byte(`{"metadata":{"finalizers":null}}`)))
		_ = l.kube.Delete(context.Background(), o, client.GracePeriodSeconds(0))
	})
}

// allow gives a user a right in the namespace.
func (l *lab) allow(t *testing.T, user string, rule rbacv1.PolicyRule) {
	t.Helper()
	named := metav1.ObjectMeta{Namespace: l.namespace, Name: user}
	l.put(t, &rbacv1.Role{ObjectMeta: named, Rules: []rbacv1.PolicyRule{rule}})
	l.put(t, &rbacv1.RoleBinding{
		ObjectMeta: named,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: user},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}},
	})
}

func (l *lab) node(t *testing.T, name string, staged ...string) {
	t.Helper()
	vm := "/subscriptions/00000000-0000-0000-0000-000000000001/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/" + name
	now := metav1.Now()
	l.put(t, &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
			corev1.LabelTopologyRegion: "eastus", corev1.LabelTopologyZone: "eastus-1",
		}},
		Spec: corev1.NodeSpec{ProviderID: "azure://" + vm},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{
			Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: now,
		}}},
	})
	d := objects.Report(name, staged...)
	d.Namespace, d.Spec = l.namespace, apiv1.AzDriverNodeSpec{VMID: vm, Location: "eastus", Zone: "1"}
	d.Status.Capacity = &apiv1.NodeCapacity{MaxDataDisks: 8, ForeignDisks: 1}
	d.Status.Conditions = []metav1.Condition{
		{Type: apiv1.NodeConditionPluginReady, Status: metav1.ConditionTrue, Reason: "Registered", LastTransitionTime: now},
		{Type: apiv1.NodeConditionReachable, Status: metav1.ConditionTrue, Reason: apiv1.ReasonHeartbeatFresh,
			LastTransitionTime: now},
	}
	l.put(t, d)
	l.put(t, &storagev1.CSINode{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: "disk.csi.azure.com", NodeID: name}}},
	})
}

func (l *lab) pod(t *testing.T, name, node string, phase corev1.PodPhase) *corev1.Pod {
	t.Helper()
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: l.namespace, Name: name},
		Spec: corev1.PodSpec{
			NodeName: node, Containers: []corev1.Container{{Name: "db", Image: "db"}},
			TerminationGracePeriodSeconds: ptr.To(int64(30)),
			Volumes: []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"},
			}}},
		},
		Status: corev1.PodStatus{Phase: phase},
	}
	if phase == corev1.PodRunning {
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{
			Name: "db", ContainerID: "containerd://1", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
		}}
	}
	l.put(t, p)
	return p
}

func newLab(t *testing.T) *lab {
	t.Helper()
	l := &lab{kube: apiserver.Client(t), namespace: apiserver.Namespace(t), kubeconfig: apiserver.Kubeconfig(t)}
	l.put(t, &storagev1.CSIDriver{
		ObjectMeta: metav1.ObjectMeta{Name: "disk.csi.azure.com"},
		Spec:       storagev1.CSIDriverSpec{AttachRequired: ptr.To(false)},
	})
	for _, name := range explain.LeaseNames("disk.csi.azure.com") {
		l.put(t, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: l.namespace, Name: name},
			Spec: coordinationv1.LeaseSpec{
				HolderIdentity: ptr.To("controller"), LeaseDurationSeconds: ptr.To(int32(3600)),
				RenewTime: &metav1.MicroTime{Time: time.Now()},
			}})
	}
	v := objects.NewVolume(objects.Owned("a", 4, apiv1.OwnershipHeld))
	v.Namespace, v.Spec.Disk.MaxShares = l.namespace, 2
	v.Name = apiv1.VolumeName(v.Spec.Disk.SubscriptionID, "g", "vol")
	v.Spec.ClaimRef = objects.Claim(l.namespace + "/data")
	v.Status.Primary.LastTransitionTime = ptr.To(metav1.Now())
	l.put(t, v)
	a := objects.NewAttachment("a", apiv1.RolePrimary, 4, apiv1.AttachmentAttached)
	a.Namespace, a.Name, a.Spec.VolumeName = l.namespace, apiv1.AttachmentName(v.Name, "a"), v.Name
	l.put(t, a)
	size := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	modes := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	l.put(t, &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pv"},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: size, AccessModes: modes,
			ClaimRef: &corev1.ObjectReference{Namespace: l.namespace, Name: "data"},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
				Driver: "disk.csi.azure.com", VolumeHandle: "/subscriptions/00000000-0000-0000-0000-000000000001/resourceGroups/g/providers/Microsoft.Compute/disks/vol",
			}},
		},
		Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeBound},
	})
	l.put(t, &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: l.namespace, Name: "data"},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: modes, VolumeName: "pv", StorageClassName: ptr.To(""),
			Resources: corev1.VolumeResourceRequirements{Requests: size},
		},
		Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound},
	})
	l.node(t, "a", v.Name)
	l.node(t, "b")
	l.pod(t, "cart-old", "a", corev1.PodRunning)
	p := l.pod(t, "cart-0", "b", corev1.PodPending)
	l.put(t, &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: l.namespace, Name: "cart-0.1"},
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: l.namespace, Name: "cart-0", UID: p.UID},
		Reason:         "FailedAttachVolume", Message: "volume vol is held by node a", Type: corev1.EventTypeWarning,
		FirstTimestamp: metav1.Now(), LastTimestamp: metav1.Now(),
	})
	return l
}

// run runs the command, and returns what it prints and its exit code.
func (l *lab) run(t *testing.T, args ...string) (text string, code int) {
	t.Helper()
	return l.output(t, append(slices.Clone(args), "--kubeconfig", l.kubeconfig, "-n", l.namespace,
		"--driver-namespace", l.namespace)...)
}

// output runs the command with these arguments alone.
func (l *lab) output(t *testing.T, args ...string) (text string, code int) {
	t.Helper()
	var out bytes.Buffer
	root := newCommand(genericclioptions.NewConfigFlags(true).WithWrapConfigFn(l.wrap))
	root.SetOut(&out)
	root.SetErr(io.Discard)
	root.SetArgs(args)
	code, err := execute(t.Context(), root)
	if err != nil {
		return err.Error(), code
	}
	return out.String(), code
}

// TestWhyOverARealAPIServer asks with the rights of the cluster and with those of the namespace.
func TestWhyOverARealAPIServer(t *testing.T) {
	l := newLab(t)
	l.allow(t, "developer", rbacv1.PolicyRule{
		APIGroups: []string{""}, Resources: []string{"pods", "persistentvolumeclaims", "events"}, Verbs: []string{"get", "list"},
	})
	for name, test := range map[string]struct {
		args []string
		code int
		want []string
	}{
		"a pod that waits": {[]string{"why", "pod", "cart-0"}, 2, []string{
			"Pod " + l.namespace + "/cart-0: The volume can be used on one node at a time, and node a has it: pod cart-old uses it there.",
			"primary a (Held, epoch 4)", "Primary (epoch 4), Attached", "What to do: delete or move those pods",
			"Cause: HeldByPods (it needs an action)",
			"az disk show --ids /subscriptions/00000000-0000-0000-0000-000000000001/resourceGroups/g/providers/Microsoft.Compute/disks/vol", "with your rights in the cluster",
		}},
		"its claim":                {[]string{"why", "pvc/data"}, 2, []string{"node a has it", "HeldByPods"}},
		"its PersistentVolume":     {[]string{"why", "pv", "pv"}, 2, []string{"node a has it", "HeldByPods"}},
		"a pod that runs":          {[]string{"why", "pod", "cart-old"}, 0, []string{"is in use on node a", "Healthy"}},
		"a node":                   {[]string{"why", "node", "b"}, 0, []string{"Node b is healthy"}},
		"a node that is not there": {[]string{"why", "node", "x"}, 4, []string{"there is no node x"}},
		"a pod that is not there":  {[]string{"why", "pod", "x"}, 4, []string{"there is no pod " + l.namespace + "/x"}},
		"a kind that is unknown": {[]string{"why", "service", "x"}, 64,
			[]string{"expected one of pod, pvc, pv, node, snapshot"}},
		"a pod, with the rights of the namespace": {[]string{"why", "pod", "cart-0", "--as", "developer"}, 2, []string{
			"cannot be attached to node b", "> volume vol is held by node a", "FailedAttachVolume (it needs an action)",
			"the driver's records could not be read", "azdrivernodes.disk.csi.azure.com (not allowed)",
		}},
		"a claim, with the rights of the namespace": {[]string{"why", "pvc", "data", "--as", "developer"}, 3, []string{
			"not readable with these rights", "NotReadable (it cannot be told)",
		}},
		"a node, with the rights of the namespace": {[]string{"why", "node", "a", "--as", "developer"}, 3,
			[]string{"NotReadable"}},
		"a snapshot in a cluster without the CRD": {[]string{"why", "snapshot", "x"}, 3,
			[]string{"does not have this resource"}},
	} {
		t.Run(name, func(t *testing.T) {
			text, code := l.run(t, test.args...)
			if code != test.code {
				t.Errorf("got exit code %d, want %d:\n%s", code, test.code, text)
			}
			for _, want := range test.want {
				if !strings.Contains(text, want) {
					t.Errorf("got:\n%s\nwant a text with %q", text, want)
				}
			}
		})
	}
	t.Run("as JSON", func(t *testing.T) {
		text, code := l.run(t, "why", "pod", "cart-0", "-o", "json")
		var report explain.Report
		if err := json.Unmarshal([]byte(text), &report); err != nil || report.ID != "HeldByPods" || code != 2 {
			t.Errorf("got %v, %s and exit code %d, want HeldByPods and 2:\n%s", err, report.ID, code, text)
		}
	})
	t.Run("while the old pod ends", func(t *testing.T) {
		old := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: l.namespace, Name: "cart-old"}}
		must(t, l.kube.Delete(t.Context(), old))
		text, code := l.run(t, "why", "pod", "cart-0")
		if code != 1 || !strings.Contains(text, "until pod cart-old there has ended") || !strings.Contains(text,
			"nothing: expected to end by") {
			t.Errorf("got exit code %d, want 1, and the end of pod cart-old:\n%s", code, text)
		}
	})
}
