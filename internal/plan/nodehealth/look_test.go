package nodehealth_test

import (
	"cmp"
	"slices"
	"strings"
	"testing"
	"time"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/nodehealth"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// late has a node be silent while looks of a kind get no answer, and then send a heartbeat. It
// returns the look at the node that is still under way.
func (w *fleet) late(node string, kind nodehealth.LookKind, silent time.Duration) nodehealth.Look {
	w.Helper()
	w.hold = func(look nodehealth.Look) bool { return look.Kind == kind }
	w.cut(node)
	w.sleep(silent)
	w.restore(node)
	w.sleep(time.Second)
	for _, look := range w.held {
		if look.Node == node && look.Kind == kind {
			return look
		}
	}
	w.Fatalf("got the looks %+v, want one of kind %d at %s", w.held, kind, node)
	return nodehealth.Look{}
}

func TestAnAnswerFromBeforeAHeartbeatIsIgnored(t *testing.T) {
	t.Run("a probe that failed", func(t *testing.T) {
		w := newFleet(t)
		n := w.addProbed(3)[0]
		look := w.late(n, nodehealth.LookProbe, 250*time.Millisecond)
		w.hold = func(look nodehealth.Look) bool { return look.Kind == nodehealth.LookRequest }
		w.see(nodehealth.Probed{Look: look})
		w.held = nil
		if w.tick(); len(w.held) > 0 {
			t.Errorf("got the looks %+v, want no request for a heartbeat of a node that has just sent one", w.held)
		}
	})
	t.Run("a request that was written", func(t *testing.T) {
		w := newFleet(t)
		n := w.addProbed(3)[0]
		w.see(nodehealth.HeartbeatRequested{Look: w.late(n, nodehealth.LookRequest, time.Second), Written: true})
		w.never(10*time.Second, notHealthy)
	})
	t.Run("what Azure said about the VM", func(t *testing.T) {
		for _, kind := range []nodehealth.LookKind{nodehealth.LookQuestion, nodehealth.LookReview} {
			w := newFleet(t)
			n := w.addProbed(3)[0]
			w.see(nodehealth.PowerRead{Look: w.late(n, kind, 30*time.Second), Power: provisioner.PowerDeallocated})
			w.never(10*time.Second, notHealthy)
		}
	})
	t.Run("a confirmation of the silence", func(t *testing.T) {
		w := newFleet(t)
		n := w.addProbed(3)[0]
		before := w.machines[n].driver
		look := w.late(n, nodehealth.LookSilence, 5*time.Second)
		w.see(nodehealth.SilenceRead{Look: look, Report: before})
		w.cut(n)
		w.never(20*time.Second, func(j nodehealth.Judgement) bool { return j.State == nodehealth.Lost })
	})
	t.Run("a lease", func(t *testing.T) {
		w := newFleet(t, func(c *nodehealth.Config) { c.Probes = false })
		n := w.add(3, fast)[0]
		w.sleep(40 * time.Second)
		w.see(nodehealth.LeaseRead{Look: w.late(n, nodehealth.LookLease, 10*time.Second), Renewed: w.now, Duration: time.Minute})
		w.cut(n)
		w.sleep(10 * time.Second)
		if got := w.health(n).Evidence; !strings.Contains(got, "nothing is known of the kubelet's lease") {
			t.Errorf("got the evidence %q, want that the lease is not known", got)
		}
	})
	t.Run("that it was failed over", func(t *testing.T) {
		w := newFleet(t)
		nodes := w.addProbed(4)
		w.see(nodehealth.StakeRead{Look: w.late(nodes[0], nodehealth.LookStake, 10*time.Second), Read: true, FailedOver: true})
		w.cut(nodes[0], nodes[1])
		w.sleep(10 * time.Second)
		if !w.health(nodes[1]).Guarded() {
			t.Errorf("got %+v, want it held back because of the other node", w.health(nodes[1]))
		}
	})
}

func TestAnAnswerAboutAnEarlierNodeOfTheNameIsIgnored(t *testing.T) {
	w := newFleet(t)
	n := w.addProbed(3)[0]
	w.hold = func(look nodehealth.Look) bool { return look.Kind == nodehealth.LookQuestion }
	w.cut(n)
	w.sleep(time.Second)
	if len(w.held) != 1 || w.held[0].Node != n {
		t.Fatalf("got the looks %+v, want a question about %s", w.held, n)
	}
	w.see(nodehealth.Removed(n))
	w.machines[n].connected = false
	w.report(n)
	w.restore(n)
	w.see(nodehealth.PowerRead{Look: w.held[0], Gone: true})
	w.never(10*time.Second, notHealthy)
}

// Only the end of a connection on which the node did not answer is a failed probe.
func TestTheEndOfAConnectionCountsOnce(t *testing.T) {
	for name, test := range map[string]struct {
		ends []nodehealth.ConnectionEnded
		want int
	}{
		"the node ended it":                   {[]nodehealth.ConnectionEnded{{}}, 0},
		"the node did not answer":             {[]nodehealth.ConnectionEnded{{Unanswered: true}}, 1},
		"the node ended it, and again":        {[]nodehealth.ConnectionEnded{{}, {Unanswered: true}}, 0},
		"the connection of another node name": {[]nodehealth.ConnectionEnded{{Node: "unknown", Unanswered: true}}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFleet(t)
			n := w.addProbed(3)[0]
			w.hold = func(look nodehealth.Look) bool { return look.Kind == nodehealth.LookProbe }
			for _, end := range test.ends {
				end.Node = cmp.Or(end.Node, n)
				w.see(end)
			}
			if w.tick(); w.requests[n] != test.want {
				t.Errorf("got %d requests for a heartbeat, want %d", w.requests[n], test.want)
			}
		})
	}
}

func TestAnAnswerAboutANodeThatIsGoneIsIgnored(t *testing.T) {
	w := newFleet(t)
	n := w.addProbed(3)[0]
	look := w.late(n, nodehealth.LookProbe, 250*time.Millisecond)
	w.see(nodehealth.Removed(n))
	for _, seen := range []nodehealth.Observation{
		nodehealth.Probed{Look: look},
		nodehealth.HeartbeatRequested{Look: look, Written: true},
		nodehealth.PowerRead{Look: look, Gone: true},
		nodehealth.LeaseRead{Look: look, Missing: true},
		nodehealth.StakeRead{Look: look, Read: true},
		nodehealth.SilenceRead{Look: look, Report: w.machines[n].driver},
		nodehealth.HeartbeatWanted(n),
	} {
		if w.see(seen); len(w.detector.Doubted()) > 0 {
			t.Errorf("after %T: got the nodes %v in doubt, want none", seen, w.detector.Doubted())
		}
		if _, known := w.detector.Health(n, w.now); known {
			t.Errorf("after %T: got a judgement of the node, want none", seen)
		}
	}
}

// It is read again once a second.
func TestAReportThatCannotBeReadConfirmsNothing(t *testing.T) {
	w := newFleet(t)
	n := w.addProbed(3)[0]
	w.hold = func(look nodehealth.Look) bool { return look.Kind == nodehealth.LookSilence }
	w.cut(n)
	got := 0
	for range 32 {
		w.now = w.now.Add(250 * time.Millisecond)
		w.tick()
		for _, look := range w.held {
			w.see(nodehealth.SilenceRead{Look: look})
			got++
		}
		w.held = nil
	}
	if v := w.health(n); v.State != nodehealth.Suspect || got != 6 {
		t.Errorf("got %+v after %d reads, want it Suspect after six, which begin two seconds after the cut", v, got)
	}
}

func TestAProbeThatCannotBeMadeSaysNothing(t *testing.T) {
	w := newFleet(t)
	n := w.addProbed(3)[0]
	w.hold = func(look nodehealth.Look) bool { return look.Kind == nodehealth.LookProbe && look.Node == n }
	w.see(nodehealth.ConnectionEnded{Node: n})
	for range 20 {
		w.sleep(time.Second)
		for _, look := range w.held {
			w.see(nodehealth.Probed{Look: look, Unknown: true})
		}
		w.held = nil
	}
	if w.state(n) != nodehealth.Healthy || w.requests[n] > 0 {
		t.Errorf("got %+v after %d requests, want it Healthy without one", w.health(n), w.requests[n])
	}
}

func TestLooksAtOnceAreBounded(t *testing.T) {
	w := newFleet(t)
	nodes, leases := w.add(70, fast), w.add(10, fast)
	for _, n := range leases { // probes have never reached them
		w.machines[n].answers = false
	}
	w.sleep(5 * time.Second)
	w.hold = func(look nodehealth.Look) bool {
		return look.Kind != nodehealth.LookPing && look.Kind != nodehealth.LookRequest
	}
	w.cut(nodes...)
	w.cut(leases...)
	w.sleep(20 * time.Second)
	got := map[nodehealth.LookKind]int{}
	for _, look := range w.held {
		got[look.Kind]++
	}
	for kind, want := range map[nodehealth.LookKind]int{
		nodehealth.LookProbe:    64,
		nodehealth.LookQuestion: 4,
		nodehealth.LookLease:    8,
		nodehealth.LookStake:    4,
	} {
		if got[kind] != want {
			t.Errorf("got %d looks of kind %d under way, want %d", got[kind], kind, want)
		}
	}
}

func TestALookThatHasNoAnswerIsNotRepeated(t *testing.T) {
	w := newFleet(t)
	nodes := w.add(2, fast)
	w.sleep(40 * time.Second)
	w.hold = func(look nodehealth.Look) bool { return look.Kind != nodehealth.LookPing }
	w.cut(nodes[0])
	w.sleep(time.Minute)
	got := map[nodehealth.LookKind]int{}
	for _, look := range w.held {
		if got[look.Kind]++; got[look.Kind] > 1 {
			t.Errorf("got another look of kind %d at %s, want one until it has an answer", look.Kind, look.Node)
		}
	}
	if got[nodehealth.LookProbe] == 0 || got[nodehealth.LookQuestion] == 0 || got[nodehealth.LookStake] == 0 {
		t.Errorf("got the looks %v, want a probe, a question and a read of the volumes among them", got)
	}
}

func TestHowOftenANodeIsLookedAt(t *testing.T) {
	unprobed := func(w *fleet, n string) { w.machines[n].answers = false }
	mute := func(w *fleet, n string) { w.machines[n].beats = false }
	noConnection := func(w *fleet, n string) { w.machines[n].refuses = true }
	cut := func(w *fleet, n string) { w.cut(n) }
	away := func(w *fleet, _ string) { w.outage = true }
	wait := func(w *fleet, _ string) { w.sleep(2 * time.Minute) }
	noVM := func(w *fleet, n string) { w.change(n, func(d *apiv1.AzDriverNode) { d.Spec.VMID = "" }) }
	type changes = []func(*fleet, string)
	const (
		long                    = 2 * time.Minute
		probe, question, review = nodehealth.LookProbe, nodehealth.LookQuestion, nodehealth.LookReview
		lease, silence, stake   = nodehealth.LookLease, nodehealth.LookSilence, nodehealth.LookStake
	)
	for name, test := range map[string]struct {
		kind nodehealth.LookKind
		// before are changes 40 seconds ahead, change and wait lead to the minute in which looks count.
		before, change changes
		wait           time.Duration
		want           int
	}{
		"a probe of a node that is connected":               {probe, nil, nil, 0, 0},
		"a probe of a node that never answered":             {probe, changes{unprobed}, nil, 0, 2},
		"a probe of a node that has no heartbeat":           {probe, changes{noConnection}, changes{mute}, long, 12},
		"a probe of a node that is lost for long":           {probe, nil, changes{cut}, long, 2},
		"a probe of a node that dies after that":            {probe, changes{noConnection}, changes{mute, wait, cut}, 0, 4},
		"a probe while the API server does not answer":      {probe, nil, changes{cut, away}, 10 * time.Second, 2},
		"a question about a node that is well":              {question, nil, nil, 0, 0},
		"a question about a node that is late":              {question, nil, changes{mute}, 5 * time.Second, 12},
		"a question about a node without a VM":              {question, changes{noVM}, changes{mute}, 5 * time.Second, 0},
		"a question about a node that is late for long":     {question, nil, changes{mute}, long, 2},
		"a question about a node that is lost":              {review, nil, changes{cut}, 20 * time.Second, 3},
		"a question about a node that is lost for long":     {review, nil, changes{cut}, long, 2},
		"the lease of a node that is well":                  {lease, changes{unprobed}, nil, 0, 0},
		"the lease of a node that is silent":                {lease, changes{unprobed}, changes{mute}, 10 * time.Second, 12},
		"the lease of a node that is silent for long":       {lease, changes{unprobed}, changes{mute}, long, 2},
		"the lease of a silent node that answers probes":    {lease, nil, changes{mute}, 10 * time.Second, 0},
		"the volumes of a node that is well":                {stake, nil, nil, 0, 0},
		"the volumes of a node that is silent":              {stake, nil, changes{mute}, 20 * time.Second, 60},
		"the report of a node that is well":                 {silence, nil, nil, 0, 0},
		"the report of a lost node, after its confirmation": {silence, nil, changes{cut}, 20 * time.Second, 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFleet(t)
			n := w.add(5, fast)[0]
			for _, change := range test.before {
				change(w, n)
			}
			w.sleep(40 * time.Second)
			for _, change := range test.change {
				change(w, n)
			}
			w.sleep(test.wait)
			got := 0
			w.hold = func(look nodehealth.Look) bool {
				if look.Node == n && look.Kind == test.kind {
					got++
				}
				return false
			}
			w.now = w.now.Add(250 * time.Millisecond)
			if w.sleep(time.Minute - 250*time.Millisecond); got != test.want {
				t.Errorf("got %d looks in a minute, want %d", got, test.want)
			}
		})
	}
}

// It is tried once a second.
func TestARequestThatIsNotWrittenIsRepeated(t *testing.T) {
	w := newFleet(t)
	n := w.addProbed(3)[0]
	w.hold = func(look nodehealth.Look) bool { return look.Kind == nodehealth.LookRequest }
	w.cut(n)
	got := 0
	for range 20 {
		for _, look := range w.held {
			w.see(nodehealth.HeartbeatRequested{Look: look})
			got++
		}
		w.held = nil
		w.now = w.now.Add(250 * time.Millisecond)
		w.tick()
	}
	if got != 5 {
		t.Errorf("got %d requests in five seconds, want 5", got)
	}
}

func TestEveryNodeHasItsTurnWhenLooksAreBounded(t *testing.T) {
	w := newFleet(t)
	nodes := w.add(6, fast)
	w.sleep(40 * time.Second)
	for _, n := range nodes {
		w.machines[n].beats = false
	}
	w.hold = func(look nodehealth.Look) bool { return look.Kind == nodehealth.LookStake }
	for _, want := range [][]string{nodes[:4], {nodes[4], nodes[5], nodes[0], nodes[1]},
		{nodes[2], nodes[3], nodes[0], nodes[1]}} {
		w.sleep(10 * time.Second)
		var got []string
		for _, look := range w.held {
			got = append(got, look.Node)
			w.see(nodehealth.StakeRead{Look: look, Read: true})
		}
		if w.held = nil; !slices.Equal(got, want) {
			t.Errorf("got looks at %v, want at %v", got, want)
		}
	}
}

// The node may have answered such a request before the process began to look.
func TestARequestFromBeforeTheStartIsNotCounted(t *testing.T) {
	w := newFleet(t)
	n := w.addProbed(3)[0]
	w.request(n)
	w.machines[n].beats = false
	w.restart()
	w.never(20*time.Second, notHealthy)
}

func TestAnUnknownPowerStateIsNoAnswer(t *testing.T) {
	w := newFleet(t)
	nodes := w.addProbed(4)
	for _, n := range nodes {
		w.machines[n].power = provisioner.PowerUnknown
	}
	w.cut(nodes...)
	w.never(time.Minute, fenced)
	if v := w.health(nodes[0]); !v.Guarded() {
		t.Errorf("got %+v, want it held back", v)
	}
}
