package chart_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/azuredisk-csi/azuredisk/internal/testkit/tree"
)

// longestRepeated is the number of words of the longest meaning that the page repeats for further values.
const longestRepeated = 6

// documented is a value with the comment over it.
type documented struct {
	path    []string
	meaning string
}

func TestTheReferenceOfValuesIsWhatValuesYAMLSays(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile(filepath.Join(chartDir(), "values.yaml"))
	must(t, err)
	var values map[string]any
	must(t, yaml.Unmarshal(raw, &values))
	list := readComments(t, string(raw))
	covered := map[string]bool{}
	var page bytes.Buffer
	page.WriteString("# Values of the chart azuredisk\n\nThis page is generated from `charts/azuredisk/values.yaml` and from the [profiles](#profiles).\n\n" +
		"| value | default | meaning |\n|---|---|---|\n")
	first := map[string]string{}
	for _, value := range list {
		name := strings.Join(value.path, ".")
		covered[name] = true
		if same := first[value.meaning]; same != "" && len(strings.Fields(value.meaning)) > longestRepeated {
			value.meaning = "As `" + same + "`."
		} else if same == "" {
			first[value.meaning] = name
		}
		fmt.Fprintf(&page, "| `%s` | `%s` | %s |\n", name, compact(t, lookUp(t, values, value.path)),
			strings.ReplaceAll(value.meaning, "|", "\\|"))
	}
	checkCovered(t, values, nil, covered)
	page.WriteString("\n## Profiles\n\nA profile is a file of values for a kind of cluster. What it does not name has the default. Helm\n" +
		"adds the keys of a map to those of the default; null removes a key.\n")
	profiles, err := filepath.Glob(filepath.Join(chartDir(), "values-*.yaml"))
	must(t, err)
	if len(profiles) == 0 {
		t.Fatal("got no profile values-*.yaml in the chart, want some")
	}
	for _, profile := range profiles {
		raw, err := os.ReadFile(profile)
		must(t, err)
		var sets map[string]any
		must(t, yaml.Unmarshal(raw, &sets))
		about, _, _ := strings.Cut(strings.TrimPrefix(string(raw), "# "), "\n")
		fmt.Fprintf(&page, "\n### %s\n\n%s\n\n| value | set to | default |\n|---|---|---|\n", filepath.Base(profile), about)
		writeProfile(t, &page, sets, values, nil, covered)
	}
	compareOrUpdate(t, filepath.Join(tree.Root(), "docs", "reference", "chart-values.md"), page.String())
}

// writeProfile writes a line for each documented value that a profile sets.
func writeProfile(t *testing.T, page *bytes.Buffer, sets, values map[string]any, path []string, covered map[string]bool) {
	t.Helper()
	for _, key := range slices.Sorted(maps.Keys(sets)) {
		here := append(path[:len(path):len(path)], key)
		name := strings.Join(here, ".")
		if covered[name] {
			fmt.Fprintf(page, "| `%s` | `%s` | `%s` |\n", name, compact(t, sets[key]), compact(t, lookUp(t, values, here)))
			continue
		}
		deeper, is := sets[key].(map[string]any)
		if !is {
			t.Fatalf("a profile sets %s, which values.yaml does not have", name)
		}
		writeProfile(t, page, deeper, values, here, covered)
	}
}

// readComments pairs each comment that begins with "# --" with the key in the line under it.
func readComments(t *testing.T, text string) []documented {
	t.Helper()
	var (
		list    []documented
		path    []string
		comment string
	)
	for line := range strings.Lines(text) {
		trimmed := strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(trimmed, "# -- "):
			comment = strings.TrimPrefix(trimmed, "# -- ")
		case trimmed == "" || strings.HasPrefix(trimmed, "#") || strings.HasPrefix(trimmed, "- "):
		default:
			depth := (len(line) - len(strings.TrimLeft(line, " "))) / 2
			key, _, found := strings.Cut(trimmed, ":")
			if !found || depth > len(path) {
				t.Fatalf("values.yaml: cannot read %q", line)
			}
			path = append(path[:depth:depth], key)
			if comment != "" {
				list = append(list, documented{path, comment})
				comment = ""
			}
		}
	}
	return list
}

func checkCovered(t *testing.T, values map[string]any, path []string, covered map[string]bool) {
	t.Helper()
	for key, value := range values {
		here := append(path[:len(path):len(path)], key)
		name := strings.Join(here, ".")
		if covered[name] {
			continue
		}
		if deeper, is := value.(map[string]any); is && len(deeper) > 0 {
			checkCovered(t, deeper, here, covered)
			continue
		}
		t.Errorf("values.yaml: %s has no comment that begins with \"# --\"", name)
	}
}

func lookUp(t *testing.T, values map[string]any, path []string) any {
	t.Helper()
	var value any = values
	for _, key := range path {
		within, is := value.(map[string]any)
		if !is {
			t.Fatalf("values.yaml: no value %v", path)
		}
		value = within[key]
	}
	return value
}

func compact(t *testing.T, value any) string {
	t.Helper()
	if text, is := value.(string); is && text != "" {
		return text
	}
	var buffer bytes.Buffer
	encoder := json.NewEncoder(&buffer)
	encoder.SetEscapeHTML(false)
	must(t, encoder.Encode(value))
	return strings.TrimSpace(buffer.String())
}
