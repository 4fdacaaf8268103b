package nodehealth_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/nodehealth"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// TestDetectorSearch visits every state that two changes of three nodes, of the API server or of the
// process can lead to, at any times, and checks in each that no law of the detector is broken:
//
//   - no node is fenced without two signals, or Azure's answer that its VM is down;
//   - no more nodes may be fenced at once than the guard against mass loss allows;
//   - after a standstill no node is fenced before the process has looked again;
//   - a dead node is fenced within its bound, and a node that sends heartbeats is Healthy.
//
// It begins with nodes that are well, and with one change from each of the states after all nodes,
// one or two were dead for long. It finds a guard that is off.
func TestDetectorSearch(t *testing.T) {
	t.Parallel()
	seen, reached := map[string]bool{}, map[string]int{}
	begin := newSearched(t, 45)
	if fault := explore(begin, seen, reached); fault != "" {
		t.Fatal(fault)
	}
	for _, name := range []string{"all die", "a dies", "a and b die"} {
		long := begin.with(name)
		for range 40 {
			long = long.with("")
		}
		long.changes = 1
		if fault := explore(long, seen, reached); fault != "" {
			t.Fatal(fault)
		}
	}
	if fault := explore(newSearched(t, 100), map[string]bool{}, map[string]int{}); fault == "" {
		t.Error("got no fault without the guard against mass loss, want that to be found")
	}
	t.Logf("%d states: %v", len(seen), reached)
	for _, want := range []string{"Lost", "Down", "Suspect", "fenced", "held back", "paused", "after a standstill"} {
		if reached[want] == 0 {
			t.Errorf("got no state with a node that is %s, want some to check", want)
		}
	}
}

// explore visits the states that changes of a first one lead to, and returns how a law is broken.
func explore(first *searched, seen map[string]bool, reached map[string]int) (fault string) {
	const most = 2
	names := slices.Sorted(maps.Keys(changes))
	for queue := []*searched{first}; len(queue) > 0; {
		s := queue[0]
		queue[0], queue = nil, queue[1:]
		for _, name := range names {
			if name != "" && s.changes == most {
				continue
			}
			next := s.with(name)
			if next.fault != "" {
				return fmt.Sprintf("after %s%d s: %s", next.history, next.quiet, next.fault)
			}
			if key := next.key(); !seen[key] {
				seen[key] = true
				next.count(reached)
				queue = append(queue, next)
			}
		}
	}
	return ""
}

// truth is how a node truly is.
type truth int

const (
	// well: it sends heartbeats and answers probes.
	well truth = iota
	// dead: it does neither. off: Azure also says that its VM is deallocated.
	dead
	off
	// mute: it answers probes and cannot reach the API server.
	mute
	// hidden: it sends heartbeats, and probes do not reach it.
	hidden
)

const (
	searchPatience = 500 * time.Millisecond
	searchStale    = 3 * time.Second
	// searchPause is for how long an announced pause of 1 s is excused.
	searchPause = 6 * time.Second
	// bound is in what time a dead node is fenced: the connection ends after 2 s, or three probes
	// fail, the heartbeat becomes stale, and the guard waits until the other connections have
	// outlived the alarm.
	bound = 7 * time.Second
)

// searched is a state of the model: the detector, what is true, and what the detector was shown.
type searched struct {
	detector *nodehealth.Detector
	now      time.Time
	outage   bool
	nodes    [3]searchedNode
	changes  int
	// threshold is that of the guard against mass loss.
	threshold int
	// contact is since when the API server answers without a gap; zero if it does not. calm is when
	// the outage or the process's own trouble ended.
	contact, calm time.Time
	stoodStill    bool
	fault         string
	// history are the changes, with the seconds between them; quiet are the seconds since the last.
	history string
	quiet   int
}

type searchedNode struct {
	truth
	driver *apiv1.AzDriverNode
	// since is when the truth began, beat when the last heartbeat was sent.
	since, beat time.Time
	// connected says that a probe has left a connection open.
	connected bool
	// failed counts the probes that have failed since the last heartbeat or answer, down that Azure
	// said so, and confirmed that the API server showed the silence.
	failed          int
	down, confirmed bool
	// wasDown says that Azure has said it since the last heartbeat.
	wasDown bool
	// asked is when the request that is not answered was shown; zero for none.
	asked time.Time
	// silent is since when it is not well. everIll says that it once was not, and everHidden that
	// probes may be held not to reach it.
	silent                         time.Time
	everIll, everHidden, announced bool
}

var searchedNames = [3]string{"a", "b", "c"}

// newSearched returns three nodes that are well. a and b answer requests and keep connections; b's
// connection takes its time to end. c sends a heartbeat every second, and keeps no connection.
func newSearched(t *testing.T, threshold int) *searched {
	t.Helper()
	s := &searched{now: time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC), threshold: threshold}
	s.start()
	for i, name := range searchedNames {
		s.nodes[i].driver = &apiv1.AzDriverNode{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       apiv1.AzDriverNodeSpec{VMID: name},
			Status: apiv1.AzDriverNodeStatus{
				HeartbeatPeriodSeconds: 1, HeartbeatOnRequest: i < 2,
				Maintenance: &apiv1.NodeMaintenance{},
			},
		}
		if i < 2 {
			s.nodes[i].driver.Status.HeartbeatPeriodSeconds = 300
		}
		s.report(i)
		s.sendHeartbeat(i)
	}
	for range 4 {
		s = s.with("")
	}
	if s.fault != "" {
		t.Fatal(s.fault)
	}
	return s
}

// start starts the process.
func (s *searched) start() {
	s.detector = nodehealth.NewDetector(nodehealth.Config{
		StaleAfter:        searchStale,
		Patience:          searchPatience,
		MassLossThreshold: s.threshold,
		Probes:            true,
		Questions:         true,
		Enabled:           true,
	})
	s.contact, s.calm = time.Time{}, s.now
}

// with returns the state a second later, when a change has just happened; "" is none.
func (s *searched) with(change string) *searched {
	n := *s
	n.detector = s.detector.Clone()
	n.quiet++
	if change != "" {
		n.history, n.quiet, n.changes = fmt.Sprintf("%s%d s, %s, ", s.history, s.quiet, change), 1, s.changes+1
	}
	n.now = n.now.Add(time.Second)
	changes[change](&n)
	n.look()
	return &n
}

func (s *searched) key() string {
	b := s.detector.Key(nil, s.now)
	b = append(b, byte(s.changes), byte(s.age(s.contact)), byte(s.age(s.calm)))
	if s.outage {
		b = append(b, 1)
	}
	for _, n := range s.nodes {
		b = append(b, byte(n.truth), byte(s.age(n.since)), byte(s.age(n.beat)), byte(s.age(n.silent)),
			byte(s.age(n.asked)), byte(min(n.failed, 3)))
		for _, fact := range []bool{n.down, n.wasDown, n.confirmed, n.everHidden, n.everIll, n.announced, n.connected} {
			b = append(b, '0')
			if fact {
				b[len(b)-1] = '1'
			}
		}
	}
	return string(b)
}

// age is in seconds, and not told apart once it is above all bounds.
func (s *searched) age(t time.Time) int {
	return int(min(s.now.Sub(t), searchPause+bound+time.Second) / time.Second)
}

// changes are what can happen in a second.
var changes = map[string]func(*searched){
	"": func(*searched) {},
	"a and b die": func(s *searched) {
		s.become(0, dead)
		s.become(1, dead)
	},
	"all die": func(s *searched) {
		for i := range s.nodes {
			s.become(i, dead)
		}
	},
	"the API server is away or back": func(s *searched) { s.outage, s.calm = !s.outage, s.now },
	"the process stands still":       func(s *searched) { s.standStill(1500 * time.Millisecond) },
	"the process starts again": func(s *searched) {
		for i := range s.nodes {
			d := s.nodes[i].driver.DeepCopy()
			for _, c := range s.detector.Conditions(d.Name, s.now) {
				meta.SetStatusCondition(&d.Status.Conditions, c)
			}
			s.nodes[i].driver, s.nodes[i].connected = d, false
		}
		s.start()
		for i := range s.nodes {
			s.report(i)
		}
	},
	"a announces a pause": func(s *searched) {
		if n := &s.nodes[0]; n.truth == well && !s.outage {
			second := int32(1)
			n.driver = n.driver.DeepCopy()
			n.driver.Status.Maintenance.Events = []apiv1.MaintenanceEvent{{
				EventID: "e", Type: apiv1.MaintenanceFreeze, NotBeforeTime: &metav1.Time{Time: s.now}, DurationSeconds: &second,
			}}
			n.announced = true
			s.sendHeartbeat(0)
		}
	},
	"a is well":   func(s *searched) { s.become(0, well) },
	"a dies":      func(s *searched) { s.become(0, dead) },
	"a is off":    func(s *searched) { s.become(0, off) },
	"a is mute":   func(s *searched) { s.become(0, mute) },
	"b is well":   func(s *searched) { s.become(1, well) },
	"b dies":      func(s *searched) { s.become(1, dead) },
	"b is hidden": func(s *searched) { s.become(1, hidden) },
	"c is well":   func(s *searched) { s.become(2, well) },
	"c dies":      func(s *searched) { s.become(2, dead) },
	"c is hidden": func(s *searched) { s.become(2, hidden) },
}

// become changes the truth of a node. A node that is well again sends a heartbeat as soon as it can.
func (s *searched) become(i int, to truth) {
	n := &s.nodes[i]
	if n.truth == to {
		return
	}
	if n.truth == well {
		n.silent = s.now
	}
	n.truth, n.since, n.everIll = to, s.now, true
	n.everHidden = n.everHidden || to == hidden
	if to == well {
		n.beat, n.silent = time.Time{}, time.Time{}
	}
}

// standStill stops the process for a time. Nothing that it knew may begin a fence then.
func (s *searched) standStill(d time.Duration) {
	s.now = s.now.Add(d)
	for _, name := range searchedNames {
		if j, _ := s.detector.Health(name, s.now); j.Fence() && j.State == nodehealth.Lost {
			s.fault = fmt.Sprintf("node %s may be fenced by a judgement from before the standstill: %+v", name, j)
		}
	}
	s.contact, s.calm, s.stoodStill = time.Time{}, s.now, true
}

// look is what the nodes and the process do at a time.
func (s *searched) look() {
	var seen []nodehealth.Observation
	for i := range s.nodes {
		n := &s.nodes[i]
		every := time.Duration(n.driver.Status.HeartbeatPeriodSeconds) * time.Second
		if beats := n.truth == well || n.truth == hidden; beats && !s.outage && s.now.Sub(n.beat) >= every {
			s.sendHeartbeat(i)
		}
		if delay := time.Duration(i) * nodehealth.ConnectionTimeout; n.connected && !n.answers() && s.now.Sub(n.since) >= delay {
			n.connected, n.failed = false, n.failed+1
			seen = append(seen, nodehealth.ConnectionEnded{Node: searchedNames[i], Unanswered: true})
		}
	}
	_, looks := s.detector.Step(s.now, seen...)
	for len(looks) > 0 {
		for _, look := range looks {
			s.detector.See(s.now, s.answer(look))
		}
		_, looks = s.detector.Step(s.now)
	}
	s.check()
}

func (n *searchedNode) answers() bool { return n.truth == well || n.truth == mute }

func (s *searched) report(i int) {
	s.detector.See(s.now, nodehealth.Report{AzDriverNode: s.nodes[i].driver})
}

func (s *searched) sendHeartbeat(i int) {
	n := &s.nodes[i]
	n.driver = n.driver.DeepCopy()
	n.driver.Status.HeartbeatTime = &metav1.MicroTime{Time: s.now}
	n.beat, n.asked = s.now, time.Time{}
	n.failed, n.down, n.wasDown, n.confirmed = 0, false, false, false
	s.report(i)
}

func (s *searched) answer(look nodehealth.Look) nodehealth.Observation {
	i := strings.Index("abc", look.Node)
	n := &s.nodes[i]
	switch look.Kind {
	case nodehealth.LookPing:
		if !s.outage && s.contact.IsZero() {
			s.contact = s.now
		}
		return nodehealth.Pinged{Look: look, Answered: !s.outage}
	case nodehealth.LookProbe:
		if n.failed++; n.answers() {
			n.failed = 0
		}
		n.connected = n.answers() && i < 2
		return nodehealth.Probed{Look: look, Answered: n.answers(), Connected: n.connected}
	case nodehealth.LookRequest:
		if s.outage {
			return nodehealth.HeartbeatRequested{Look: look}
		}
		if n.asked = s.now; n.truth == well || n.truth == hidden {
			s.sendHeartbeat(i)
		}
		return nodehealth.HeartbeatRequested{Look: look, Written: true}
	case nodehealth.LookQuestion, nodehealth.LookReview:
		if n.truth == off {
			n.down, n.wasDown = true, true
			return nodehealth.PowerRead{Look: look, Power: provisioner.PowerDeallocated}
		}
		n.down = false
		return nodehealth.PowerRead{Look: look, Power: provisioner.PowerRunning}
	case nodehealth.LookSilence:
		if s.outage {
			return nodehealth.SilenceRead{Look: look}
		}
		n.confirmed = true
		return nodehealth.SilenceRead{Look: look, Report: n.driver}
	case nodehealth.LookLease:
		return nodehealth.LeaseRead{Look: look, Missing: true}
	}
	return nodehealth.StakeRead{Look: look, Read: true}
}
