package admin

import (
	"encoding/json"
	"errors"
	"net/http"

	"github.com/azuredisk-csi/azuredisk/azuresim/auth"
)

// listApplications returns the client IDs of the directory.
func (a *api) listApplications(w http.ResponseWriter, _ *http.Request) {
	if a.known(w) {
		write(w, a.Directory.Applications())
	}
}

// putApplication says with what a client may ask for tokens. It replaces what was said before.
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

// putRole says what a client may do. From the first role on, clients without one may do nothing.
func (a *api) putRole(w http.ResponseWriter, r *http.Request) {
	var role auth.Role
	if a.known(w) && decode(w, r, &role) {
		a.done(w, a.Directory.PutRole(r.PathValue("client"), role))
	}
}

func (a *api) deleteRole(w http.ResponseWriter, r *http.Request) {
	if a.known(w) {
		a.done(w, a.Directory.DeleteRole(r.PathValue("client")))
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
