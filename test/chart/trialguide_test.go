package chart_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/azuredisk-csi/azuredisk/internal/testkit/guides"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/tree"
)

// The shell parses each block, and Helm renders each installation with the values of the page.
// test/docs checks the arguments of az.
func TestTheCommandsOfTheTrialGuide(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile(filepath.Join(tree.Root(), "docs", "guides", "trial-on-aks.md"))
	must(t, err)
	dir := t.TempDir()
	must(t, os.Symlink(filepath.Join(tree.Root(), "charts"), filepath.Join(dir, "charts")))
	for _, block := range regexp.MustCompile("(?ms)^ *```(?:sh|)\n(.*?)^ *```$").FindAllStringSubmatch(string(raw), -1) {
		text := regexp.MustCompile(`(?m)^   `).ReplaceAllString(block[1], "")
		if output, err := exec.Command("bash", "-n", "-c", text).CombinedOutput(); err != nil {
			t.Errorf("bash does not parse\n%s%s", text, output)
		}
		if strings.Contains(text, ">trial-values.yaml") {
			write := exec.Command("bash", "-c", text)
			write.Dir, write.Env = dir, []string{"PATH=" + os.Getenv("PATH"), "SUBSCRIPTION=s", "DISKS=d", "LOCATION=l",
				"CLIENT=c", "IMAGES=registry.example.com", "VERSION=1"}
			output, err := write.CombinedOutput()
			if err != nil {
				t.Errorf("write the values: %v: %s", err, output)
			}
		}
	}
	installs := commands(t, "helm", string(raw))
	installs = slices.DeleteFunc(installs, func(arguments []string) bool { return arguments[0] != "install" })
	for _, arguments := range installs {
		renderInstall(t, dir, arguments)
	}
	if azs := commands(t, "az", string(raw)); len(installs) != 2 || len(azs) < 15 {
		t.Errorf("got %d installations and %d commands of az in the guide, want 2, and 15 or more", len(installs), len(azs))
	}
}

func commands(t *testing.T, program, page string) [][]string {
	t.Helper()
	found, err := guides.Commands(program, page)
	must(t, err)
	return found
}

func renderInstall(t *testing.T, dir string, arguments []string) {
	t.Helper()
	args := []string{"template", arguments[1], filepath.Join(dir, arguments[2]), "--kube-version", kubeVersion}
	for i, argument := range arguments {
		if argument == "--values" {
			args = append(args, argument, filepath.Join(dir, arguments[i+1]))
		}
	}
	if _, err := helm(t, args...); err != nil {
		t.Errorf("%v: %v", arguments, err)
	}
}
