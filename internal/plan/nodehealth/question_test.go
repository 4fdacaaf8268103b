package nodehealth_test

import (
	"testing"
	"time"

	"github.com/azuredisk-csi/azuredisk/internal/plan/nodehealth"
)

func TestQuestionToAzure(t *testing.T) {
	t.Parallel()
	const never = -1
	for name, c := range map[string]struct {
		question nodehealth.Question
		want     bool
	}{
		"a suspect node with a volume": {nodehealth.Question{State: nodehealth.Suspect, Primary: true, Answered: never}, true},
		"a suspect node without one": {nodehealth.Question{State: nodehealth.Suspect, NoSign: time.Hour, Answered: never},
			false},
		"a node that is lost for less than a minute": {
			nodehealth.Question{State: nodehealth.Lost, NoSign: nodehealth.AskAfter - 1, Answered: never}, false},
		"a node that is lost for a minute": {
			nodehealth.Question{State: nodehealth.Lost, NoSign: nodehealth.AskAfter, Answered: never}, true},
		"a node that keeps the guard closed": {
			nodehealth.Question{State: nodehealth.Lost, Doubted: true, Answered: time.Second}, true},
		"a node that was published as lost": {nodehealth.Question{State: nodehealth.Suspect, Recalled: true, Answered: never},
			true},
		"a node that is down, right after the answer": {nodehealth.Question{State: nodehealth.Down, NoSign: time.Hour}, false},
		"a node that is down, four minutes after the answer": {
			nodehealth.Question{State: nodehealth.Down, NoSign: time.Hour, Answered: 4 * time.Minute}, false},
		"a node that is down, five minutes after the answer": {
			nodehealth.Question{State: nodehealth.Down, NoSign: time.Hour, Answered: 5 * time.Minute}, true},
	} {
		if got := c.question.Due(); got != c.want {
			t.Errorf("%s: got %t, want %t", name, got, c.want)
		}
	}
}
