// Package docs checks what the documentation claims: that its links lead somewhere, that every row of the table of V1's features
// names a test that exists, and that every metric is on its page.
package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/azuredisk-csi/azuredisk/internal/testkit/tree"
)

// pages returns the pages of the project, by their paths from its root.
func pages(t *testing.T) []string {
	t.Helper()
	var found []string
	root := tree.Root()
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (entry.Name() == ".git" || entry.Name() == "out" || entry.Name() == "bin"):
			return fs.SkipDir
		case strings.HasSuffix(path, ".md"):
			rel, err := filepath.Rel(root, path)
			found = append(found, rel)
			return err
		}
		return nil
	})
	if err != nil || len(found) < 10 {
		t.Fatalf("pages %q: %v", found, err)
	}
	return found
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(tree.Root(), path))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

var (
	fence   = regexp.MustCompile("(?ms)^```.*?^```")
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ +(.+)$`)
	notSlug = regexp.MustCompile(`[^a-z0-9 _-]`)
)

// anchors are the fragments that GitHub makes of a page's headings.
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
				t.Errorf("%s: link to %s: there is no %s", page, m[1], to)
				continue
			}
			// The reference of the custom resources has anchors of its own.
			if fragment != "" && strings.HasSuffix(to, ".md") && !strings.Contains(read(t, to), `id="`+fragment+`"`) && !anchors(read(t, to))[fragment] {
				t.Errorf("%s: link to %s: %s has no such heading", page, m[1], to)
			}
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
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(served) < 30 {
		t.Fatalf("found %v", served)
	}
	text := read(t, page)
	for name := range served {
		if !strings.Contains(text, "`"+name+"`") {
			t.Errorf("%s does not tell of %s", page, name)
		}
	}
	for _, m := range regexp.MustCompile("`(azuredisk_[a-z0-9_]+)`").FindAllStringSubmatch(text, -1) {
		if !served[m[1]] {
			t.Errorf("%s tells of %s, which is not served", page, m[1])
		}
	}
}

const parityPage = "docs/reference/parity-with-v1.md"

var named = regexp.MustCompile("`([A-Za-z0-9_/-]+)(?:\\.|: )((?:Test|Fuzz)[A-Za-z0-9_]+|[a-zA-Z][^`]* [^`]+)`")

// TestEveryFeatureOfV1HasATestThatExists reads the table: the last column names tests as `folder.TestName`, or
// `playground/lifecycle: what it says` for one of the playground's.
func TestEveryFeatureOfV1HasATestThatExists(t *testing.T) {
	rows := 0
	for n, line := range strings.Split(read(t, parityPage), "\n") {
		cells := strings.Split(strings.ReplaceAll(line, `\|`, ""), "|")
		if !strings.HasPrefix(line, "|") || strings.HasPrefix(line, "|-") || strings.HasPrefix(line, "| V1 ") {
			continue
		}
		if len(cells) != 5 {
			t.Errorf("%s:%d: a row has three cells: %s", parityPage, n+1, line)
			continue
		}
		rows++
		if strings.TrimSpace(cells[3]) == "out of scope" && strings.Contains(cells[1], "Windows") {
			continue
		}
		tests := named.FindAllStringSubmatch(cells[3], -1)
		if len(tests) == 0 || strings.TrimSpace(cells[2]) == "" {
			t.Errorf("%s:%d: an empty cell: %s", parityPage, n+1, line)
		}
		checkNamed(t, parityPage, n+1, tests)
	}
	if rows < 100 {
		t.Errorf("%s: %d rows", parityPage, rows)
	}
}

func checkNamed(t *testing.T, page string, line int, tests [][]string) {
	t.Helper()
	for _, test := range tests {
		if !exists(t, test[1], test[2]) {
			t.Errorf("%s:%d: there is no test %s in %s", page, line, test[2], test[1])
		}
	}
}

// TestEveryFinalCodeHasATestThatExists reads the table of what must not be left behind a final code: its last column names tests.
func TestEveryFinalCodeHasATestThatExists(t *testing.T) {
	const page = "docs/reference/final-codes.md"
	_, table, _ := strings.Cut(read(t, page), "## What could be left behind")
	rows := 0
	for n, line := range strings.Split(table, "\n") {
		if !strings.HasPrefix(line, "| `") {
			continue
		}
		rows++
		tests := named.FindAllStringSubmatch(line[strings.LastIndex(strings.TrimSuffix(line, "|"), "|"):], -1)
		if len(tests) == 0 {
			t.Errorf("%s, row %d: no test: %s", page, n, line)
		}
		checkNamed(t, page, n, tests)
	}
	if rows < 10 {
		t.Errorf("%s: %d rows, want at least 10", page, rows)
	}
}

// TestEveryClaimOfTheThreatModelHasATestThatExists reads the tables of the page: the last column names tests as `folder.TestName`, or says after a dash why there
// is nothing to test.
func TestEveryClaimOfTheThreatModelHasATestThatExists(t *testing.T) {
	const page = "docs/explanation/security.md"
	claims := 0
	for n, line := range strings.Split(read(t, page), "\n") {
		if !strings.HasPrefix(line, "| ") || strings.HasSuffix(line, "| test |") {
			continue
		}
		claims++
		cells := strings.Split(line, "|")
		last := strings.TrimSpace(cells[len(cells)-2])
		tests := named.FindAllStringSubmatch(last, -1)
		if len(tests) == 0 && !strings.HasPrefix(last, "—") && !strings.Contains(line, "See above") {
			t.Errorf("%s:%d: got no test for the claim %q", page, n+1, line)
		}
		checkNamed(t, page, n+1, tests)
	}
	if claims < 20 {
		t.Errorf("%s: got %d claims, want at least 20", page, claims)
	}
}

// exists says whether a folder's Go files define a test, or name one of the playground's.
func exists(t *testing.T, folder, test string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(tree.Root(), folder, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	wanted := "func " + test + "("
	if !strings.HasPrefix(test, "Test") && !strings.HasPrefix(test, "Fuzz") {
		wanted = `"` + test + `"`
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), wanted) {
			return true
		}
	}
	return false
}
