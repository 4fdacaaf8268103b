package auth

import (
	"errors"
	"path"
	"strings"
)

// Role is a role definition, in the form that az role definition takes. Only the actions count; a role is assigned everywhere.
type Role struct {
	Name       string   `json:"Name"`
	Actions    []string `json:"Actions"`
	NotActions []string `json:"NotActions,omitempty"`
}

// Validate says what is wrong with a role.
func (r Role) Validate() error {
	if len(r.Actions) == 0 {
		return errors.New("Actions: one is needed")
	}
	return nil
}

// allows says whether the role grants an action. A star stands for any text, and case does not count.
func (r Role) allows(action string) bool {
	return anyOf(r.Actions, action) && !anyOf(r.NotActions, action)
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

// Allows says whether a client may do an action. Everybody may do everything while nobody is assigned a role.
func (d *Directory) Allows(client, action string) bool {
	if d == nil {
		return true
	}
	d.mu.RLock()
	defer d.mu.RUnlock()
	if len(d.roles) == 0 {
		return true
	}
	role, ok := d.roles[strings.ToLower(client)]
	return ok && role.allows(action)
}

// Enforces says whether anybody is assigned a role.
func (d *Directory) Enforces() bool {
	if d == nil {
		return false
	}
	d.mu.RLock()
	defer d.mu.RUnlock()
	return len(d.roles) > 0
}
