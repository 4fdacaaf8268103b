package whatif

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/azuredisk-csi/azuredisk/internal/plan/cause"
	"github.com/azuredisk-csi/azuredisk/internal/printable"
)

// columns of the table.
var columns = []string{"NAMESPACE", "POD", "FROM", "TO", "RESULT", "SECONDS", "WHY"}

// fewNodes is how many nodes are named in a cell, or for one reason.
const fewNodes = 5

// Cells are the row for a terminal.
func (r Row) Cells() []string {
	to, seconds := r.To, ""
	if len(r.Or) > 0 {
		to = few(append([]string{r.To}, r.Or...), " or ")
	}
	if r.Result != Stuck {
		seconds = fmt.Sprint(r.Seconds)
	}
	why := r.Why
	if r.Cause != "" {
		why = string(r.Cause) + ": " + why
	}
	return []string{r.Namespace, r.Pod, r.From, to, r.Result, seconds, printable.Line(why)}
}

// few names the first of some nodes.
func few(names []string, separator string) string {
	text := strings.Join(names[:min(len(names), fewNodes)], separator)
	if len(names) > fewNodes {
		text += fmt.Sprintf(" and %d others", len(names)-fewNodes)
	}
	return text
}

// Text is the report for a terminal: what is assumed, a table, and what to do about pods that are
// stuck.
func (r Report) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "If %s is %s", r.Subject, strings.ToLower(string(r.Assumed)))
	if r.Assumed == Lost && len(r.Nodes) > 1 {
		fmt.Fprintf(&b, ", with all of its %d nodes at once", len(r.Nodes))
	}
	b.WriteString(": ")
	if len(r.Pods) == 0 {
		b.WriteString("no pod there has a volume of the driver.\n")
		return b.String()
	}
	count := map[string]int{}
	next := map[string]string{}
	for _, row := range r.Pods {
		count[row.Result]++
		if row.Cause != "" {
			next[row.Cause] = row.Next
		}
	}
	fmt.Fprintf(&b, "%d of %d pods find their disks attached, %d wait for Azure, and %d need an action.\n",
		count[Warm], len(r.Pods), count[Cold], count[Stuck])
	if r.Note != "" {
		b.WriteString(r.Note + "\n")
	}
	b.WriteString("\n")
	table := tabwriter.NewWriter(&b, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, strings.Join(columns, "\t"))
	for _, row := range r.Pods {
		fmt.Fprintln(table, strings.Join(row.Cells(), "\t"))
	}
	_ = table.Flush() // into memory
	if len(next) > 0 {
		b.WriteString("\nWhat to do:\n")
		for _, c := range cause.Table() {
			if what := next[c.ID]; what != "" {
				fmt.Fprintf(&b, "  %s: %s.\n", c.ID, what)
			}
		}
	}
	return b.String()
}
