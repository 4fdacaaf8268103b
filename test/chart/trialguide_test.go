package chart_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/azuredisk-csi/azuredisk/internal/testkit/tree"
)

// azFlags are the flags of Azure's CLI that the guide may use, by command. The source is https://learn.microsoft.com/cli/azure/aks and
// https://learn.microsoft.com/azure/aks/csi-storage-drivers.
var azFlags = map[string][]string{
	"az aks nodepool add": {"--resource-group", "--cluster-name", "--name", "--node-count", "--labels", "--node-taints"},
	"az aks update":       {"--resource-group", "--name", "--disable-disk-driver", "--enable-disk-driver"},
}

// The shell parses each block, Helm renders each installation with the values of the page, and each az command has flags that exist.
func TestTheCommandsOfTheTrialGuide(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile(filepath.Join(tree.Root(), "docs", "guides", "trial-on-aks.md"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Symlink(filepath.Join(tree.Root(), "charts"), filepath.Join(dir, "charts")); err != nil {
		t.Fatal(err)
	}
	installs, azs := 0, 0
	for _, block := range regexp.MustCompile("(?ms)^ *```(sh|yaml|)\n(.*?)^ *```$").FindAllStringSubmatch(string(raw), -1) {
		kind, text := block[1], regexp.MustCompile(`(?m)^   `).ReplaceAllString(block[2], "")
		if kind == "yaml" {
			if strings.Contains(text, "subscriptionID") {
				if err := os.WriteFile(filepath.Join(dir, "trial-values.yaml"), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			continue
		}
		if output, err := exec.Command("bash", "-n", "-c", text).CombinedOutput(); err != nil {
			t.Errorf("bash does not parse\n%s%s", text, output)
		}
		for _, command := range strings.Split(strings.ReplaceAll(text, "\\\n", " "), "\n") {
			words := strings.Fields(command)
			switch {
			case strings.HasPrefix(command, "helm install"):
				installs++
				renderInstall(t, dir, words)
			case strings.HasPrefix(command, "az "):
				azs++
				checkAz(t, command, words)
			}
		}
	}
	if installs != 2 || azs != 3 {
		t.Errorf("got %d installations and %d commands of az in the guide, want 2 and 3", installs, azs)
	}
}

func renderInstall(t *testing.T, dir string, words []string) {
	t.Helper()
	args := []string{"template", words[2], filepath.Join(dir, words[3]), "--kube-version", kubeVersion}
	for i, word := range words {
		if word == "--values" {
			args = append(args, word, filepath.Join(dir, words[i+1]))
		}
	}
	if _, err := helm(t, args...); err != nil {
		t.Errorf("%v: %v", words, err)
	}
}

func checkAz(t *testing.T, command string, words []string) {
	t.Helper()
	for known, flags := range azFlags {
		if !strings.HasPrefix(command, known+" ") {
			continue
		}
		for _, word := range words {
			if strings.HasPrefix(word, "--") && !slices.Contains(flags, word) {
				t.Errorf("%s: got the flag %s, want one of %v", known, word, flags)
			}
		}
		return
	}
	t.Errorf("unknown command %q", command)
}
