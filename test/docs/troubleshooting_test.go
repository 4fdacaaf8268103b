package docs

import (
	"fmt"
	"strings"
	"testing"

	"github.com/azuredisk-csi/azuredisk/internal/cli/whatif"
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
