package main

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// unpack returns the names in an archive, and what they hold.
func unpack(t *testing.T, r io.Reader) (names []string, contents map[string]string) {
	t.Helper()
	zip, err := gzip.NewReader(r)
	must(t, err)
	archive := tar.NewReader(zip)
	contents = map[string]string{}
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return names, contents
		}
		must(t, err)
		text, err := io.ReadAll(archive)
		must(t, err)
		names, contents[header.Name] = append(names, header.Name), string(text)
	}
}

// TestBundleOverARealAPIServer writes an archive into a file and to the standard output.
func TestBundleOverARealAPIServer(t *testing.T) {
	l := newLab(t)
	file := filepath.Join(t.TempDir(), "bundle.tar.gz")
	text, code := l.run(t, "bundle", "--file", file)
	if code != 0 || !strings.Contains(text, "files are in "+file) {
		t.Fatalf("got exit code %d, want 0, and the name of the file:\n%s", code, text)
	}
	in, err := os.Open(file)
	must(t, err)
	defer in.Close()
	names, contents := unpack(t, in)
	for _, name := range []string{"objects/azvolumes.yaml", "objects/azdrivernodes.yaml", "objects/persistentvolumeclaims.yaml",
		"objects/nodes.yaml", "objects/csidriver.yaml", "objects/leases.yaml", "contents.txt", "versions.txt"} {
		if !slices.Contains(names, "azuredisk/"+name) {
			t.Errorf("got no %s among %q, want it", name, names)
		}
	}
	if got := contents["azuredisk/contents.txt"]; strings.Contains(got, "Failed:") || strings.Contains(got, "Not read:") {
		t.Errorf("got what could not be read, want all to be read:\n%s", got)
	}
	if got := contents["azuredisk/versions.txt"]; !strings.Contains(got, "Kubernetes v1.") {
		t.Errorf("got versions %q, want that of Kubernetes", got)
	}
	if _, code := l.run(t, "bundle", "--file", file); code == 0 {
		t.Error("got exit code 0, want a refusal to overwrite the file")
	}
	text, _ = l.run(t, "bundle", "--file", "-")
	if names, _ := unpack(t, strings.NewReader(text)); len(names) < 8 {
		t.Errorf("standard output: got %q, want an archive", names)
	}
}
