package timeline_test

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/azuredisk-csi/azuredisk/playground/timeline"
)

func TestTheReportForProgramsHoldsWhatItMust(t *testing.T) {
	t.Parallel()
	report := sampleReport()
	dir := filepath.Join(t.TempDir(), "out")
	jsonPath, htmlPath, err := report.Write(dir)
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(jsonPath)
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Scenario string
		Passed   bool
		Checks   []timeline.Check
		Timeline []struct {
			T                    float64
			Step, Source, Detail string
		}
		Metrics map[string]any
	}
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	if got.Scenario != "planned-move" || !got.Passed || len(got.Checks) != 2 || got.Metrics["move_replicated_seconds"] != 7.5 {
		t.Errorf("%+v", got)
	}
	for i := 1; i < len(got.Timeline); i++ {
		if got.Timeline[i].T < got.Timeline[i-1].T {
			t.Errorf("event %d is out of order", i)
		}
	}
	if len(got.Timeline) != len(report.Events) {
		t.Errorf("%d events, want %d", len(got.Timeline), len(report.Events))
	}
	if filepath.Base(htmlPath) != "planned-move.html" {
		t.Errorf("page at %s", htmlPath)
	}
}

func TestThePageNeedsNothingFromElsewhere(t *testing.T) {
	t.Parallel()
	page, err := sampleReport().HTML()
	if err != nil {
		t.Fatal(err)
	}
	for _, foreign := range []string{"http://", "https://", "src=", "url(", "<script", "@import", "<link"} {
		if strings.Contains(string(page), foreign) {
			t.Errorf("the page holds %q", foreign)
		}
	}
	for _, want := range []string{"prefers-color-scheme", "viewport", "Nothing that was acknowledged is lost",
		"epoch 4: node-3 is primary &lt;&amp;&gt;"} {
		if !strings.Contains(string(page), want) {
			t.Errorf("the page lacks %q", want)
		}
	}
}

func TestAReportPassesOnlyIfAllChecksDo(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		checks []timeline.Check
		want   bool
	}{
		"no check proves nothing": {nil, false},
		"all passed":              {[]timeline.Check{{Passed: true}, {Passed: true}}, true},
		"one failed":              {[]timeline.Check{{Passed: true}, {}}, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := (&timeline.Report{Checks: test.checks}).Passed(); got != test.want {
				t.Errorf("Passed() is %t, want %t", got, test.want)
			}
		})
	}
}

func TestEveryPictureIsWellFormed(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		figure := timeline.Figure{
			Title: "a & b",
			Start: began,
			End:   began.Add(time.Duration(rapid.Int64Range(0, 1e11).Draw(t, "length"))),
			Lanes: moveLanes,
		}
		for range rapid.IntRange(0, 30).Draw(t, "events") {
			figure.Events = append(figure.Events, timeline.Event{
				At:       began.Add(time.Duration(rapid.Int64Range(-1e10, 2e11).Draw(t, "at"))),
				Duration: time.Duration(rapid.Int64Range(0, 1e11).Draw(t, "took")),
				Lane:     rapid.SampledFrom(moveLanes).Draw(t, "lane").Lane,
				Step:     rapid.StringMatching(`[a-z<>&"' ]{0,80}`).Draw(t, "step"),
			})
		}
		decoder := xml.NewDecoder(strings.NewReader(string(figure.SVG())))
		for {
			if _, err := decoder.Token(); errors.Is(err, io.EOF) {
				return
			} else if err != nil {
				t.Fatalf("%v in %s", err, figure.SVG())
			}
		}
	})
}

func TestMedian(t *testing.T) {
	t.Parallel()
	if got := timeline.Median([]float64{9, 1, 5}); got != 5 {
		t.Errorf("of three: %g, want %v", got, 5)
	}
	if got := timeline.Median([]float64{4, 1, 2, 9}); got != 3 {
		t.Errorf("of four: %g, want %v", got, 3)
	}
	if got := timeline.Median(nil); got != 0 {
		t.Errorf("of none: %g, want %v", got, 0)
	}
}
