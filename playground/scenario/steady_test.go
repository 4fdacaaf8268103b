package scenario

import (
	"testing"
	"time"

	"github.com/azuredisk-csi/azuredisk/playground/recorder"
)

func TestTheLongestPauseCountsTheEndsToo(t *testing.T) {
	t.Parallel()
	at := func(seconds ...float64) []recorder.Ack {
		var acks []recorder.Ack
		for _, s := range seconds {
			acks = append(acks, recorder.Ack{Record: recorder.Record{Time: noon.Add(time.Duration(s * float64(time.Second)))}})
		}
		return acks
	}
	for name, test := range map[string]struct {
		acks []recorder.Ack
		want time.Duration
	}{
		"no record at all":                 {nil, 10 * time.Second},
		"a pause between two records":      {at(1, 2, 6, 9), 4 * time.Second},
		"records come in any order":        {at(9, 6, 2, 1), 4 * time.Second},
		"a pause at the end":               {at(1, 2, 3), 7 * time.Second},
		"a pause at the beginning":         {at(6, 7, 8, 9), 6 * time.Second},
		"what lies outside does not count": {at(-5, 20), 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := longestPause(test.acks, noon, noon.Add(10*time.Second)); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}
