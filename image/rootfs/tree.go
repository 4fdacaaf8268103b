// Package rootfs makes the root filesystem of an image from unpacked packages. It keeps the files
// that the driver needs and everything that these need in turn: the interpreter and the shared
// libraries of a program, the shell of a script, the target of a symbolic link. It fails if one of
// them is missing.
package rootfs

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/azuredisk-csi/azuredisk/image/debian"
)

// File is a file of a tree.
type File struct {
	debian.File
	// Package is the name of the package that it comes from. It is empty for a file that is made
	// here.
	Package string
}

// Tree is the files of a root filesystem by path. A path has no slash at its beginning.
type Tree map[string]File

// merged are the folders that are symbolic links to the folders of the same name below /usr, as on
// every installed Debian. The packages of Debian 12 still have files in them.
var merged = []string{"bin", "lib", "lib64", "sbin"}

// underUsr is where a file of a package is on an installed system.
func underUsr(name string) string {
	first, _, _ := strings.Cut(name, "/")
	if slices.Contains(merged, first) {
		return "usr/" + name
	}
	return name
}

// Add adds the files of a package.
func (t Tree) Add(pkg string, files []debian.File) error {
	for _, file := range files {
		file.Path = underUsr(file.Path)
		before, ok := t[file.Path]
		if ok && (before.Link != file.Link || !bytes.Equal(before.Data, file.Data)) {
			return fmt.Errorf("%s is in %s and, with other content, in %s", file.Path, before.Package, pkg)
		}
		t[file.Path] = File{File: file, Package: pkg}
	}
	return nil
}

// Fetch downloads the packages of the lock for the architecture and returns all their files, and
// their control files by name.
func Fetch(ctx context.Context, from debian.Fetcher, lock debian.Lock, architecture string) (all Tree, control map[string][]byte,
	err error) {
	all, control = Tree{}, map[string][]byte{}
	for _, p := range lock.Packages[architecture] {
		data, err := from.Fetch(ctx, p, lock.Taken)
		if err != nil {
			return nil, nil, err
		}
		deb, err := debian.Unpack(data)
		if err != nil {
			return nil, nil, fmt.Errorf("unpack %s %s: %w", p.Name, p.Version, err)
		}
		control[p.Name] = deb.Control
		if err := all.Add(p.Name, deb.Files); err != nil {
			return nil, nil, err
		}
	}
	return all, control, nil
}

// Put adds a file that is made here.
func (t Tree) Put(name string, mode fs.FileMode, content string) {
	t[name] = File{File: debian.File{
		Path: name,
		Mode: mode,
		Data: []byte(content),
	}}
}

// maxLinks is the number of symbolic links after which Linux gives up as well.
const maxLinks = 40

// follow returns the symbolic links on the way from name to a regular file, with the file at the
// end.
func (t Tree) follow(name string) ([]string, error) {
	var passed []string
	at := normal(name)
	for len(passed) < maxLinks {
		link, rest, ok := t.firstLink(at)
		if ok {
			passed = append(passed, link)
			target := t[link].Link
			if !path.IsAbs(target) {
				target = path.Join(path.Dir(link), target)
			}
			at = normal(path.Join(target, rest))
			continue
		}
		if _, ok := t[at]; ok {
			return append(passed, at), nil
		}
		if at == normal(name) {
			return nil, fmt.Errorf("%s is in none of the packages", at)
		}
		return nil, fmt.Errorf("%s leads to %s, which is in none of the packages", name, at)
	}
	return nil, fmt.Errorf("%s passes more than %d symbolic links", name, maxLinks)
}

// firstLink splits a path after its first element that is a symbolic link.
func (t Tree) firstLink(name string) (link, rest string, ok bool) {
	for i := 0; i <= len(name); i++ {
		if i < len(name) && name[i] != '/' {
			continue
		}
		if t[name[:i]].Link != "" {
			return name[:i], strings.TrimPrefix(name[i:], "/"), true
		}
	}
	return "", "", false
}

// normal is the path as it is in a tree.
func normal(name string) string { return underUsr(strings.TrimPrefix(path.Clean("/"+name), "/")) }

// Used returns those of the packages that files come from.
func (t Tree) Used(packages []debian.Package) []debian.Package {
	used := t.Packages()
	return slices.DeleteFunc(slices.Clone(packages), func(p debian.Package) bool { return !slices.Contains(used, p.Name) })
}

// Packages are the names of the packages that files come from.
func (t Tree) Packages() []string {
	var names []string
	for _, file := range t {
		if file.Package != "" && !slices.Contains(names, file.Package) {
			names = append(names, file.Package)
		}
	}
	slices.Sort(names)
	return names
}
