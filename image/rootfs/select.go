package rootfs

import (
	"bytes"
	"debug/elf"
	"fmt"
	"path"
	"slices"
	"strings"
)

// Platform is what programs are made for.
type Platform struct {
	// Architecture is Go's and Debian's name of it.
	Architecture string
	// Triplet is the name of the folder of shared libraries.
	Triplet string
	// Machine is that of its programs.
	Machine elf.Machine
}

// Platforms are those that images are made for.
var Platforms = []Platform{
	{"amd64", "x86_64-linux-gnu", elf.EM_X86_64},
	{"arm64", "aarch64-linux-gnu", elf.EM_AARCH64},
}

// Select returns the files whose paths match a pattern, as path.Match has it, and all that they
// need. In a pattern, TRIPLET stands for the platform's folder of libraries.
func (t Tree) Select(platform Platform, patterns []string) (Tree, error) {
	s := selection{
		from:     t,
		platform: platform,
		taken:    Tree{},
	}
	names := make([]string, 0, len(t))
	for name := range t {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, pattern := range patterns {
		pattern = strings.ReplaceAll(pattern, "TRIPLET", platform.Triplet)
		found := false
		for _, name := range names {
			if ok, err := path.Match(pattern, name); err != nil {
				return nil, fmt.Errorf("pattern %q: %w", pattern, err)
			} else if !ok {
				continue
			}
			found = true
			if err := s.take(name); err != nil {
				return nil, err
			}
		}
		if !found {
			return nil, fmt.Errorf("no file of the packages for %s matches %q", platform.Architecture, pattern)
		}
	}
	return s.taken, nil
}

type selection struct {
	from     Tree
	platform Platform
	taken    Tree
}

func (s selection) take(name string) error {
	passed, err := s.from.follow(name)
	if err != nil {
		return err
	}
	for _, at := range passed {
		if _, ok := s.taken[at]; ok {
			continue
		}
		file := s.from[at]
		s.taken[at] = file
		if file.Link != "" {
			continue
		}
		needed, err := Needs(s.platform, file.Data)
		if err != nil {
			return fmt.Errorf("%s of package %s: %w", at, file.Package, err)
		}
		for _, needs := range needed {
			if err := s.take(needs); err != nil {
				return fmt.Errorf("%s of package %s needs a file that is missing: %w", at, file.Package, err)
			}
		}
	}
	return nil
}

// Needs returns the paths of the files that a file needs to run: the interpreter and the libraries
// of a program, or the interpreter of a script. It refuses a program for another platform.
func Needs(platform Platform, data []byte) ([]string, error) {
	switch {
	case bytes.HasPrefix(data, []byte("#!")):
		line, _, _ := bytes.Cut(data[2:], []byte("\n"))
		fields := strings.Fields(string(line))
		if len(fields) == 0 {
			return nil, fmt.Errorf("a script whose first line names no interpreter")
		}
		return fields[:1], nil
	case IsProgram(data):
		return elfNeeds(platform, data)
	}
	return nil, nil
}

func elfNeeds(platform Platform, data []byte) ([]string, error) {
	file, err := elf.NewFile(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	if file.Machine != platform.Machine {
		return nil, fmt.Errorf("a program for %s, want %s, which is %s", file.Machine, platform.Machine, platform.Architecture)
	}
	var needed []string
	for _, section := range file.Progs {
		if section.Type != elf.PT_INTERP {
			continue
		}
		name := make([]byte, section.Filesz)
		if _, err := section.ReadAt(name, 0); err != nil {
			return nil, err
		}
		needed = append(needed, string(bytes.TrimRight(name, "\x00")))
	}
	libraries, err := file.ImportedLibraries()
	if err != nil {
		return nil, err
	}
	for _, library := range libraries {
		needed = append(needed, "usr/lib/"+platform.Triplet+"/"+library)
	}
	return needed, nil
}

// IsProgram reports whether the content is that of a program or library, not of a script.
func IsProgram(data []byte) bool { return bytes.HasPrefix(data, []byte(elf.ELFMAG)) }
