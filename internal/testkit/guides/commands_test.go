package guides

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCommandsAreFoundWhereverTheyStand(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		script string
		want   [][]string
	}{
		"continued over lines": {"az group create \\\n  --name \"$GROUP\"\n",
			[][]string{{"group", "create", "--name", "$GROUP"}}},
		"in an assignment": {"ID=$(az account show --query id)\n", [][]string{{"account", "show", "--query", "id"}}},
		"in an argument": {"other --issuer \"$(az aks show -n X)\" && az login",
			[][]string{{"aks", "show", "-n", "X"}, {"login"}}},
		"in a pipe and a loop": {"for x in a; do az vm list | grep x; done\n", [][]string{{"vm", "list"}}},
		"with quotes": {"az role create --role 'A role' --scope \"/a/$B/c\"\n",
			[][]string{{"role", "create", "--role", "A role", "--scope", "/a/$B/c"}}},
		"not in a document": {"cat <<'X'\naz vm list\nX\n# az vm list\necho az vm list\n", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := commands("az", c.script)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("commands of %q (-want +got):\n%s", c.script, diff)
			}
		})
	}
	const page = "# A\n\n1. Do:\n\n   ```sh\n   cat <<'X'\n   az no\n   X\n   az one\n   ```\n\n```\naz two\n```\n\n```yaml\naz: three\n```\n"
	if got, err := Commands("az", page); err != nil || !cmp.Equal(got, [][]string{{"one"}, {"two"}}) {
		t.Errorf("commands of a page: got %q, %v, want those of its shell blocks", got, err)
	}
	if _, err := commands("az", "az vm list |\n"); err == nil {
		t.Error("a script that is no shell: got no error")
	}
}
