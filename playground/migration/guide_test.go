package migration

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/azuredisk-csi/azuredisk/playground/source"
)

func TestTheShellBlocksOfAGuideAreReadAsTheyArePrinted(t *testing.T) {
	path := filepath.Join(t.TempDir(), "guide.md")
	const text = "# Guide\n\n```sh\nnot in a section\n```\n\n## First\n\n1. Do:\n\n   ```sh\n   one \\\n     two\n   cat <<'X'\n   a:\n     b\n   X\n   ```\n\n" +
		"   ```yaml\n   not: shell\n   ```\n\n```sh\nthree\n```\n\n## Second\n\nNothing.\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	g, err := source.ReadGuide(path)
	if err != nil {
		t.Fatal(err)
	}
	blocks, err := g.Section("First")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"one \\\n  two\ncat <<'X'\na:\n  b\nX\n", "three\n"}, blocks); diff != "" {
		t.Error(diff)
	}
	if _, err := g.Section("Second"); err == nil {
		t.Error("a section without commands is taken")
	}
}

func TestTheMigrationGuideHasCommandsForEachSectionThatIsFollowed(t *testing.T) {
	g, err := source.ReadGuide(filepath.Join("..", "..", "docs", "guides", "migrate-from-v1.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, heading := range []string{switchOver, switchBack, removeV1} {
		if _, err := g.Section(heading); err != nil {
			t.Error(err)
		}
	}
}
