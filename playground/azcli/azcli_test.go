package azcli

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestFlagsAreReadWithTheValuesThatFollowThem(t *testing.T) {
	t.Parallel()
	got := parse([]string{"--name", "trial", "--zones", "1", "2", "3", "--yes", "--labels", "a=b"})
	want := map[string][]string{"name": {"trial"}, "zones": {"1", "2", "3"}, "yes": nil, "labels": {"a=b"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("flags (-want +got):\n%s", diff)
	}
}

func TestAnUnknownCommandIsRefused(t *testing.T) {
	t.Parallel()
	if _, err := Run(t.Context(), nil, t.TempDir(), []string{"aks", "stop", "--name", "x"}); err == nil {
		t.Error("az aks stop: got no error")
	}
	if out, err := Run(t.Context(), nil, t.TempDir(), []string{"acr", "login", "--name", "x"}); out != "" || err != nil {
		t.Errorf("az acr login: got %q, %v", out, err)
	}
}

// TestEachCommandOfTheGuidesHasAStandIn finds what a run of the guides on a cluster would fail on.
func TestEachCommandOfTheGuidesHasAStandIn(t *testing.T) {
	t.Parallel()
	block, command := regexp.MustCompile("(?ms)^ *```sh\n(.*?)^ *```$"), regexp.MustCompile(`\baz ([a-z]+(?: [a-z][a-z-]*)*) --`)
	found := 0
	for _, guide := range []string{"install-on-aks.md", "trial-on-aks.md"} {
		page, err := os.ReadFile(filepath.Join("..", "..", "docs", "guides", guide))
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range block.FindAllStringSubmatch(string(page), -1) {
			for _, c := range command.FindAllStringSubmatch(b[1], -1) {
				found++
				if _, known := commands[strings.TrimSpace(c[1])]; !known {
					t.Errorf("%s: az %s has no stand-in", guide, c[1])
				}
			}
		}
	}
	if found < 25 {
		t.Errorf("commands of az in the guides: got %d, want 25 or more", found)
	}
}

func TestARoleIsKeptUntilItIsAssigned(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "role.json")
	if err := os.WriteFile(file, []byte(`{"Name": "driver", "Actions": ["a/read"], "AssignableScopes": ["/s"]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	c := &call{dir: dir, flags: map[string][]string{"role-definition": {"@" + file}}}
	for range 2 {
		if _, err := c.defineRole(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	want := role{Name: "driver", Actions: []string{"a/read"}, Scopes: []string{"/s"}}
	if diff := cmp.Diff([]role{want, want}, c.roles("defined")); diff != "" {
		t.Errorf("definitions (-want +got):\n%s", diff)
	}
	c.flags = map[string][]string{"role": {"another"}}
	if _, err := c.assignRole(t.Context()); err == nil {
		t.Error("a role that is not defined is assigned")
	}
}
