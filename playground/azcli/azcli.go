// Package azcli stands in for Azure's command line where the guides call it: it does at azuresim and
// in the playground what the command does at Azure, as far as the guides need it. Of a cluster that
// `az aks create` makes, the playground is the one. A test of the documentation checks the arguments
// of all commands.
package azcli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/azuredisk-csi/azuredisk/playground/aks"
	"github.com/azuredisk-csi/azuredisk/playground/cluster"
	"github.com/azuredisk-csi/azuredisk/playground/topology"
)

// identity is the client ID of the identity that the guides make. Its principal has the same ID.
const identity = "00000000-0000-0000-0000-0000000000c2"

// Issuer is the issuer of the cluster's tokens.
const Issuer = "https://kubernetes.default.svc." + topology.ClusterDomain

const vmVersion, groupVersion = "2025-04-01", "2021-04-01"

// call is a command with its arguments.
type call struct {
	*cluster.Cluster
	// dir keeps what later commands need.
	dir   string
	flags map[string][]string
}

// commands are the known ones. A command without a function has no effect here.
var commands = map[string]func(*call, context.Context) (string, error){
	"account show":    func(*call, context.Context) (string, error) { return topology.SubscriptionID, nil },
	"acr create":      nil,
	"acr login":       nil,
	"aks create":      nil,
	"aks show":        (*call).showCluster,
	"aks update":      nil,
	"group create":    (*call).createGroup,
	"group delete":    nil,
	"vmss deallocate": func(c *call, ctx context.Context) (string, error) { return "", c.instance(ctx, "deallocate") },
	"vmss start":      func(c *call, ctx context.Context) (string, error) { return "", c.instance(ctx, "start") },

	"aks get-credentials":   nil,
	"aks nodepool add":      (*call).addPool,
	"aks nodepool delete":   (*call).deletePool,
	"aks safeguards update": (*call).updateSafeguards,

	"identity create":                      nil,
	"identity delete":                      (*call).deleteIdentity,
	"identity show":                        func(*call, context.Context) (string, error) { return identity, nil },
	"identity federated-credential create": (*call).trust,

	"role definition create": (*call).defineRole,
	"role definition delete": nil,
	"role assignment create": (*call).assignRole,
	"role assignment delete": nil,
}

// Run runs a command, and returns what it prints. dir keeps what later commands need.
func Run(ctx context.Context, c *cluster.Cluster, dir string, args []string) (string, error) {
	at := slices.IndexFunc(args, func(arg string) bool { return strings.HasPrefix(arg, "--") })
	if at < 0 {
		at = len(args)
	}
	name := strings.Join(args[:at], " ")
	run, known := commands[name]
	if !known {
		return "", fmt.Errorf("the command %q has no stand-in", name)
	}
	if run == nil {
		return "", nil
	}
	out, err := run(&call{Cluster: c, dir: dir, flags: parse(args[at:])}, ctx)
	if err != nil {
		return "", fmt.Errorf("%s: %w", name, err)
	}
	return out, nil
}

// parse reads flags, each with the values that follow it.
func parse(args []string) map[string][]string {
	flags, last := map[string][]string{}, ""
	for _, arg := range args {
		if flag, is := strings.CutPrefix(arg, "--"); is {
			last = flag
			flags[last] = nil
		} else if last != "" {
			flags[last] = append(flags[last], arg)
		}
	}
	return flags
}

func (c *call) flag(name string) string { return strings.Join(c.flags[name], " ") }

func (c *call) showCluster(context.Context) (string, error) {
	switch query := c.flag("query"); query {
	case "nodeResourceGroup":
		return topology.NodeGroup, nil
	case "location":
		return topology.Region, nil
	case "oidcIssuerProfile.issuerUrl":
		return Issuer, nil
	default:
		return "", fmt.Errorf("the query %q has no stand-in", query)
	}
}

func (c *call) createGroup(ctx context.Context) (string, error) {
	client, err := c.AzureClient(ctx)
	if err != nil {
		return "", err
	}
	id := "/subscriptions/" + topology.SubscriptionID + "/resourceGroups/" + c.flag("name")
	return "", client.Put(ctx, id, groupVersion, map[string]string{"location": c.flag("location")})
}

// instance runs an action on an instance of a scale set.
func (c *call) instance(ctx context.Context, action string) error {
	client, err := c.AzureClient(ctx)
	if err != nil {
		return err
	}
	return client.Post(ctx, fmt.Sprintf(
		"/subscriptions/%s/resourceGroups/%s/providers/Microsoft.Compute/virtualMachineScaleSets/%s/virtualMachines/%s",
		topology.SubscriptionID, c.flag("resource-group"), c.flag("name"), c.flag("instance-ids")), action, vmVersion, nil)
}

// addPool gives the nodes of a pool that is there its labels and taints.
func (c *call) addPool(ctx context.Context) (string, error) {
	settings := aks.Settings{Labels: map[string]string{}}
	for _, label := range c.flags["labels"] {
		key, value, _ := strings.Cut(label, "=")
		settings.Labels[key] = value
	}
	for _, text := range strings.FieldsFunc(c.flag("node-taints"), func(r rune) bool { return r == ',' || r == ' ' }) {
		taint, err := aks.ParseTaint(text)
		if err != nil {
			return "", err
		}
		settings.Taints = append(settings.Taints, taint)
	}
	return "", c.SetPool(ctx, c.flag("name"), settings)
}

// deletePool takes the settings back: the machines stay.
func (c *call) deletePool(ctx context.Context) (string, error) {
	return "", c.SetPool(ctx, c.flag("name"), aks.Settings{})
}

// updateSafeguards excludes namespaces from the Deployment Safeguards.
func (c *call) updateSafeguards(ctx context.Context) (string, error) {
	client, err := c.Kubernetes()
	if err != nil {
		return "", err
	}
	return "", aks.Exclude(ctx, client, c.flags["excluded-ns"])
}

// trust lets the identity sign in with the tokens of a service account.
func (c *call) trust(ctx context.Context) (string, error) {
	client, err := c.Kubernetes()
	if err != nil {
		return "", err
	}
	keys, err := client.Discovery().RESTClient().Get().AbsPath("/openid/v1/jwks").DoRaw(ctx)
	if err != nil {
		return "", fmt.Errorf("read the keys of the issuer: %w", err)
	}
	if c.flag("issuer") != Issuer {
		return "", fmt.Errorf("the issuer %q is not the cluster's", c.flag("issuer"))
	}
	return "", c.admin(ctx, http.MethodPut, "/admin/applications/"+identity, map[string]any{"federated": []map[string]any{{
		"issuer": c.flag("issuer"), "subject": c.flag("subject"), "audience": c.flag("audiences"), "keys": json.RawMessage(keys),
	}}})
}

// deleteIdentity takes the identity and all roles away. Without a role every client may do everything.
func (c *call) deleteIdentity(ctx context.Context) (string, error) {
	return "", errors.Join(c.admin(ctx, http.MethodDelete, "/admin/applications/"+identity, nil),
		c.admin(ctx, http.MethodDelete, "/admin/roles/"+identity, nil),
		c.admin(ctx, http.MethodDelete, "/admin/roles/"+c.Options.Credentials.ClientID, nil))
}

func (c *call) admin(ctx context.Context, method, path string, body any) error {
	admin, err := c.AzureAdmin(ctx)
	if err != nil {
		return err
	}
	return admin.Call(ctx, method, path, body, nil)
}

// role is what azuresim reads of a role definition.
type role struct {
	Name       string
	Actions    []string
	NotActions []string
	Scopes     []string `json:"AssignableScopes"`
}

// defineRole keeps a definition for assignRole.
func (c *call) defineRole(context.Context) (string, error) {
	var r role
	data, err := os.ReadFile(strings.TrimPrefix(c.flag("role-definition"), "@"))
	if err == nil {
		err = json.Unmarshal(data, &r)
	}
	if err != nil {
		return "", err
	}
	return "", c.writeRoles("defined", append(c.roles("defined"), r))
}

// assignRole gives the identity a role at a scope, in addition to those that it has. The
// playground's own client is an owner: from the first role on, clients without a role may do nothing.
func (c *call) assignRole(ctx context.Context) (string, error) {
	defined := c.roles("defined")
	at := slices.IndexFunc(defined, func(r role) bool { return r.Name == c.flag("role") })
	if at < 0 {
		return "", fmt.Errorf("there is no role %q", c.flag("role"))
	}
	assigned := defined[at]
	assigned.Scopes = c.flags["scope"]
	all := append(c.roles("assigned"), assigned)
	if err := c.writeRoles("assigned", all); err != nil {
		return "", err
	}
	owner := []role{{Name: "Owner", Actions: []string{"*"}}}
	if err := c.admin(ctx, http.MethodPut, "/admin/roles/"+c.Options.Credentials.ClientID, owner); err != nil {
		return "", err
	}
	return "", c.admin(ctx, http.MethodPut, "/admin/roles/"+identity, all)
}

func (c *call) roles(list string) []role {
	var roles []role
	if data, err := os.ReadFile(filepath.Join(c.dir, list+".json")); err == nil {
		_ = json.Unmarshal(data, &roles)
	}
	return roles
}

func (c *call) writeRoles(list string, roles []role) error {
	data, err := json.Marshal(roles)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(c.dir, list+".json"), data, 0o600)
}
