package imds_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/golang-jwt/jwt/v5"
	"k8s.io/utils/clock"

	"github.com/azuredisk-csi/azuredisk/internal/azuresim/imds"
)

// fixed is a VM that has these identities.
type fixed []imds.Identity

// Instance implements imds.Source.
func (f fixed) Instance(context.Context) (imds.Instance, error) {
	return imds.Instance{ResourceID: "/vm", Identities: f}, nil
}

func TestWhichOfSeveralIdentitiesATokenIsOf(t *testing.T) {
	a := imds.Identity{ClientID: "a", ObjectID: "o-a", ResourceID: "/ids/a"}
	b := imds.Identity{ClientID: "b", ObjectID: "o-b", ResourceID: "/ids/b"}
	system := imds.Identity{ClientID: "s", ObjectID: "o-s"}
	for name, test := range map[string]struct {
		has    fixed
		query  string
		client string // "" for a refusal
		says   string
	}{
		"the system-assigned one, unless another is named": {has: fixed{a, system, b}, client: "s"},
		"the only one there is":                            {has: fixed{b}, client: "b"},
		"none is named of two":                             {has: fixed{a, b}, says: "Multiple user assigned identities exist"},
		"by client ID":                                     {has: fixed{a, b, system}, query: "&client_id=B", client: "b"},
		"by object ID":                                     {has: fixed{a, b, system}, query: "&object_id=o-a", client: "a"},
		"by resource ID":                                   {has: fixed{a, b, system}, query: "&msi_res_id=/IDS/b", client: "b"},
		"by resource ID, as it is called now":              {has: fixed{a, b, system}, query: "&mi_res_id=/ids/a", client: "a"},
		"one that the VM does not have": {
			has: fixed{a, b, system}, query: "&client_id=c", says: "Identity not found"},
		"a VM without any": {says: "Identity not found"},
	} {
		t.Run(name, func(t *testing.T) {
			signer, err := imds.NewSigner([]byte(tokenKey), clock.RealClock{})
			must(t, err)
			service := httptest.NewServer((&imds.Server{Source: test.has, Signer: signer}).Handler())
			defer service.Close()
			status, body := get(t, service.URL+"/metadata/identity/oauth2/token?api-version=2018-02-01&resource=r"+test.query)
			if test.client == "" {
				if status != http.StatusBadRequest || !strings.Contains(body, test.says) {
					t.Errorf("%d %s, want %q", status, body, test.says)
				}
				return
			}
			_, text, _ := strings.Cut(body, `"access_token":"`)
			text, _, _ = strings.Cut(text, `"`)
			claims := jwt.MapClaims{}
			if _, _, err := jwt.NewParser().ParseUnverified(text, claims); err != nil || claims["appid"] != test.client {
				t.Errorf("%d %s: of %v, want %s", status, body, claims["appid"], test.client)
			}
		})
	}
}
