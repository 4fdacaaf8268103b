package nodehealth_test

import (
	"strings"
	"testing"
	"time"

	"github.com/azuredisk-csi/azuredisk/internal/plan/nodehealth"
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
		"the age of a lease without a duration is none": {
			with(func(s *nodehealth.Signs) { s.Confirmed, s.LeaseAge = true, time.Hour }), nodehealth.Suspect,
			"nothing is known of the kubelet's lease"},
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

func TestOnlyALostNodeIsGuarded(t *testing.T) {
	for name, c := range map[string]struct {
		judgement nodehealth.Judgement
		want      bool
	}{
		"one of so many lost nodes that it is held back": {
			nodehealth.Judgement{State: nodehealth.Lost, MassLoss: true, HeldBack: "2 of 4"}, true},
		"lost, and failover is switched off": {nodehealth.Judgement{State: nodehealth.Lost, HeldBack: "off"}, false},
		"lost, and its fence may begin":      {nodehealth.Judgement{State: nodehealth.Lost, MassLoss: true}, false},
		"one of many Suspect nodes": {
			nodehealth.Judgement{State: nodehealth.Suspect, MassLoss: true, HeldBack: "2 of 4"}, false},
	} {
		if got := c.judgement.Guarded(); got != c.want {
			t.Errorf("%s: got guarded %t, want %t", name, got, c.want)
		}
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
