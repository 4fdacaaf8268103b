package history_test

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/azuredisk-csi/azuredisk/playground/history"
	"github.com/azuredisk-csi/azuredisk/playground/recorder"
)

// orderly draws a history in which every writer behaves: some writers after one
// another, some records each, some of them killed in the middle of a write.
func orderly(t *rapid.T) file {
	var disk file
	var sequence int64
	writers := rapid.Int64Range(1, 5).Draw(t, "writers")
	for start := int64(1); start <= writers; start++ {
		for range rapid.IntRange(1, 8).Draw(t, "records") {
			sequence++
			disk = disk.record(start, sequence, fmt.Sprintf("pod-%d", start))
		}
		if rapid.Bool().Draw(t, "killed in a write") {
			disk = disk.damage()
		}
	}
	return disk
}

func whole(disk file) []int {
	var lines []int
	for i, e := range disk {
		if !e.Damaged {
			lines = append(lines, i)
		}
	}
	return lines
}

func TestAnOrderlyHistoryIsClean(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		disk := orderly(t)
		acks := disk.acks()
		acks = acks[:rapid.IntRange(0, len(acks)).Draw(t, "acknowledged")]
		result := history.Check(rapid.Permutation(acks).Draw(t, "arrival"), disk)
		if !result.Clean() {
			t.Fatalf("got %+v, want a clean result", result)
		}
		if result.OnDisk != len(whole(disk)) || result.Acknowledged != len(acks) {
			t.Fatalf("counted %d on disk and %d acknowledged of %d and %d", result.OnDisk, result.Acknowledged, len(whole(disk)),
				len(acks))
		}
	})
}

// harms are the ways to spoil an orderly history; each must be noticed.
var harms = map[string]func(t *rapid.T, disk file) file{
	"an acknowledged record vanishes": func(t *rapid.T, disk file) file {
		i := rapid.SampledFrom(whole(disk)).Draw(t, "victim")
		return slices.Delete(slices.Clone(disk), i, i+1)
	},
	"an acknowledged record is damaged": func(t *rapid.T, disk file) file {
		disk = slices.Clone(disk)
		disk[rapid.SampledFrom(whole(disk)).Draw(t, "victim")] = recorder.Entry{Damaged: true}
		return disk
	},
	"the disk goes back in time": func(t *rapid.T, disk file) file {
		lines := whole(disk)
		return disk[:lines[rapid.IntRange(0, len(lines)-1).Draw(t, "kept")]]
	},
	"two lines change places": func(t *rapid.T, disk file) file {
		disk = slices.Clone(disk)
		lines := whole(disk)
		if len(lines) < 2 {
			return disk.record(1, 1, "pod-1")
		}
		i := rapid.IntRange(0, len(lines)-2).Draw(t, "first")
		disk[lines[i]], disk[lines[i+1]] = disk[lines[i+1]], disk[lines[i]]
		return disk
	},
	"a record is there twice": func(t *rapid.T, disk file) file {
		return append(slices.Clone(disk), disk[rapid.SampledFrom(whole(disk)).Draw(t, "copied")])
	},
	"a stranger writes with the latest start number": func(_ *rapid.T, disk file) file {
		sequence, start := recorder.Last(disk)
		return slices.Clone(disk).record(start, sequence+1, "stranger")
	},
	"an earlier writer comes back": func(_ *rapid.T, disk file) file {
		sequence, start := recorder.Last(disk)
		return slices.Clone(disk).record(start+1, sequence+1, "next").record(start, sequence+2, fmt.Sprintf("pod-%d", start))
	},
}

func TestEveryHarmIsNoticed(t *testing.T) {
	t.Parallel()
	for name, harm := range harms {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(t *rapid.T) {
				disk := orderly(t)
				if result := history.Check(disk.acks(), harm(t, disk)); result.Clean() {
					t.Fatalf("got a clean result, want the harm found in %+v", disk)
				}
			})
		})
	}
}
