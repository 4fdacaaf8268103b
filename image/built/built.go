// Package built reads what a Go program is built from.
package built

import (
	"bytes"
	"debug/buildinfo"
	"fmt"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
)

// Modules returns the version of Go and the modules, each as it was built: one that another
// replaces is the other. A module that a folder replaces is a part of the same repository, and is
// not among them.
func Modules(program []byte) (goVersion string, modules []*debug.Module, err error) {
	info, err := buildinfo.Read(bytes.NewReader(program))
	if err != nil {
		return "", nil, fmt.Errorf("read the modules of the program: %w", err)
	}
	for i, dep := range info.Deps {
		if dep.Replace != nil {
			info.Deps[i] = dep.Replace
		}
	}
	return info.GoVersion, slices.DeleteFunc(info.Deps, func(dep *debug.Module) bool {
		return strings.HasPrefix(dep.Path, ".") || filepath.IsAbs(dep.Path)
	}), nil
}
