package explain

import (
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/cause"
)

// Evidence is an object, and what it says.
type Evidence struct {
	Object string     `json:"object"`
	Says   string     `json:"message"`
	Since  *time.Time `json:"since,omitempty"`
}

// Finding is one cause.
type Finding struct {
	ID       string        `json:"reason"`
	Outcome  cause.Outcome `json:"outcome"`
	Sentence string        `json:"message"`
	// Next is what the reader does next.
	Next string `json:"remediation"`
	// EndsBy is when it is expected to end.
	EndsBy *time.Time `json:"expectedEndTime,omitempty"`
	// Quote is the text of Azure, of Kubernetes or of the driver that says it.
	Quote    string     `json:"quote,omitempty"`
	Evidence []Evidence `json:"evidence,omitempty"`
}

// Report is the answer to a question.
type Report struct {
	Document
	Subject Subject `json:"subject"`
	Finding
	// Others are the findings about the pod's other volumes, unless they are healthy.
	Others []Finding `json:"otherFindings,omitempty"`
	// Chain is what there is on the way from the subject to the disk.
	Chain []Link `json:"chain,omitempty"`
	// Azure are the resources at Azure.
	Azure []Resource `json:"azureResources,omitempty"`
	// Rights says what the answer is made from.
	Rights Scope `json:"scope"`
}

// Scope is what an answer is made from: the records of the driver, or the objects of a namespace alone.
type Scope string

// The scopes.
const (
	ScopeCluster   Scope = "Cluster"
	ScopeNamespace Scope = "Namespace"
)

// Link is one object of the chain.
type Link struct {
	Object string     `json:"object"`
	Name   string     `json:"name,omitempty"`
	Says   string     `json:"message"`
	Since  *time.Time `json:"since,omitempty"`
}

// Resource is a resource at Azure.
type Resource struct {
	What    string `json:"object"`
	ID      string `json:"id"`
	Portal  string `json:"portalURL"`
	Command string `json:"command"`
}

// find returns the finding of a cause with a sentence.
func find(id string, format string, args ...any) Finding {
	kind := cause.Of(id)
	return Finding{ID: id, Outcome: kind.Outcome, Sentence: fmt.Sprintf(format, args...), Next: kind.Next}
}

func (v Finding) seen(evidence ...Evidence) Finding {
	v.Evidence = append(v.Evidence[:len(v.Evidence):len(v.Evidence)], evidence...)
	return v
}

func (v Finding) quoting(text string) Finding {
	v.Quote = strings.TrimSpace(text)
	return v
}

func (v Finding) then(format string, args ...any) Finding {
	v.Next = fmt.Sprintf(format, args...)
	return v
}

// until gives a finding of what a call in flight or a timer ends, which began at a time, the time by
// which it usually ends.
func (f Facts) until(v Finding, began time.Time) Finding {
	return f.endsBy(v, began.Add(usually(v.ID)))
}

// call is until for what a call to Azure ends, if op is in flight; otherwise it is soon.
func (f Facts) call(v Finding, op *apiv1.Operation, since time.Time) Finding {
	if op == nil {
		return f.soon(v, since)
	}
	return f.until(v, op.StartTime.Time)
}

// soon says of a finding that waits for another program, and for no timer, how long it usually lasts.
// After that time the facts do not say that it ends.
func (f Facts) soon(v Finding, since time.Time) Finding {
	if f.Now.After(since.Add(usually(v.ID))) {
		v.Outcome = cause.CannotTell
		return v.then("this usually ends within %.0f s, and has lasted since %s. Look for the reason in the log of the controller: %s",
			usually(v.ID).Seconds(), f.clock(since), f.logCommand())
	}
	return v.then("nothing: this usually ends within %.0f s", usually(v.ID).Seconds())
}

func usually(id string) time.Duration { return cause.Of(id).Usually }

// endsBy gives a finding that waits the time by which it is expected to end. After that time the
// facts do not say that it ends.
func (f Facts) endsBy(v Finding, end time.Time) Finding {
	v.EndsBy = &end
	if f.Now.After(end) {
		v.Outcome = cause.CannotTell
		v.Next = fmt.Sprintf("this was expected to end at %s. Look for the reason in the log of the controller: %s",
			f.clock(end), f.logCommand())
		return v
	}
	v.Next = "nothing: expected to end by " + f.clock(end)
	return v
}

func (f Facts) logCommand() string {
	return "kubectl logs " + f.inController() + " -c controller"
}

func (f Facts) clock(t time.Time) string { return clockAt(f.Now, t) }

// clockAt is a time of day in the location of now, with the date if the time is not near.
func clockAt(now, t time.Time) string {
	t = t.In(now.Location())
	if now.Sub(t).Abs() > 20*time.Hour {
		return t.Format("2006-01-02 15:04:05")
	}
	return t.Format(time.TimeOnly)
}

func moment(t metav1.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t.Time
}
