package timeline

import (
	"bytes"
	_ "embed" // the page's template
	"fmt"
	"html/template"
	"slices"
	"time"
)

//go:embed page.html
var pageSource string

var page = template.Must(template.New("page").Parse(pageSource))

// pageView is what the template shows.
type pageView struct {
	*Report
	Verdict  bool
	When     string
	Took     string
	Bars     []barGroup
	BarsName string
	Headline []*Figure
	Folded   []*Figure
	Numbers  []number
	Rows     []row
}

type barGroup struct {
	Title  string
	Good   bool
	Median string
	Bars   []bar
}

type bar struct {
	Label string
	Width string // per cent
}

type number struct{ Name, Value string }

type row struct {
	At, Took, Lane, Step, Detail, Source string
	Failed                               bool
}

// HTML returns the page: no script, no picture and no font from elsewhere.
func (r *Report) HTML() ([]byte, error) {
	view := pageView{
		Report:  r,
		Verdict: r.Passed(),
		When:    r.Started.UTC().Format("2 January 2006, 15:04 UTC"),
		Took:    Round(r.Ended.Sub(r.Started)),
		Bars:    r.bars(),
	}
	if r.Comparison != nil {
		view.BarsName = r.Comparison.Title
	}
	for i := range r.Figures {
		if r.Figures[i].Headline {
			view.Headline = append(view.Headline, &r.Figures[i])
		} else {
			view.Folded = append(view.Folded, &r.Figures[i])
		}
	}
	for name, value := range r.Metrics {
		view.Numbers = append(view.Numbers, number{name, fmt.Sprint(value)})
	}
	slices.SortFunc(view.Numbers, func(a, b number) int { return bytes.Compare([]byte(a.Name), []byte(b.Name)) })
	for _, e := range sorted(r.Events) {
		view.Rows = append(view.Rows, row{
			At:     fmt.Sprintf("%.3f", e.At.Sub(r.Started).Seconds()),
			Took:   took(e.Duration),
			Lane:   string(e.Lane),
			Step:   e.Step,
			Detail: e.Detail,
			Source: e.Source,
			Failed: e.Failed,
		})
	}
	var out bytes.Buffer
	if err := page.Execute(&out, view); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

func took(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return Round(d)
}

func (r *Report) bars() []barGroup {
	if r.Comparison == nil {
		return nil
	}
	longest := 0.001
	for _, g := range r.Comparison.Groups {
		for _, s := range g.Seconds {
			longest = max(longest, s)
		}
	}
	var groups []barGroup
	for _, g := range r.Comparison.Groups {
		median := Median(g.Seconds)
		group := barGroup{
			Title:  g.Title,
			Good:   g.Good,
			Median: fmt.Sprintf("%.1f s", median),
		}
		for _, s := range g.Seconds {
			group.Bars = append(group.Bars, bar{Label: fmt.Sprintf("%.1f s", s), Width: fmt.Sprintf("%.2f", 100*s/longest)})
		}
		groups = append(groups, group)
	}
	return groups
}
