package explain

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

const pageHead = `# Troubleshooting

Ask why something is not ready:

` + "```" + `
kubectl azuredisk why pod NAME -n NAMESPACE
` + "```" + `

The answer names one of the causes below, what proves it, and what to do ([Explain](guides/explain.md)). This page
is generated from the list by which the command decides.

## By event

The reasons of events and conditions, and error codes of Azure, with the causes that they can have. The reason is in
the column REASON of ` + "`kubectl get events`" + `.

`

const pageColumns = 115

// Page is the page on troubleshooting, in Markdown.
func Page() string {
	var b strings.Builder
	b.WriteString(pageHead)
	seen := map[string][]string{}
	for _, c := range registry {
		for _, text := range c.Seen {
			seen[text] = append(seen[text], fmt.Sprintf("[%s](#%s)", c.ID, strings.ToLower(string(c.ID))))
		}
	}
	for _, text := range slices.Sorted(maps.Keys(seen)) {
		Wrap(&b, "* ", "`"+text+"`: "+strings.Join(seen[text], ", "))
	}
	for _, group := range Groups() {
		fmt.Fprintf(&b, "\n## %s\n", group)
		for _, c := range registry {
			if c.Group == group {
				c.entry(&b)
			}
		}
	}
	return b.String()
}

func (c Cause) entry(b *strings.Builder) {
	fmt.Fprintf(b, "\n### %s\n\n", c.ID)
	Wrap(b, "", c.Means)
	b.WriteString("\n")
	if c.Outcome == Healthy {
		Wrap(b, "", "Nothing is to be done (exit code 0).")
		return
	}
	Wrap(b, "", fmt.Sprintf("**What to do** (exit code %d): %s.", c.Outcome.ExitCode(), c.Next))
}

// Wrap writes a paragraph in lines of at most pageColumns.
func Wrap(b *strings.Builder, begin, text string) {
	line := begin
	for i, word := range strings.Fields(text) {
		if i > 0 && len(line)+1+len(word) > pageColumns {
			b.WriteString(line + "\n")
			line = strings.Repeat(" ", len(begin))
		} else if i > 0 {
			line += " "
		}
		line += word
	}
	b.WriteString(line + "\n")
}
