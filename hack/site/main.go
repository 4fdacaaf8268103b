// The site program prepares the Markdown pages of the repository for MkDocs: a site has the pages
// in the same folders, and the index of the pages is its navigation.
package main

import (
	"cmp"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

const index = "docs/README.md"

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: site FOLDER SOURCES (the URL of the sources; empty: no links to them)")
		os.Exit(2)
	}
	if err := write(os.DirFS("."), os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "site:", err)
		os.Exit(1)
	}
}

// write writes the pages and the files beside them to the folder pages, and mkdocs.yml.
func write(tree fs.FS, to, sources string) error {
	files, err := published(tree)
	if err != nil {
		return err
	}
	for _, file := range files {
		text, err := fs.ReadFile(tree, file)
		if err != nil {
			return err
		}
		if path.Ext(file) == ".md" {
			text = []byte(indent(links(file, string(text), files, sources)))
		}
		target := filepath.Join(to, "pages", file)
		if err := cmp.Or(os.MkdirAll(filepath.Dir(target), 0o755), os.WriteFile(target, text, 0o644)); err != nil {
			return err
		}
	}
	nav, err := navigation(tree, files)
	if err != nil {
		return err
	}
	config, err := yaml.Marshal(map[string]any{"INHERIT": "../../hack/site/mkdocs.yml", "docs_dir": "pages", "nav": nav})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(to, "mkdocs.yml"), config, 0o644)
}

var whole = regexp.MustCompile(`^(?:docs|examples)/`)

// published lists the Markdown pages of the tree, but that of the chart's package, and all files of
// docs and examples.
func published(tree fs.FS) (files []string, err error) {
	err = fs.WalkDir(tree, ".", func(file string, entry fs.DirEntry, err error) error {
		hidden := file != "." && strings.HasPrefix(entry.Name(), ".")
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (hidden || file == "out" || file == "bin" || file == "charts"):
			return fs.SkipDir
		case !entry.IsDir() && (path.Ext(file) == ".md" || whole.MatchString(file)):
			files = append(files, file)
		}
		return nil
	})
	return files, err
}

// defined is a link whose target stands on a line of its own.
var defined = regexp.MustCompile(`(?m)^(\[[^\]]+\]): ([^#:\s]+)\n`)

// linkOrFence matches a fenced block too, in which nothing is a link.
var linkOrFence = regexp.MustCompile("(?ms)^ *```.*?^ *```|\\[([^\\]]*)\\]\\(([^)\\s]+)\\)")

// links makes the links of a page lead to pages of the site, or to the sources.
func links(page, text string, files []string, sources string) string {
	for _, m := range defined.FindAllStringSubmatch(text, -1) {
		text = strings.ReplaceAll(strings.Replace(text, m[0], "", 1), "]"+m[1], "]("+m[2]+")")
	}
	return linkOrFence.ReplaceAllStringFunc(text, func(found string) string {
		m := linkOrFence.FindStringSubmatch(found)
		target, fragment, _ := strings.Cut(m[2], "#")
		file := path.Join(path.Dir(page), target)
		switch {
		case target == "" || strings.Contains(target, ":") || slices.Contains(files, file):
			return found
		case slices.Contains(files, file+"/README.md"):
			return strings.Replace(found, m[2], target+"/README.md", 1)
		case sources == "":
			return m[1]
		}
		return strings.Replace(found, m[2], strings.TrimSuffix(sources+"/"+file+"#"+fragment, "#"), 1)
	})
}

var item = regexp.MustCompile(`^(?:\*|-|\d+\.) +`)

// indent gives what belongs to an item of a list four columns, as MkDocs needs it. GitHub needs as
// many as the marker has.
func indent(text string) string {
	var columns []int // at which the text of each open item begins
	fenced := false
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		rest := strings.TrimLeft(line, " ")
		column := len(line) - len(rest)
		for !fenced && rest != "" && len(columns) > 0 && column < columns[len(columns)-1] {
			columns = columns[:len(columns)-1]
		}
		if len(columns) > 0 && rest != "" {
			within := max(0, column-columns[len(columns)-1])
			lines[i] = strings.Repeat(" ", 4*len(columns)+within) + rest
		}
		if strings.HasPrefix(rest, "```") {
			fenced = !fenced
		} else if marker := item.FindString(rest); marker != "" && !fenced {
			columns = append(columns, column+len(marker))
		}
	}
	return strings.Join(lines, "\n")
}

var headingOrLink = regexp.MustCompile(`(?m)^## (.+)$|\[([^\]]*)\]\(([^)#:\s]+)\)`)

// navigation follows the index: a section for each heading, with the pages that it links. A link to
// a folder is a section with all pages of the folder.
func navigation(tree fs.FS, files []string) ([]any, error) {
	text, err := fs.ReadFile(tree, index)
	if err != nil {
		return nil, err
	}
	nav, section, seen := []any{map[string]any{"Home": "README.md"}, index}, "", map[string]bool{index: true}
	var entries []any
	for _, m := range append(headingOrLink.FindAllStringSubmatch(string(text), -1), []string{"", "end"}) {
		if m[1] != "" {
			if len(entries) > 0 {
				nav = append(nav, map[string]any{section: entries})
			}
			section, entries = m[1], nil
			continue
		}
		target := path.Join(path.Dir(index), m[3])
		if slices.Contains(files, target+"/README.md") {
			var folder []string
			for _, file := range files {
				if path.Dir(file) == target {
					folder, seen[file] = append(folder, file), true
				}
			}
			entries = append(entries, map[string]any{m[2]: folder})
		} else if !seen[target] {
			entries, seen[target] = append(entries, target), true
		}
	}
	for _, file := range files {
		if strings.HasPrefix(file, "docs/") && path.Ext(file) == ".md" && !seen[file] {
			return nil, fmt.Errorf("%s has no link to %s", index, file)
		}
	}
	return nav, nil
}
