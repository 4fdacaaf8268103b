package docs

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/azuredisk-csi/azuredisk/internal/cli/checks"
	"github.com/azuredisk-csi/azuredisk/internal/cli/explain"
	"github.com/azuredisk-csi/azuredisk/internal/cli/ui"
	"github.com/azuredisk-csi/azuredisk/internal/cli/whatif"
)

const outputPage = "docs/reference/cli-output.md"

// cliTypes are the types of the documents, by their section of the page.
var cliTypes = map[string]any{
	"Document": explain.Document{}, "Unread": explain.Unread{},
	"VolumeList": explain.List[explain.VolumeRow]{}, "Volume": explain.VolumeRow{},
	"NodeList": explain.List[explain.NodeRow]{}, "Node": explain.NodeRow{},
	"Explanation": explain.Report{}, "Subject": explain.Subject{}, "Finding": explain.Finding{}, "Evidence": explain.Evidence{},
	"Link": explain.Link{}, "AzureResource": explain.Resource{},
	"WhatIfReport": whatif.Report{}, "PodForecast": whatif.Row{},
	"CheckReport": checks.Report{}, "Check": checks.Line{},
	"Version": checks.Versions{}, "NodesVersion": checks.NodesVersion{},
	"Overview": explain.Overview{}, "NamespaceCount": explain.NamespaceCount{}, "Zone": explain.ZoneOverview{},
	"NodeOverview": explain.NodeOverview{}, "DiskOnNode": explain.DiskOnNode{}, "VolumeOverview": explain.VolumeOverview{},
	"PodOnNode": explain.PodOnNode{}, "Move": explain.Move{}, "Attention": explain.Attention{}, "Failover": explain.Failover{},
	"FailoverStep": explain.FailoverStep{},
	"ActionList":   ui.ActionList{}, "Action": ui.NodeAction{},
}

var quoted = regexp.MustCompile("`([a-zA-Z]+)`")

// TestTheMembersOfTheCLIAreOnTheirPage compares the members of all documents with the page for scripts.
func TestTheMembersOfTheCLIAreOnTheirPage(t *testing.T) {
	sections := map[reflect.Type]string{}
	for section, value := range cliTypes {
		sections[reflect.TypeOf(value)] = section
	}
	documented := map[string][]string{}
	section := ""
	for line := range strings.Lines(read(t, outputPage)) {
		if title, ok := strings.CutPrefix(strings.TrimLeft(line, "#"), " "); ok && strings.HasPrefix(line, "#") {
			section = strings.TrimSpace(title)
		}
		if cells := strings.Split(line, "|"); len(cells) == 5 && cliTypes[section] != nil {
			for _, m := range quoted.FindAllStringSubmatch(cells[1], -1) {
				documented[section] = append(documented[section], m[1])
			}
		}
	}
	for section, value := range cliTypes {
		want := members(t, reflect.TypeOf(value), sections)
		got := documented[section]
		slices.Sort(want)
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s: section %s has the members %q, want %q", outputPage, section, got, want)
		}
	}
}

// members are those of a type that are not embedded. Each type that they lead to has a section.
func members(t *testing.T, of reflect.Type, sections map[reflect.Type]string) []string {
	t.Helper()
	var names []string
	for i := range of.NumField() {
		field := of.Field(i)
		inner := field.Type
		for inner.Kind() == reflect.Pointer || inner.Kind() == reflect.Slice {
			inner = inner.Elem()
		}
		if inner.Kind() == reflect.Struct && inner != reflect.TypeFor[time.Time]() && sections[inner] == "" {
			t.Errorf("%s.%s is a %s, which has no section in %s: add one", of, field.Name, inner, outputPage)
		}
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case field.Anonymous:
		case name == "":
			t.Errorf("%s.%s has no name in JSON, want one", of, field.Name)
		default:
			names = append(names, name)
		}
	}
	return names
}

// TestTheExitCodesOfTheCLIAreOnTheirPage compares the table of the command with the page.
func TestTheExitCodesOfTheCLIAreOnTheirPage(t *testing.T) {
	var want []string
	for _, c := range explain.ExitCodes() {
		row := fmt.Sprintf("| %d | %s | %s | %s | %s |", c.Code, c.Why, c.WhatIf, c.Checks, c.Others)
		want = append(want, strings.Join(strings.Fields(row), " "))
	}
	var got []string
	for line := range strings.Lines(read(t, outputPage)) {
		if regexp.MustCompile(`^\| \d+ \|`).MatchString(line) {
			got = append(got, strings.TrimSpace(line))
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s: got the exit codes\n%s\nwant\n%s", outputPage, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestTheKindsOfTheCLIAreOnTheirPage compares the kinds of the documents with the page.
func TestTheKindsOfTheCLIAreOnTheirPage(t *testing.T) {
	page := read(t, outputPage)
	if !strings.Contains(page, "`"+explain.APIVersion+"`") {
		t.Errorf("%s does not name %s, want it", outputPage, explain.APIVersion)
	}
	for _, kind := range []string{
		explain.Explain(explain.Facts{}).Kind, whatif.Answer(whatif.Facts{}).Kind, checks.Doctor(checks.Facts{}).Kind,
		checks.VersionsOf(checks.Facts{}).Kind, explain.NewOverview(explain.Records{}, explain.Selection{}).Kind,
	} {
		if cliTypes[kind] == nil || !strings.Contains(page, "\n| `"+kind+"` |") {
			t.Errorf("kind %s has no row and section in %s, want them", kind, outputPage)
		}
	}
}
