package docs

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/azuredisk-csi/azuredisk/cli/explain"
	"github.com/azuredisk-csi/azuredisk/cli/whatif"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/expect"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/tree"
)

// TestWhatIfHasTheFiguresOfThePerformancePage compares the times that the command expects with the
// page that says where they come from.
func TestWhatIfHasTheFiguresOfThePerformancePage(t *testing.T) {
	const page = "docs/explanation/performance.md"
	for what, figures := range map[string]whatif.Figures{
		"the node is lost": whatif.AfterLoss, "the node is drained": whatif.InADrain,
	} {
		row := fmt.Sprintf("| %s | %g s | %g s | %g s |", what, figures.Warm.Seconds(), figures.ByDetach.Seconds(),
			figures.Cold.Seconds())
		if !strings.Contains(read(t, page), row) {
			t.Errorf("%s: got no row %q, want it", page, row)
		}
	}
}

// findingOf is where the code names a cause.
var findingOf = regexp.MustCompile(`\b(?:find|waits)\("([A-Za-z]+)"`)

// TestEveryFindingIsInTheListOfCauses compares both ways: a cause that no code names is not on the
// page, and a finding that is not in the list has no advice.
func TestEveryFindingIsInTheListOfCauses(t *testing.T) {
	listed := map[string]bool{}
	for _, c := range explain.Registry() {
		listed[string(c.ID)] = true
	}
	var source strings.Builder
	for _, file := range goFiles(t) {
		if filepath.Dir(file) != "cli/explain" || strings.HasSuffix(file, "_test.go") || strings.HasSuffix(file,
			"registry.go") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(tree.Root(), file))
		expect.Must(t, err)
		source.Write(text)
	}
	found := findingOf.FindAllStringSubmatch(source.String(), -1)
	if len(found) < 60 {
		t.Fatalf("findings in the code: got %d, want at least 60", len(found))
	}
	for _, m := range found {
		if !listed[m[1]] {
			t.Errorf("got the finding %s, want only causes of the list", m[1])
		}
	}
}
