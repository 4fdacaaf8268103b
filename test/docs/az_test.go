package docs

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/azuredisk-csi/azuredisk/internal/testkit/expect"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/guides"
)

// azTable is az.yaml.
type azTable struct {
	Aliases  map[string]string    `json:"aliases"`
	Global   []string             `json:"global"`
	Commands map[string]azCommand `json:"commands"`
}

type azCommand struct {
	Needs []string `json:"needs"`
	Takes []string `json:"takes"`
	Flags []string `json:"flags"`
}

func azCommands(t *testing.T) azTable {
	t.Helper()
	var table azTable
	expect.Must(t, yaml.UnmarshalStrict([]byte(read(t, "test/docs/az.yaml")), &table))
	return table
}

// TestEveryCommandOfTheAzureCLIIsKnown checks the commands in the blocks of all pages against
// az.yaml.
func TestEveryCommandOfTheAzureCLIIsKnown(t *testing.T) {
	table, count := azCommands(t), 0
	for _, page := range pages(t) {
		if generated(t, page) {
			continue
		}
		found, err := guides.Commands("az", read(t, page))
		if err != nil {
			t.Errorf("%s: %v", page, err)
		}
		count += len(found)
		for _, arguments := range found {
			if err := table.check(arguments); err != nil {
				t.Errorf("%s: az %s: %v", page, strings.Join(arguments, " "), err)
			}
		}
	}
	if count < 5 {
		t.Errorf("commands of the Azure CLI: got %d, want at least 5", count)
	}
}

// check says what is wrong with a command.
func (table azTable) check(arguments []string) error {
	end := slices.IndexFunc(arguments, func(argument string) bool { return strings.HasPrefix(argument, "-") })
	if end < 0 {
		end = len(arguments)
	}
	name := strings.Join(arguments[:end], " ")
	command, ok := table.Commands[name]
	if !ok {
		return fmt.Errorf("got the command %q, want one of test/docs/az.yaml: %q", name, slices.Sorted(maps.Keys(table.Commands)))
	}
	valued := slices.Concat(command.Needs, command.Takes, table.Global)
	given := map[string]bool{}
	for rest := arguments[end:]; len(rest) > 0; {
		flag, value, joined := strings.Cut(rest[0], "=")
		rest = rest[1:]
		flag, long := strings.CutPrefix(flag, "--")
		if !long {
			short := strings.TrimPrefix(flag, "-")
			if flag = table.Aliases[short]; flag == "" {
				return fmt.Errorf("got the argument -%s, want one of %q", short, valued)
			}
		}
		if given[flag] {
			return fmt.Errorf("got --%s twice, want it once", flag)
		}
		given[flag] = true
		if slices.Contains(command.Flags, flag) {
			continue
		}
		if !slices.Contains(valued, flag) {
			return fmt.Errorf("got the argument --%s, want one of %q", flag, slices.Concat(valued, command.Flags))
		}
		for !joined && len(rest) > 0 && !strings.HasPrefix(rest[0], "-") {
			value, rest = value+rest[0], rest[1:]
		}
		if value == "" {
			return fmt.Errorf("got --%s without a value, want one", flag)
		}
	}
	for _, needed := range command.Needs {
		if !given[needed] {
			return errors.New("got no --" + needed + ", want it")
		}
	}
	return nil
}

func TestWhatIsWrongWithACommandOfTheAzureCLI(t *testing.T) {
	t.Parallel()
	table := azTable{
		Aliases:  map[string]string{"g": "group"},
		Global:   []string{"query"},
		Commands: map[string]azCommand{"vm show": {Needs: []string{"group"}, Takes: []string{"zones"}, Flags: []string{"now"}}},
	}
	for arguments, want := range map[string]string{
		"vm show -g A":                          "",
		"vm show --group=A --now --zones 1 2 3": "",
		"vm show --group A --query id":          "",
		"vm list -g A":                          `the command "vm list"`,
		"vm show":                               "no --group",
		"vm show --group":                       "without a value",
		"vm show --now --group A --now":         "--now twice",
		"vm show --group A --size B":            "the argument --size",
		"vm show -x A":                          "the argument -x",
	} {
		err := table.check(strings.Fields(arguments))
		if (want == "") != (err == nil) || (err != nil && !strings.Contains(err.Error(), want)) {
			t.Errorf("az %s: got %v, want %q", arguments, err, want)
		}
	}
}
