package auth

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/azuredisk-csi/azuredisk/internal/azuresim/store"
)

// Tables of the store that this package uses.
var Tables = []string{applications.Name, assignments.Name}

var (
	applications = store.Table[Application]{Name: "applications"}
	assignments  = store.Table[Assignment]{Name: "roleAssignments"}
)

// Application is who may ask for tokens, and how it proves to be who it is. One of its credentials
// is enough.
type Application struct {
	Secrets []string `json:"secrets,omitempty"`
	// Certificates in PEM form whose keys sign client assertions.
	Certificates []string `json:"certificates,omitempty"`
	// Federated are the issuers whose tokens are taken for this application's.
	Federated []FederatedCredential `json:"federated,omitempty"`
}

// FederatedCredential is an issuer, as a Kubernetes cluster is one for its service accounts.
type FederatedCredential struct {
	Issuer  string `json:"issuer"`
	Subject string `json:"subject"`
	// Audience that tokens must be for; DefaultAudience if empty.
	Audience string `json:"audience,omitempty"`
	// Keys is the issuer's public keys, a JSON web key set.
	Keys KeySet `json:"keys"`
}

// DefaultAudience is whom federated tokens are for.
const DefaultAudience = "api://AzureADTokenExchange"

// Validate says what is wrong with an application.
func (a Application) Validate() error {
	var faults []error
	if len(a.Secrets)+len(a.Certificates)+len(a.Federated) == 0 {
		faults = append(faults, errors.New("one of secrets, certificates and federated is needed"))
	}
	for i, text := range a.Certificates {
		if _, err := certificate(text); err != nil {
			faults = append(faults, fmt.Errorf("certificates[%d]: %w", i, err))
		}
	}
	for i, f := range a.Federated {
		if f.Issuer == "" || f.Subject == "" {
			faults = append(faults, fmt.Errorf("federated[%d]: issuer and subject are needed", i))
		}
		if _, err := f.Keys.parse(); err != nil {
			faults = append(faults, fmt.Errorf("federated[%d].keys: %w", i, err))
		}
	}
	return errors.Join(faults...)
}

func certificate(text string) (*x509.Certificate, error) {
	block, _ := pem.Decode([]byte(text))
	if block == nil || block.Type != "CERTIFICATE" {
		return nil, errors.New("not a certificate in PEM form")
	}
	return x509.ParseCertificate(block.Bytes)
}

// Directory holds the applications and the roles that they are assigned. While it holds no
// application, every client gets tokens; while it holds no role assignment, every client may do
// everything.
type Directory struct {
	store *store.Store

	mu           sync.RWMutex
	applications map[string]Application // by client ID in lower case
	roles        map[string]Assignment
}

// NewDirectory returns the directory that the store holds, and besides it applications and roles
// that do not last, by client ID. The store may be nil.
func NewDirectory(db *store.Store, apps map[string]Application, roles map[string]Assignment) (*Directory, error) {
	d := &Directory{
		store:        db,
		applications: map[string]Application{},
		roles:        map[string]Assignment{},
	}
	if db != nil {
		if err := db.View(func(tx *store.Tx) error {
			return errors.Join(load(tx, applications, d.applications), load(tx, assignments, d.roles))
		}); err != nil {
			return nil, fmt.Errorf("read directory: %w", err)
		}
	}
	for client, a := range apps {
		d.applications[strings.ToLower(client)] = a
	}
	for client, r := range roles {
		d.roles[strings.ToLower(client)] = r
	}
	return d, nil
}

func load[T any](tx *store.Tx, table store.Table[T], into map[string]T) error {
	list, err := table.All(tx, "")
	for _, r := range list {
		into[r.Key] = *r.Value
	}
	return err
}

// PutApplication makes or replaces an application. It lasts.
func (d *Directory) PutApplication(client string, a Application) error {
	if err := a.Validate(); err != nil {
		return err
	}
	return put(d, applications, d.applications, client, &a)
}

// DeleteApplication removes an application; tokens that it has stay good.
func (d *Directory) DeleteApplication(client string) error {
	return put(d, applications, d.applications, client, nil)
}

// Assign gives a client roles instead of those that it has. It lasts.
func (d *Directory) Assign(client string, roles Assignment) error {
	return put(d, assignments, d.roles, client, &roles)
}

// Unassign removes a client's roles.
func (d *Directory) Unassign(client string) error {
	return put(d, assignments, d.roles, client, nil)
}

func put[T any](d *Directory, table store.Table[T], known map[string]T, client string, value *T) error {
	client = strings.ToLower(client)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.store != nil {
		err := d.store.Update(func(tx *store.Tx) error {
			if value == nil {
				return table.Delete(tx, client)
			}
			return table.Put(tx, client, value)
		})
		if err != nil {
			return fmt.Errorf("write directory: %w", err)
		}
	}
	if value == nil {
		delete(known, client)
	} else {
		known[client] = *value
	}
	return nil
}

// Applications are the client IDs that the directory holds.
func (d *Directory) Applications() []string {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return slices.Sorted(maps.Keys(d.applications))
}

// find returns an application. open says that there are none, so that every client may ask.
func (d *Directory) find(client string) (app Application, found, open bool) {
	if d == nil {
		return Application{}, false, true
	}
	d.mu.RLock()
	defer d.mu.RUnlock()
	app, found = d.applications[strings.ToLower(client)]
	return app, found, len(d.applications) == 0
}
