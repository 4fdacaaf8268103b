package nodereport

import (
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/operation"
)

const (
	// lostWritesKept is for how long the report has an entry of LostWrites: the controller records it
	// within seconds, or when a controller runs again.
	lostWritesKept = time.Hour
	// mostLostWrites limits the entries, as the CRD does.
	mostLostWrites = 32
)

// The lengths of the texts in the lists of a report, in bytes. A report may have more than a hundred of
// each.
const (
	LongestMessage = 512
	LongestReason  = 256
)

// LostWrites has the next write of the report say that the device of a volume did not take its last
// writes, which replaces an earlier loss of the same volume. It writes nothing by itself: at an unstage
// that is the write which removes the volume's entry. If the process is killed before that, only its
// log has the loss.
func (r *Reporter) LostWrites(volume, message string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lost[volume] = apiv1.LostWrites{
		VolumeName: volume,
		LossTime:   metav1.NewTime(r.options.Clock.Now().Truncate(time.Second)), // as the API server has it
		Message:    operation.ShortenTo(message, LongestMessage),
	}
}

// withLost returns the entries of a status that was read with those of this process, without old ones,
// in the order of their times.
func (r *Reporter) withLost(read []apiv1.LostWrites) []apiv1.LostWrites {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []apiv1.LostWrites
	now := r.options.Clock.Now()
	old := func(l apiv1.LostWrites) bool { return now.Sub(l.LossTime.Time) >= lostWritesKept }
	for _, entry := range read {
		if _, newer := r.lost[entry.VolumeName]; !newer && !old(entry) {
			all = append(all, entry)
		}
	}
	for volume, entry := range r.lost {
		if old(entry) {
			delete(r.lost, volume)
		} else {
			all = append(all, entry)
		}
	}
	slices.SortFunc(all, func(a, b apiv1.LostWrites) int {
		if order := a.LossTime.Compare(b.LossTime.Time); order != 0 {
			return order
		}
		return strings.Compare(a.VolumeName, b.VolumeName)
	})
	return all[max(0, len(all)-mostLostWrites):]
}
