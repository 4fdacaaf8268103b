// Package checks judges an installation of the driver (doctor), and a cluster before one (preflight),
// line by line. It is pure: facts in, a report out; package collect reads the facts.
package checks

import (
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/azuredisk-csi/azuredisk/internal/cli/explain"
	"github.com/azuredisk-csi/azuredisk/internal/plan/cause"
	"github.com/azuredisk-csi/azuredisk/internal/printable"
)

// Result is the result of a check.
type Result string

// The results.
const (
	OK Result = "OK"
	// Warning: the driver works, and something is slower or less safe.
	Warning Result = "Warning"
	// Failed: something does not work, or would not.
	Failed Result = "Failed"
	// CannotTell: what decides it could not be read, or is not in the cluster.
	CannotTell Result = "CannotTell"
)

// severity orders the results.
func (v Result) severity() int {
	return slices.Index([]Result{OK, Warning, CannotTell, Failed}, v)
}

// Check is an entry of a registry.
type Check struct {
	ID string
	// Asks is what is checked, in one sentence, and Next what to do if it is not so.
	Asks, Next string
	// needs are the resources that decide it, as explain.Unread names them.
	needs []string
	// find returns what is wrong; nothing if all is well. It is nil for what only Azure knows.
	find func(Facts) []problem
	// command asks Azure.
	command func(Facts) string
}

// AsksAzure reports whether only Azure knows the answer.
func (c Check) AsksAzure() bool { return c.find == nil }

// problem is something that a check has found.
type problem struct {
	result Result
	says   string
}

func failed(format string, args ...any) problem { return problem{Failed, fmt.Sprintf(format, args...)} }

func warning(format string, args ...any) problem {
	return problem{Warning, fmt.Sprintf(format, args...)}
}

// Line is the result of a check.
type Line struct {
	Check  string `json:"name"`
	Result Result `json:"result"`
	// Says is what was found, or what was checked if all is well.
	Says string `json:"message"`
	// Next is what to do; "" if all is well.
	Next string `json:"remediation,omitempty"`
	// Command asks Azure for what the cluster does not know.
	Command string `json:"command,omitempty"`
}

// Report is the answer.
type Report struct {
	explain.Document
	Outcome cause.Outcome `json:"outcome"`
	Lines   []Line        `json:"checks"`
}

// Doctor judges an installation.
func Doctor(f Facts) Report { return run(f, doctor) }

// Preflight judges a cluster before an installation.
func Preflight(f Facts) Report { return run(f, preflight) }

// DoctorChecks and PreflightChecks are the registries.
func DoctorChecks() []Check { return slices.Clone(doctor) }

// PreflightChecks are those before an installation.
func PreflightChecks() []Check { return slices.Clone(preflight) }

func run(f Facts, all []Check) Report {
	report := Report{Document: explain.NewDocument("CheckReport", f.Now, f.Unread)}
	worst := OK
	for _, c := range all {
		line := c.line(f)
		report.Lines = append(report.Lines, line)
		// What the cluster never tells does not count.
		if c.find != nil && line.Result.severity() > worst.severity() {
			worst = line.Result
		}
	}
	report.Outcome = map[Result]cause.Outcome{
		OK: cause.Healthy, Warning: cause.Waits, Failed: cause.NeedsAction, CannotTell: cause.CannotTell,
	}[worst]
	return report
}

// mostProblems is how many problems of one check are named.
const mostProblems = 3

func (c Check) line(f Facts) Line {
	line := Line{Check: c.ID, Result: OK, Says: c.Asks}
	if c.find == nil {
		line.Result, line.Says, line.Next, line.Command = CannotTell, "only Azure knows: "+c.Asks, c.Next, c.command(f)
		return line
	}
	var says []string
	for _, u := range f.Unread {
		if slices.Contains(c.needs, u.What) {
			line.Result, line.Next = CannotTell, "ask an administrator of the cluster to run the same command"
			says = append(says, u.What+": "+u.Why)
		}
	}
	if line.Result == OK {
		found := c.find(f)
		slices.SortStableFunc(found, func(a, b problem) int { return b.result.severity() - a.result.severity() })
		for _, p := range found {
			says = append(says, p.says)
		}
		if len(found) > 0 {
			line.Result, line.Next = found[0].result, c.Next
		}
	}
	if len(says) > mostProblems {
		says = append(says[:mostProblems], fmt.Sprintf("and %d more", len(says)-mostProblems))
	}
	if len(says) > 0 {
		line.Says = strings.Join(says, "; ")
	}
	return line
}

// Text is the report for a terminal.
func (r Report) Text() string {
	var b strings.Builder
	table := tabwriter.NewWriter(&b, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "CHECK\tRESULT\tSAYS")
	count := map[Result]int{}
	for _, l := range r.Lines {
		count[l.Result]++
		fmt.Fprintf(table, "%s\t%s\t%s\n", l.Check, l.Result, printable.Line(l.Says))
	}
	_ = table.Flush() // into memory
	fmt.Fprintf(&b, "\n%d ok, %d warnings, %d failed, %d that cannot be told.\n", count[OK], count[Warning], count[Failed],
		count[CannotTell])
	if count[OK] < len(r.Lines) {
		b.WriteString("\nWhat to do:\n")
	}
	for _, l := range r.Lines {
		if l.Result == OK {
			continue
		}
		fmt.Fprintf(&b, "  %s: %s.\n", l.Check, l.Next)
		if l.Command != "" {
			fmt.Fprintf(&b, "    %s\n", l.Command)
		}
	}
	return b.String()
}

// Lists returns the checks of doctor and of preflight.
func Lists() (ofDoctor, ofPreflight []Check) { return doctor, preflight }

// OnlyAzureKnows says that nothing in the cluster answers the check.
func (c Check) OnlyAzureKnows() bool { return c.find == nil }
