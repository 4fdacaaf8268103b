// Package programs finds the pinned programs that tests run, in the cache outside of the tree that
// `make programs` fills.
package programs

import (
	"fmt"
	"os"
	"path/filepath"
)

// Find returns the path of a program, as in "kube-apiserver". Of several builds it is the newest,
// which is the one that the tree pins now. The programs of Kubernetes are those of the version in
// PLAYGROUND_KUBERNETES, or of the newest version. Find reads the variable AZUREDISK_PROGRAMS,
// which only makes a difference to Go: where it names the programs' builds, a test that passed with
// others is not remembered as passed.
func Find(name string) (string, error) {
	_ = os.Getenv("AZUREDISK_PROGRAMS")
	cache := os.Getenv("AZUREDISK_CACHE")
	if cache == "" {
		dir, err := os.UserCacheDir()
		if err != nil {
			return "", fmt.Errorf("find the program cache: %w", err)
		}
		cache = filepath.Join(dir, "azuredisk")
	}
	// Only versions of Kubernetes that are not the newest have a folder, and only with Kubernetes'
	// own programs.
	pattern := filepath.Join(cache, "programs", "*", "bin", name)
	ofVersion := filepath.Join(cache, "programs", os.Getenv("PLAYGROUND_KUBERNETES"), "*", "bin", name)
	for _, p := range []string{ofVersion, pattern} {
		newest, err := newestOf(p)
		if newest != "" || err != nil {
			return newest, err
		}
	}
	return "", fmt.Errorf("%s is not in the program cache (%s): run `make programs` first", name, pattern)
}

// newestOf returns the newest file of a pattern, or nothing if there is none.
func newestOf(pattern string) (string, error) {
	found, err := filepath.Glob(pattern)
	if err != nil {
		return "", fmt.Errorf("look for %s: %w", pattern, err)
	}
	newest, at := "", int64(0)
	for _, path := range found {
		info, err := os.Stat(path)
		if err != nil {
			return "", fmt.Errorf("look at %s: %w", path, err)
		}
		if modified := info.ModTime().UnixNano(); newest == "" || modified > at {
			newest, at = path, modified
		}
	}
	return newest, nil
}
