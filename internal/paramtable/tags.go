package paramtable

import (
	"maps"
	"slices"
	"strings"
)

const (
	allowedName = `1 to 512 characters other than <>%&?\/`
	allowedTag  = `key=value with ` + allowedName + ` in the key and up to 256 in the value`
)

// Tags reads "key=value" pairs that a delimiter separates into tags, and returns what cannot be a tag at Azure as faults of the
// parameter "tags". A value may hold "="; fill replaces the templates in it.
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
		tags[name] = value
	}
	return faults
}

// TagNames reads the names of tags that a delimiter separates, in their order and each once. It returns what cannot be one
// as faults of the parameter.
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
	return slices.Compact(names), faults
}

// AddTags adds the tags whose names are not there yet. Names differ without regard to case, as at Azure.
func AddTags(tags, more map[string]string) {
	for _, name := range slices.Sorted(maps.Keys(more)) {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(tags)), func(is string) bool { return strings.EqualFold(is, name) }) {
			tags[name] = more[name]
		}
	}
}

// IsTag checks for what Azure accepts as the name and the value of a tag.
func IsTag(name, value string) bool { return isTagName(name) && len(value) <= 256 }

func isTagName(name string) bool {
	return name != "" && len(name) <= 512 && !strings.ContainsAny(name, `<>%&?\/`)
}

// IsTagDelimiter checks for a text that can separate tags.
func IsTagDelimiter(v string) bool { return v != "" && v != "=" }
