package main

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/azuredisk-csi/azuredisk/provisioner/azure"
)

func TestAzureRole(t *testing.T) {
	for name, test := range map[string]struct {
		args   []string
		scopes []string
	}{
		"of a subscription": {args: []string{"--subscription=s"}, scopes: []string{"/subscriptions/s"}},
		"of resource groups": {
			args:   []string{"--subscription=s", "--resource-group=a", "--resource-group=b"},
			scopes: []string{"/subscriptions/s/resourceGroups/a", "/subscriptions/s/resourceGroups/b"},
		},
		"without anything set": {scopes: []string{"/subscriptions/" + placeholder}},
	} {
		t.Run(name, func(t *testing.T) {
			var role azure.RoleDefinition
			if err := json.Unmarshal([]byte(run(t, append([]string{"azure-role"}, test.args...)...)), &role); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(role.AssignableScopes, test.scopes) || !role.IsCustom || role.Name == "" ||
				len(role.Actions) != len(azure.Permissions()) {
				t.Errorf("%+v", role)
			}
		})
	}
	parts := 0
	for _, part := range []string{"group", "subscription"} {
		var role azure.RoleDefinition
		if err := json.Unmarshal([]byte(run(t, "azure-role", "--part="+part)), &role); err != nil {
			t.Fatal(err)
		}
		parts += len(role.Actions)
	}
	if parts != len(azure.Permissions()) {
		t.Errorf("the parts have %d actions together, want %d", parts, len(azure.Permissions()))
	}
	page := run(t, "azure-role", "--markdown")
	for _, p := range azure.Permissions() {
		if !strings.Contains(page, "| `"+p.Action+"` | "+p.Needed+" |") {
			t.Errorf("the table has no row for %s", p.Action)
		}
	}
}

func run(t *testing.T, args ...string) string {
	t.Helper()
	var out bytes.Buffer
	root := newRootCommand()
	root.SetArgs(args)
	root.SetOut(&out)
	if err := root.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	return out.String()
}
