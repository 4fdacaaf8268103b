package timeline

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"time"
)

// Report is the outcome of a scenario.
type Report struct {
	Scenario string
	// Title is the page's heading.
	Title string
	// Summary is a sentence or two for a reader who does not know the scenario.
	Summary string
	Started time.Time
	Ended   time.Time
	Checks  []Check
	// Metrics are numbers, lists of numbers, booleans or strings, by name.
	Metrics map[string]any
	Events  []Event
	// Comparison may be nil.
	Comparison *Comparison
	Figures    []Figure
	// Notes say what is real in the picture and what is not, and how it was measured.
	Notes []string
}

// Check is one thing that had to hold.
type Check struct {
	Name   string `json:"name"`
	Passed bool   `json:"passed"`
	Detail string `json:"detail"`
}

// Figure is a picture of a stretch of time.
type Figure struct {
	Title   string
	Caption string
	Start   time.Time
	End     time.Time
	Lanes   []LaneTitle
	// Gap is the time in which the workload could not write, or nil.
	Gap    *Span
	Events []Event
	// Headline figures are shown open, the others folded.
	Headline bool
}

// LaneTitle is a lane and how it is labelled.
type LaneTitle struct {
	Lane  Lane
	Title string
	// Note is a second, smaller line.
	Note string
}

// Span is a stretch of time with a label.
type Span struct {
	Start, End time.Time
	Label      string
}

// Comparison is a picture of durations side by side.
type Comparison struct {
	Title  string
	Groups []Group
}

// Group is one kind of durations in a Comparison.
type Group struct {
	Title   string
	Seconds []float64
	// Good draws the group in the colour of the driver, the others are pale.
	Good bool
}

// Passed reports whether there are checks and all of them passed.
func (r *Report) Passed() bool {
	for _, c := range r.Checks {
		if !c.Passed {
			return false
		}
	}
	return len(r.Checks) > 0
}

type jsonReport struct {
	Scenario string         `json:"scenario"`
	Passed   bool           `json:"passed"`
	Summary  string         `json:"summary"`
	Started  time.Time      `json:"started"`
	Seconds  float64        `json:"seconds"`
	Checks   []Check        `json:"checks"`
	Metrics  map[string]any `json:"metrics"`
	Timeline []jsonEvent    `json:"timeline"`
}

type jsonEvent struct {
	// T is in seconds since the scenario started.
	T        float64 `json:"t"`
	Step     string  `json:"step"`
	Source   string  `json:"source"`
	Lane     Lane    `json:"lane"`
	Detail   string  `json:"detail"`
	Duration float64 `json:"seconds,omitempty"`
	Failed   bool    `json:"failed,omitempty"`
	Subject  string  `json:"subject,omitempty"`
}

// JSON returns the report for programs.
func (r *Report) JSON() ([]byte, error) {
	out := jsonReport{
		Scenario: r.Scenario,
		Passed:   r.Passed(),
		Summary:  r.Summary,
		Started:  r.Started,
		Seconds:  seconds(r.Ended.Sub(r.Started)),
		Checks:   r.Checks,
		Metrics:  r.Metrics,
		Timeline: []jsonEvent{},
	}
	for _, e := range sorted(r.Events) {
		out.Timeline = append(out.Timeline, jsonEvent{
			T:        seconds(e.At.Sub(r.Started)),
			Step:     e.Step,
			Source:   e.Source,
			Lane:     e.Lane,
			Detail:   e.Detail,
			Duration: seconds(e.Duration),
			Failed:   e.Failed,
			Subject:  e.Subject,
		})
	}
	data, err := json.MarshalIndent(out, "", "  ")
	return append(data, '\n'), err
}

// Write writes <scenario>.json and <scenario>.html into the directory, which it
// makes, and returns their paths.
func (r *Report) Write(dir string) (jsonPath, htmlPath string, err error) {
	jsonPath = filepath.Join(dir, r.Scenario+".json")
	htmlPath = filepath.Join(dir, r.Scenario+".html")
	data, err := r.JSON()
	if err != nil {
		return "", "", fmt.Errorf("encode the report: %w", err)
	}
	page, err := r.HTML()
	if err != nil {
		return "", "", fmt.Errorf("draw the report: %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", "", err
	}
	return jsonPath, htmlPath, errors.Join(os.WriteFile(jsonPath, data, 0o644), os.WriteFile(htmlPath, page, 0o644))
}

// seconds is rounded to the microsecond, which is finer than anything here is measured.
func seconds(d time.Duration) float64 {
	return math.Round(d.Seconds()*1e6) / 1e6
}
