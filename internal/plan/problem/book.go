package problem

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
)

const (
	// lasts is how long a problem must have been seen before it is reported.
	lasts = 10 * time.Second
	// kept is how long a problem counts after it was seen last. The kubelet repeats a call at most two
	// minutes after its end, and forgets some.
	kept = 5 * time.Minute
	// most is how many problems are reported, as the CRD limits it.
	most = 8
)

// Source is one way to learn of a volume's problems. What it says replaces what it has said before.
type Source string

// Mounted is the look at the filesystem of a volume.
const Mounted Source = "filesystem"

// former is the report of the process before this one.
const former Source = "former"

// Staging are the calls that stage and unstage a volume.
const Staging Source = "staging"

const (
	publishing = "publishing "
	reading    = "reading "
)

// Publishing are the calls that publish and unpublish a volume at a path.
func Publishing(path string) Source { return Source(publishing + path) }

// Reading are the reads from the device of the volume that is published at a path.
func Reading(path string) Source { return Source(reading + path) }

// reports reports whether a source can see a cause.
func (s Source) reports(reason string) bool {
	switch reason {
	case apiv1.ReasonFilesystemFrozen, apiv1.ReasonFilesystemTakesNoWrites:
		return s == Mounted
	case apiv1.ReasonDeviceGone, apiv1.ReasonReadFailed:
		return strings.HasPrefix(string(s), reading)
	default:
		return s == Staging || strings.HasPrefix(string(s), publishing)
	}
}

type seen struct {
	reason, message string
	since, last     time.Time
}

// Book has the problems of the volumes of a node, as its sources see them. The zero value is empty. It is
// not safe for concurrent use.
type Book struct {
	volumes map[string]map[Source]seen
}

// Saw notes what a source says of a volume now: a cause with a message, or "" for no problem.
func (b *Book) Saw(volume string, source Source, reason, message string, now time.Time) {
	said := b.volumes[volume]
	before, again := said[source]
	if f, is := said[former]; is && source.reports(f.reason) {
		delete(said, former)
		if !again {
			before = f
		}
	}
	if reason == "" {
		delete(said, source)
		return
	}
	if before.reason != reason {
		before.since = now
	}
	b.put(volume, source, seen{reason: reason, message: message, since: before.since, last: now})
}

func (b *Book) put(volume string, source Source, s seen) {
	if b.volumes == nil {
		b.volumes = map[string]map[Source]seen{}
	}
	if b.volumes[volume] == nil {
		b.volumes[volume] = map[Source]seen{}
	}
	b.volumes[volume][source] = s
}

// Forget removes what all sources have said of a volume: the node has released it.
func (b *Book) Forget(volume string) { delete(b.volumes, volume) }

// Resume takes over the report of the process before this one. Its problems count until a source that can
// see them has said something, or as long as a source's own.
func (b *Book) Resume(reported []apiv1.VolumeProblem, now time.Time) {
	for _, p := range reported {
		b.put(p.VolumeName, former, seen{reason: p.Reason, message: p.Message, since: p.StartTime.Time, last: now})
	}
}

// Problems returns the problems to report, by the names of the volumes. It forgets those that no source has
// confirmed for long.
func (b *Book) Problems(now time.Time) []apiv1.VolumeProblem {
	var all []apiv1.VolumeProblem
	for _, volume := range slices.Sorted(maps.Keys(b.volumes)) {
		said := b.volumes[volume]
		maps.DeleteFunc(said, func(_ Source, s seen) bool { return now.Sub(s.last) > kept })
		if len(said) == 0 {
			delete(b.volumes, volume)
			continue
		}
		var lasting []seen
		for _, s := range said {
			if s.last.Sub(s.since) >= lasts {
				lasting = append(lasting, s)
			}
		}
		if len(lasting) == 0 || len(all) == most {
			continue
		}
		worst := slices.MinFunc(lasting, func(a, b seen) int {
			return cmp.Or(cmp.Compare(Rank(a.reason), Rank(b.reason)), a.since.Compare(b.since),
				cmp.Compare(a.message, b.message))
		})
		all = append(all, apiv1.VolumeProblem{VolumeName: volume, Reason: worst.reason, Message: worst.message,
			StartTime: metav1.NewTime(worst.since.Truncate(time.Second))}) // as the API server has it
	}
	return all
}

// Rank is the place of a reason in Reasons; those that this version does not know come last.
func Rank(reason string) int {
	if i := slices.Index(Reasons, reason); i >= 0 {
		return i
	}
	return len(Reasons)
}
