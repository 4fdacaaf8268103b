// Package cache keeps the playground's cache of built things from growing: entries
// are named by their content, so every change adds one.
package cache

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// Prune removes all but the youngest files or folders that match the pattern. Use
// makes an entry young.
func Prune(pattern string, keep int) error {
	entries, err := filepath.Glob(pattern)
	if err != nil {
		return err
	}
	age := map[string]time.Time{}
	for _, entry := range entries {
		if info, err := os.Lstat(entry); err == nil {
			age[entry] = info.ModTime()
		}
	}
	slices.SortFunc(entries, func(a, b string) int { return age[b].Compare(age[a]) })
	for _, entry := range entries[min(keep, len(entries)):] {
		if err := os.RemoveAll(entry); err != nil {
			return fmt.Errorf("remove what is old in the cache: %w", err)
		}
	}
	return nil
}

// Use makes an entry young and tells whether it is there.
func Use(entry string) bool {
	now := time.Now()
	return os.Chtimes(entry, now, now) == nil
}
