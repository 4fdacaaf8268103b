package docs

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/azuredisk-csi/azuredisk/internal/testkit/expect"
)

const (
	coverage   = "docs/explanation/design-coverage.md"
	designFile = "test/docs/design.yaml"
)

var (
	coverageItem = regexp.MustCompile(`^\* \*\*([DK]\d+): ([^*]+)\.\*\* `)
	chartLink    = regexp.MustCompile(`\]\(\.\./\.\./charts/[^)]+\)`)
	designID     = regexp.MustCompile(`\b[DK]\d+\b`)
)

// TestTheDesignIsCovered compares the items of the page with the statements of the design: each has one item, with its
// title, a link to the code and a test. TestEveryStatementHasATestThatExists finds out that the tests exist, and
// TestLinksToDeclarationsLeadThere that the declarations do.
func TestTheDesignIsCovered(t *testing.T) {
	var design map[string]string
	expect.Must(t, yaml.UnmarshalStrict([]byte(read(t, designFile)), &design))
	text, items, differ := read(t, coverage), map[string]bool{}, []string{}
	for _, s := range statements(coverage, text) {
		m := coverageItem.FindStringSubmatch(s.text)
		if m == nil {
			t.Errorf("%s:%d: got %q, want an item \"* **ID: title.** …\"", s.page, s.line, s.text)
			continue
		}
		if items[m[1]] {
			t.Errorf("%s:%d: got a second item %s, want one", s.page, s.line, m[1])
		}
		items[m[1]] = true
		if design[m[1]] != m[2] {
			t.Errorf("%s:%d: got %s with the title %q, want %q of %s", s.page, s.line, m[1], m[2], design[m[1]], designFile)
		}
		if !codeLink.MatchString(s.text) && !chartLink.MatchString(s.text) && !strings.HasPrefix(s.tests, "No test: ") {
			t.Errorf("%s:%d: got no link to the code of %s, want one to a declaration or to the chart", s.page, s.line, m[1])
		}
		if strings.Contains(s.text, "**Differs:**") {
			differ = append(differ, m[1])
		}
	}
	for id, title := range design {
		if !items[id] {
			t.Errorf("%s: got no item with a test for %s (%s), want one", coverage, id, title)
		}
	}
	if got := strings.Count(text, "\n* "); got != len(items) {
		t.Errorf("%s: got %d items, and %d with an ID and a test, want these in each", coverage, got, len(items))
	}
	_, list, _ := strings.Cut(text, "\nThese statements differ: ")
	list, _, _ = strings.Cut(list, "\n\n")
	listed := designID.FindAllString(list, -1)
	slices.Sort(listed)
	slices.Sort(differ)
	if !slices.Equal(listed, differ) {
		t.Errorf("%s: got the list %q of statements that differ, want the items with **Differs:**: %q", coverage, listed, differ)
	}
}
