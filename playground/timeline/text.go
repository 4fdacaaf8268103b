package timeline

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

const laneWidth = 18

// Text prints the figure as aligned text: the time since its start, the time since
// the line before, how long it took, where it was, and what.
func (f *Figure) Text(w io.Writer) error {
	rows := []byte("at\tafter\ttook\t\n")
	previous := f.Start
	for _, e := range f.Events {
		took := ""
		if e.Duration > 0 {
			took = Round(e.Duration)
		}
		rows = fmt.Appendf(rows, "%.3f s\t+%s\t%s\t\n", e.At.Sub(f.Start).Seconds(), Round(max(0, e.At.Sub(previous))), took)
		previous = e.At
	}
	var numbers strings.Builder
	table := tabwriter.NewWriter(&numbers, 0, 0, 3, ' ', tabwriter.AlignRight)
	if _, err := table.Write(rows); err != nil {
		return err
	}
	if err := table.Flush(); err != nil {
		return err
	}
	titles := map[Lane]string{}
	for _, l := range f.Lanes {
		titles[l.Lane] = l.Title
	}
	if _, err := fmt.Fprintln(w, f.Title); err != nil {
		return err
	}
	for i, line := range strings.Split(strings.TrimRight(numbers.String(), "\n"), "\n") {
		if i > 0 {
			e := f.Events[i-1]
			line = fmt.Sprintf("%s   %-*s %s", line, laneWidth, titles[e.Lane], e.Step)
			if e.Failed {
				line += " (failed: " + e.Detail + ")"
			}
		}
		if _, err := fmt.Fprintln(w, strings.TrimRight(line, " ")); err != nil {
			return err
		}
	}
	return nil
}

// Text prints what passed and the metrics that a person asks for first.
func (r *Report) Text(w io.Writer) error {
	var b strings.Builder
	for _, c := range r.Checks {
		verdict := "ok    "
		if !c.Passed {
			verdict = "FAILED"
		}
		fmt.Fprintf(&b, "  %s  %s: %s\n", verdict, c.Name, c.Detail)
	}
	verdict := "PASSED"
	if !r.Passed() {
		verdict = "FAILED"
	}
	fmt.Fprintf(&b, "%s %s in %s\n%s\n", r.Scenario, verdict, Round(r.Ended.Sub(r.Started)), r.Summary)
	_, err := io.WriteString(w, b.String())
	return err
}

// Round writes a duration with about three digits, as in "12 ms", "8.21 s" or "2 min 5 s".
func Round(d time.Duration) string {
	switch {
	case d < 0:
		return "-" + Round(-d)
	case d < time.Millisecond:
		return fmt.Sprintf("%.1f ms", d.Seconds()*1e3)
	case d < time.Second:
		return fmt.Sprintf("%.0f ms", d.Seconds()*1e3)
	case d < 10*time.Second:
		return fmt.Sprintf("%.2f s", d.Seconds())
	case d < 2*time.Minute:
		return fmt.Sprintf("%.1f s", d.Seconds())
	}
	d = d.Round(time.Second)
	return fmt.Sprintf("%d min %d s", d/time.Minute, d%time.Minute/time.Second)
}
