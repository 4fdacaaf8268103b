package figures

import (
	"testing"
	"time"
)

func TestLimit(t *testing.T) {
	if got, want := Limit("node-power-cut", 2), 2*Limit("node-power-cut", 1); got != want {
		t.Errorf("limit on a machine of half the speed: got %v, want %v", got, want)
	}
	for took, want := range map[time.Duration]float64{workTime / 2: 1, 2 * workTime: 2, time.Hour: slowest} {
		if got := Slowness(func(func()) time.Duration { return took }); got != want {
			t.Errorf("slowness of a machine that takes %s: got %v, want %v", took, got, want)
		}
	}
}
