package release

import (
	"bufio"
	"fmt"
	"io"
	"strings"
)

// stanza is one paragraph of a control file: fields by name.
type stanza map[string]string

// parseControl reads paragraphs of `Name: value` lines, which an empty line separates. A line that
// begins with a space or a tab continues the field before it.
func parseControl(r io.Reader) ([]stanza, error) {
	var all []stanza
	current, field := stanza{}, ""
	scanner := bufio.NewScanner(r)
	scanner.Buffer(nil, 4<<20)
	for number := 1; scanner.Scan(); number++ {
		line := scanner.Text()
		switch {
		case strings.TrimSpace(line) == "":
			if len(current) > 0 {
				all = append(all, current)
			}
			current, field = stanza{}, ""
		case line[0] == ' ' || line[0] == '\t':
			if field == "" {
				return nil, fmt.Errorf("line %d of a control file continues no field: %q", number, line)
			}
			current[field] += "\n" + strings.TrimSpace(line)
		default:
			name, value, ok := strings.Cut(line, ":")
			if !ok {
				return nil, fmt.Errorf("line %d of a control file is not `Name: value`: %q", number, line)
			}
			field = name
			current[field] = strings.TrimSpace(value)
		}
	}
	if len(current) > 0 {
		all = append(all, current)
	}
	return all, scanner.Err()
}
