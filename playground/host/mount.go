package host

import (
	"os"
	"path/filepath"
	"strings"
)

// MountOf returns the mount point that holds the path.
func MountOf(path string) (string, error) {
	path, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", err
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", err
	}
	return mountOf(path, string(mounts)), nil
}

// mountOf is the longest mount point that is a prefix of the path. Of two mounts on
// one folder the later hides the earlier, and both have the same name.
func mountOf(path, mountinfo string) string {
	best := "/"
	for _, line := range strings.Split(mountinfo, "\n") {
		fields := strings.Fields(line)
		if len(fields) < 5 {
			continue
		}
		point := fields[4]
		if len(point) > len(best) && (path == point || strings.HasPrefix(path, point+"/")) {
			best = point
		}
	}
	return best
}
