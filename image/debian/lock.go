// Package debian gets packages of Debian without Debian's tools: it reads a lock file, downloads
// what the lock names, and unpacks it without running anything of it.
//
// Trust has two steps. Package release verifies the signature of a release and takes the hashes of
// the packages from it, which the lock file records. Fetcher accepts only what has the hash of the
// lock, so that the source of a download does not matter.
package debian

import (
	"encoding/hex"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	debversion "github.com/knqyf263/go-deb-version"
	"sigs.k8s.io/yaml"
)

// Lock pins packages.
type Lock struct {
	// Taken is the time at which the archives were read, as YYYYMMDDTHHMMSSZ. The archive of old
	// packages is asked for this time.
	Taken string `json:"taken"`
	// Packages are the packages by architecture, in order of names.
	Packages map[string][]Package `json:"packages"`
}

// Package is a binary package of Debian at one version.
type Package struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	// Source is the name of the source package.
	Source string `json:"source"`
	// Archive is debian or debian-security.
	Archive string `json:"archive"`
	// Path is that of the file in the archive.
	Path   string `json:"path"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

// Archives are the archives that packages come from, with their suites.
var Archives = []struct{ Name, Suite string }{{"debian", "bookworm"}, {"debian-security", "bookworm-security"}}

// TakenLayout is the layout of the time of a lock.
const TakenLayout = "20060102T150405Z"

// ParseLock reads a lock and reports all that is wrong with it.
func ParseLock(data []byte) (Lock, error) {
	var lock Lock
	if err := yaml.UnmarshalStrict(data, &lock); err != nil {
		return Lock{}, fmt.Errorf("the lock file is not what `make image-lock` writes: %w", err)
	}
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if _, err := time.Parse(TakenLayout, lock.Taken); err != nil {
		fault("taken: %q is not a time; want YYYYMMDDTHHMMSSZ", lock.Taken)
	}
	if len(lock.Packages) == 0 {
		fault("packages: there are none; want at least one architecture")
	}
	for arch, list := range lock.Packages {
		if len(list) == 0 {
			fault("packages.%s: there are none", arch)
		}
		for i, p := range list {
			for _, err := range p.faults() {
				fault("packages.%s[%d] (%s): %w", arch, i, p.Name, err)
			}
			if i > 0 && list[i-1].Name >= p.Name {
				fault("packages.%s[%d]: %q comes after %q; want each package once, in order of names", arch, i, p.Name,
					list[i-1].Name)
			}
		}
	}
	return lock, errors.Join(faults...)
}

func (p Package) faults() []error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if p.Name == "" || p.Source == "" {
		fault("name %q and source %q; want both", p.Name, p.Source)
	}
	if !debversion.Valid(p.Version) {
		fault("version: %q is not a version of a Debian package", p.Version)
	}
	if !knownArchive(p.Archive) {
		fault("archive: %q; want one of %s", p.Archive, archiveNames())
	}
	if !filepath.IsLocal(p.Path) || path.Ext(p.Path) != ".deb" || !strings.HasPrefix(p.Path, "pool/") {
		fault("path: %q; want pool/….deb", p.Path)
	}
	if p.Size <= 0 {
		fault("size: %d; want the bytes of the file", p.Size)
	}
	if digest, err := hex.DecodeString(p.SHA256); err != nil || len(digest) != 32 {
		fault("sha256: %q; want 64 hexadecimal digits", p.SHA256)
	}
	return faults
}

func knownArchive(name string) bool { return slices.Contains(archiveNames(), name) }

func archiveNames() []string {
	names := make([]string, 0, len(Archives))
	for _, a := range Archives {
		names = append(names, a.Name)
	}
	return names
}

// Marshal returns the text of the lock file.
func (l Lock) Marshal() ([]byte, error) {
	data, err := yaml.Marshal(l)
	return append([]byte("# The Debian packages that files are taken from. `make image-lock` writes this file after it has verified Debian's\n"+
		"# signatures. Do not edit it.\n"), data...), err
}
