package auth_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"maps"
	"math/big"
	"net/url"
	"path/filepath"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	testclock "k8s.io/utils/clock/testing"

	"github.com/azuredisk-csi/azuredisk/internal/azuresim/auth"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/store"
)

const endpoint = "https://azuresim/tenant/oauth2/v2.0/token"

var now = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// signer is a certificate with its key, good for an hour around now.
type signer struct {
	key *rsa.PrivateKey
	raw []byte
}

func newSigner(t *testing.T) signer {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	must(t, err)
	raw, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: "driver"},
		NotBefore:    now.Add(-time.Hour),
		NotAfter:     now.Add(time.Hour),
	}, &x509.Certificate{SerialNumber: big.NewInt(1)}, key.Public(), key)
	must(t, err)
	return signer{key, raw}
}

func (s signer) pem() string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.raw}))
}

func (s signer) thumbprint() map[string]any {
	sum := sha256.Sum256(s.raw)
	return map[string]any{"x5t#S256": base64.RawURLEncoding.EncodeToString(sum[:])}
}

func sign(t *testing.T, method jwt.SigningMethod, key crypto.Signer, header map[string]any, claims jwt.MapClaims) string {
	t.Helper()
	token := jwt.NewWithClaims(method, claims)
	maps.Copy(token.Header, header)
	text, err := token.SignedString(key)
	must(t, err)
	return text
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func assertion(text string) url.Values {
	return url.Values{
		"client_assertion_type": {"urn:ietf:params:oauth:client-assertion-type:jwt-bearer"},
		"client_assertion":      {text},
	}
}

func TestGrants(t *testing.T) {
	registered, stranger := newSigner(t), newSigner(t)
	issuerKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	otherKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	public, err := auth.NewKey("k1", issuerKey.Public())
	must(t, err)
	d, err := auth.NewDirectory(nil, map[string]auth.Application{"Driver": {
		Secrets: []string{"old", "new"}, Certificates: []string{registered.pem()},
		Federated: []auth.FederatedCredential{{
			Issuer:  "https://cluster",
			Subject: "sa",
			Keys:    auth.KeySet{Keys: []auth.Key{public}},
		}},
	}}, nil)
	must(t, err)

	own := func(change jwt.MapClaims) jwt.MapClaims {
		claims := jwt.MapClaims{"iss": "driver", "sub": "driver", "aud": endpoint, "exp": now.Add(time.Minute).Unix()}
		maps.Copy(claims, change)
		return claims
	}
	federated := func(change jwt.MapClaims) jwt.MapClaims {
		claims := jwt.MapClaims{
			"iss": "https://cluster",
			"sub": "sa",
			"aud": []string{"x", auth.DefaultAudience},
			"exp": now.Add(time.Minute).Unix(),
		}
		maps.Copy(claims, change)
		return claims
	}
	byCertificate := func(s signer, claims jwt.MapClaims) url.Values {
		return assertion(sign(t, jwt.SigningMethodPS256, s.key, s.thumbprint(), claims))
	}
	byIssuer := func(key crypto.Signer, id string, claims jwt.MapClaims) url.Values {
		return assertion(sign(t, jwt.SigningMethodES256, key, map[string]any{"kid": id}, claims))
	}
	forged := sign(t, jwt.SigningMethodPS256, stranger.key, registered.thumbprint(), own(nil))
	for name, test := range map[string]struct {
		form    url.Values
		client  string
		at      time.Time
		refused int // number of the refusal; 0 for a grant
	}{
		"a secret":          {form: url.Values{"client_secret": {"old"}}},
		"another secret":    {form: url.Values{"client_secret": {"new"}}},
		"a wrong secret":    {form: url.Values{"client_secret": {"wrong"}}, refused: 7000215},
		"nothing":           {form: url.Values{}, refused: 7000218},
		"another grant":     {form: url.Values{"grant_type": {"password"}}, refused: 70003},
		"an unknown client": {form: url.Values{"client_secret": {"old"}}, client: "stranger", refused: 700016},
		"a certificate":     {form: byCertificate(registered, own(nil))},
		"a certificate, by RS256": {form: assertion(
			sign(t, jwt.SigningMethodRS256, registered.key, registered.thumbprint(), own(nil)))},
		"a certificate that is not registered": {form: byCertificate(stranger, own(nil)), refused: 700027},
		"a certificate that another key uses":  {form: assertion(forged), refused: 700024},
		"a certificate that is no longer good": {
			form: byCertificate(registered, own(jwt.MapClaims{"exp": now.Add(3 * time.Hour).Unix()})), at: now.Add(2 * time.Hour),
			refused: 700027},
		"an assertion that is no longer good": {
			form: byCertificate(registered, own(jwt.MapClaims{"exp": now.Add(-time.Minute).Unix()})), refused: 700024},
		"an assertion without an end":      {form: byCertificate(registered, own(jwt.MapClaims{"exp": nil})), refused: 700024},
		"an assertion for another":         {form: byCertificate(registered, own(jwt.MapClaims{"aud": "https://else"})), refused: 700023},
		"an assertion of another client":   {form: byCertificate(registered, own(jwt.MapClaims{"sub": "else"})), refused: 700021},
		"an assertion without a signature": {form: assertion(unsigned(t, registered.thumbprint(), own(nil))), refused: 700024},
		"an assertion of another type": {form: url.Values{"client_assertion": {"x"}, "client_assertion_type": {"saml"}},
			refused: 700030},
		"no assertion at all":                  {form: assertion("a.b"), refused: 50027},
		"a token of an issuer":                 {form: byIssuer(issuerKey, "k1", federated(nil))},
		"a token of an issuer, of another key": {form: byIssuer(otherKey, "k1", federated(nil)), refused: 700024},
		"a token of an issuer, of an old key":  {form: byIssuer(issuerKey, "k0", federated(nil)), refused: 5000224},
		"a token of an issuer, no longer good": {
			form: byIssuer(issuerKey, "k1", federated(jwt.MapClaims{"exp": now.Add(-time.Minute).Unix()})), refused: 700024},
		"a token of an issuer, for another": {form: byIssuer(issuerKey, "k1", federated(jwt.MapClaims{"aud": "else"})),
			refused: 700212},
		"a token of an issuer, of another": {form: byIssuer(issuerKey, "k1", federated(jwt.MapClaims{"sub": "other"})),
			refused: 700213},
		"a token of an issuer that is not known": {
			form: byIssuer(issuerKey, "k1", federated(jwt.MapClaims{"iss": "https://else"})), refused: 700213},
	} {
		t.Run(name, func(t *testing.T) {
			form := url.Values{"grant_type": {"client_credentials"}, "client_id": {"driver"}}
			maps.Copy(form, test.form)
			if test.client != "" {
				form.Set("client_id", test.client)
			}
			if test.at.IsZero() {
				test.at = now
			}
			client, refusal := d.Grant(form, endpoint, testclock.NewFakePassiveClock(test.at))
			switch {
			case test.refused == 0 && (refusal != nil || client != "driver"):
				t.Errorf("%s refused: %v", client, refusal)
			case test.refused != 0 && (refusal == nil || refusal.Number != test.refused):
				t.Errorf("refused with %v, want AADSTS%d", refusal, test.refused)
			}
		})
	}
}

func unsigned(t *testing.T, header map[string]any, claims jwt.MapClaims) string {
	t.Helper()
	token := jwt.NewWithClaims(jwt.SigningMethodNone, claims)
	maps.Copy(token.Header, header)
	text, err := token.SignedString(jwt.UnsafeAllowNoneSignatureType)
	must(t, err)
	return text
}

func TestWithAnEmptyDirectoryEveryClientMayDoEverything(t *testing.T) {
	var none *auth.Directory
	empty, err := auth.NewDirectory(nil, nil, nil)
	must(t, err)
	for _, d := range []*auth.Directory{none, empty} {
		form := url.Values{
			"grant_type":    {"client_credentials"},
			"client_id":     {"any-client"},
			"client_secret": {"anything"},
		}
		if client, refusal := d.Grant(form, endpoint, testclock.NewFakePassiveClock(now)); refusal != nil ||
			client != "any-client" {
			t.Errorf("%s: %v, want nil, %s", client, refusal, "any-client")
		}
		if !d.Allows("any-client", "Microsoft.Compute/disks/delete", "/subscriptions/s") {
			t.Error("not allowed")
		}
	}
}

func TestRoles(t *testing.T) {
	d, err := auth.NewDirectory(nil, nil, map[string]auth.Assignment{
		"Narrow": {
			{Actions: []string{"Microsoft.Compute/disks/read", "Microsoft.Compute/snapshots/*"},
				NotActions: []string{"Microsoft.Compute/snapshots/delete"},
				Scopes:     []string{"/subscriptions/s/resourceGroups/g"}},
			{Actions: []string{"Microsoft.Compute/skus/read"}, Scopes: []string{"/subscriptions/s"}}},
		"locked": {{Actions: []string{"*"}},
			{Name: "lockdown", Deny: true, Actions: []string{"*"}, NotActions: []string{"*/read"},
				Scopes: []string{"/subscriptions/s/resourceGroups/g"}}},
		"wide": {{Actions: []string{"*"}}}, "reader": {{Actions: []string{"*/read"}}},
	})
	must(t, err)
	const g = "/subscriptions/s/resourceGroups/g"
	for name, test := range map[string]struct {
		client, action, at string
		allowed            bool
	}{
		"what is granted": {
			"narrow", "Microsoft.Compute/disks/read", g + "/providers/Microsoft.Compute/disks/d", true},
		"in any case": {
			"NARROW", "microsoft.compute/DISKS/read", "/SUBSCRIPTIONS/S/resourcegroups/G/x", true},
		"what is not":                {"narrow", "Microsoft.Compute/disks/write", g, false},
		"a longer action":            {"narrow", "Microsoft.Compute/disks/read/more", g, false},
		"by a star":                  {"narrow", "Microsoft.Compute/snapshots/beginGetAccess/action", g, true},
		"but for what is taken away": {"narrow", "Microsoft.Compute/snapshots/delete", g, false},
		"in another group": {
			"narrow", "Microsoft.Compute/disks/read", "/subscriptions/s/resourceGroups/g2", false},
		"of the subscription, in the group": {"narrow", "Microsoft.Compute/disks/read", "/subscriptions/s", false},
		"by a second role": {
			"narrow", "Microsoft.Compute/skus/read", "/subscriptions/s/providers/Microsoft.Compute/skus", true},
		"everything":                       {"wide", "Microsoft.Compute/virtualMachines/delete", "/", true},
		"to read everything":               {"reader", "Microsoft.Compute/virtualMachines/instanceView/read", "/", true},
		"to read everything, not to write": {"reader", "Microsoft.Compute/disks/write", "/", false},
		"what is denied":                   {"locked", "Microsoft.Compute/virtualMachines/write", g, false},
		"what is not, beside":              {"locked", "Microsoft.Compute/virtualMachines/read", g, true},
		"what is denied, elsewhere":        {"locked", "Microsoft.Compute/virtualMachines/write", g + "2", true},
		"without a role":                   {"stranger", "Microsoft.Compute/disks/read", g, false},
	} {
		got := d.Allows(test.client, test.action, test.at) && d.Denied(test.client, test.action, test.at) == nil
		if got != test.allowed {
			t.Errorf("%s: allowed is %t, want %t", name, got, test.allowed)
		}
	}
}

func TestTheDirectoryLasts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	open := func() (*store.Store, *auth.Directory) {
		db, err := store.Open(path, time.Second, auth.Tables...)
		must(t, err)
		d, err := auth.NewDirectory(db, map[string]auth.Application{"flag": {Secrets: []string{"s"}}}, nil)
		must(t, err)
		return db, d
	}
	db, d := open()
	must(t, d.PutApplication("A", auth.Application{Secrets: []string{"s"}}))
	must(t, d.PutApplication("b", auth.Application{Secrets: []string{"s"}}))
	must(t, d.DeleteApplication("B"))
	must(t, d.Assign("a", auth.Assignment{{Actions: []string{"x/read"}}}))
	must(t, d.Assign("b", auth.Assignment{{Actions: []string{"x/read"}}}))
	must(t, d.Unassign("b"))
	must(t, db.Close())
	db, d = open()
	defer db.Close()
	if got := d.Applications(); len(got) != 2 || got[0] != "a" || got[1] != "flag" {
		t.Errorf("applications %v, want len(got) = %v, got[0] = %v, got[1] = %v", got, 2, "a", "flag")
	}
	if !d.Allows("a", "x/read", "/") || d.Allows("b", "x/read", "/") {
		t.Error("the roles are not those of before")
	}
}

func TestAnApplicationThatIsNoneIsRefused(t *testing.T) {
	for name, text := range map[string]string{
		"nothing":                     `{}`,
		"no certificate":              `{"certificates":["x"]}`,
		"an issuer without keys":      `{"federated":[{"issuer":"i","subject":"s"}]}`,
		"an issuer without a name":    `{"federated":[{"subject":"s","keys":{"keys":[{"kty":"RSA","n":"AQ","e":"AQAB"}]}}]}`,
		"a key that is none":          `{"federated":[{"issuer":"i","subject":"s","keys":{"keys":[{"kty":"oct"}]}}]}`,
		"a point that is not there":   `{"federated":[{"issuer":"i","subject":"s","keys":{"keys":[{"kty":"EC","crv":"P-256","x":"AQ","y":"AQ"}]}}]}`,
		"a number that is not base64": `{"federated":[{"issuer":"i","subject":"s","keys":{"keys":[{"kty":"RSA","n":"%","e":"AQAB"}]}}]}`,
	} {
		var app auth.Application
		must(t, json.Unmarshal([]byte(text), &app))
		if app.Validate() == nil {
			t.Errorf("%s: taken", name)
		}
	}
}
