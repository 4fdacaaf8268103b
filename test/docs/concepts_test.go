package docs

import (
	"regexp"
	"strings"
	"testing"
)

// concept is an item of the list of concepts; its second group is set if the glossary has the term.
var concept = regexp.MustCompile(`(?m)^\* \*\*\[?([^\]*]+)(\]\(glossary\.md#[a-z-]+\))?\*\*: (?:.+\n)(?:  .+\n)*`)

// TestTheConceptsAreFewAndDefined: a newcomer reads them before a change, so there are at most 60,
// each with one sentence and its definition. codeLinks finds out that the definitions exist.
func TestTheConceptsAreFewAndDefined(t *testing.T) {
	const page, most, least, longestSentence = "docs/explanation/concepts.md", 60, 40, 130
	text, glossary := read(t, page), read(t, "docs/explanation/glossary.md")
	codeLinks(t, page)
	concepts, names := concept.FindAllStringSubmatch(text, -1), map[string]bool{}
	if items := strings.Count(text, "\n* "); len(concepts) != items || items > most || items < least {
		t.Errorf("%s: got %d items, and %d of the form \"* **name**: sentence\", want %d to %d of that form", page, items,
			len(concepts), least, most)
	}
	for _, c := range concepts {
		item, name := strings.Join(strings.Fields(c[0]), " "), c[1]
		sentence, _, linked := strings.Cut(item, " [`")
		if _, sentence, _ = strings.Cut(sentence, "**: "); len(sentence) > longestSentence || strings.Contains(sentence, ". ") {
			t.Errorf("%s: %s: got %q, want one sentence of at most %d characters", page, name, sentence, longestSentence)
		}
		if !linked || !codeLink.MatchString(item) {
			t.Errorf("%s: %s: got no definition, want a link to a declaration", page, name)
		}
		if names[name] {
			t.Errorf("%s: got %s twice, want it once", page, name)
		}
		names[name] = true
		if inGlossary := strings.Contains(glossary, "**"+name); inGlossary != (c[2] != "") {
			t.Errorf("%s: %s: got a link to the glossary: %t, and the glossary has the term: %t; want both or neither", page, name,
				c[2] != "", inGlossary)
		}
	}
}
