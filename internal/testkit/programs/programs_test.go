package programs_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/azuredisk-csi/azuredisk/internal/testkit/programs"
)

func TestTheNewestBuildIsFoundOfTheVersionOfKubernetes(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("AZUREDISK_CACHE", cache)
	made := time.Now()
	// Each is newer than those before it.
	for _, file := range []string{"etcd-1/bin/etcd", "kubernetes-1/bin/kubectl", "kubernetes-2/bin/kubectl",
		"1.34/kubernetes-1/bin/kubectl"} {
		path := filepath.Join(cache, "programs", file)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o755); err != nil {
			t.Fatal(err)
		}
		made = made.Add(time.Second)
		if err := os.Chtimes(path, made, made); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct{ version, program, want string }{
		{"", "kubectl", "kubernetes-2/bin/kubectl"},
		{"1.37", "kubectl", "kubernetes-2/bin/kubectl"},
		{"1.34", "kubectl", "1.34/kubernetes-1/bin/kubectl"},
		{"1.34", "etcd", "etcd-1/bin/etcd"},
	} {
		t.Setenv("PLAYGROUND_KUBERNETES", test.version)
		if got, err := programs.Find(test.program); err != nil || got != filepath.Join(cache, "programs", test.want) {
			t.Errorf("%s with Kubernetes %q: got %q, %v, want %q", test.program, test.version, got, err, test.want)
		}
	}
	if got, err := programs.Find("helm"); err == nil {
		t.Errorf("a program that is not in the cache: got %q, want an error", got)
	}
}
