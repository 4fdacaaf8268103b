package nodehealth_test

import (
	"testing"
	"time"

	"github.com/azuredisk-csi/azuredisk/internal/plan/nodehealth"
)

func TestAStandbyAcquiresTheLeaseOfALostLeaderOnly(t *testing.T) {
	t.Parallel()
	const every = 2 * time.Second
	lost := nodehealth.Judgement{State: nodehealth.Lost}
	for name, test := range map[string]struct {
		health    nodehealth.Judgement
		unrenewed time.Duration
		want      bool
	}{
		"the node is lost": {lost, 3 * time.Second, true},
		"Azure says that the VM is down": {
			nodehealth.Judgement{State: nodehealth.Down}, 3 * time.Second, true},
		"the node is lost, but the leader renews its lease": {lost, every, false},
		"the node is suspect by one signal only": {
			nodehealth.Judgement{State: nodehealth.Suspect}, time.Minute, false},
		"the node is healthy, and the leader's process is stuck": {nodehealth.Judgement{State: nodehealth.Healthy}, time.Minute,
			false},
		"so many nodes seem lost that the guard holds back": {
			nodehealth.Judgement{State: nodehealth.Lost, HeldBack: "2 of 4", MassLoss: true}, time.Minute, false},
		"failover is switched off": {nodehealth.Judgement{State: nodehealth.Down, HeldBack: "off"}, time.Minute, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := nodehealth.AcquiresLease(nodehealth.LeaderSigns{
				Health:     test.health,
				Unrenewed:  test.unrenewed,
				RenewEvery: every,
			}); got != test.want {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}
