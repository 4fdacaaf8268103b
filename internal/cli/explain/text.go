package explain

import (
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/azuredisk-csi/azuredisk/internal/plan/cause"
	"github.com/azuredisk-csi/azuredisk/internal/printable"
)

// Text is the report for a terminal: a sentence, what was quoted, the chain, and what to do.
func (r Report) Text() string {
	var b strings.Builder
	if r.Subject.Kind != KindNode { // whose sentences name it
		fmt.Fprintf(&b, "%s: ", upper(r.Subject.String()))
	}
	fmt.Fprintf(&b, "%s\n", printable.Line(r.Sentence))
	r.quote(&b, r.Finding)
	for _, v := range r.Others {
		fmt.Fprintf(&b, "\nAlso: %s\n", printable.Line(v.Sentence))
		r.quote(&b, v)
	}
	if len(r.Chain) > 0 {
		b.WriteString("\n")
		table := tabwriter.NewWriter(&b, 0, 0, 3, ' ', 0)
		for _, l := range r.Chain {
			fmt.Fprintf(table, "  %s\t%s%s\n", l.title(), printable.Line(l.Says), r.since(l.Since))
		}
		_ = table.Flush() // into memory
	}
	fmt.Fprintf(&b, "\nWhat to do: %s.\n", strings.TrimSuffix(r.Next, "."))
	for _, v := range r.Others {
		fmt.Fprintf(&b, "            %s.\n", strings.TrimSuffix(v.Next, "."))
	}
	if len(r.Azure) > 0 && (r.Outcome == cause.NeedsAction || r.Outcome == cause.CannotTell) {
		b.WriteString("\nAt Azure:\n")
		for _, a := range r.Azure {
			fmt.Fprintf(&b, "  %s\n    %s\n    %s\n", a.What, a.Command, a.Portal)
		}
	}
	b.WriteString("\n" + r.source())
	return b.String()
}

// longestTitle keeps the table narrow: the name of an AzVolume is long, and ends with a hash.
const longestTitle = 40

// title names the object of a link.
func (l Link) title() string {
	title := strings.TrimSpace(l.Object + " " + l.Name)
	if len(title) > longestTitle {
		return l.Object
	}
	return title
}

func (r Report) quote(b *strings.Builder, v Finding) {
	if v.Quote != "" {
		fmt.Fprintf(b, "  > %s\n", strings.ReplaceAll(v.Quote, "\n", "\n  > "))
	}
}

// since says when something began, and how long ago.
func (r Report) since(t *time.Time) string {
	if t == nil {
		return ""
	}
	return fmt.Sprintf(", since %s (%s)", clockAt(r.Time, *t), ago(r.Time.Sub(*t)))
}

// ago is a duration in the units in which people say it.
func ago(d time.Duration) string {
	switch {
	case d < time.Second:
		return "now"
	case d < 2*time.Minute:
		return fmt.Sprintf("%d s ago", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%d min ago", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h ago", int(d.Hours()))
	default:
		return fmt.Sprintf("%d days ago", int(d.Hours()/24))
	}
}

var outcomeSays = map[cause.Outcome]string{
	cause.Healthy:     "nothing is wrong",
	cause.Waits:       "it ends without you",
	cause.NeedsAction: "it needs an action",
	cause.CannotTell:  "it cannot be told",
}

// source says what the answer was made from.
func (r Report) source() string {
	text := fmt.Sprintf("Cause: %s (%s). ", r.ID, outcomeSays[r.Outcome])
	if r.Rights == ScopeCluster {
		text += "Made from the driver's records, with your rights in the cluster."
	} else {
		text += "Made from the objects and events of the namespace: the driver's records could not be read."
	}
	if len(r.Unread) > 0 {
		var all []string
		for _, u := range r.Unread {
			all = append(all, u.What+" ("+u.Why+")")
		}
		text += "\nNot read: " + strings.Join(all, ", ") + "."
	}
	return text + "\n"
}
