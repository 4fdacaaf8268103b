package docs

import (
	"regexp"
	"strings"
	"testing"
	"unicode"

	"github.com/azuredisk-csi/azuredisk/internal/plan/lostnode"
)

const (
	foreignFile = "test/docs/foreign.txt"
	strongFile  = "test/docs/strong.yaml"
)

var (
	inBackticks = regexp.MustCompile("`([^`\n]+)`")
	testInText  = regexp.MustCompile(`\b(?:Test|Fuzz)[A-Z]\w{6,}`)
	sourceFile  = regexp.MustCompile(`\.(?:go|ya?ml|json|tpl|sh|mod|txt|html|js)$`)
	camelName   = regexp.MustCompile(`\b[A-Za-z_]+[a-z][A-Z][A-Za-z0-9_]*\b`)
)

// TestNamesExist finds a name in backticks, or a test that a comment names, that no source has. foreign.txt has the names
// of other projects.
func TestNamesExist(t *testing.T) {
	known, tests := map[string]bool{}, map[string]bool{}
	for _, name := range strings.Fields(read(t, foreignFile)) {
		known[name] = true
	}
	isPart := func(r rune) bool { return r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r) }
	for _, file := range files(t, "", 1000) {
		if named := sourceFile.MatchString(file); named && !strings.HasPrefix(file, "test/docs/") {
			for name := range strings.FieldsFuncSeq(read(t, file), isPart) {
				known[name] = true
			}
		}
	}
	for _, file := range goFiles(t) {
		for _, m := range testName.FindAllStringSubmatch(read(t, file), -1) {
			tests[m[1]] = true
		}
	}
	for _, page := range pages(t) {
		for _, code := range inBackticks.FindAllStringSubmatch(anyFence.ReplaceAllString(read(t, page), ""), -1) {
			for _, name := range camelName.FindAllString(code[1], -1) {
				if !known[name] {
					t.Errorf("%s: got the name `%s`, want one that a source has, or a line of %s", page, name, foreignFile)
				}
			}
		}
	}
	for _, file := range goFiles(t) {
		for line := range strings.SplitSeq(read(t, file), "\n") {
			comment, ok := strings.CutPrefix(strings.TrimSpace(line), "//")
			if name := testInText.FindString(comment); ok && name != "" && !tests[name] && !known["no"+name] {
				t.Errorf("%s: got a comment that names %s, want a test that exists", file, name)
			}
		}
	}
}

var (
	itemStart = regexp.MustCompile(`\n\s*\n|\n\s*(?:\*|\d+\.|\|) `)
	strong    = regexp.MustCompile(`(?i)\b(?:only|always|never|at most|within)\b`)
	backed    = regexp.MustCompile(`(?i)\b(?:measured|usually|(?:Test|Fuzz)[A-Z]\w+)\b|Test: `)
)

// TestStrongWordsHaveATest counts the paragraphs of each page that say only, always, never, at most or within, and neither
// name a test (also in an HTML comment) nor say usually or measured. strong.yaml has how many there may be.
func TestStrongWordsHaveATest(t *testing.T) {
	found := map[string]int{}
	for _, page := range pages(t) {
		if !strings.HasPrefix(page, "docs/") || strings.HasPrefix(page, "docs/adr/") || generatedFrom.MatchString(read(t, page)) {
			continue
		}
		found[page] = 0
		for _, part := range itemStart.Split(anyFence.ReplaceAllString(read(t, page), ""), -1) {
			if strong.MatchString(part) && !backed.MatchString(part) {
				found[page]++
				t.Logf("%s: %s", page, strings.TrimSpace(part))
			}
		}
	}
	compareAllowed(t, strongFile, "Paragraphs of pages with only, always, never, at most or within, and without a test's name, "+
		"usually or measured. The numbers may only fall.", found)
}

// section is the part of a page below a heading.
func section(t *testing.T, page, head string) string {
	t.Helper()
	_, rest, ok := strings.Cut(read(t, page), "\n## "+head+"\n")
	if !ok {
		t.Fatalf("%s: got no section %q, want it", page, head)
	}
	part, _, _ := strings.Cut(rest, "\n## ")
	return part
}

// TestListsAreComplete compares lists of pages and of the chart's comments with the code.
func TestListsAreComplete(t *testing.T) {
	const failover, credentials = "docs/guides/failover.md", "docs/guides/credentials.md"
	notMoved := section(t, failover, "What the driver does not move")
	for _, reason := range lostnode.LeaveReasons() {
		if !strings.Contains(notMoved, "`"+reason+"`") && !strings.Contains(read(t, failover), "reason `"+reason+"`") {
			t.Errorf("%s: got no item about %s, for which the driver moves no pod", failover, reason)
		}
	}
	_, identities, _ := strings.Cut(read(t, "provisioner/azure/credential/config.go"), `[...]string{"none", `)
	identities, _, _ = strings.Cut(identities, "}")
	got, want := strings.Count(section(t, credentials, "Kinds of identity"), "\n### "), strings.Count(identities, `"`)/2
	if got != want {
		t.Errorf("%s: got %d kinds of identities, want %d: %s", credentials, got, want, identities)
	}
	const sidecars = "charts/azuredisk/templates/controller/_sidecars.tpl"
	probes := regexp.MustCompile(`(\w+)Probe:`).FindAllStringSubmatch(read(t, sidecars), -1)
	for line := range strings.SplitSeq(read(t, valuesFile), "\n") {
		for _, probe := range probes {
			if strings.Contains(line, "/healthz/leader-election") && !strings.Contains(line, probe[1]) {
				t.Errorf("%s: got no word about the %s probe of the sidecars in %q", valuesFile, probe[1], line)
			}
		}
	}
}
