package nodehealth_test

import (
	"testing"
	"time"

	"github.com/azuredisk-csi/azuredisk/internal/plan/nodehealth"
)

func TestLastWord(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		word  nodehealth.LastWord
		state nodehealth.State
		want  bool
	}{
		"Azure says that the VM is down":                   {nodehealth.LastWord{}, nodehealth.Down, true},
		"a lost node":                                      {nodehealth.LastWord{}, nodehealth.Lost, false},
		"a lost node whose VM was off":                     {nodehealth.LastWord{Off: true}, nodehealth.Lost, true},
		"a suspect node whose VM was off":                  {nodehealth.LastWord{Off: true}, nodehealth.Suspect, true},
		"a lost node from which everything was taken":      {nodehealth.LastWord{FailedOver: true}, nodehealth.Lost, true},
		"a healthy node from which everything was taken":   {nodehealth.LastWord{FailedOver: true}, nodehealth.Healthy, false},
		"a node about which this process knows too little": {nodehealth.LastWord{}, nodehealth.Unknown, false},
	} {
		if got := c.word.Said(c.state); got != c.want {
			t.Errorf("%s: got %t, want %t", name, got, c.want)
		}
	}
}

func TestQuestionToAzure(t *testing.T) {
	t.Parallel()
	const never = -1
	for name, c := range map[string]struct {
		question nodehealth.Question
		want     bool
	}{
		"a suspect node with a volume": {nodehealth.Question{State: nodehealth.Suspect, Primary: true, Answered: never}, true},
		"a suspect node without one": {nodehealth.Question{State: nodehealth.Suspect, Unseen: time.Hour, Answered: never},
			false},
		"a node that is lost for less than a minute": {
			nodehealth.Question{State: nodehealth.Lost, Unseen: nodehealth.AskAfter - 1, Answered: never}, false},
		"a node that is lost for a minute": {
			nodehealth.Question{State: nodehealth.Lost, Unseen: nodehealth.AskAfter, Answered: never}, true},
		"a node that keeps the guard closed": {
			nodehealth.Question{State: nodehealth.Lost, Doubted: true, Answered: time.Second}, true},
		"a node that was published as lost": {nodehealth.Question{State: nodehealth.Suspect, Recalled: true, Answered: never},
			true},
		"a node that is down, four minutes after the answer": {
			nodehealth.Question{State: nodehealth.Down, Unseen: time.Hour, Answered: 4 * time.Minute}, false},
		"a node that is down, five minutes after the answer": {
			nodehealth.Question{State: nodehealth.Down, Unseen: time.Hour, Answered: 5 * time.Minute}, true},
	} {
		if got := c.question.Due(); got != c.want {
			t.Errorf("%s: got %t, want %t", name, got, c.want)
		}
	}
}
