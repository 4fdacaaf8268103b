// Package chart_test holds the chart to its word: what it renders, what it
// refuses, and that a real kube-apiserver, real sidecars, our own programs and
// a real kube-scheduler accept what it says.
package chart_test

import (
	"bytes"
	"errors"
	"flag"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/azuredisk-csi/azuredisk/internal/testkit/apiserver"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/expect"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/programs"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/tree"
)

const (
	release   = "azuredisk"
	namespace = "azure-disk-csi"
	// kubeVersion that charts are rendered for where no cluster says.
	kubeVersion = "1.37.2"
)

var update = flag.Bool("update", false, "write the golden files and the generated page")

var must = expect.Must

func TestMain(m *testing.M) {
	flag.Parse()
	ctrl.SetLogger(logr.Discard())
	os.Exit(apiserver.Run(m))
}

func chartDir() string { return filepath.Join(tree.Root(), "charts", "azuredisk") }

// program returns the path of a pinned program.
func program(t testing.TB, name string) string {
	t.Helper()
	path, err := programs.Find(name)
	must(t, err)
	return path
}

// helm runs Helm with configuration and cache of its own. What it only renders gets the values that
// it could not ask a cluster for.
func helm(t testing.TB, args ...string) (output string, err error) {
	t.Helper()
	if args[0] == "template" && filepath.Base(args[2]) == "azuredisk" {
		args = slices.Insert(slices.Clone(args), 3, "--values", filepath.Join(tree.Root(), "test/chart/without-cluster.yaml"))
	}
	home := t.TempDir()
	cmd := exec.Command(program(t, "helm"), args...)
	cmd.Env = append(os.Environ(), "HELM_CONFIG_HOME="+home, "HELM_CACHE_HOME="+home, "HELM_DATA_HOME="+home)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), errors.New(stderr.String())
	}
	return stdout.String(), nil
}

func render(t testing.TB, args ...string) string {
	t.Helper()
	output, err := helm(t, append([]string{"template", release, chartDir(), "-n", namespace, "--kube-version", kubeVersion},
		args...)...)
	must(t, err)
	return output
}

func objects(t testing.TB, manifest string) []*unstructured.Unstructured {
	t.Helper()
	var list []*unstructured.Unstructured
	decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(manifest), 4096)
	for {
		object := &unstructured.Unstructured{}
		if err := decoder.Decode(&object.Object); err != nil {
			if errors.Is(err, io.EOF) {
				return list
			}
			t.Fatal(err)
		}
		if len(object.Object) > 0 {
			list = append(list, object)
		}
	}
}

func find(t testing.TB, list []*unstructured.Unstructured, kind, name string) *unstructured.Unstructured {
	t.Helper()
	for _, object := range list {
		if object.GetKind() == kind && object.GetName() == name {
			return object
		}
	}
	t.Fatalf("no %s %s in the manifest", kind, name)
	return nil
}

func compareOrUpdate(t testing.TB, file, got string) {
	t.Helper()
	if *update {
		must(t, os.WriteFile(file, []byte(got), 0o644))
	}
	want, err := os.ReadFile(file)
	must(t, err)
	if got != string(want) {
		t.Errorf("%s differs from its source; update it with `go test ./test/chart -update`\n%s", file,
			firstDifference(string(want), got))
	}
}

func firstDifference(want, got string) string {
	wants, gots := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range min(len(wants), len(gots)) {
		if wants[i] != gots[i] {
			return "first difference in line " + strconv.Itoa(i+1) + ":\n- " + wants[i] + "\n+ " + gots[i]
		}
	}
	return "one is " + strconv.Itoa(len(wants)) + " lines long, the other " + strconv.Itoa(len(gots))
}
