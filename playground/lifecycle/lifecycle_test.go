package lifecycle

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/azuredisk-csi/azuredisk/playground/source"
)

func TestEveryTestHasASentenceOfItsOwn(t *testing.T) {
	seen := map[string]bool{}
	for _, test := range All() {
		if test.Topic == "" || test.Name == "" || test.run == nil {
			t.Errorf("%q is not complete", test)
		}
		if seen[test.String()] {
			t.Errorf("%q is there twice", test)
		}
		seen[test.String()] = true
	}
}

func TestSelectTakesTopicsAndSentences(t *testing.T) {
	for expression, want := range map[string]string{"^copying:": copying, "immediate class": binding} {
		list, err := Select(expression)
		if err != nil {
			t.Fatal(err)
		}
		for _, test := range list {
			if test.Topic != want {
				t.Errorf("%s selects %q, want only tests of %s", expression, test, want)
			}
		}
	}
	for _, expression := range []string{"no such sentence", "("} {
		if _, err := Select(expression); err == nil {
			t.Errorf("%q selects something", expression)
		}
	}
}

// CloudNativePG's example has no pods: its operator makes them.
func TestPodsOfTheExamplesHaveTheProbe(t *testing.T) {
	root, err := source.Root()
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(root, "examples", "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	pods, b := 0, &bench{world: &world{image: "the-probe"}}
	for _, file := range files {
		manifest, err := b.manifest(filepath.Base(file))
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		images := strings.Count(manifest, "image:")
		pods += images
		if images != strings.Count(manifest, "image: the-probe") || images > 0 && !strings.Contains(manifest, "zone: "+zone1) ||
			strings.Contains(manifest, "command:") {
			t.Errorf("%s: got pods of their own:\n%s", filepath.Base(file), manifest)
		}
	}
	if pods < 2 {
		t.Errorf("got %d pods in %d examples, want 2 or more", pods, len(files))
	}
}
