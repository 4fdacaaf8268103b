package source

import (
	"bufio"
	"fmt"
	"os"
	"strings"
)

// Guide are the shell blocks of a guide by the headings of their sections.
type Guide map[string][]string

// ReadGuide reads the fenced blocks that are marked as sh, without the indentation that they have
// in a list.
func ReadGuide(path string) (Guide, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	found := Guide{}
	var section, indent string
	var block []string
	inside := false
	for scanner := bufio.NewScanner(file); scanner.Scan(); {
		line := scanner.Text()
		trimmed := strings.TrimSpace(line)
		switch {
		case inside && trimmed == "```":
			found[section] = append(found[section], strings.Join(block, "\n")+"\n")
			inside = false
		case inside:
			block = append(block, strings.TrimPrefix(line, indent))
		case trimmed == "```sh":
			inside, block = true, nil
			indent = line[:strings.Index(line, "`")]
		case strings.HasPrefix(line, "## "):
			section = strings.TrimPrefix(line, "## ")
		}
	}
	if inside {
		return nil, fmt.Errorf("%s: the last block has no end", path)
	}
	return found, nil
}

// Section returns the blocks of a section, and fails if there are none.
func (g Guide) Section(heading string) ([]string, error) {
	blocks := g[heading]
	if len(blocks) == 0 {
		return nil, fmt.Errorf("the guide has no commands under the heading %q", heading)
	}
	return blocks, nil
}
