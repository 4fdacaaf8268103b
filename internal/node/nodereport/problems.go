package nodereport

import (
	"regexp"
	"strings"

	apiequality "k8s.io/apimachinery/pkg/api/equality"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/operation"
	"github.com/azuredisk-csi/azuredisk/internal/plan/problem"
)

// Saw notes what was seen of a volume on this node: the cause of a problem with a message, or "" for no
// problem. A problem that lasts is written at once, and removed at once when it has ended. Nothing is
// written otherwise.
func (r *Reporter) Saw(volume string, source problem.Source, reason, message string) {
	r.changeProblems(func(b *problem.Book) {
		b.Saw(volume, source, reason, plain(message), r.options.Clock.Now())
	})
}

// ForgetProblems ends all problems of a volume, which this node has released.
func (r *Reporter) ForgetProblems(volume string) {
	r.changeProblems(func(b *problem.Book) { b.Forget(volume) })
}

// ReviewProblems ends the problems that were not seen again for long.
func (r *Reporter) ReviewProblems() { r.changeProblems(func(*problem.Book) {}) }

// unreported matches what the message of a problem cannot have.
var unreported = regexp.MustCompile(`[^A-Za-z0-9 .,:;/_()='*~-]+`)

// plain is a text as the message of a problem.
func plain(text string) string {
	short := strings.ReplaceAll(operation.ShortenTo(text, LongestReason), "…", "...")
	return strings.TrimSpace(unreported.ReplaceAllString(short, " "))
}

func (r *Reporter) changeProblems(change func(*problem.Book)) {
	r.mu.Lock()
	change(&r.problems)
	changed := !apiequality.Semantic.DeepEqual(r.problems.Problems(r.options.Clock.Now()), r.told)
	r.mu.Unlock()
	select {
	case <-r.written:
		if changed {
			r.wakeUp()
		}
	default: // the first write has them
	}
}

// resumeProblems takes over what the former process has reported.
func (r *Reporter) resumeProblems(reported []apiv1.VolumeProblem) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.problems.Resume(reported, r.options.Clock.Now())
}

// reportProblems sets the problems in a report.
func (r *Reporter) reportProblems(status *apiv1.AzDriverNodeStatus) {
	r.mu.Lock()
	defer r.mu.Unlock()
	status.VolumeProblems = r.problems.Problems(r.options.Clock.Now())
}
