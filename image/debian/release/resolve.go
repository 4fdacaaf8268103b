package release

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	debversion "github.com/knqyf263/go-deb-version"

	"github.com/azuredisk-csi/azuredisk/image/debian"
)

// candidate is a package of an index.
type candidate struct {
	debian.Package
	section string
	depends []string
}

// index is the newest version of each package by name.
type index map[string]candidate

// add reads a Packages file. A version that is newer than the one in the index replaces it.
func (x index) add(archive string, packages io.Reader) error {
	stanzas, err := parseControl(packages)
	if err != nil {
		return err
	}
	for _, s := range stanzas {
		size, err := strconv.ParseInt(s["Size"], 10, 64)
		if err != nil {
			return fmt.Errorf("the package %s of %s has the size %q", s["Package"], archive, s["Size"])
		}
		source, _, _ := strings.Cut(cmp.Or(s["Source"], s["Package"]), " ")
		found := candidate{
			Package: debian.Package{
				Name:    s["Package"],
				Version: s["Version"],
				Source:  source,
				Archive: archive,
				Path:    s["Filename"],
				Size:    size,
				SHA256:  s["SHA256"],
			},
			section: s["Section"],
			depends: dependencies(s["Pre-Depends"] + "," + s["Depends"]),
		}
		before, ok := x[found.Name]
		if ok {
			newer, err := isNewer(found.Version, before.Version)
			if err != nil {
				return fmt.Errorf("compare the versions of %s: %w", found.Name, err)
			}
			if !newer {
				continue
			}
		}
		x[found.Name] = found
	}
	return nil
}

func isNewer(a, b string) (bool, error) {
	first, err := debversion.NewVersion(a)
	if err != nil {
		return false, err
	}
	second, err := debversion.NewVersion(b)
	if err != nil {
		return false, err
	}
	return first.GreaterThan(second), nil
}

// dependencies are the names in a field like `libc6 (>= 2.34), awk | mawk`. The first of several
// alternatives counts.
func dependencies(field string) []string {
	var names []string
	for _, entry := range strings.Split(field, ",") {
		first, _, _ := strings.Cut(entry, "|")
		name, _, _ := strings.Cut(strings.TrimSpace(first), " ")
		name, _, _ = strings.Cut(name, ":")
		if name != "" {
			names = append(names, name)
		}
	}
	return names
}

// kernelPrefix begins the names of Debian's kernels. The name of one has its version, and the
// package without a version depends on the newest.
const kernelPrefix = "linux-image-"

// withLibraries returns the named packages and the libraries that they depend on, directly and
// indirectly, in order of names. Dependencies that are not libraries serve maintainer scripts and
// programs that are not taken.
func (x index) withLibraries(names []string) ([]debian.Package, error) {
	taken := map[string]bool{}
	var list []debian.Package
	for queue := slices.Clone(names); len(queue) > 0; queue = queue[1:] {
		name := queue[0]
		if taken[name] {
			continue
		}
		found, ok := x[name]
		if !ok {
			return nil, fmt.Errorf("Debian has no package %s", name)
		}
		taken[name] = true
		list = append(list, found.Package)
		for _, depends := range found.depends {
			if x[depends].section == "libs" || strings.HasPrefix(depends, kernelPrefix) {
				queue = append(queue, depends)
			}
		}
	}
	slices.SortFunc(list, func(a, b debian.Package) int { return cmp.Compare(a.Name, b.Name) })
	return list, nil
}
