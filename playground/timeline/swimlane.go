package timeline

import (
	"fmt"
	"html/template"
	"math"
	"strings"
	"time"
)

// The picture's measures, in the units of its view box.
const (
	pictureWidth = 1080.0
	labelColumn  = 150.0
	rightMargin  = 16.0
	axisHeight   = 34.0
	rowHeight    = 19.0
	lanePadding  = 7.0
	glyphWidth   = 6.7 // of the 11-unit font, on the wide side
	markWidth    = 4.0
	labelGap     = 5.0
)

// swimlane draws a figure.
type swimlane struct {
	figure *Figure
	scale  float64 // units per second
	svg    strings.Builder
}

// mark is a placed event.
type mark struct {
	event       Event
	left, right float64 // of the bar
	text        float64 // where the label begins or, if before is set, ends
	before      bool
	row         int
}

// SVG draws the figure: one lane below the other, time from left to right.
func (f *Figure) SVG() template.HTML {
	s := &swimlane{figure: f, scale: (pictureWidth - labelColumn - rightMargin) / max(f.End.Sub(f.Start).Seconds(), 0.001)}
	type placedLane struct {
		LaneTitle
		marks  []mark
		top    float64
		height float64
	}
	top := axisHeight
	var lanes []placedLane
	for _, lane := range f.Lanes {
		marks, rows := s.place(lane.Lane)
		height := float64(max(rows, 2))*rowHeight + 2*lanePadding
		lanes = append(lanes, placedLane{lane, marks, top, height})
		top += height
	}
	fmt.Fprintf(&s.svg, `<svg viewBox="0 0 %.0f %.0f" role="img" aria-label="%s">`, pictureWidth, top+2,
		template.HTMLEscapeString(f.Title))
	for i, lane := range lanes {
		s.band(lane.LaneTitle, lane.top, lane.height, i%2 == 1)
	}
	s.gap(top)
	s.axis(top)
	for _, lane := range lanes {
		for _, m := range lane.marks {
			s.mark(m, lane.top)
		}
	}
	s.svg.WriteString(`</svg>`)
	return template.HTML(s.svg.String())
}

func (s *swimlane) x(t time.Time) float64 {
	x := labelColumn + t.Sub(s.figure.Start).Seconds()*s.scale
	return min(max(x, labelColumn), pictureWidth-rightMargin)
}

// place puts the lane's events into rows so that no label covers another.
func (s *swimlane) place(lane Lane) ([]mark, int) {
	var marks []mark
	var ends []float64 // of each row
	for _, e := range s.figure.Events {
		if e.Lane != lane {
			continue
		}
		m := mark{
			event: e,
			left:  s.x(e.At),
			right: s.x(e.End()),
		}
		m.right = max(m.right, m.left+markWidth)
		width := float64(len([]rune(e.Step))) * glyphWidth
		first, last := m.left, m.right+labelGap+width
		m.text = m.right + labelGap
		if last > pictureWidth-2 {
			m.before, m.text = true, m.left-labelGap
			first, last = m.text-width, m.right
		}
		for m.row = 0; m.row < len(ends) && ends[m.row] > first; m.row++ {
		}
		if m.row == len(ends) {
			ends = append(ends, 0)
		}
		ends[m.row] = last + 2*labelGap
		marks = append(marks, m)
	}
	return marks, len(ends)
}

func (s *swimlane) band(lane LaneTitle, top, height float64, odd bool) {
	class := "band"
	if odd {
		class = "band odd"
	}
	fmt.Fprintf(&s.svg, `<rect class="%s" x="0" y="%.1f" width="%.0f" height="%.1f"/>`, class, top, pictureWidth, height)
	fmt.Fprintf(&s.svg, `<text class="lane" x="10" y="%.1f">%s</text>`, top+height/2, template.HTMLEscapeString(lane.Title))
	fmt.Fprintf(&s.svg, `<text class="note" x="10" y="%.1f">%s</text>`, top+height/2+14, template.HTMLEscapeString(lane.Note))
}

func (s *swimlane) gap(bottom float64) {
	if s.figure.Gap == nil {
		return
	}
	left, right := s.x(s.figure.Gap.Start), s.x(s.figure.Gap.End)
	fmt.Fprintf(&s.svg, `<rect class="gap" x="%.1f" y="%.1f" width="%.1f" height="%.1f"><title>%s</title></rect>`,
		left, axisHeight-4, right-left, bottom-axisHeight+4, template.HTMLEscapeString(s.figure.Gap.Label))
	fmt.Fprintf(&s.svg, `<text class="gaptext" x="%.1f" y="11" text-anchor="middle">%s</text>`,
		(left+right)/2, template.HTMLEscapeString(s.figure.Gap.Label))
}

func (s *swimlane) axis(bottom float64) {
	length := s.figure.End.Sub(s.figure.Start).Seconds()
	step := tick(length)
	decimals := max(0, int(-math.Floor(math.Log10(step)+1e-9)))
	for i := 0; float64(i)*step <= length; i++ {
		at := float64(i) * step
		x := labelColumn + at*s.scale
		fmt.Fprintf(&s.svg, `<line class="tick" x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f"/>`, x, x, axisHeight-4, bottom)
		fmt.Fprintf(&s.svg, `<text class="time" x="%.1f" y="%.1f" text-anchor="middle">%.*f s</text>`, x, axisHeight-9, decimals, at)
	}
}

// tick is a round number of seconds that cuts the length into 5 to 14 parts.
func tick(length float64) float64 {
	rough := length / 12
	power := math.Pow(10, math.Floor(math.Log10(max(rough, 1e-6))))
	for _, m := range []float64{1, 2, 5} {
		if m*power >= rough {
			return m * power
		}
	}
	return 10 * power
}

func (s *swimlane) mark(m mark, top float64) {
	y := top + lanePadding + float64(m.row)*rowHeight
	class := string(m.event.Kind)
	if m.event.Failed {
		class += " failed"
	}
	fmt.Fprintf(&s.svg, `<g class="mark %s"><title>%s</title>`, class, template.HTMLEscapeString(s.tooltip(m.event)))
	fmt.Fprintf(&s.svg, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" rx="2"/>`, m.left, y+2, m.right-m.left, rowHeight-6)
	anchor := "start"
	if m.before {
		anchor = "end"
	}
	fmt.Fprintf(&s.svg, `<text x="%.1f" y="%.1f" text-anchor="%s">%s</text></g>`, m.text, y+12, anchor,
		template.HTMLEscapeString(m.event.Step))
}

func (s *swimlane) tooltip(e Event) string {
	text := fmt.Sprintf("%.3f s: %s", e.At.Sub(s.figure.Start).Seconds(), e.Step)
	if e.Duration > 0 {
		text += ", took " + Round(e.Duration)
	}
	if e.Detail != "" {
		text += "\n" + e.Detail
	}
	return text + "\nseen by: " + e.Source
}
