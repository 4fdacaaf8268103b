// Package docs checks the documentation: its links, the tests that it names, its list of metrics,
// the length of its lines, and the words that it uses. The words of the chart and of the Go files
// are checked too.
package docs

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/azuredisk-csi/azuredisk/internal/testkit/expect"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/tree"
)

// pages returns the Markdown pages of the project, by their paths from its root.
func pages(t *testing.T) []string {
	t.Helper()
	return files(t, ".md", 10)
}

// files returns the files of the project with a suffix, by their paths from its root. There are at
// least so many of them.
func files(t *testing.T, suffix string, atLeast int) []string {
	t.Helper()
	var found []string
	root := tree.Root()
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (entry.Name() == ".git" || entry.Name() == "out" || entry.Name() == "bin"):
			return fs.SkipDir
		case !entry.IsDir() && strings.HasSuffix(path, suffix):
			rel, err := filepath.Rel(root, path)
			found = append(found, rel)
			return err
		}
		return nil
	})
	if err != nil || len(found) < atLeast {
		t.Fatalf("files *%s: got %d, %v, want at least %d", suffix, len(found), err, atLeast)
	}
	return found
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(tree.Root(), path))
	expect.Must(t, err)
	return string(text)
}

var (
	fence   = regexp.MustCompile("(?ms)^```.*?^```")
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ +(.+)$`)
	notSlug = regexp.MustCompile(`[^a-z0-9 _-]`)
)

// anchors are the fragments that GitHub creates from a page's headings.
func anchors(text string) map[string]bool {
	found := map[string]bool{}
	for _, h := range heading.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
		found[strings.ReplaceAll(notSlug.ReplaceAllString(strings.ToLower(strings.TrimSpace(h[1])), ""), " ", "-")] = true
	}
	return found
}

func TestEveryLinkLeadsSomewhere(t *testing.T) {
	for _, page := range pages(t) {
		for _, m := range link.FindAllStringSubmatch(fence.ReplaceAllString(read(t, page), ""), -1) {
			target, fragment, _ := strings.Cut(m[1], "#")
			if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
				continue
			}
			to := page
			if target != "" {
				to = filepath.Join(filepath.Dir(page), target)
			}
			if _, err := os.Stat(filepath.Join(tree.Root(), to)); err != nil {
				t.Errorf("%s: got a link to %s, want a file that exists: %s", page, m[1], to)
				continue
			}
			// The reference of the custom resources has anchors of its own.
			if fragment != "" && strings.HasSuffix(to, ".md") && !strings.Contains(read(t, to), `id="`+fragment+`"`) &&
				!anchors(read(t, to))[fragment] {
				t.Errorf("%s: got a link to %s, want a heading that %s has", page, m[1], to)
			}
		}
	}
}

// longest is the number of columns that a line of Markdown may have.
const longest = 119

// splittable is a part of a line that a line break could follow: a blank outside of code and of
// links.
var splittable = regexp.MustCompile("`[^`]*`|\\[[^\\]]*\\]\\([^)]*\\)|( )")

// generatedPart is a part of a page that a program writes.
var generatedPart = regexp.MustCompile("(?s)<!-- generated -->.*?<!-- end of generated -->")

// TestLinesOfMarkdownAreShort allows a longer line only if it has nothing but its indentation, a
// list marker, and one name, link or URL. Generated pages and parts are not checked.
func TestLinesOfMarkdownAreShort(t *testing.T) {
	for _, page := range pages(t) {
		if generated(t, page) {
			continue
		}
		written := generatedPart.ReplaceAllStringFunc(read(t, page),
			func(part string) string { return strings.Repeat("\n", strings.Count(part, "\n")) })
		for n, line := range strings.Split(written, "\n") {
			if got := utf8.RuneCountInString(line); got > longest && hasBreak(strings.TrimLeft(line, " *-")) {
				t.Errorf("%s:%d: got %d columns, want at most %d", page, n+1, got, longest)
			}
		}
	}
}

func hasBreak(line string) bool {
	for _, m := range splittable.FindAllStringSubmatch(line, -1) {
		if m[1] != "" {
			return true
		}
	}
	return false
}

// TestPagesForUsersLinkTheGlossary: each page explains its first special term by a link.
func TestPagesForUsersLinkTheGlossary(t *testing.T) {
	for _, page := range pages(t) {
		forUsers := strings.HasPrefix(page, "docs/guides/") || strings.HasPrefix(page, "docs/tutorials/") ||
			page == "README.md" || page == architecture
		if forUsers && !strings.Contains(read(t, page), "glossary.md") {
			t.Errorf("%s: got no link to the glossary, want one at the first term that a platform engineer may not know", page)
		}
	}
}

var metric = regexp.MustCompile(`"(azuredisk_[a-z0-9_]+)"`)

// TestTheMetricsPageHasEveryMetric compares the page with the names in the sources, both ways.
func TestTheMetricsPageHasEveryMetric(t *testing.T) {
	const page = "docs/reference/metrics.md"
	served := map[string]bool{}
	for _, folder := range []string{"internal", "provisioner", "cmd"} {
		err := filepath.WalkDir(filepath.Join(tree.Root(), folder), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			if err == nil && strings.Contains(string(text), "client_golang/prometheus") {
				for _, m := range metric.FindAllStringSubmatch(string(text), -1) {
					served[m[1]] = true
				}
			}
			return err
		})
		expect.Must(t, err)
	}
	if len(served) < 30 {
		t.Fatalf("found %v", served)
	}
	text := read(t, page)
	for name := range served {
		if !strings.Contains(text, "`"+name+"`") {
			t.Errorf("%s: got no line about the metric %s, want one", page, name)
		}
	}
	for _, m := range regexp.MustCompile("`(azuredisk_[a-z0-9_]+)`").FindAllStringSubmatch(text, -1) {
		if !served[m[1]] {
			t.Errorf("%s: got the metric %s, want only metrics that are served", page, m[1])
		}
	}
}

// named are the tests of a statement: `folder.TestName`, or `playground/lifecycle: what it says`
// for one of the playground's.
var named = regexp.MustCompile("`([A-Za-z0-9_/-]+)(?:\\.|: )((?:Test|Fuzz)[A-Za-z0-9_]+|[a-zA-Z][^`]* [^`]+)`")

// statement is an item of a list that says after "Test:" which tests show it, or after "No test:"
// why there is none.
type statement struct {
	page  string
	line  int
	text  string
	tests string
}

var evidence = regexp.MustCompile(`(?:^|\s)(No test|Test): `)

// statements are the items of the lists in a part of a page that name tests.
func statements(page, text string) []statement {
	var found []statement
	var item []string
	at := 0
	end := func() {
		whole := strings.Join(item, " ")
		if m := evidence.FindStringIndex(whole); m != nil {
			found = append(found, statement{page, at, whole[:m[0]], strings.TrimSpace(whole[m[0]:])})
		}
		item = nil
	}
	for n, line := range strings.Split(text, "\n") {
		switch {
		case strings.HasPrefix(line, "* "):
			end()
			item, at = []string{line}, n+1
		case strings.HasPrefix(line, "  ") && item != nil:
			item = append(item, strings.TrimSpace(line))
		default:
			end()
		}
	}
	end()
	return found
}

// TestEveryStatementHasATestThatExists reads the pages whose statements name the tests that show
// them.
func TestEveryStatementHasATestThatExists(t *testing.T) {
	for page, least := range map[string]int{
		"docs/reference/parity-with-v1.md": 100,
		"docs/reference/final-codes.md":    14,
		"docs/explanation/security.md":     20,
		"docs/explanation/evidence.md":     30,
		coverage:                           50,
	} {
		found := statements(page, read(t, page))
		if len(found) < least {
			t.Errorf("%s: got %d statements with tests, want at least %d", page, len(found), least)
		}
		for _, s := range found {
			checkStatement(t, s)
		}
	}
}

var mutant = regexp.MustCompile(`(?m)^\t([A-Z][A-Za-z]*) Mutant = "`)

// TestThePageOnEvidenceHasEveryMutant compares the page with the constants of the simulation.
func TestThePageOnEvidenceHasEveryMutant(t *testing.T) {
	const page = "docs/explanation/evidence.md"
	files, err := filepath.Glob(filepath.Join(tree.Root(), "test/simulation/*.go"))
	expect.Must(t, err)
	var mutants []string
	for _, file := range files {
		text, err := os.ReadFile(file)
		expect.Must(t, err)
		for _, m := range mutant.FindAllStringSubmatch(string(text), -1) {
			mutants = append(mutants, m[1])
		}
	}
	if len(mutants) < 10 {
		t.Fatalf("mutants of the simulation: got %q, want at least 10", mutants)
	}
	text := read(t, page)
	for _, m := range mutants {
		if !strings.Contains(text, "`"+m+"`") {
			t.Errorf("%s: got no line about the mutant %s, want one", page, m)
		}
	}
}

// boldStart is what a page on parity says of V1.
var boldStart = regexp.MustCompile(`^\* \*\*.*?\*\*`)

func checkStatement(t *testing.T, s statement) {
	t.Helper()
	if strings.HasPrefix(s.tests, "No test: ") {
		return
	}
	tests := named.FindAllStringSubmatch(s.tests, -1)
	if len(tests) == 0 || strings.TrimSpace(strings.Trim(s.text, "* ")) == "" {
		t.Errorf("%s:%d: got the statement %q with the tests %q, want both", s.page, s.line, s.text, s.tests)
	}
	checkNumbersOf(t, fmt.Sprintf("%s:%d", s.page, s.line), boldStart.ReplaceAllString(s.text, ""), tests)
	for _, test := range tests {
		if !exists(t, test[1], test[2]) {
			t.Errorf("%s:%d: got the test %s, want one that exists in %s", s.page, s.line, test[2], test[1])
		}
	}
}

// exists reports whether a folder's Go files define a test, or name one of the playground's.
func exists(t *testing.T, folder, test string) bool {
	t.Helper()
	if !strings.HasPrefix(test, "Test") && !strings.HasPrefix(test, "Fuzz") {
		return len(filesWith(t, folder, `"`+test+`"`)) > 0
	}
	return len(filesWith(t, folder, "func "+test+"(")) > 0
}

// filesWith are the texts of a folder's Go files that have a part.
func filesWith(t *testing.T, folder, part string) (found []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(tree.Root(), folder, "*.go"))
	expect.Must(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		expect.Must(t, err)
		if strings.Contains(string(text), part) {
			found = append(found, string(text))
		}
	}
	return found
}
