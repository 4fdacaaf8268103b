package arm

import (
	"encoding/json"
	"net/http"
	"strings"

	"github.com/google/uuid"

	"github.com/azuredisk-csi/azuredisk/internal/azuresim/armerror"
)

// permission is the action by which Azure's access control knows a route: the literal parts of its
// path, and a verb for the method.
func (r *route) permission() string {
	verb := map[string]string{
		http.MethodGet: "read", http.MethodHead: "read", http.MethodPut: "write", http.MethodPatch: "write",
		http.MethodDelete: "delete", http.MethodPost: "action",
	}[r.method]
	parts, provider := []string{"Microsoft.Resources"}, false
	for i, s := range r.segments {
		switch {
		case i > 0 && strings.EqualFold(r.segments[i-1], "providers"):
			parts, provider = []string{s}, true
		case strings.EqualFold(s, "providers") || strings.HasPrefix(s, "{"):
		case provider || len(parts) < 3:
			parts = append(parts, s)
		}
	}
	return strings.Join(append(parts, verb), "/")
}

// authorize checks the caller's role for the call itself.
func (s *Server) authorize(c *call) *armerror.Error {
	action := c.route.permission()
	if s.Directory.Allows(c.claims.Client, action, c.URL.Path) {
		if deny := s.Directory.Denied(c.claims.Client, action, c.URL.Path); deny != nil {
			return armerror.New(http.StatusForbidden, "DenyAssignmentAuthorizationFailed",
				"The client '%s' with object id '%s' has permission to perform action '%s' on scope '%s'; however, the access is denied because of the deny assignment with name '%s' and Id '%s' at scope '%s'.",
				c.claims.Client, c.claims.Object, action, c.URL.Path, deny.Name,
				uuid.NewSHA1(uuid.NameSpaceURL, []byte(deny.Name)),
				strings.Join(deny.Scopes, ","))
		}
		return nil
	}
	return armerror.New(http.StatusForbidden, "AuthorizationFailed",
		"The client '%s' with object id '%s' does not have authorization to perform action '%s' over scope '%s' or the scope is invalid. If access was recently granted, please refresh your credentials.",
		c.claims.Client, c.claims.Object, action, c.URL.Path)
}

// linked is what a request refers to, and the action that it takes to refer to it.
type linked struct{ action, scope string }

// authorizeLinked checks the caller's role for what the body refers to.
func (s *Server) authorizeLinked(c *call) *armerror.Error {
	if !s.Directory.Enforces() || len(c.body) == 0 {
		return nil
	}
	var missing []linked
	for _, l := range c.links() {
		if !s.Directory.Allows(c.claims.Client, l.action, l.scope) {
			missing = append(missing, l)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	actions, scopes := make([]string, len(missing)), make([]string, len(missing))
	for i, l := range missing {
		actions[i], scopes[i] = l.action, l.scope
	}
	return armerror.New(http.StatusForbidden, "LinkedAuthorizationFailed",
		"The client '%s' with object id '%s' has permission to perform action '%s' on scope '%s'; however, it does not have permission to perform action(s) '%s' on the linked scope(s) '%s' (respectively) or the linked scope(s) are invalid.",
		c.claims.Client, c.claims.Object, c.route.permission(), c.URL.Path, strings.Join(actions, ","), strings.Join(scopes, ","))
}

// links are the resources to which a body refers. Azure's answers show that a copy needs
// beginGetAccess of its source and that an encryption set needs read; the other links follow the
// same pattern.
func (c *call) links() []linked {
	type reference struct {
		ID string `json:"id"`
	}
	var body struct {
		Properties struct {
			CreationData struct {
				Source string `json:"sourceResourceId"`
			} `json:"creationData"`
			Encryption struct {
				Set string `json:"diskEncryptionSetId"`
			} `json:"encryption"`
			DiskAccess string `json:"diskAccessId"`
			Storage    struct {
				Disks []struct {
					Disk struct {
						ID  string    `json:"id"`
						Set reference `json:"diskEncryptionSet"`
					} `json:"managedDisk"`
				} `json:"dataDisks"`
			} `json:"storageProfile"`
		} `json:"properties"`
		Attach []struct {
			Disk string    `json:"diskId"`
			Set  reference `json:"diskEncryptionSet"`
		} `json:"dataDisksToAttach"`
	}
	if json.Unmarshal(c.body, &body) != nil {
		return nil // the handler says what is wrong with it
	}
	const compute = "Microsoft.Compute/"
	var found []linked
	add := func(action, scope string) {
		if scope != "" {
			found = append(found, linked{compute + action, scope})
		}
	}
	source := body.Properties.CreationData.Source
	kind := "disks"
	if strings.Contains(strings.ToLower(source), "/snapshots/") {
		kind = "snapshots"
	}
	add(kind+"/beginGetAccess/action", source)
	add("diskEncryptionSets/read", body.Properties.Encryption.Set)
	add("diskAccesses/read", body.Properties.DiskAccess)
	for _, d := range body.Properties.Storage.Disks {
		add("disks/write", d.Disk.ID)
		add("diskEncryptionSets/read", d.Disk.Set.ID)
	}
	for _, d := range body.Attach {
		add("disks/write", d.Disk)
		add("diskEncryptionSets/read", d.Set.ID)
	}
	return found
}
