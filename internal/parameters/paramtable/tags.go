package paramtable

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf16"

	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// The limits of tags.
// Source: https://learn.microsoft.com/azure/azure-resource-manager/management/tag-resources
const (
	// MostTags is the number of tags that a resource can have.
	MostTags = 50
	// longestTagName and LongestTagValue are numbers of characters, as characters counts them.
	longestTagName  = 512
	LongestTagValue = 256

	allowedName = `1 to 512 characters other than <>%&?\/`
	allowedTag  = `key=value with ` + allowedName + ` in the key and up to 256 in the value`
	// ownPrefix starts the names of the tags by which the driver recognises its disks and
	// snapshots.
	ownPrefix = "disk.csi.azure.com-"
)

// characters returns the length of a text as Azure counts it: in code units of UTF-16. Microsoft's
// pages say "characters" for tags and names, and define the characters of resource groups by .NET's
// Char, which is such a unit. A character outside of the Basic Multilingual Plane, as most emoji,
// counts as two.
func characters(text string) int { return len(utf16.Encode([]rune(text))) }

// IsOwnTag reports whether the driver recognises its disks and snapshots by the tag, in any case.
func IsOwnTag(name string) bool { return strings.HasPrefix(strings.ToLower(name), ownPrefix) }

// Tags reads "key=value" pairs that a delimiter separates into tags, and returns what cannot be a
// tag at Azure as faults of the parameter "tags". A value may hold "="; fill replaces the templates
// in it. Names are compared without regard to case, as at Azure: of two pairs, and of a pair and a
// tag that is there already, the later value counts, with the spelling of the earlier name.
func Tags(tags map[string]string, text, delimiter string, fill func(string) string) (faults []string) {
	for _, pair := range strings.Split(text, delimiter) {
		if strings.TrimSpace(pair) == "" {
			continue
		}
		name, value, ok := strings.Cut(pair, "=")
		name, value = strings.TrimSpace(name), fill(strings.TrimSpace(value))
		if !ok || !IsTag(name, value) {
			faults = append(faults, Fault("tags", pair, allowedTag))
			continue
		}
		if IsOwnTag(name) {
			faults = append(faults, Fault("tags", pair, "names that do not start with "+ownPrefix))
			continue
		}
		provisioner.SetTag(tags, name, value)
	}
	return faults
}

// TagNames reads the names of tags that a delimiter separates, in their order and each once. It
// returns what cannot be one as faults of the parameter.
func TagNames(parameter, text, delimiter string) (names, faults []string) {
	for _, name := range strings.Split(text, delimiter) {
		switch name = strings.TrimSpace(name); {
		case name == "":
		case !isTagName(name) || strings.Contains(name, "="):
			faults = append(faults, Fault(parameter, name, "names of tags, with "+allowedName+"="))
		default:
			names = append(names, name)
		}
	}
	slices.Sort(names)
	if names = slices.Compact(names); len(names) > MostTags {
		faults = append(faults, Fault(parameter, fmt.Sprintf("%d names", len(names)),
			fmt.Sprintf("at most %d, as a disk has", MostTags)))
	}
	return names, faults
}

// AddTags adds the tags whose names are not there yet. Names differ without regard to case, as at
// Azure.
func AddTags(tags, more map[string]string) {
	for _, name := range slices.Sorted(maps.Keys(more)) {
		if !provisioner.HasTag(slices.Collect(maps.Keys(tags)), name) {
			tags[name] = more[name]
		}
	}
}

// IsTag checks for what Azure accepts as the name and the value of a tag.
func IsTag(name, value string) bool { return isTagName(name) && characters(value) <= LongestTagValue }

func isTagName(name string) bool {
	return name != "" && characters(name) <= longestTagName && !strings.ContainsAny(name, `<>%&?\/`)
}

// IsTagDelimiter checks for a text that can separate tags.
func IsTagDelimiter(v string) bool { return v != "" && v != "=" }
