package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/azuredisk-csi/azuredisk/provisioner/azure"
)

// placeholder is the subscription if the command line names none.
const placeholder = "00000000-0000-0000-0000-000000000000"

func newAzureRoleCommand() *cobra.Command {
	var name, subscription, part string
	var groups []string
	var table bool
	cmd := &cobra.Command{
		Use:   "azure-role",
		Short: "Print the role definition that the driver's identity needs, for az role definition create",
		Long: `Print the role definition that the driver's identity needs: the actions of all calls that the driver makes, and no others.

  azuredisk azure-role --subscription=ID --resource-group=NODES > role.json
  az role definition create --role-definition @role.json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if table {
				return writePermissions(cmd.OutOrStdout())
			}
			if subscription == "" {
				return errors.New("bad configuration:\nsubscription: must not be empty")
			}
			scopes := []string{"/subscriptions/" + subscription}
			if len(groups) > 0 {
				scopes = nil
				for _, g := range groups {
					scopes = append(scopes, "/subscriptions/"+subscription+"/resourceGroups/"+g)
				}
			}
			out := json.NewEncoder(cmd.OutOrStdout())
			out.SetIndent("", "  ")
			permissions, err := permissionsOf(part)
			if err != nil {
				return err
			}
			return out.Encode(azure.NewRoleDefinition(name, permissions, scopes...))
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&name, "name", "Azure Disk CSI driver", "name of the role")
	flags.StringVar(&subscription, "subscription", placeholder, "subscription in which the role can be assigned")
	flags.StringArrayVar(&groups, "resource-group", nil,
		"resource group in which the role can be assigned, instead of the whole subscription; repeatable")
	flags.StringVar(&part, "part", "all",
		"which actions: all, group (of resources, to be assigned in resource groups) or subscription (the few that are asked for of the subscription itself)")
	flags.BoolVar(&table, "markdown", false, "print a table that says what each action is for")
	return cmd
}

func permissionsOf(part string) ([]azure.Permission, error) {
	all := azure.Permissions()
	switch part {
	case "all":
		return all, nil
	case "group":
		return slices.DeleteFunc(all, func(p azure.Permission) bool { return p.Subscription }), nil
	case "subscription":
		return slices.DeleteFunc(all, func(p azure.Permission) bool { return !p.Subscription }), nil
	}
	return nil, fmt.Errorf("bad configuration:\npart: %q must be all, group or subscription", part)
}

func writePermissions(w io.Writer) error {
	text := "| action | for | asked for of | not needed without |\n|---|---|---|---|\n"
	for _, p := range azure.Permissions() {
		of := "the resource"
		if p.Subscription {
			of = "the subscription"
		}
		text += fmt.Sprintf("| `%s` | %s | %s | %s |\n", p.Action, p.Needed, of, p.Optional)
	}
	_, err := io.WriteString(w, text)
	return err
}
