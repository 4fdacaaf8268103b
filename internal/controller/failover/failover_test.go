package failover_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/fencing"
	"github.com/azuredisk-csi/azuredisk/internal/plan/nodehealth"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/controlplane"
	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/fake"
)

// world is a volume that a pod on the first of two nodes uses, with a replica on the second.
// Kubernetes lists it as in use by two spellings of its handle, as after pods of two
// PersistentVolumes.
func world(l *lab, prefix string) (handle, a, b string) {
	l.Helper()
	a, b = prefix+"-a", prefix+"-b"
	l.AddNode(a, "1", size)
	l.AddNode(b, "1", size)
	handle = l.Create("vol", replicated)
	l.claim("vol", handle)
	l.StageOn(handle, "vol", a)
	l.AwaitReplica("vol", b)
	l.pod("web-0", a, []string{"vol"})
	l.use(a, handle, strings.ToUpper(handle))
	return handle, a, b
}

// The pods that advise kube-scheduler leave a lost node before any pod of a volume is created
// again.
func TestPodsThatAdviseTheSchedulerLeaveALostNodeAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, 0)
		_, a, b := world(l, "ls")
		l.advisor("scheduler-there", a, corev1.PodRunning)
		l.advisor("scheduler-new", a, corev1.PodPending)
		l.advisor("scheduler-elsewhere", b, corev1.PodRunning)
		l.pod("other", a, nil)
		release := l.Cloud.HoldAll(fake.AttachmentsForceDetach)
		l.monitor.set(a, nodehealth.Lost)
		l.Eventually("the pod that advises the scheduler is deleted", func() string {
			if l.podThere("scheduler-there") {
				return "it is there"
			}
			return ""
		})
		if !l.podThere("web-0") {
			t.Error("law 3: got no pod of the volume, want it to stay until there is a proof")
		}
		release()
		l.unblocked("web-0", a)
		for _, name := range []string{"scheduler-new", "scheduler-elsewhere", "other"} {
			if !l.podThere(name) {
				t.Errorf("got no pod %s, want only the running pod of the scheduler on the lost node to be deleted", name)
			}
		}
	})
}

// A node that is cut off from the API server answers probes, starts no pod, and its scheduler's
// advice is of the time before.
func TestAnUnresponsiveNodeIsKeptFreeOfNewPodsUntilItAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, 0)
		_, a, b := world(l, "lu")
		l.advisor("scheduler-there", b, corev1.PodRunning)
		l.pod("other", b, nil)
		v := l.Volume("vol")
		request := apiv1.FenceRequest{
			VolumeName:  v.Name,
			VolumeUID:   v.UID,
			NodeName:    a,
			Epoch:       v.Status.Primary.Epoch,
			RequestTime: metav1.NowMicro(),
		}
		l.Ask(b, request)
		l.Eventually("no new pods, and no advice", func() string {
			if !l.tainted(b, apiv1.TaintNodeUnresponsive) || l.podThere("scheduler-there") {
				return fmt.Sprintf("taints %v", l.Node(b).Spec.Taints)
			}
			return ""
		})
		if took := time.Since(request.RequestTime.Time); took < fencing.AnswerTimeout {
			t.Errorf("unresponsive after %s, want not before %s", took, fencing.AnswerTimeout)
		}
		if !l.podThere("other") || !l.podThere("web-0") || l.tainted(b, apiv1.TaintNodeLost) {
			t.Error("the node was treated as lost")
		}
		l.Report(b, func(s *apiv1.AzDriverNodeStatus) {
			s.FenceResults = []apiv1.FenceResult{{
				VolumeName: request.VolumeName, VolumeUID: request.VolumeUID, NodeName: a, Epoch: request.Epoch,
				RequestTime: request.RequestTime, Message: "late", ResultTime: metav1.NowMicro(),
			}}
		})
		l.back(b, l.Eventually)
		l.expectEvents("NodeUnresponsive Node", "FailoverPodDeleted Node", "NodeBack Node")
	})
}

func TestVolumeOfALostNodeMovesToItsReplica(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, 0)
		handle, a, b := world(l, "lm")
		l.pod("other", a, nil)
		release := l.Cloud.HoldAll(fake.AttachmentsForceDetach)
		l.monitor.set(a, nodehealth.Lost)
		l.Eventually("the forced detach has begun", func() string {
			if l.Cloud.CallCount(fake.AttachmentsForceDetach) == 0 {
				return fmt.Sprintf("ownership %+v", *l.Volume("vol").Status.Primary)
			}
			return ""
		})
		if c := l.Volume("vol").Status.Primary; c.State != apiv1.OwnershipReleasing || c.Cause != apiv1.CauseNodeLost {
			t.Fatalf("got ownership %+v", c)
		}
		l.Eventually("new pods are kept away", func() string {
			if !l.tainted(a, apiv1.TaintNodeLost) {
				return "no taint"
			}
			return ""
		})
		if !l.podThere("web-0") || len(l.Node(a).Status.VolumesInUse) != 2 {
			t.Fatal("law 3: Kubernetes was informed before there was a proof")
		}
		expectCode(t, l.Publish(t.Context(), handle, b), codes.FailedPrecondition)
		release()
		l.unblocked("web-0", a)
		if p := l.Attachment("vol", a).Status.Proof; p == nil || p.Type != apiv1.ProofDetached {
			t.Fatalf("proof %+v", p)
		}
		if !l.podThere("other") || l.tainted(a, corev1.TaintNodeOutOfService) {
			t.Fatal("a pod without these volumes was deleted, or the node was tainted without proof that the VM is down")
		}
		attaches := l.Cloud.CallCount(fake.AttachmentsAttach)
		l.must(l.Unpublish(t.Context(), handle, a))
		l.must(l.Publish(t.Context(), handle, b))
		l.must(l.Stage("vol", b))
		if n := l.Cloud.CallCount(fake.AttachmentsAttach); n != attaches {
			t.Fatal("the replica was not used")
		}
		if r := l.Volume("vol").Status.LastRelease; r == nil || r.NodeName != a || r.Cause != apiv1.CauseNodeLost ||
			r.Proof.Type != apiv1.ProofDetached {
			t.Fatalf("last release %+v", r)
		}
		if err := l.Stage("vol", a); err == nil {
			t.Fatal("law 2: the lost node staged the volume")
		}
		l.back(a, l.Eventually)
		l.expectEvents("FailoverStarted AzVolume", "FailoverStarted PersistentVolumeClaim", "FailoverStarted Pod",
			"NodeQuarantined Node",
			"FailoverProven AzVolume", "FailoverPodDeleted Pod", "FailoverPodDeleted Node", "FailoverPruned Node",
			"NodeBack Node",
			"FailoverFalseAlarm Node")
		l.expectMetrics(map[string]float64{
			"azuredisk_failovers_total Unblocked": 1, "azuredisk_failover_fences_total Detached": 1,
			"azuredisk_failover_pods_deleted_total ":           1,
			"azuredisk_failover_false_alarms_total ":           1,
			"azuredisk_failover_phase_duration_seconds Detect": 1, "azuredisk_failover_phase_duration_seconds Fence": 1,
			"azuredisk_failover_phase_duration_seconds Unblock": 1, "azuredisk_failover_duration_seconds ": 1,
		})
	})
}

// expectEvents waits for events, as "reason kind".
func (l *lab) expectEvents(want ...string) {
	l.Helper()
	l.Eventually("events", func() string {
		var list corev1.EventList
		l.must(l.Client.List(l.Context(), &list))
		seen := map[string]bool{}
		for _, e := range list.Items {
			if e.InvolvedObject.Namespace == l.Namespace || strings.HasPrefix(e.InvolvedObject.Name, l.nodePrefix()) {
				seen[e.Reason+" "+e.InvolvedObject.Kind] = true
			}
		}
		for _, w := range want {
			if !seen[w] {
				return fmt.Sprintf("%q is not among %v", w, seen)
			}
		}
		return ""
	})
}

// expectNote waits for an event about an object of the lab's namespace whose note contains a text.
func (l *lab) expectNote(reason, kind, text string) {
	l.Helper()
	l.Eventually(reason+" about a "+kind, func() string {
		var list corev1.EventList
		l.must(l.Client.List(l.Context(), &list))
		var notes []string
		for _, e := range list.Items {
			if e.Reason != reason || e.InvolvedObject.Kind != kind || e.InvolvedObject.Namespace != l.Namespace {
				continue
			}
			if strings.Contains(e.Message, text) {
				return ""
			}
			notes = append(notes, e.Message)
		}
		return fmt.Sprintf("got notes %q, want one with %q", notes, text)
	})
}

func (l *lab) nodePrefix() string {
	var list apiv1.AzDriverNodeList
	l.must(l.Client.List(l.Context(), &list, client.InNamespace(l.Namespace)))
	name := list.Items[0].Name
	return name[:strings.LastIndex(name, "-")]
}

// expectMetrics checks counters and counts of histograms, as "name label".
func (l *lab) expectMetrics(want map[string]float64) {
	l.Helper()
	l.Eventually("metrics", func() string {
		families, err := l.metrics.Gather()
		l.must(err)
		seen := map[string]float64{}
		for _, f := range families {
			for _, m := range f.GetMetric() {
				label := ""
				for _, pair := range m.GetLabel() {
					label = pair.GetValue()
				}
				seen[f.GetName()+" "+label] = m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
		for name, value := range want {
			if seen[name] != value {
				return fmt.Sprintf("%s is %v, want %v; there are %v", name, seen[name], value, seen)
			}
		}
		return ""
	})
}

func TestVMThatIsDownIsTaintedOutOfServiceUntilTheNodeIsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, 0)
		handle, a, b := world(l, "vd")
		l.pod("bare", a, []string{"vol"}, func(p *corev1.Pod) { p.OwnerReferences = nil })
		l.Cloud.SetPower(controlplane.VMID(a), provisioner.PowerDeallocated)
		l.monitor.set(a, nodehealth.Down)
		l.unblocked("web-0", a)
		l.unblocked("bare", a)
		if !l.tainted(a, corev1.TaintNodeOutOfService) {
			t.Fatal("no out-of-service taint")
		}
		if p := l.Attachment("vol", a).Status.Proof; p == nil || p.Type != apiv1.ProofVMDown {
			t.Fatalf("proof %+v", p)
		}
		if n := l.Cloud.CallCount(fake.AttachmentsForceDetach); n != 1 {
			t.Fatalf("got %d forced detaches from the VM that is down, want 1: it may be started with its mounts", n)
		}
		l.must(l.Unpublish(t.Context(), handle, a))
		l.must(l.Publish(t.Context(), handle, b))
		l.Stop()
		l.Start() // the taint is remembered in the API
		l.back(a, l.Eventually)
	})
}

func TestWithoutVolumeAttachmentsAFencedVolumeFollowsItsPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, 0, func(o *controlplane.Options) { o.PublishedByPods = true })
		const a, b = "lp-a", "lp-b"
		l.AddNode(a, "1", size)
		l.AddNode(b, "1", size)
		handle := l.Create("vol", replicated)
		l.claim("vol", handle)
		l.pod("web-0", a, []string{"vol"})
		l.AwaitStaged("vol", a)
		l.AwaitReplica("vol", b)
		release := l.Cloud.HoldAll(fake.AttachmentsForceDetach)
		l.monitor.set(a, nodehealth.Lost)
		l.Eventually("the forced detach has begun", func() string {
			if l.Cloud.CallCount(fake.AttachmentsForceDetach) == 0 {
				return fmt.Sprintf("ownership %+v", *l.Volume("vol").Status.Primary)
			}
			return ""
		})
		// A pod on another node that needs the volume exists already: it waits for the proof.
		l.pod("web-1", b, []string{"vol"})
		if err := l.Stage("vol", b); err == nil || !l.podThere("web-0") {
			t.Fatal("law 3: the volume was handed over, or the pod deleted, before there was a proof")
		}
		release()
		l.AwaitStaged("vol", b)
		if l.podThere("web-0") {
			t.Error("the pod on the lost node is there")
		}
		if r := l.Volume("vol").Status.LastRelease; r == nil || r.NodeName != a || r.Cause != apiv1.CauseNodeLost ||
			r.Proof.Type != apiv1.ProofDetached {
			t.Errorf("last release %+v", r)
		}
		if c := l.Volume("vol").Status.Primary; c.NodeName != b || c.Epoch != 2 {
			t.Errorf("got ownership %+v", c)
		}
		if err := l.Stage("vol", a); err == nil {
			t.Error("law 2: the lost node staged the volume")
		}
	})
}
