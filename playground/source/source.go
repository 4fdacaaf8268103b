// Package source finds the source tree that the playground builds from.
package source

import (
	"errors"
	"os"
	"path/filepath"
)

// Root returns the root of the repository: $AZUREDISK_SOURCE, or the first
// folder at or above the working directory or this executable that holds the
// playground's tool modules.
func Root() (string, error) {
	if dir := os.Getenv("AZUREDISK_SOURCE"); dir != "" {
		return filepath.Abs(dir)
	}
	var starts []string
	if dir, err := os.Getwd(); err == nil {
		starts = append(starts, dir)
	}
	if exe, err := os.Executable(); err == nil {
		starts = append(starts, filepath.Dir(exe))
	}
	for _, start := range starts {
		for dir := start; ; dir = filepath.Dir(dir) {
			if _, err := os.Stat(filepath.Join(dir, "playground", "programs", "kubernetes", "go.mod")); err == nil {
				return dir, nil
			}
			if dir == filepath.Dir(dir) {
				break
			}
		}
	}
	return "", errors.New("the source tree was not found: run this inside the repository, or set AZUREDISK_SOURCE to it")
}
