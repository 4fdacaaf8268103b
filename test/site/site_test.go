// Package site checks the site that `make docs` builds: its links, that it loads nothing from other
// servers, and that users find the answers to their questions.
package site

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/azuredisk-csi/azuredisk/internal/testkit/expect"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/tree"
)

var build = sync.OnceValues(func() (fs.FS, error) {
	docs := exec.Command("make", "docs")
	docs.Dir = tree.Root()
	out, err := docs.CombinedOutput()
	os.Stderr.Write(out)
	return os.DirFS(filepath.Join(tree.Root(), "out/docs/site")), err
})

// built returns the files of the site, and the text of those that browsers read.
func built(t *testing.T) (fs.FS, map[string]string) {
	t.Helper()
	site, err := build()
	expect.Must(t, err)
	texts := map[string]string{}
	expect.Must(t, fs.WalkDir(site, ".", func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text := ""
		if path.Ext(file) == ".html" || path.Ext(file) == ".css" {
			var read []byte
			read, err = fs.ReadFile(site, file)
			text = string(read)
		}
		texts[file] = text
		return err
	}))
	return site, texts
}

var (
	loaded  = regexp.MustCompile(`(?i)(?:<(?:script|img|link)\b[^>]*?\s(?:src|href)=|url\(|@import )["']?(?:https?:)?//[^\s"')>]+`)
	anchor  = regexp.MustCompile(`<a\b[^>]*?\shref="?([^\s">]+)`)
	article = regexp.MustCompile(`(?s)<article.*</article>`)
)

// leads returns the file of the site to which a link of a page leads, and the fragment.
func leads(page, link string) (file, fragment string, internal bool) {
	target, err := url.Parse(link)
	if err != nil || target.IsAbs() || target.Host != "" {
		return "", "", false
	}
	file = strings.TrimPrefix((&url.URL{Path: "/" + page}).ResolveReference(target).Path, "/")
	if file == "" || strings.HasSuffix(file, "/") {
		file += "index.html"
	}
	return file, target.Fragment, true
}

// TestLinksOfTheSiteLeadSomewhere: anchors are those of MkDocs here, and of GitHub in test/docs.
func TestLinksOfTheSiteLeadSomewhere(t *testing.T) {
	_, texts := built(t)
	links := 0
	for page, text := range texts {
		for _, got := range loaded.FindAllString(text, -1) {
			t.Errorf("%s: got %s, want nothing that comes from another server", page, got)
		}
		if page == "404.html" {
			continue // its links are absolute
		}
		for _, m := range anchor.FindAllStringSubmatch(text, -1) {
			file, fragment, internal := leads(page, m[1])
			if !internal {
				continue
			}
			links++
			if there, ok := texts[file]; !ok || fragment != "" && !strings.Contains(there, `id="`+fragment+`"`) {
				t.Errorf("%s: got a link to %s, want a file and an anchor that the site has", page, m[1])
			}
		}
	}
	if links < 5000 {
		t.Errorf("links of the site: got %d, want at least 5000", links)
	}
}

type question struct {
	Question string `json:"question"`
	Search   string `json:"search"`
	Page     string `json:"page"`
	Answer   string `json:"answer"`
}

// address returns the file of the site that is made of a page.
func (q question) address() string {
	page := strings.TrimSuffix(q.Page, ".md")
	if path.Base(page) == "README" {
		return path.Join(path.Dir(page), "index.html")
	}
	return page + "/index.html"
}

//go:embed questions.yaml
var questionsFile []byte

// TestUsersFindTheirAnswers: two clicks lead from the index to the page of each answer, and it is
// among the first three results of a search.
func TestUsersFindTheirAnswers(t *testing.T) {
	site, texts := built(t)
	var questions []question
	expect.Must(t, yaml.UnmarshalStrict(questionsFile, &questions))
	if len(questions) < 20 {
		t.Fatalf("questions: got %d, want at least 20", len(questions))
	}
	near := clicked(texts, "docs/index.html", 2)
	found := searched(t, site, questions)
	for i, q := range questions {
		if !strings.Contains(texts[q.address()], `id="`+q.Answer+`"`) {
			t.Errorf("%s: got no answer at %s#%s", q.Question, q.Page, q.Answer)
		}
		if !near[q.address()] {
			t.Errorf("%s: got %s more than two clicks away from the index", q.Question, q.Page)
		}
		if !slices.Contains(found[i], "/"+strings.TrimSuffix(q.address(), "index.html")) {
			t.Errorf("%s: searched for %q: got %q, want %s among three", q.Question, q.Search, found[i], q.Page)
		}
	}
}

// clicked returns the pages to which the links in the text of a page lead, within so many clicks.
func clicked(texts map[string]string, page string, clicks int) map[string]bool {
	reached, last := map[string]bool{page: true}, []string{page}
	for range clicks {
		var next []string
		for _, from := range last {
			for _, m := range anchor.FindAllStringSubmatch(article.FindString(texts[from]), -1) {
				if file, _, internal := leads(from, m[1]); internal && !reached[file] {
					reached[file] = true
					next = append(next, file)
				}
			}
		}
		last = next
	}
	return reached
}

//go:embed search.js
var searchScript string

// searched returns the first three results of a browser for each question.
func searched(t *testing.T, site fs.FS, questions []question) [][]string {
	t.Helper()
	found := make(chan [][]string, 1)
	mux := http.NewServeMux()
	mux.Handle("/", http.FileServerFS(site))
	mux.HandleFunc("/docs/{$}", func(w http.ResponseWriter, _ *http.Request) {
		page, err := fs.ReadFile(site, "docs/index.html")
		if err != nil {
			t.Error(err)
		}
		_, _ = w.Write(bytes.Replace(page, []byte("</body>"), []byte("<script>"+searchScript+"</script></body>"), 1))
	})
	mux.HandleFunc("GET /questions", func(w http.ResponseWriter, _ *http.Request) {
		var words []string
		for _, q := range questions {
			words = append(words, q.Search)
		}
		_ = json.NewEncoder(w).Encode(words)
	})
	mux.HandleFunc("POST /found", func(_ http.ResponseWriter, r *http.Request) {
		var results [][]string
		if err := json.NewDecoder(r.Body).Decode(&results); err != nil || len(results) != len(questions) {
			t.Errorf("results of the browser: got %q, %v, want %d", results, err, len(questions))
		}
		found <- results
	})
	server := httptest.NewServer(mux)
	defer server.Close()
	profile, err := os.MkdirTemp("", "browser")
	expect.Must(t, err)
	name := "chromium"
	if _, err := exec.LookPath(name); err != nil {
		name = "google-chrome"
	}
	browser := exec.CommandContext(t.Context(), name, "--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0",
		"--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", "--user-data-dir="+profile, server.URL+"/docs/")
	browser.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	browser.Cancel = func() error { return syscall.Kill(-browser.Process.Pid, syscall.SIGKILL) }
	expect.Must(t, browser.Start())
	defer func() {
		_, _, _ = browser.Cancel(), browser.Wait(), os.RemoveAll(profile) // its other processes may end after it
	}()
	select {
	case results := <-found:
		return results
	case <-time.After(5 * time.Minute): // other stages run beside it
		t.Fatal("the browser has not found results for all questions after five minutes")
		return nil
	}
}
