package nodehealth_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/nodehealth"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

const (
	fast = 2 * time.Second
	slow = 30 * time.Second
	// rare is the interval of nodes that are probed.
	rare = 5 * time.Minute
)

// fleet is a Detector with the machines that it judges. Time passes only as the test says.
type fleet struct {
	*testing.T
	now      time.Time
	config   nodehealth.Config
	detector *nodehealth.Detector
	machines map[string]*machine
	names    []string
	// outage cuts all nodes and the controller off the API server.
	outage bool
	// unread says that the volumes of nodes cannot be read from the cache.
	unread bool
	// probes, requests and questions count the looks at each node, pauses the results.
	probes, requests, questions map[string]int
	pauses                      map[nodehealth.PauseResult]int
	// last are the judgements of the last Step, changed the nodes that changed.
	last    nodehealth.Judgements
	changed []string
	// hold says which looks are under way for long; held are those looks.
	hold func(nodehealth.Look) bool
	held []nodehealth.Look
}

// machine is a node as it truly is.
type machine struct {
	// driver is the AzDriverNode as the API server has it.
	driver *apiv1.AzDriverNode
	// beats and answers say that heartbeats are sent and probes answered.
	beats, answers bool
	// onRequest says that the node promises to answer requests for heartbeats, which it does while
	// beats.
	onRequest bool
	interval  time.Duration
	next      time.Time
	// connected says that the last probe left a connection open. It ends some
	// time after the machine has ceased to answer. refuses says that no connection is left open.
	connected, refuses bool
	ends               time.Duration
	// ceased is when the machine ceased to answer.
	ceased time.Time
	power  provisioner.PowerState
	gone   bool
	// primary says that a volume may have to be released from it, failedOver that none has.
	primary, failedOver bool
	// renewed is the kubelet's lease; zero for none.
	renewed time.Time
	// announced are the events that the Node's condition names.
	announced []apiv1.MaintenanceEvent
}

func newFleet(t *testing.T, change ...func(*nodehealth.Config)) *fleet {
	t.Helper()
	w := &fleet{
		T:         t,
		now:       time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC),
		machines:  map[string]*machine{},
		probes:    map[string]int{},
		requests:  map[string]int{},
		questions: map[string]int{},
		pauses:    map[nodehealth.PauseResult]int{},
		hold:      func(nodehealth.Look) bool { return false },
		config: nodehealth.Config{
			StaleAfter:        6 * time.Second,
			MassLossThreshold: 45,
			Probes:            true,
			Questions:         true,
			Enabled:           true,
		},
	}
	for _, c := range change {
		c(&w.config)
	}
	w.detector = nodehealth.NewDetector(w.config)
	return w
}

// restart puts the Detector of a new process in the place of the present one.
func (w *fleet) restart() {
	w.detector = nodehealth.NewDetector(w.config)
	for _, name := range w.names {
		w.machines[name].connected = false
		w.report(name)
	}
}

// see passes an observation to the Detector.
func (w *fleet) see(seen nodehealth.Observation) { w.take(w.detector.See(w.now, seen)) }

func (w *fleet) take(j nodehealth.Judgements) {
	w.last = j
	w.changed = append(w.changed, j.Changed...)
	for _, result := range j.Pauses {
		w.pauses[result]++
	}
}

// report is the event about the AzDriverNode.
func (w *fleet) report(name string) { w.see(nodehealth.Report{AzDriverNode: w.machines[name].driver}) }

// change writes the AzDriverNode without an event about it.
func (w *fleet) change(name string, change func(*apiv1.AzDriverNode)) {
	m := w.machines[name]
	m.driver = m.driver.DeepCopy()
	change(m.driver)
}

// answer is the answer to a look.
func (w *fleet) answer(look nodehealth.Look) nodehealth.Observation {
	m := w.machines[look.Node]
	switch look.Kind {
	case nodehealth.LookPing:
		return nodehealth.Pinged{Look: look, Answered: !w.outage}
	case nodehealth.LookProbe:
		w.probes[look.Node]++
		m.connected = m.answers && !m.refuses
		return nodehealth.Probed{Look: look, Answered: m.answers, Connected: m.connected}
	case nodehealth.LookRequest:
		return nodehealth.HeartbeatRequested{Look: look, Written: w.request(look.Node)}
	case nodehealth.LookQuestion, nodehealth.LookReview:
		return w.ask(look)
	case nodehealth.LookLease:
		if w.outage || m.renewed.IsZero() {
			return nodehealth.LeaseRead{Look: look, Missing: !w.outage}
		}
		return nodehealth.LeaseRead{Look: look, Renewed: m.renewed, Duration: 40 * time.Second}
	case nodehealth.LookSilence:
		if w.outage {
			return nodehealth.SilenceRead{Look: look}
		}
		return nodehealth.SilenceRead{Look: look, Report: m.driver, Announced: m.announced}
	case nodehealth.LookStake:
		return nodehealth.StakeRead{Look: look, Read: !w.unread, FailedOver: m.failedOver && !w.unread}
	}
	w.Fatalf("got a look of an unknown kind: %+v", look)
	return nil
}

// request has a heartbeat requested, if the API server answers.
func (w *fleet) request(name string) bool {
	w.requests[name]++
	if w.outage {
		return false
	}
	w.change(name, func(d *apiv1.AzDriverNode) {
		d.Spec.Requests = &apiv1.NodeRequests{HeartbeatTime: &metav1.MicroTime{Time: w.now}}
	})
	w.report(name)
	if w.machines[name].beats {
		w.beat(name)
	}
	return true
}

// ask is Azure.
func (w *fleet) ask(look nodehealth.Look) nodehealth.PowerRead {
	m := w.machines[look.Node]
	if look.VMID != m.driver.Spec.VMID {
		w.Errorf("got a question about the VM %q of %s, want %q", look.VMID, look.Node, m.driver.Spec.VMID)
	}
	look.Question.Primary = m.primary
	if !look.Question.Due() {
		return nodehealth.PowerRead{Look: look}
	}
	w.questions[look.Node]++
	return nodehealth.PowerRead{Look: look, Power: m.power, Gone: m.gone}
}

// add adds n nodes that are well, hold a primary each and send heartbeats at the interval.
func (w *fleet) add(n int, interval time.Duration) []string {
	var added []string
	for range n {
		name := fmt.Sprintf("node-%02d", len(w.names))
		added, w.names = append(added, name), append(w.names, name)
		w.machines[name] = &machine{
			driver: &apiv1.AzDriverNode{
				ObjectMeta: metav1.ObjectMeta{Name: name},
				Spec:       apiv1.AzDriverNodeSpec{VMID: name},
			},
			beats:    true,
			answers:  true,
			interval: interval,
			next:     w.now,
			power:    provisioner.PowerRunning,
			primary:  true,
		}
		w.report(name)
	}
	return added
}

// addProbed adds n nodes that send heartbeats rarely and on request, in the middle of their
// intervals.
func (w *fleet) addProbed(n int) []string {
	nodes := w.add(n, rare)
	for _, name := range nodes {
		w.machines[name].onRequest = true
	}
	w.sleep(rare / 2)
	return nodes
}

// beat writes a heartbeat, which the Detector sees at once.
func (w *fleet) beat(name string) {
	w.write(name)
	w.report(name)
	w.machines[name].next = w.now.Add(w.machines[name].interval)
}

// write writes a heartbeat without an event about it.
func (w *fleet) write(name string) {
	m := w.machines[name]
	w.change(name, func(d *apiv1.AzDriverNode) {
		d.Status.HeartbeatTime = &metav1.MicroTime{Time: w.now}
		d.Status.HeartbeatPeriodSeconds = int32(m.interval / time.Second)
		d.Status.HeartbeatOnRequest = m.onRequest
	})
}

// tick steps until no look is due.
func (w *fleet) tick() {
	var seen []nodehealth.Observation
	for _, name := range w.names {
		m := w.machines[name]
		if m.answers {
			m.ceased = w.now
		}
		if m.connected && !m.answers && w.now.Sub(m.ceased) >= m.ends {
			m.connected = false
			seen = append(seen, nodehealth.ConnectionEnded{Node: name, Unanswered: true})
		}
	}
	judgements, looks := w.detector.Step(w.now, seen...)
	for w.take(judgements); len(looks) > 0; w.take(judgements) {
		for _, look := range looks {
			if w.hold(look) {
				w.held = append(w.held, look)
				continue
			}
			w.see(w.answer(look))
		}
		judgements, looks = w.detector.Step(w.now)
	}
}

// pass lets time pass until done says so, for d at most, and returns how long it took.
func (w *fleet) pass(d time.Duration, done func() bool) (took time.Duration, ended bool) {
	start := w.now
	for {
		for _, name := range w.names {
			if m := w.machines[name]; m.beats && !w.outage && !m.next.After(w.now) {
				w.beat(name)
			}
		}
		w.tick()
		if took := w.now.Sub(start); done() || took >= d {
			return took, done()
		}
		w.now = w.now.Add(250 * time.Millisecond)
	}
}

func (w *fleet) sleep(d time.Duration) { w.pass(d, func() bool { return false }) }

// cut takes the power from nodes.
func (w *fleet) cut(names ...string) {
	for _, name := range names {
		w.machines[name].beats, w.machines[name].answers = false, false
	}
}

// restore gives nodes power again. They send a heartbeat at once.
func (w *fleet) restore(names ...string) {
	for _, name := range names {
		w.machines[name].beats, w.machines[name].answers = true, true
		w.beat(name)
	}
}

// publish writes the conditions that the leader would write.
func (w *fleet) publish() {
	for _, name := range w.names {
		w.change(name, func(d *apiv1.AzDriverNode) {
			for _, c := range w.detector.Conditions(name, w.now) {
				if c.Reason != apiv1.ReasonNotYetKnown {
					meta.SetStatusCondition(&d.Status.Conditions, c)
				}
			}
		})
	}
}

func (w *fleet) health(name string) nodehealth.Judgement {
	j, _ := w.detector.Health(name, w.now)
	return j
}

func (w *fleet) state(name string) nodehealth.State { return w.health(name).State }

func (w *fleet) is(name string, state nodehealth.State) func() bool {
	return func() bool { return w.state(name) == state }
}

func (w *fleet) fence(name string) func() bool {
	return func() bool { return w.health(name).Fence() }
}

// never fails the test if any node gets such a judgement in the time d.
func (w *fleet) never(d time.Duration, bad func(nodehealth.Judgement) bool) {
	w.Helper()
	w.pass(d, func() bool {
		return slices.ContainsFunc(w.names, func(name string) bool {
			j := w.health(name)
			if bad(j) {
				w.Fatalf("%s: got %+v, want that never", name, j)
			}
			return false
		})
	})
}

func fenced(j nodehealth.Judgement) bool { return j.Fence() }

func notHealthy(j nodehealth.Judgement) bool { return j.State != nodehealth.Healthy }
