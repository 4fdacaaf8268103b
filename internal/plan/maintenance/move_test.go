package maintenance_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/maintenance"
)

func TestEvict(t *testing.T) {
	policies := maintenance.Policies{
		apiv1.MaintenanceFreeze: maintenance.Move, apiv1.MaintenancePreempt: maintenance.Move,
		apiv1.MaintenanceReboot: maintenance.Prepare, apiv1.MaintenanceTerminate: maintenance.Ignore,
	}
	owned := func(kind string) func(*maintenance.Pod) {
		yes := true
		return func(p *maintenance.Pod) {
			p.OwnerReferences = []metav1.OwnerReference{{Kind: kind, Controller: &yes}}
		}
	}
	const now, begun = 0, -1
	cold := func(p *maintenance.Pod) { p.Warm = false }
	for name, c := range map[string]struct {
		kind apiv1.MaintenanceType
		// notBefore is when the event may begin, from now on; begun if it has.
		notBefore time.Duration
		pod       func(*maintenance.Pod)
		evict     bool
		in        time.Duration
	}{
		"a spot VM is evicted in 30 s":                     {apiv1.MaintenancePreempt, 30 * time.Second, nil, true, 0},
		"a pod without a replica elsewhere moves then too": {apiv1.MaintenancePreempt, 30 * time.Second, cold, true, 0},
		"it waits for its replica while there is time": {apiv1.MaintenancePreempt, 5 * time.Minute, cold, false,
			maintenance.MoveAgain},
		"a warm pod moves two minutes before":  {apiv1.MaintenancePreempt, 2 * time.Minute, nil, true, 0},
		"and not before":                       {apiv1.MaintenancePreempt, 15 * time.Minute, nil, false, 13 * time.Minute},
		"an event that has begun is no excuse": {apiv1.MaintenancePreempt, begun, cold, true, 0},
		"a pause moves a warm pod":             {apiv1.MaintenanceFreeze, time.Minute, nil, true, 0},
		"and no other":                         {apiv1.MaintenanceFreeze, time.Minute, cold, false, maintenance.MoveAgain},
		"a pause that has begun is waited for": {apiv1.MaintenanceFreeze, begun, nil, false, 0},
		"a pause that may begin now is too":    {apiv1.MaintenanceFreeze, now - time.Second, nil, false, 0},
		"prepare moves nothing":                {apiv1.MaintenanceReboot, time.Second, nil, false, 0},
		"ignore moves nothing":                 {apiv1.MaintenanceTerminate, time.Second, nil, false, 0},
		"the default moves nothing":            {apiv1.MaintenanceRedeploy, time.Second, nil, false, 0},
		"a pod without replicated volumes": {apiv1.MaintenancePreempt, time.Second,
			func(p *maintenance.Pod) { p.Replicated = false }, false, 0},
		"a pod without a controller": {apiv1.MaintenancePreempt, time.Second,
			func(p *maintenance.Pod) { p.OwnerReferences = nil }, false, 0},
		"an owner that is no controller": {apiv1.MaintenancePreempt, time.Second,
			func(p *maintenance.Pod) { p.OwnerReferences[0].Controller = nil }, false, 0},
		"a pod of a DaemonSet": {apiv1.MaintenancePreempt, time.Second, owned("DaemonSet"), false, 0},
		"a static pod":         {apiv1.MaintenancePreempt, time.Second, owned("Node"), false, 0},
		"a pod that is leaving": {apiv1.MaintenancePreempt, time.Second,
			func(p *maintenance.Pod) { p.DeletionTimestamp = &metav1.Time{Time: noon} }, false, 0},
		"a pod that has ended": {apiv1.MaintenancePreempt, time.Second,
			func(p *maintenance.Pod) { p.Status.Phase = corev1.PodSucceeded }, false, 0},
		"a pod that has failed": {apiv1.MaintenancePreempt, time.Second,
			func(p *maintenance.Pod) { p.Status.Phase = corev1.PodFailed }, false, 0},
		"an owner that says that it is no controller": {apiv1.MaintenancePreempt, time.Second,
			func(p *maintenance.Pod) { p.OwnerReferences[0].Controller = new(bool) }, false, 0},
		"a pod that opted out": {apiv1.MaintenancePreempt, time.Second, func(p *maintenance.Pod) {
			p.Annotations = map[string]string{apiv1.AnnotationMaintenance: apiv1.MaintenanceStay}
		}, false, 0},
		"a pod that opted in": {apiv1.MaintenancePreempt, time.Second, func(p *maintenance.Pod) {
			p.Annotations = map[string]string{apiv1.AnnotationMaintenance: apiv1.MaintenanceEvict}
		}, true, 0},
		"a pod with a value that is not known": {apiv1.MaintenancePreempt, time.Second, func(p *maintenance.Pod) {
			p.Annotations = map[string]string{apiv1.AnnotationMaintenance: "no"}
		}, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			event := &apiv1.MaintenanceEvent{EventID: "e", Type: c.kind, Started: c.notBefore == begun}
			if !event.Started {
				event.NotBeforeTime = &metav1.Time{Time: noon.Add(c.notBefore)}
			}
			pod := maintenance.Pod{Pod: &corev1.Pod{}, Replicated: true, Warm: true}
			owned("StatefulSet")(&pod)
			if c.pod != nil {
				c.pod(&pod)
			}
			announced := []maintenance.Announcement{{MaintenanceEvent: event, Seen: noon}}
			if because, in := policies.Evict(announced, pod, noon); (because != nil) != c.evict || in != c.in {
				t.Errorf("got %v, again in %s; want an eviction: %t, %s", because, in, c.evict, c.in)
			}
		})
	}
}

func TestEvictDecidesByEachEvent(t *testing.T) {
	t.Parallel()
	policies := maintenance.Policies{apiv1.MaintenanceFreeze: maintenance.Move, apiv1.MaintenancePreempt: maintenance.Move}
	soon := metav1.NewTime(noon.Add(30 * time.Second))
	quarter := metav1.NewTime(noon.Add(15 * time.Minute))
	later := &apiv1.MaintenanceEvent{EventID: "later", Type: apiv1.MaintenancePreempt, NotBeforeTime: &quarter}
	over := &apiv1.MaintenanceEvent{EventID: "over", Type: apiv1.MaintenanceFreeze, Started: true}
	spot := &apiv1.MaintenanceEvent{EventID: "spot", Type: apiv1.MaintenancePreempt, NotBeforeTime: &soon}
	at := func(e *apiv1.MaintenanceEvent, seen time.Time) maintenance.Announcement {
		return maintenance.Announcement{MaintenanceEvent: e, Seen: seen}
	}
	for name, c := range map[string]struct {
		announced []maintenance.Announcement
		created   time.Time
		homeless  bool
		want      string
		in        time.Duration
	}{
		"a pause that is over":                  {[]maintenance.Announcement{at(over, noon)}, noon, false, "", 0},
		"the eviction of the VM beside it":      {[]maintenance.Announcement{at(over, noon), at(spot, noon)}, noon, false, "spot", 0},
		"in the other order":                    {[]maintenance.Announcement{at(spot, noon), at(over, noon)}, noon, false, "spot", 0},
		"no node that stays takes the pod":      {[]maintenance.Announcement{at(spot, noon)}, noon, true, "", maintenance.MoveAgain},
		"and it is not due yet":                 {[]maintenance.Announcement{at(later, noon)}, noon, true, "", 13 * time.Minute},
		"the pod came after the event was seen": {[]maintenance.Announcement{at(spot, noon)}, noon.Add(1), false, "", 0},
		"it came after one event, before another": {[]maintenance.Announcement{at(over, noon), at(spot, noon.Add(2))},
			noon.Add(1), false, "spot", 0},
		"no event is left that concerns the pod": {nil, noon, false, "", 0},
	} {
		yes := true
		pod := maintenance.Pod{Pod: &corev1.Pod{}, Replicated: true, Warm: true, Homeless: c.homeless}
		pod.CreationTimestamp = metav1.NewTime(c.created)
		pod.OwnerReferences = []metav1.OwnerReference{{Kind: "StatefulSet", Controller: &yes}}
		got := ""
		because, in := policies.Evict(c.announced, pod, noon)
		if because != nil {
			got = because.EventID
		}
		if got != c.want || in != c.in {
			t.Errorf("%s: got %q, again in %s; want %q, %s", name, got, in, c.want, c.in)
		}
	}
}
