package paramtable

import "strings"

const allowedTag = `key=value with 1 to 512 characters other than <>%&?\/ in the key and up to 256 in the value`

// Tags reads "key=value" pairs that a delimiter separates into tags, and returns what cannot be a tag at Azure as faults of the
// parameter "tags". A value may hold "="; fill replaces the templates in it.
func Tags(tags map[string]string, text, delimiter string, fill func(string) string) (faults []string) {
	for _, pair := range strings.Split(text, delimiter) {
		if strings.TrimSpace(pair) == "" {
			continue
		}
		name, value, ok := strings.Cut(pair, "=")
		name, value = strings.TrimSpace(name), fill(strings.TrimSpace(value))
		if !ok || name == "" || len(name) > 512 || len(value) > 256 || strings.ContainsAny(name, `<>%&?\/`) {
			faults = append(faults, Fault("tags", pair, allowedTag))
			continue
		}
		tags[name] = value
	}
	return faults
}

// IsTagDelimiter checks for a text that can separate tags.
func IsTagDelimiter(v string) bool { return v != "" && v != "=" }
