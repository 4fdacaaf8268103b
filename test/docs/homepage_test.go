package docs

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

const (
	// modulePath is the module's name, which imports need. It is no promise that the account is ours.
	modulePath = "github.com/azuredisk-csi/azuredisk"
	// publisherPage says what a publisher must own.
	publisherPage = "docs/contributing/release.md"
)

var (
	homeOfChart = regexp.MustCompile(`(?m)^home: (https://[a-z-]+\.invalid/\S+)$`)
	// ours finds the project's name in a URL, in a place at a host where accounts can be registered,
	// and in the name of a team.
	ours = regexp.MustCompile(`(?i)(?:[a-z+]+://|\b(?:git[a-z]*|ghcr|quay|docker|bitbucket|codeberg|pkg\.go)\.[a-z]+/|(?:^|\s)@)` +
		"[^\\s\"'`<>(){}|]*azure-?disk[^\\s\"'`<>(){}|]*")
	// others begin what belongs to others, and what cannot be registered (RFC 2606, RFC 6761).
	others = regexp.MustCompile(`(?i)^(?:[a-z+]+://)?(?:` + strings.Join([]string{
		`(?:raw\.githubusercontent|github)\.com/(?:kubernetes-sigs|Azure)/`,
		`(?:[a-z0-9-]+\.)*(?:azure|microsoft|windows)\.(?:com|net)[/:]`,
		`(?:[a-z0-9-]+\.)*example\.(?:com|org|net)[/:]`,
		`(?:[a-z0-9-]+\.)*(?:invalid|test|example)[/:]`,
	}, "|") + `)`)
)

// foreignNames returns the places of a text that have the project's name, and are neither below the
// home page, nor of others, nor the module's name where code needs it.
func foreignNames(file, text, home string) []string {
	var lines, found []string
	for line := range strings.Lines(text) {
		if lower := strings.ToLower(line); strings.Contains(lower, "azuredisk") || strings.Contains(lower, "azure-disk") {
			lines = append(lines, line)
		}
	}
	for _, place := range ours.FindAllString(strings.Join(lines, ""), -1) {
		place = strings.TrimSpace(place)
		imported := strings.HasPrefix(place, modulePath) && (file == publisherPage || !strings.HasSuffix(file, ".md")) &&
			!strings.HasPrefix(file, "charts/")
		if !imported && !strings.HasPrefix(place, home) && !others.MatchString(place) {
			found = append(found, place)
		}
	}
	return found
}

// TestEveryURLOfTheProjectIsTheHomePage: another one can be registered by an attacker. So can the
// account in the module's path, from which no page may install.
func TestEveryURLOfTheProjectIsTheHomePage(t *testing.T) {
	chart := homeOfChart.FindStringSubmatch(read(t, "charts/azuredisk/Chart.yaml"))
	if chart == nil {
		t.Fatal("Chart.yaml: got no home below .invalid, want one: a release sets the page of its publisher")
	}
	install := regexp.MustCompile(`go (?:get|install|run) \S*` + regexp.QuoteMeta(modulePath))
	for _, file := range files(t, "", 1000) {
		text := read(t, file)
		if file == "test/docs/homepage_test.go" || strings.Contains(text, "\x00") {
			continue
		}
		for _, place := range foreignNames(file, text, chart[1]) {
			t.Errorf("%s: got %s, want a URL below %s (`home` of the chart), a relative one, or one of others", file, place,
				chart[1])
		}
		if wrong := install.FindString(text); wrong != "" && file != publisherPage {
			t.Errorf("%s: got `%s`, want none: the account is not the project's", file, wrong)
		}
	}
}

func TestNamesThatAnyoneCanRegisterAreFound(t *testing.T) {
	const home = "https://set-homepage.invalid/azuredisk"
	for text, want := range map[string]bool{
		"see https://github.com/azuredisk-csi/azuredisk/blob/main/README.md":         true,
		"see https://azuredisk.dev/runbooks":                                         true,
		"helm install a oci://ghcr.io/azuredisk/charts":                              true,
		"image: ghcr.io/some/azuredisk:1":                                            true,
		"see [pages](https://azuredisk-csi.github.io)":                               true,
		"the package github.com/azuredisk-csi/azuredisk/api/v1":                      true,
		"* @azuredisk-csi/maintainers":                                               true,
		"see " + home + "/blob/main/README.md":                                       false,
		"see https://github.com/kubernetes-sigs/azuredisk-csi-driver/pull/1":         false,
		"see https://learn.microsoft.com/azure/aks/azure-disk-csi":                   false,
		"image: registry.example.com/azuredisk:1, https://registry.example.com/disk": false,
	} {
		if got := foreignNames("docs/a.md", text, home); (len(got) > 0) != want {
			t.Errorf("%q: got %q, want a finding: %v", text, got, want)
		}
	}
	for file, want := range map[string]bool{"a/b.go": false, publisherPage: false, "charts/azuredisk/values.yaml": true} {
		if got := foreignNames(file, modulePath, home); slices.Contains(got, modulePath) != want {
			t.Errorf("the module's path in %s: got %q, want a finding: %v", file, got, want)
		}
	}
}
