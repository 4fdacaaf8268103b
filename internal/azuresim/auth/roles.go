package auth

import (
	"errors"
	"path"
	"strings"
)

// Role is a role definition, in the form that az role definition takes, and where it is assigned.
// Only the actions count.
type Role struct {
	Name       string   `json:"Name"`
	Actions    []string `json:"Actions"`
	NotActions []string `json:"NotActions,omitempty"`
	// Scopes are the resource IDs of the subscriptions, resource groups and resources where it is
	// assigned; none for everywhere.
	Scopes []string `json:"AssignableScopes,omitempty"`
	// Deny makes it a deny assignment: it takes the actions away, whatever other roles grant. AKS
	// locks its node resource group by one.
	Deny bool `json:"Deny,omitempty"`
}

// Assignment is the roles that a client has.
type Assignment []Role

// Validate says what is wrong with an assignment.
func (a Assignment) Validate() error {
	for _, r := range a {
		if err := r.Validate(); err != nil {
			return err
		}
	}
	return nil
}

// Validate says what is wrong with a role.
func (r Role) Validate() error {
	if len(r.Actions) == 0 {
		return errors.New("Actions: one is needed")
	}
	return nil
}

// covers reports whether the role is about an action at a resource. A star stands for any text, and
// case does not count.
func (r Role) covers(action, resource string) bool {
	within := len(r.Scopes) == 0
	for _, scope := range r.Scopes {
		above := strings.ToLower(strings.TrimSuffix(scope, "/")) + "/"
		within = within || strings.HasPrefix(strings.ToLower(resource)+"/", above)
	}
	return within && anyOf(r.Actions, action) && !anyOf(r.NotActions, action)
}

func anyOf(patterns []string, action string) bool {
	// path.Match stops a star at a slash, which an action's does not.
	flat := func(s string) string { return strings.ReplaceAll(strings.ToLower(s), "/", "\x00") }
	for _, p := range patterns {
		if ok, err := path.Match(flat(p), flat(action)); err == nil && ok {
			return true
		}
	}
	return false
}

// Allows reports whether a client may do an action at a resource. Every client may do everything
// while no client is assigned a role.
func (d *Directory) Allows(client, action, resource string) bool {
	if !d.Enforces() {
		return true
	}
	d.mu.RLock()
	defer d.mu.RUnlock()
	for _, r := range d.roles[strings.ToLower(client)] {
		if !r.Deny && r.covers(action, resource) {
			return true
		}
	}
	return false
}

// Denied returns the deny assignment that takes an action at a resource away from a client, or nil.
func (d *Directory) Denied(client, action, resource string) *Role {
	if d == nil {
		return nil
	}
	d.mu.RLock()
	defer d.mu.RUnlock()
	for _, r := range d.roles[strings.ToLower(client)] {
		if r.Deny && r.covers(action, resource) {
			return &r
		}
	}
	return nil
}

// Enforces reports whether any client is assigned a role.
func (d *Directory) Enforces() bool {
	if d == nil {
		return false
	}
	d.mu.RLock()
	defer d.mu.RUnlock()
	return len(d.roles) > 0
}
