package registry

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/azuredisk-csi/azuredisk/image"
)

// TestHelmInstallsTheChartFromARegistry pushes the chart as `make push-chart` does, and lets Helm
// read it.
func TestHelmInstallsTheChartFromARegistry(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "chart")
	must(t, image.WriteChartLayout(dir, packagedChart(t)))
	repository := serve(t, nil) + "/charts/azuredisk"
	pushed, err := Push(t.Context(), dir, repository)
	must(t, err)
	if len(pushed) != 1 {
		t.Fatalf("got %v, want the chart", pushed)
	}
	home := t.TempDir()
	cmd := exec.Command(helm(t), "template", "azuredisk", "oci://"+repository, "--version", "1.2.3", "--plain-http",
		"--kube-version", "1.36.0", "--set", "csiDriver.attachRequired=false")
	cmd.Env = append(os.Environ(), "HELM_CONFIG_HOME="+home, "HELM_CACHE_HOME="+home, "HELM_DATA_HOME="+home)
	output, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(output), "kind: DaemonSet") ||
		!strings.Contains(string(output), pushed[0].DigestStr()) {
		t.Errorf("helm template oci://…: got %v, %.500s, want the chart's objects and the digest %s", err, output,
			pushed[0].DigestStr())
	}
}

// helm is the pinned Helm, which `make programs` builds.
func helm(t *testing.T) string {
	t.Helper()
	cache := os.Getenv("AZUREDISK_CACHE")
	if cache == "" {
		home, err := os.UserCacheDir()
		must(t, err)
		cache = filepath.Join(home, "azuredisk")
	}
	found, err := filepath.Glob(filepath.Join(cache, "programs", "*", "bin", "helm"))
	must(t, err)
	if len(found) == 0 {
		t.Fatalf("got no helm in %s, want one: run `make programs` first", cache)
	}
	return found[len(found)-1]
}

// packagedChart is the project's chart with the version 1.2.3, as an archive.
func packagedChart(t *testing.T) []byte {
	t.Helper()
	chart := filepath.Join(t.TempDir(), "azuredisk")
	must(t, os.CopyFS(chart, os.DirFS("../../charts/azuredisk")))
	text, err := os.ReadFile(filepath.Join(chart, "Chart.yaml"))
	must(t, err)
	lines := strings.Split(string(text), "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, "version: ") {
			lines[i] = "version: 1.2.3"
		}
	}
	must(t, os.WriteFile(filepath.Join(chart, "Chart.yaml"), []byte(strings.Join(lines, "\n")), 0o600))
	var buffer bytes.Buffer
	zipped := gzip.NewWriter(&buffer)
	to := tar.NewWriter(zipped)
	must(t, to.AddFS(os.DirFS(filepath.Dir(chart))))
	must(t, to.Close())
	must(t, zipped.Close())
	return buffer.Bytes()
}
