package docs

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/azuredisk-csi/azuredisk/internal/testkit/expect"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/tree"
)

var updateFigures = flag.Bool("update-figures", false, "write the table of figures.yaml into the page on performance")

const (
	figuresFile = "playground/figures/figures.yaml"
	performance = "docs/explanation/performance.md"
)

// figure is a row of figuresFile. Its numbers are in seconds.
type figure struct {
	Name    string  `json:"name"`
	What    string  `json:"what"`
	Median  float64 `json:"median"`
	Least   float64 `json:"least"`
	Most    float64 `json:"most"`
	Runs    any     `json:"runs"`
	Commit  string  `json:"commit,omitempty"`
	Machine string  `json:"machine,omitempty"`
	Command string  `json:"command"`
	// Pages are the other pages that repeat the median.
	Pages string `json:"pages,omitempty"`
}

func readFigures(t *testing.T) (figures []figure) {
	t.Helper()
	expect.Must(t, yaml.UnmarshalStrict([]byte(read(t, figuresFile)), &figures))
	for _, f := range figures {
		sorted := f.Median == 0 || f.Least <= f.Median && f.Median <= f.Most
		if !sorted || f.Most == 0 || (f.Commit == "") != (f.Machine == "") || f.Command == "" {
			t.Errorf("%s: got %+v, want least, median and most in their order, a command, and a commit with its machine",
				figuresFile, f)
		}
	}
	return figures
}

// TestPicturesHaveMeasuredFigures: times in a picture are medians of the record.
func TestPicturesHaveMeasuredFigures(t *testing.T) {
	medians := map[string]bool{}
	for _, f := range readFigures(t) {
		medians[fmt.Sprintf("%.3g s", f.Median)] = true
	}
	times := 0
	for _, picture := range files(t, ".svg", 4) {
		for _, got := range regexp.MustCompile(`[0-9.]+ m?s\b`).FindAllString(read(t, picture), -1) {
			if times++; !medians[got] {
				t.Errorf("%s: got %s, want a median of %s", picture, got, figuresFile)
			}
		}
	}
	if times < 4 {
		t.Errorf("times in pictures: got %d, want at least 4", times)
	}
}

// TestFiguresArePrinted compares the table of the page on performance with the record.
func TestFiguresArePrinted(t *testing.T) {
	want := "<!-- generated -->\n| what | median | least | most | runs | commit | `bin/playground run` |\n" +
		"|---|---|---|---|---|---|---|\n"
	for _, f := range readFigures(t) {
		seconds := func(n float64) string {
			if n == 0 {
				return "not recorded"
			}
			return fmt.Sprintf("%.3g s", n)
		}
		want += fmt.Sprintf("| %s | %s | %s | %s | %v | %s | `%s` |\n", f.What, seconds(f.Median), seconds(f.Least),
			seconds(f.Most), f.Runs, cmp.Or(f.Commit, "not recorded"), strings.TrimPrefix(f.Command, "bin/playground run "))
	}
	want += "<!-- end of generated -->"
	text := read(t, performance)
	if got := generatedPart.FindString(text); got != want && !*updateFigures {
		t.Errorf("%s: got another table of figures than %s has (go test ./test/docs -run Figures -update-figures):\n%s",
			performance, figuresFile, want)
	}
	if *updateFigures {
		text = generatedPart.ReplaceAllLiteralString(text, want)
		expect.Must(t, os.WriteFile(filepath.Join(tree.Root(), performance), []byte(text), 0o644))
	}
}
