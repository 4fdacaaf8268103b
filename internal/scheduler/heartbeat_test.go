package scheduler

import (
	"math"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	testingclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/nodehealth"
)

func beating(at time.Time, seconds int32) func(*apiv1.AzDriverNode) {
	return func(n *apiv1.AzDriverNode) {
		n.Status.HeartbeatTime, n.Status.HeartbeatSeconds = ptr.To(metav1.NewMicroTime(at)), seconds
	}
}

func newHeartbeats() (*Heartbeats, *testingclock.FakePassiveClock) {
	clock := testingclock.NewFakePassiveClock(epoch)
	return NewHeartbeats(HeartbeatOptions{
		Clock:    clock,
		Factor:   3,
		Minimum:  10 * time.Second,
		Interval: time.Minute,
	}), clock
}

func isStale(h *Heartbeats, name string) bool {
	now, blind := h.now()
	return h.beats[name].stale(now, blind)
}

func TestHeartbeats(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		node *apiv1.AzDriverNode
		wait time.Duration
		want bool
	}{
		"within three promised intervals is fresh":              {node("a"), 30 * time.Second, false},
		"after three promised intervals is stale":               {node("a"), 31 * time.Second, true},
		"a node that promises a slow heartbeat has longer":      {node("a", beating(epoch, 60)), 179 * time.Second, false},
		"a very quick heartbeat may be late up to the minimum":  {node("a", beating(epoch, 1)), 10 * time.Second, false},
		"a very quick heartbeat is stale after the minimum":     {node("a", beating(epoch, 1)), 11 * time.Second, true},
		"a node that promises nothing is judged by the default": {node("a", beating(epoch, 0)), 181 * time.Second, true},
		"a clock that is years behind does not make it stale": {node("a", beating(epoch.AddDate(-5, 0, 0), 10)),
			30 * time.Second, false},
		"a clock that is years ahead does not keep it fresh": {node("a", beating(epoch.AddDate(5, 0, 0), 10)),
			31 * time.Second, true},
		"a node that never sent a heartbeat becomes stale too": {node("a",
			func(n *apiv1.AzDriverNode) { n.Status.HeartbeatTime = nil }), 31 * time.Second, true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, clock := newHeartbeats()
			h.observe(c.node)
			clock.SetTime(epoch.Add(c.wait))
			h.observe(node("witness", beating(epoch.Add(c.wait), 10)))
			if got := isStale(h, "a"); got != c.want {
				t.Errorf("stale %v, want %v", got, c.want)
			}
		})
	}
}

func TestAnUpdateThatIsNoHeartbeatDoesNotRenewIt(t *testing.T) {
	t.Parallel()
	h, clock := newHeartbeats()
	h.observe(node("a"))
	clock.SetTime(epoch.Add(31 * time.Second))
	h.observe(node("a", func(n *apiv1.AzDriverNode) { n.Status.Capacity = &apiv1.NodeCapacity{MaxDataDisks: 4} }))
	h.observe(node("witness"))
	if !isStale(h, "a") {
		t.Error("a change of something else renewed the heartbeat")
	}
	h.observe(node("a", beating(epoch.Add(time.Second), 10)))
	if isStale(h, "a") {
		t.Error("a new heartbeat did not renew it")
	}
}

func TestAnObserverThatHearsNothingDoesNotCallEveryNodeStale(t *testing.T) {
	t.Parallel()
	h, clock := newHeartbeats()
	h.observe(node("a"))
	h.observe(node("b"))
	clock.SetTime(epoch.Add(time.Hour))
	if isStale(h, "a") || isStale(h, "b") || !h.Blind() {
		t.Error("not one heartbeat comes through, and yet nodes are called stale")
	}
	h.observe(node("b", beating(epoch.Add(time.Hour), 10)))
	if !isStale(h, "a") || isStale(h, "b") || h.Blind() {
		t.Error("one heartbeat comes through, so the other node is the one that is lost")
	}
}

// Law 7: one node that promises to report once in a lifetime does not keep the others from being
// believed when the observer itself is cut off.
func TestAPromiseWithoutEndDoesNotMakeABlindObserverSee(t *testing.T) {
	h, clock := newHeartbeats()
	for name, seconds := range map[string]int32{"a": 10, "b": 10, "liar": math.MaxInt32} {
		d := &apiv1.AzDriverNode{ObjectMeta: metav1.ObjectMeta{Name: name}}
		d.Status.HeartbeatTime, d.Status.HeartbeatSeconds = &metav1.MicroTime{Time: clock.Now()}, seconds
		h.observe(d)
	}
	clock.SetTime(clock.Now().Add(3*nodehealth.LongestPromise + time.Second))
	if isStale(h, "a") || !h.Blind() {
		t.Errorf("got stale %t, blind %t when nothing was heard of any node for %s; want a blind observer that calls no node stale", isStale(h, "a"), h.Blind(), 3*nodehealth.LongestPromise)
	}
}

func TestNodesWhoseDeletionWasMissedAreForgotten(t *testing.T) {
	t.Parallel()
	h, _ := newHeartbeats()
	view := &View{Heartbeats: h, DriverName: driver}
	events := view.driverNodes()
	for _, name := range []string{"a", "b", "c"} {
		events.OnAdd(node(name), true)
	}
	events.OnDelete(node("b"))
	events.OnDelete(toolscache.DeletedFinalStateUnknown{Key: "a", Obj: node("a")})
	if len(h.beats) != 1 || len(view.table.nodes) != 1 {
		t.Errorf("still known: %v, %v, want node c only", h.beats, view.table.nodes)
	}
}
