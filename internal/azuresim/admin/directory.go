package admin

import (
	"encoding/json"
	"errors"
	"net/http"

	"github.com/azuredisk-csi/azuredisk/internal/azuresim/auth"
)

// listApplications returns the client IDs of the directory.
func (a *api) listApplications(w http.ResponseWriter, _ *http.Request) {
	if a.known(w) {
		write(w, a.Directory.Applications())
	}
}

// putApplication sets the credentials with which a client may ask for tokens. It replaces the
// earlier ones.
func (a *api) putApplication(w http.ResponseWriter, r *http.Request) {
	var app auth.Application
	if a.known(w) && decode(w, r, &app) {
		a.done(w, a.Directory.PutApplication(r.PathValue("client"), app))
	}
}

func (a *api) deleteApplication(w http.ResponseWriter, r *http.Request) {
	if a.known(w) {
		a.done(w, a.Directory.DeleteApplication(r.PathValue("client")))
	}
}

// putRoles sets what a client may do: a list of role definitions. From the first client with roles
// on, clients without may do nothing.
func (a *api) putRoles(w http.ResponseWriter, r *http.Request) {
	var roles auth.Assignment
	if a.known(w) && decode(w, r, &roles) {
		a.done(w, a.Directory.Assign(r.PathValue("client"), roles))
	}
}

func (a *api) deleteRoles(w http.ResponseWriter, r *http.Request) {
	if a.known(w) {
		a.done(w, a.Directory.Unassign(r.PathValue("client")))
	}
}

func (a *api) known(w http.ResponseWriter) bool {
	if a.Directory == nil {
		refuse(w, errors.New("this simulator has no directory"))
	}
	return a.Directory != nil
}

func decode(w http.ResponseWriter, r *http.Request, into interface{ Validate() error }) bool {
	err := json.NewDecoder(r.Body).Decode(into)
	if err == nil {
		err = into.Validate()
	}
	if err != nil {
		refuse(w, err)
	}
	return err == nil
}

func (a *api) done(w http.ResponseWriter, err error) {
	if err != nil {
		refuse(w, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}
