package images

import (
	"os"
	"path/filepath"
	"testing"
)

func newTestStore(t *testing.T) (*Store, string) {
	t.Helper()
	program := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(program, []byte("the program"), 0o755); err != nil {
		t.Fatal(err)
	}
	return &Store{Cache: t.TempDir()}, program
}

func TestTheTagFollowsTheProgramAndOldVersionsAreDropped(t *testing.T) {
	store, program := newTestStore(t)
	refs := map[string]bool{}
	for i := range kept + 2 {
		if err := os.WriteFile(program, []byte{byte(i)}, 0o755); err != nil {
			t.Fatal(err)
		}
		made, err := store.Static(t.Context(), "thing", "", program)
		if err != nil {
			t.Fatal(err)
		}
		refs[made.Ref] = true
		if _, err := os.Stat(made.Tar); err != nil {
			t.Error(err)
		}
	}
	if len(refs) != kept+2 {
		t.Errorf("got %d names, want one for each of %d programs", len(refs), kept+2)
	}
	tars, _ := filepath.Glob(filepath.Join(store.Cache, "images", "*.tar"))
	if len(tars) != kept {
		t.Errorf("%d tars are kept, want %d: %v", len(tars), kept, tars)
	}
}
