// Package mountoptions reads the mount options of a StorageClass or a PersistentVolume.
//
// Kubernetes passes each entry of mountOptions on as it is, and mount(8) splits the joined entries
// at their commas. Parse splits them in the same way, so that every decision of the driver sees the
// options that the kernel gets. Callers: CreateVolume, and the calls that stage and publish a
// volume.
package mountoptions

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
)

const (
	readOnly, writable = "ro", "rw"
	label              = "context="
	// direct is an option of the V1 driver and of this one, and not of mount(8).
	direct = "directmount"
)

// notHere are options that change what mount(8) does. With them the volume's device would not be
// mounted, or its mount would not be recognised as the volume's.
var notHere = []string{"bind", "rbind", "move", "remount", "loop"}

// Parse returns the options of all entries of mountOptions, without empty and repeated ones. As for
// mount(8), a comma within double quotes does not separate two options, and the last of several
// wins: of "ro" and "rw" only the last remains. The error is a sentence about the entry that no
// mount can have.
func Parse(entries []string) ([]string, error) {
	var all []string
	for _, entry := range entries {
		options, err := split(entry)
		if err != nil {
			return nil, fmt.Errorf("mountOptions: entry %q: %w", entry, err)
		}
		for _, option := range options {
			all = slices.DeleteFunc(all, func(before string) bool { return replaces(option, before) })
			all = append(all, option)
		}
	}
	return all, nil
}

// replaces reports whether an option takes the place of one before it.
func replaces(option, before string) bool {
	return option == before || option == readOnly && before == writable || option == writable && before == readOnly
}

// split returns the options of one entry that are not empty.
func split(entry string) ([]string, error) {
	var options []string
	quoted, start := false, 0
	end := func(at int) error {
		option := entry[start:at]
		start = at + 1
		if option == "" {
			return nil
		}
		options = append(options, option)
		return check(option)
	}
	for i, c := range entry {
		switch {
		case c == '"':
			quoted = !quoted
		case unicode.IsControl(c) || unicode.IsSpace(c) && !quoted:
			return nil, fmt.Errorf("must not have white space or control characters outside of double quotes, and has %q", c)
		case c == ',' && !quoted && (i == 0 || entry[i-1] != '\\'):
			if err := end(i); err != nil {
				return nil, err
			}
		}
	}
	if quoted {
		return nil, errors.New("has a double quote that is not closed")
	}
	return options, end(len(entry))
}

func check(option string) error {
	name, _, valued := strings.Cut(option, "=")
	switch {
	case slices.Contains(notHere, name):
		return fmt.Errorf("option %q is not allowed: it changes what mount does; "+
			"allowed are the options of the filesystem and of the mount point", option)
	case valued && slices.Contains([]string{readOnly, writable, direct}, name):
		return fmt.Errorf("option %q is not allowed: use %q", option, name)
	}
	return nil
}

// ReadOnly reports whether parsed options make the filesystem read-only.
func ReadOnly(options []string) bool { return slices.Contains(options, readOnly) }

// Unchecked reports whether parsed options have directmount: the filesystem is mounted without a
// check before, which can take hours on a large disk.
func Unchecked(options []string) bool { return slices.Contains(options, direct) }

// ForMount returns parsed options without the option that mount(8) does not know.
func ForMount(options []string) []string {
	return slices.DeleteFunc(slices.Clone(options), func(option string) bool { return option == direct })
}

// WithReadOnly returns parsed options with which the filesystem is read-only.
func WithReadOnly(options []string) []string { return with(options, readOnly) }

// WithNoUUID returns parsed options with which xfs mounts a filesystem whose UUID another mounted
// filesystem has.
func WithNoUUID(options []string) []string { return with(options, "nouuid") }

func with(options []string, option string) []string {
	return append(slices.DeleteFunc(slices.Clone(options), func(before string) bool { return replaces(option, before) }), option)
}

// Label returns the SELinux label of all files of a mount with parsed options; "" for none.
func Label(options []string) string {
	for _, option := range slices.Backward(options) {
		if value, found := strings.CutPrefix(option, label); found {
			return strings.Trim(value, `"`)
		}
	}
	return ""
}
