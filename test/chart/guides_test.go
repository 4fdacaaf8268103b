package chart_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/azuredisk-csi/azuredisk/internal/testkit/guides"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/tree"
)

// TestTheChartTakesTheHelmCommandsOfTheGuides renders the chart with the values of each `helm
// install` and `helm upgrade` of the README and of the guides, so that no page names a value or a
// file that does not exist.
func TestTheChartTakesTheHelmCommandsOfTheGuides(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob(filepath.Join(tree.Root(), "docs", "guides", "*.md"))
	must(t, err)
	count := 0
	for _, page := range append(pages, filepath.Join(tree.Root(), "README.md")) {
		text, err := os.ReadFile(page)
		must(t, err)
		found, err := guides.Commands("helm", string(text))
		if err != nil {
			t.Errorf("%s: %v", filepath.Base(page), err)
		}
		for _, arguments := range found {
			if !slices.Contains(arguments, "charts/azuredisk") && !slices.Contains(arguments, "./charts/azuredisk") {
				continue
			}
			count++
			if _, err := helm(t, asTemplate(t, arguments)...); err != nil {
				t.Errorf("%s: helm %s: %v", filepath.Base(page), strings.Join(arguments, " "), err)
			}
		}
	}
	if count < 5 {
		t.Errorf("helm commands of the guides: got %d, want at least 5", count)
	}
}

// asTemplate is the command that renders what another one installs. The values of a file that the
// reader writes are not known here.
func asTemplate(t *testing.T, arguments []string) []string {
	t.Helper()
	command := []string{"template", release, chartDir(), "--kube-version", kubeVersion}
	for i := 1; i < len(arguments); i++ {
		switch argument := arguments[i]; argument {
		case "--set":
			i++
			command = append(command, "--set", strings.NewReplacer("$", "", "SUBSTITUTION", "x").Replace(arguments[i]))
		case "--values", "-f":
			i++
			if strings.HasPrefix(arguments[i], "charts/") {
				command = append(command, "--values", filepath.Join(tree.Root(), arguments[i]))
			}
		case "--namespace", "-n", "--timeout":
			i++
		case release, "charts/azuredisk", "./charts/azuredisk", "--create-namespace", "--wait", "--take-ownership",
			"--reset-then-reuse-values", "--reuse-values":
		default:
			t.Errorf("helm %v: got the argument %s, want one that this test knows", arguments, argument)
		}
	}
	return append(command, "--namespace", namespace)
}
