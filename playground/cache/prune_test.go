package cache

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestTheYoungestEntriesStay(t *testing.T) {
	dir := t.TempDir()
	start := time.Now().Add(-time.Hour)
	for i, name := range []string{"a-1", "a-2", "a-3", "b-1"} {
		path := filepath.Join(dir, name)
		if err := os.Mkdir(path, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, start, start.Add(time.Duration(i)*time.Minute)); err != nil {
			t.Fatal(err)
		}
	}
	if !Use(filepath.Join(dir, "a-1")) || Use(filepath.Join(dir, "a-4")) {
		t.Error("Use does not tell what is there")
	}
	if err := Prune(filepath.Join(dir, "a-*"), 2); err != nil {
		t.Fatal(err)
	}
	for name, stays := range map[string]bool{"a-1": true, "a-2": false, "a-3": true, "b-1": true} {
		if _, err := os.Stat(filepath.Join(dir, name)); (err == nil) != stays {
			t.Errorf("%s: %v, should stay: %v", name, err, stays)
		}
	}
}
