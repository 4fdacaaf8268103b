package images

import (
	"archive/tar"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

func newTestStore(t *testing.T) (*Store, string) {
	t.Helper()
	program := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(program, []byte("the program"), 0o755); err != nil {
		t.Fatal(err)
	}
	return &Store{Cache: t.TempDir()}, program
}

func TestAnImageIsMadeOfTheSameBytesEachTime(t *testing.T) {
	var digests []string
	for range 2 {
		store, program := newTestStore(t)
		made, err := store.Static(t.Context(), "thing", "v1", program)
		if err != nil {
			t.Fatal(err)
		}
		if made.Ref != "azuredisk.local/thing:v1" {
			t.Errorf("ref %s, want %s", made.Ref, "azuredisk.local/thing:v1")
		}
		image, err := tarball.ImageFromPath(made.Tar, nil)
		if err != nil {
			t.Fatal(err)
		}
		digest, err := image.Digest()
		if err != nil {
			t.Fatal(err)
		}
		digests = append(digests, digest.String())
		config, err := image.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		if len(config.Config.Entrypoint) != 1 || config.Config.Entrypoint[0] != "/thing" {
			t.Errorf("entrypoint %v, want len(config.Config.Entrypoint) = %v, config.Config.Entrypoint[0] = %v", config.Config.Entrypoint, 1, "/thing")
		}
	}
	if digests[0] != digests[1] {
		t.Errorf("got the digests %v, want equal ones", digests)
	}
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

func TestATreeIsPackedInOrderWithoutWhatIsNotNeeded(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"bin/b", "bin/a", "usr/share/doc/x", "var/log/y"} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	out := filepath.Join(t.TempDir(), "tree.tar")
	if err := writeTree(out, dir); err != nil {
		t.Fatal(err)
	}
	layer, err := tarball.LayerFromFile(out)
	if err != nil {
		t.Fatal(err)
	}
	if got := names(t, layer); !slices.Equal(got, []string{"bin/", "bin/a", "bin/b", "usr/", "usr/share/", "usr/share/doc/", "var/", "var/log/"}) {
		t.Errorf("got %v, want %v", got, []string{"bin/", "bin/a", "bin/b", "usr/", "usr/share/", "usr/share/doc/", "var/", "var/log/"})
	}
}

func names(t *testing.T, layer v1.Layer) []string {
	t.Helper()
	content, err := layer.Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer content.Close()
	var list []string
	for reader := tar.NewReader(content); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return list
		}
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, header.Name)
	}
}

func TestWhatSeveralWantAtOnceIsMadeOnce(t *testing.T) {
	store, program := newTestStore(t)
	var made atomic.Int32
	store.Progress = func(format string, _ ...any) {
		if strings.HasPrefix(format, "making") {
			made.Add(1)
		}
	}
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			if _, err := store.Static(t.Context(), "thing", "", program); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if made.Load() != 1 {
		t.Errorf("made %d times, want %d", made.Load(), 1)
	}
}
