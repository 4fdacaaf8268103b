// Package licence collects the licence texts and the notices of what a Go program is built from:
// Go's own library and modules. It refuses a module whose licence is not in the list of those that
// are allowed.
package licence

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/google/licenseclassifier/v2/assets"
	"golang.org/x/mod/module"

	"github.com/azuredisk-csi/azuredisk/image/built"
)

// allowed are the licences that a module may have, by their SPDX identifiers.
var allowed = []string{"Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT"}

var (
	licenceFile = regexp.MustCompile(`(?i)^(?:licen[cs]es?|copying|unlicense)(?:[.-].*)?$`)
	noticeFile  = regexp.MustCompile(`(?i)^(?:notice|copyright|patents)(?:[.-].*)?$`)
)

// Module is a Go module, or Go's own library, and the folder that has its files.
type Module struct {
	Path, Version, Dir string
}

// Modules returns Go's own library and the modules that the program is built from, with their
// folders on this machine, where the program was built.
func Modules(program []byte) ([]Module, error) {
	goVersion, deps, err := built.Modules(program)
	if err != nil {
		return nil, err
	}
	output, err := exec.Command("go", "env", "GOROOT", "GOMODCACHE").Output()
	if err != nil {
		return nil, fmt.Errorf("ask Go for its folders: %w", err)
	}
	folders := strings.Split(string(output), "\n")
	modules := []Module{{"Go", goVersion, folders[0]}}
	for _, dep := range deps {
		at, err := module.EscapePath(dep.Path)
		if err != nil {
			return nil, err
		}
		version, err := module.EscapeVersion(dep.Version)
		if err != nil {
			return nil, err
		}
		modules = append(modules, Module{dep.Path, dep.Version, filepath.Join(folders[1], at+"@"+version)})
	}
	return modules, nil
}

// text is a text that some files of modules have.
type text struct {
	content []byte
	// files are the modules, with the file in each.
	files []string
	// licence is whether one of them is a file of a licence, and not of a notice.
	licence bool
}

// Notices returns all licence texts and notices of the modules, each text once. The same modules
// give the same bytes.
func Notices(modules []Module) ([]byte, error) {
	var texts []*text
	var faults []error
	for _, m := range modules {
		found, err := read(m)
		if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(found, func(t *text) bool { return t.licence }) {
			faults = append(faults, fmt.Errorf("%s %s has no file of a licence in %s", m.Path, m.Version, m.Dir))
		}
		for _, t := range found {
			i := slices.IndexFunc(texts, func(other *text) bool { return bytes.Equal(other.content, t.content) })
			if i < 0 {
				texts = append(texts, t)
				continue
			}
			texts[i].files, texts[i].licence = append(texts[i].files, t.files...), texts[i].licence || t.licence
		}
	}
	var out bytes.Buffer
	out.WriteString("The licences and notices of the Go modules that are in the program.\n")
	for _, t := range texts {
		if err := t.check(); err != nil {
			faults = append(faults, err)
		}
		fmt.Fprintf(&out, "\n%s\n%s\n\n%s\n", strings.Repeat("=", 80), strings.Join(t.files, "\n"), bytes.TrimSpace(t.content))
	}
	return out.Bytes(), errors.Join(faults...)
}

// read returns the texts of a module in order of their paths. Go's own library has its at the root,
// and other folders of Go are not in a program.
func read(m Module) ([]*text, error) {
	var texts []*text
	files := os.DirFS(m.Dir)
	err := fs.WalkDir(files, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := entry.Name()
		if entry.IsDir() {
			if path != "." && (name == "testdata" || m.Path == "Go") {
				return fs.SkipDir
			}
			return nil
		}
		isLicence := licenceFile.MatchString(name)
		if filepath.Ext(name) == ".go" || !isLicence && !noticeFile.MatchString(name) {
			return nil
		}
		content, err := fs.ReadFile(files, path)
		texts = append(texts, &text{content, []string{fmt.Sprintf("%s %s: %s", m.Path, m.Version, path)}, isLicence})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read the licences of %s %s: %w", m.Path, m.Version, err)
	}
	return texts, nil
}

var known = sync.OnceValues(assets.DefaultClassifier)

// check returns an error if the text has a licence that is not allowed, or none that is known.
func (t *text) check() error {
	if !t.licence {
		return nil
	}
	licences, err := known()
	if err != nil {
		return err
	}
	var names []string
	for _, match := range licences.Match(t.content).Matches {
		if match.MatchType == "License" || match.MatchType == "Header" {
			names = append(names, match.Name)
		}
	}
	if len(names) == 0 {
		names = []string{"of no known kind"}
	}
	names = slices.DeleteFunc(names, func(name string) bool { return slices.Contains(allowed, name) })
	if len(names) == 0 {
		return nil
	}
	return fmt.Errorf("%s: got the licence %s; want one of %s", strings.Join(t.files, ", "), strings.Join(names, ", "),
		strings.Join(allowed, ", "))
}
