package docs

import (
	"bytes"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/azuredisk-csi/azuredisk/internal/testkit/tree"
)

var updateWords = flag.Bool("update-words", false,
	"write the number of findings of each folder of Go files to words_remaining.yaml, if there are not more than before")

const (
	wordsFile     = "test/docs/words.yaml"
	remainingFile = "test/docs/words_remaining.yaml"
)

// TestProseUsesTheAgreedWords checks the Markdown pages, the chart and the scripts, without
// exceptions. It does not check generated pages, because it checks their sources.
func TestProseUsesTheAgreedWords(t *testing.T) {
	rules := readRules(t)
	for _, page := range pages(t) {
		if !generated(t, page) {
			for _, f := range rules.check(passage{file: page, text: withoutNames(read(t, page)), lines: []int{1}}) {
				t.Error(f)
			}
		}
	}
	for _, file := range textFiles(t) {
		for _, p := range textPassages(file, read(t, file)) {
			for _, f := range rules.check(p) {
				t.Error(f)
			}
		}
	}
}

var linkTarget = regexp.MustCompile(`\]\([^)\s]+\)`)

// withoutNames blanks the names of tests and the targets of links, which are names of Go files and
// are checked there.
func withoutNames(text string) string {
	blank := func(s string) string {
		return strings.Map(func(r rune) rune {
			if r == '\n' {
				return r
			}
			return '_'
		}, s)
	}
	return linkTarget.ReplaceAllStringFunc(named.ReplaceAllStringFunc(text, blank), blank)
}

// TestGoUsesTheAgreedWords checks comments, string literals and declared names. Each folder may
// have as many findings as words_remaining.yaml says, and not fewer, so that the numbers only fall.
func TestGoUsesTheAgreedWords(t *testing.T) {
	rules := readRules(t)
	found := map[string][]finding{}
	for _, file := range goFiles(t) {
		for _, p := range goPassages(t, file) {
			folder := filepath.Dir(file)
			found[folder] = append(found[folder], rules.check(p)...)
		}
	}
	counts := map[string]int{}
	for folder, findings := range found {
		counts[folder] = len(findings)
		for _, f := range findings {
			t.Log(f)
		}
	}
	compareAllowed(t, remainingFile,
		"Folders whose Go files still have words of words.yaml, with the number of findings. The numbers may only fall.", counts)
}

// compareAllowed compares numbers of findings with those that a file allows. With -update-words it
// writes the file: findings may move, but their sum may not grow.
func compareAllowed(t *testing.T, file, head string, found map[string]int) {
	t.Helper()
	allowed, before, after := map[string]int{}, 0, 0
	if err := yaml.UnmarshalStrict([]byte(read(t, file)), &allowed); err != nil {
		t.Fatalf("read %s: %v", file, err)
	}
	for _, n := range allowed {
		before += n
	}
	for _, n := range found {
		after += n
	}
	if *updateWords && after <= before {
		maps.DeleteFunc(found, func(_ string, n int) bool { return n == 0 })
		text, err := yaml.Marshal(found)
		if err == nil {
			err = os.WriteFile(filepath.Join(tree.Root(), file), append([]byte("# "+head+"\n"), text...), 0o644)
		}
		if err != nil {
			t.Fatalf("write %s: %v", file, err)
		}
		return
	}
	for _, of := range slices.Sorted(maps.Keys(found)) {
		switch got, want := found[of], allowed[of]; {
		case got > want:
			t.Errorf("%s: got %d findings, want at most %d; the log has them", of, got, want)
		case got < want:
			t.Errorf("%s: got %d findings, and %s allows %d: lower it (go test ./test/docs -run Words -update-words)", of, got,
				file, want)
		}
	}
	for of, want := range allowed {
		if _, any := found[of]; !any {
			t.Errorf("%s: got no such file, and %s allows %d findings: remove the line", of, file, want)
		}
	}
}

// TestWordRules checks the sentences of words_examples.yaml: each has the words that are found in
// it, or none.
func TestWordRules(t *testing.T) {
	rules := readRules(t)
	examples := map[string]string{}
	if err := yaml.UnmarshalStrict([]byte(read(t, "test/docs/words_examples.yaml")), &examples); err != nil ||
		len(examples) < 10 {
		t.Fatalf("read the examples: got %d of them, %v", len(examples), err)
	}
	for text, want := range examples {
		got := ""
		if findings := rules.check(passage{file: "x.md", text: text, lines: []int{1}}); len(findings) > 0 {
			got = findings[0].got
		}
		if got != want {
			t.Errorf("check %q: got %q, want %q", text, got, want)
		}
	}
	if got, want := inWords("TestAttachOfVMID2"), "test attach of vmid2"; got != want {
		t.Errorf("words of a name: got %q, want %q", got, want)
	}
}

// rule is one entry of words.yaml.
type rule struct {
	Not     []string `json:"not"`
	Unless  string   `json:"unless,omitempty"`
	Write   string   `json:"write"`
	Because string   `json:"because"`
	In      string   `json:"in,omitempty"`
	Case    bool     `json:"case,omitempty"`

	not    []*regexp.Regexp
	unless *regexp.Regexp
}

type ruleSet []rule

func readRules(t *testing.T) ruleSet {
	t.Helper()
	var rules ruleSet
	if err := yaml.UnmarshalStrict([]byte(read(t, wordsFile)), &rules); err != nil {
		t.Fatalf("read %s: %v", wordsFile, err)
	}
	for i := range rules {
		r := &rules[i]
		if len(r.Not) == 0 || r.Write == "" || r.Because == "" {
			t.Fatalf("%s: got the entry %+v, want patterns, a replacement and a reason", wordsFile, *r)
		}
		for _, pattern := range r.Not {
			r.not = append(r.not, compile(t, pattern))
		}
		if r.Unless != "" {
			r.unless = compile(t, r.Unless)
		}
	}
	return rules
}

// compile adds no word boundary to the expression: Go's regexp is much faster if the expression
// begins with a literal.
func compile(t *testing.T, pattern string) *regexp.Regexp {
	t.Helper()
	expression, err := regexp.Compile("(?m)" + pattern)
	if err != nil {
		t.Fatalf("%s: pattern %q: %v", wordsFile, pattern, err)
	}
	return expression
}

// passage is a text of one file. lines has the line number of each of its lines, or only of the
// first if the numbers follow each other.
type passage struct {
	file  string
	text  string
	lines []int
	name  bool // a Go identifier, in words
}

func (p passage) line(offset int) int {
	n := strings.Count(p.text[:offset], "\n")
	if n < len(p.lines) {
		return p.lines[n]
	}
	return p.lines[0] + n
}

type finding struct {
	file       string
	line       int
	got, write string
	because    string
}

func (f finding) String() string {
	return fmt.Sprintf("%s:%d: got %q, want %s (%s)", f.file, f.line, f.got, f.write, f.because)
}

var blanks = regexp.MustCompile(`\n[ \t>]*`)

func (rules ruleSet) check(p passage) []finding {
	// A phrase may continue on the next line. Each line break becomes one blank, and starts has
	// where the next line begins.
	var starts []int // offsets in flat at which a line of p.text begins
	var breaks []int // offsets in p.text
	flat, at := make([]byte, 0, len(p.text)), 0
	for _, span := range blanks.FindAllStringIndex(p.text, -1) {
		flat = append(flat, p.text[at:span[0]]...)
		if len(flat) > 0 && flat[len(flat)-1] == '\n' || strings.HasPrefix(p.text[span[1]:], "\n") ||
			strings.HasPrefix(p.text[span[1]:], "#") {
			flat = append(flat, '\n')
		} else {
			flat = append(flat, ' ')
		}
		starts, breaks, at = append(starts, len(flat)), append(breaks, span[1]), span[1]
	}
	flat = append(flat, p.text[at:]...)
	lower := bytes.ToLower(flat)
	if len(lower) != len(flat) {
		lower = flat // a letter whose lower case has another length
	}
	var found []finding
	for _, r := range rules {
		if r.In == "prose" && p.name || r.In == "names" && !p.name {
			continue
		}
		text := lower
		if r.Case {
			text = flat
		}
		for _, span := range r.matches(text) {
			n, _ := slices.BinarySearch(starts, span[0]+1)
			line := p.line(0)
			if n > 0 {
				line = p.line(breaks[n-1])
			}
			found = append(found, finding{p.file, line, string(flat[span[0]:span[1]]), r.Write, r.Because})
		}
	}
	return found
}

func (r rule) matches(text []byte) [][]int {
	var found, right [][]int
	for _, not := range r.not {
		for _, span := range not.FindAllIndex(text, -1) {
			if wordByte(text, span[0]-1) && wordByte(text, span[0]) || wordByte(text, span[1]-1) && wordByte(text, span[1]) {
				continue
			}
			if right == nil && r.unless != nil {
				right = r.unless.FindAllIndex(text, -1)
			}
			if !slices.ContainsFunc(right, func(s []int) bool { return s[0] <= span[0] && span[1] <= s[1] }) {
				found = append(found, span)
			}
		}
	}
	return found
}

func wordByte(text []byte, at int) bool {
	if at < 0 || at >= len(text) {
		return false
	}
	c := text[at]
	return c == '_' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c >= 0x80
}

var generatedPage = regexp.MustCompile(`(?m)^This page is generated|^# API Reference`)

// generated reports whether a page is generated, by the text of the page.
func generated(t *testing.T, page string) bool {
	t.Helper()
	return strings.HasPrefix(page, "docs/reference/") && generatedPage.MatchString(read(t, page))
}

// textFiles are the files of the chart that people write, and the scripts and settings with which
// the project is built.
func textFiles(t *testing.T) []string {
	t.Helper()
	var files []string
	root := tree.Root()
	for _, top := range []string{"charts", "hack", ".ci", "Makefile", ".golangci.yaml"} {
		err := filepath.WalkDir(filepath.Join(root, top), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || strings.Contains(path, "/files/crds/") || strings.HasSuffix(path, ".go") {
				return err
			}
			rel, err := filepath.Rel(root, path)
			files = append(files, rel)
			return err
		})
		if err != nil {
			t.Fatalf("files of %s: %v", top, err)
		}
	}
	if len(files) < 20 {
		t.Fatalf("files of the chart and scripts: got %q, want at least 20", files)
	}
	return files
}

var yamlComment = regexp.MustCompile(`^\s*# ?(.*)`)

// textPassages are the comments and messages of a YAML file, and the whole text of any other file.
func textPassages(file, text string) []passage {
	if !strings.HasSuffix(file, ".yaml") {
		return []passage{{file: file, text: text, lines: []int{1}}}
	}
	var found []passage
	for n, line := range strings.Split(text, "\n") {
		switch comment := yamlComment.FindStringSubmatch(line); {
		case comment == nil:
			if strings.Contains(line, "{{/*") || strings.Contains(line, "fail ") {
				found = append(found, passage{file: file, text: line, lines: []int{n + 1}})
			}
		case len(found) > 0 && found[len(found)-1].lines[len(found[len(found)-1].lines)-1] == n:
			last := &found[len(found)-1]
			last.text, last.lines = last.text+"\n"+comment[1], append(last.lines, n+1)
		default:
			found = append(found, passage{file: file, text: comment[1], lines: []int{n + 1}})
		}
	}
	return found
}

var humps = regexp.MustCompile(`[A-Z]+[a-z0-9]*|[a-z0-9]+`)

// inWords splits an identifier: TestAttachOfVMID2 is "test attach of vmid2".
func inWords(name string) string {
	return strings.ToLower(strings.Join(humps.FindAllString(name, -1), " "))
}

func unquoted(literal string) string {
	if text, err := strconv.Unquote(literal); err == nil && strings.HasPrefix(literal, `"`) {
		// Each literal is one line of the file.
		return strings.ReplaceAll(text, "\n", " ")
	}
	return literal
}
