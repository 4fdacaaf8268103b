package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/azuredisk-csi/azuredisk/internal/testkit/expect"
)

func tree(files map[string]string) fstest.MapFS {
	fs := fstest.MapFS{}
	for name, text := range files {
		fs[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return fs
}

var repository = map[string]string{
	"README.md":          "[All](docs/README.md) [Code](api/a.go) [folder](docs/adr) [web](https://example.com) [here](#a)\n",
	"api/a.go":           "package api\n",
	"out/README.md":      "not a page\n",
	"docs/README.md":     "# Index\n\n## Learn\n\n* [One](one.md#a), [again](one.md), [Main](../README.md)\n* [Decisions](adr)\n",
	"docs/one.md":        "[`A`](../api/a.go#L1) [x][1]\n\n```\n[A](../api/a.go)\n```\n\n[1]: ../api/a.go\n",
	"docs/adr/1.md":      "# 1\n",
	"docs/adr/README.md": "# Decisions\n",
}

func TestLinksLeadToPagesOrToSources(t *testing.T) {
	for sources, want := range map[string]map[string]string{
		"": {
			"README.md":   "[All](docs/README.md) Code [folder](docs/adr/README.md) [web](https://example.com) [here](#a)\n",
			"docs/one.md": "`A` x\n\n```\n[A](../api/a.go)\n```\n\n",
		},
		"https://h/o": {"docs/one.md": "[`A`](https://h/o/api/a.go#L1) [x](https://h/o/api/a.go)\n\n```\n[A](../api/a.go)\n```\n\n"},
	} {
		to := t.TempDir()
		expect.Must(t, write(tree(repository), to, sources))
		for page, want := range want {
			got, err := os.ReadFile(filepath.Join(to, "pages", page))
			if err != nil || string(got) != want {
				t.Errorf("%s with sources at %q: got %q, %v, want %q", page, sources, got, err, want)
			}
		}
		config, err := os.ReadFile(filepath.Join(to, "mkdocs.yml"))
		const nav = "nav:\n- Home: README.md\n- docs/README.md\n- Learn:\n  - docs/one.md\n  - README.md\n" +
			"  - Decisions:\n    - docs/adr/1.md\n    - docs/adr/README.md\n"
		if err != nil || !strings.Contains(string(config), nav) {
			t.Errorf("mkdocs.yml: got %q, %v, want %q in it", config, err, nav)
		}
	}
}

func TestTheIndexHasEveryPage(t *testing.T) {
	files := map[string]string{"docs/README.md": "# Index\n", "docs/lost.md": "# Lost\n"}
	if err := write(tree(files), t.TempDir(), ""); err == nil || !strings.Contains(err.Error(), "docs/lost.md") {
		t.Errorf("a page that the index does not link: got %v, want an error that names it", err)
	}
}

func TestListsAreIndentedByFour(t *testing.T) {
	for text, want := range map[string]string{
		"* a\n  b\n\n  ```\n  c\n    d\n  ```\n\ne":  "* a\n    b\n\n    ```\n    c\n      d\n    ```\n\ne",
		"1. a\n   * b\n     c\n2. d\n10. e\n\n    f": "1. a\n    * b\n        c\n2. d\n10. e\n\n    f",
		"```\n* a\n  b\n```\n  c":                    "```\n* a\n  b\n```\n  c",
		"a\n\n    code\n\n* b\n\n      code of b":    "a\n\n    code\n\n* b\n\n        code of b",
	} {
		if got := indent(text); got != want {
			t.Errorf("indent(%q): got %q, want %q", text, got, want)
		}
	}
}
