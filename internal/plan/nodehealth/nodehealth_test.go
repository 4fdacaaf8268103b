package nodehealth_test

import (
	"math"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1 "k8s.io/api/core/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/nodehealth"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/objects"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

func TestJudgeNode(t *testing.T) {
	stale := nodehealth.Signs{Silence: 7 * time.Second, StaleAge: 6 * time.Second, Patience: 4 * time.Second, Contact: true}
	with := func(change func(*nodehealth.Signs)) nodehealth.Signs {
		s := stale
		change(&s)
		return s
	}
	unreachable := func(s *nodehealth.Signs) { s.ProbeWorks, s.ProbeFailures, s.Confirmed = true, 3, true }
	for name, c := range map[string]struct {
		signs    nodehealth.Signs
		want     nodehealth.State
		evidence string
	}{
		"a node with a fresh heartbeat is healthy whatever the probes say": {with(
			func(s *nodehealth.Signs) { unreachable(s); s.Silence = 6 * time.Second }), nodehealth.Healthy, "fresh"},
		"a node that probes do not reach has the patience to answer a request": {with(
			func(s *nodehealth.Signs) { unreachable(s); s.Silence, s.Unanswered = 6*time.Second, 4*time.Second }),
			nodehealth.Healthy, "fresh"},
		"a node that has not answered a request for longer is lost": {with(
			func(s *nodehealth.Signs) {
				unreachable(s)
				s.Silence, s.Unanswered = 6*time.Second, 4001*time.Millisecond
			}),
			nodehealth.Lost, "not within 4s of a request"},
		"a stale heartbeat alone makes a node suspect": {with(
			func(s *nodehealth.Signs) { s.Confirmed = true }), nodehealth.Suspect, "probes never reached"},
		"a node that answers probes is suspect": {with(
			func(s *nodehealth.Signs) { s.ProbeWorks, s.Confirmed = true, true }), nodehealth.Suspect, "answers probes"},
		"two failed probes are not enough": {with(
			func(s *nodehealth.Signs) { unreachable(s); s.ProbeFailures = 2 }), nodehealth.Suspect, "a probe failed"},
		"three failed probes are a second sign": {with(unreachable), nodehealth.Lost, "3 probes"},
		"probes that never reached the node do not count": {with(
			func(s *nodehealth.Signs) { unreachable(s); s.ProbeWorks = false }), nodehealth.Suspect, "never reached"},
		"nothing is lost before the API server confirms it": {with(
			func(s *nodehealth.Signs) { unreachable(s); s.Confirmed = false }), nodehealth.Suspect, "not yet confirmed"},
		"nothing is lost without the API server": {with(func(s *nodehealth.Signs) { unreachable(s); s.Contact = false }),
			nodehealth.Suspect, "does not answer this controller"},
		"a lease that ran out is a second sign where probes never worked": {
			with(func(s *nodehealth.Signs) {
				s.Confirmed, s.LeaseDuration, s.LeaseAge = true, 40*time.Second, 41*time.Second
			}),
			nodehealth.Lost, "lease for 40s"},
		"a lease that holds is none": {
			with(func(s *nodehealth.Signs) {
				s.Confirmed, s.LeaseDuration, s.LeaseAge = true, 40*time.Second, 40*time.Second
			}),
			nodehealth.Suspect, "has not run out"},
		"a lease that ran out does not count against an answer": {
			with(func(s *nodehealth.Signs) {
				s.Confirmed, s.ProbeWorks, s.LeaseDuration, s.LeaseAge = true, true, 40*time.Second, time.Hour
			}), nodehealth.Suspect, "answers probes"},
		"a deallocated VM is down before its heartbeat is stale": {with(
			func(s *nodehealth.Signs) { s.Silence, s.Power = 4*time.Second, provisioner.PowerDeallocated }), nodehealth.Down,
			"Deallocated"},
		"a stopped VM is down": {with(
			func(s *nodehealth.Signs) { s.Power = provisioner.PowerStopped }), nodehealth.Down, "Stopped"},
		"a VM that is gone is down": {with(func(s *nodehealth.Signs) { s.VMGone = true }), nodehealth.Down, "no such VM"},
		"a VM that is gone is down also without the API server": {with(
			func(s *nodehealth.Signs) { s.VMGone, s.Contact = true, false }), nodehealth.Down, "no such VM"},
		"an announced pause excuses the silence": {with(
			func(s *nodehealth.Signs) { unreachable(s); s.Pause = "Azure has announced it" }), nodehealth.Suspect,
			"Azure has announced it"},
		"a node that is well is healthy also during a pause": {with(
			func(s *nodehealth.Signs) { s.Silence, s.Pause = time.Second, "Azure has announced it" }), nodehealth.Healthy,
			"fresh"},
		"a VM that is stopped is down also during a pause": {
			with(func(s *nodehealth.Signs) { s.Pause, s.Power = "Azure has announced it", provisioner.PowerStopped }),
			nodehealth.Down, "Stopped"},
		"a VM that is gone is down also during a pause": {with(
			func(s *nodehealth.Signs) { s.Pause, s.VMGone = "Azure has announced it", true }), nodehealth.Down, "no such VM"},
		"a running VM can be lost": {with(
			func(s *nodehealth.Signs) { unreachable(s); s.Power = provisioner.PowerRunning }), nodehealth.Lost, "probes"},
		"a suspect node remains suspect while the clock starts again": {
			with(func(s *nodehealth.Signs) { unreachable(s); s.WasSuspect, s.Silence = true, time.Second }), nodehealth.Suspect,
			"just begun to observe it again"},
	} {
		t.Run(name, func(t *testing.T) {
			state, evidence := nodehealth.Judge(c.signs)
			if state != c.want || !strings.Contains(evidence, c.evidence) {
				t.Errorf("got %s: %s; want %s: %s", state, evidence, c.want, c.evidence)
			}
		})
	}
}

func TestOnlyAVMThatIsDeallocatedOrGoneIsOff(t *testing.T) {
	for name, c := range map[string]struct {
		signs nodehealth.Signs
		off   bool
	}{
		"deallocated":      {nodehealth.Signs{Power: provisioner.PowerDeallocated}, true},
		"gone":             {nodehealth.Signs{VMGone: true}, true},
		"stopped and gone": {nodehealth.Signs{Power: provisioner.PowerStopped, VMGone: true}, true},
		"stopped":          {nodehealth.Signs{Power: provisioner.PowerStopped}, false},
		"running":          {nodehealth.Signs{Power: provisioner.PowerRunning}, false},
	} {
		t.Run(name, func(t *testing.T) {
			state, _ := nodehealth.Judge(c.signs)
			judgement := nodehealth.Judgement{State: state, Stopped: c.signs.Stopped()}
			if got := judgement.Off(); got != c.off {
				t.Errorf("got off %t of %+v, want %t", got, judgement, c.off)
			}
		})
	}
}

func TestMassGuard(t *testing.T) {
	for name, c := range map[string]struct {
		lost, total, threshold int
		held                   bool
	}{
		"one of one is no mass":                     {1, 1, 45, false},
		"one of two is no mass":                     {1, 2, 45, false},
		"two of two is one":                         {2, 2, 45, true},
		"two of three is one":                       {2, 3, 45, true},
		"two of four is one":                        {2, 4, 45, true},
		"two of five is below":                      {2, 5, 45, false},
		"a zone of three is below":                  {33, 99, 45, false},
		"exactly the threshold is below":            {45, 100, 45, false},
		"one more is above":                         {46, 100, 45, true},
		"at 100 percent the guard is off":           {7, 7, 100, false},
		"at 1 percent two of many are enough":       {2, 150, 1, true},
		"at 1 percent one is still only one":        {1, 3, 1, false},
		"nothing is above the threshold of nothing": {0, 0, 45, false},
	} {
		t.Run(name, func(t *testing.T) {
			if held, why := nodehealth.MassGuard(c.lost, c.total, c.threshold); held != c.held || held == (why == "") {
				t.Errorf("got %v: %q; want %v and a reason only then", held, why, c.held)
			}
		})
	}
}

func TestFailedOver(t *testing.T) {
	tainted := func(keys ...string) *corev1.Node {
		n := &corev1.Node{}
		for _, key := range keys {
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: key, Effect: corev1.TaintEffectNoSchedule})
		}
		return n
	}
	primary := func() *apiv1.AzVolumeAttachment {
		return objects.NewAttachment("a", apiv1.RolePrimary, 2, apiv1.AttachmentAttached)
	}
	stale := objects.Proved(primary(), apiv1.ProofDetached)
	stale.Spec.Epoch++
	lost := tainted(apiv1.TaintNodeLost)
	for name, test := range map[string]struct {
		node        *corev1.Node
		attachments []*apiv1.AzVolumeAttachment
		want        bool
	}{
		"nothing is left on it": {lost, nil, true},
		"every volume has a proof": {lost,
			objects.Attachments(objects.Proved(primary(), apiv1.ProofDetached),
				objects.Proved(objects.Deleted(primary()), apiv1.ProofVMDown)), true},
		"replicas are not used": {lost,
			objects.Attachments(objects.NewAttachment("a", apiv1.RoleReplica, 0, apiv1.AttachmentAttached)), true},
		"one volume has no proof": {
			lost, objects.Attachments(objects.Proved(primary(), apiv1.ProofDetached), primary()), false},
		"one that is being deleted has none":                     {lost, objects.Attachments(objects.Deleted(primary())), false},
		"the proof is of an earlier epoch":                       {lost, objects.Attachments(stale), false},
		"no failover began, so that the guard has not judged it": {tainted(corev1.TaintNodeUnreachable), nil, false},
		"there is no Node":                                       {nil, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := nodehealth.FailedOver(test.node, test.attachments); got != test.want {
				t.Errorf("got %t, want %t", got, test.want)
			}
		})
	}
}

// Law 7: a node must not promise an interval that is so long that its loss is never noticed, or
// that the sum overflows and a fresh heartbeat is late.
func TestAPromiseIsBelievedUpToALimit(t *testing.T) {
	t.Parallel()
	for promised, want := range map[int32]time.Duration{
		-1:            0,
		0:             0,
		30:            30 * time.Second,
		301:           nodehealth.LongestPromise,
		math.MaxInt32: nodehealth.LongestPromise,
	} {
		if got := nodehealth.Promise(promised); got != want {
			t.Errorf("got %s for %d s, want %s", got, promised, want)
		}
	}
	if got, want := nodehealth.SuspectAge(6*time.Second, math.MaxInt32), 5*nodehealth.LongestPromise/2; got != want {
		t.Errorf("got patience %s, want %s", got, want)
	}
}

func TestSuspectAgeFollowsThePromise(t *testing.T) {
	for name, c := range map[string]struct {
		promised       int32
		patience, late time.Duration
	}{
		"a fast promise":                {2, 6 * time.Second, 3 * time.Second},
		"a faster one, with the least":  {1, 6 * time.Second, 1500 * time.Millisecond},
		"a slow promise":                {30, 75 * time.Second, 45 * time.Second},
		"no promise, with half of that": {0, 6 * time.Second, 3 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			if p, l := nodehealth.SuspectAge(6*time.Second, c.promised), nodehealth.Lateness(6*time.Second,
				c.promised); p != c.patience || l != c.late {
				t.Errorf("got patience %s, lateness %s; want %s, %s", p, l, c.patience, c.late)
			}
		})
	}
}

func TestNotReadySince(t *testing.T) {
	t.Parallel()
	node := func(conditions ...corev1.NodeCondition) *corev1.Node {
		return &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{CreationTimestamp: *objects.Ago(time.Hour)},
			Status:     corev1.NodeStatus{Conditions: conditions},
		}
	}
	is := func(status corev1.ConditionStatus) corev1.NodeCondition {
		return corev1.NodeCondition{
			Type:               corev1.NodeReady,
			Status:             status,
			LastTransitionTime: *objects.Ago(time.Minute),
		}
	}
	for name, test := range map[string]struct {
		node *corev1.Node
		want time.Time
	}{
		"Ready":                           {node(is(corev1.ConditionTrue)), time.Time{}},
		"the kubelet says that it is not": {node(is(corev1.ConditionFalse)), objects.Now.Add(-time.Minute)},
		"Kubernetes has lost the kubelet": {node(is(corev1.ConditionUnknown)), objects.Now.Add(-time.Minute)},
		"no kubelet has ever reported":    {node(), objects.Now.Add(-time.Hour)},
		"there is no Node":                {nil, time.Time{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := nodehealth.NotReadySince(test.node); !got.Equal(test.want) {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}
