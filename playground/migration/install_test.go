package migration

import (
	"maps"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/azuredisk-csi/azuredisk/playground/source"
)

// TestEveryCommandOfTheGuidesIsRun: a section with commands that Follow does not know would not be
// tested.
func TestEveryCommandOfTheGuidesIsRun(t *testing.T) {
	for name, sections := range guides {
		g, err := source.ReadGuide(filepath.Join("..", "..", "docs", "guides", name+".md"))
		if err != nil {
			t.Error(err)
			continue
		}
		if diff := cmp.Diff(slices.Sorted(slices.Values(sections)), slices.Sorted(maps.Keys(g))); diff != "" {
			t.Errorf("sections of %s with commands (-followed +in the guide):\n%s", name, diff)
		}
	}
}
