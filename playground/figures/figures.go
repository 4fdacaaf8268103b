// Package figures has the measured figures of the project. Pages repeat them (go test ./test/docs
// compares them), and scenarios take their limits from them.
package figures

import (
	"crypto/sha256"
	_ "embed"
	"fmt"
	"time"

	"sigs.k8s.io/yaml"
)

//go:embed figures.yaml
var table []byte

// margin is how much longer than the longest run before it a run may take.
const margin = 1.5

// Limit returns the most seconds that a run may take on a machine that is so many times as slow as
// that of the record. It panics if there is no such figure.
func Limit(name string, slowness float64) float64 {
	var rows []struct {
		Name string  `json:"name"`
		Most float64 `json:"most"`
	}
	if err := yaml.Unmarshal(table, &rows); err != nil {
		panic(fmt.Sprintf("read figures.yaml: %v", err))
	}
	for _, row := range rows {
		if row.Name == name && row.Most > 0 {
			return row.Most * margin * slowness
		}
	}
	panic(fmt.Sprintf("figures.yaml has no figure %s", name))
}

const (
	// work is how many MiB of zeros a machine hashes to show how fast it is, and workTime how long
	// that took on the machine of the record, while nothing else used its processors.
	work     = 256
	workTime = 190 * time.Millisecond
	// slowest bounds what a machine can excuse.
	slowest = 4
)

// Slowness returns how many times as long as the machine of the record this one takes for the same
// work, from 1 to 4. since is a clock.
func Slowness(since func(do func()) time.Duration) float64 {
	took := since(func() {
		block, hash := make([]byte, 1<<20), sha256.New()
		for range work {
			_, _ = hash.Write(block)
		}
	})
	return min(max(took.Seconds()/workTime.Seconds(), 1), slowest)
}
