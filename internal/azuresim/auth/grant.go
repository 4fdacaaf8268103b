package auth

import (
	"crypto"
	"crypto/sha1" //nolint:gosec // RFC 7515: the header x5t is a SHA-1 thumbprint
	"crypto/sha256"
	"crypto/subtle"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"net/url"
	"slices"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"k8s.io/utils/clock"
)

// Refusal is why a client gets no token, in the words of OAuth and with the number that Entra ID
// puts in front.
type Refusal struct {
	Code    string // as in invalid_client
	Number  int    // as in 7000215
	Message string
}

// Error implements error.
func (r *Refusal) Error() string { return fmt.Sprintf("AADSTS%d: %s", r.Number, r.Message) }

func refuse(number int, format string, args ...any) *Refusal {
	return &Refusal{
		Code:    "invalid_client",
		Number:  number,
		Message: fmt.Sprintf(format, args...),
	}
}

// assertionType is the one kind of client assertion that there is.
const assertionType = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"

// Grant judges the form of a client-credentials grant. endpoint is the URL to which the form was
// sent, which is whom a client's own assertion must be for.
func (d *Directory) Grant(form url.Values, endpoint string, c clock.PassiveClock) (client string, refusal *Refusal) {
	client = form.Get("client_id")
	if form.Get("grant_type") != "client_credentials" {
		return "", &Refusal{
			Code:    "unsupported_grant_type",
			Number:  70003,
			Message: "The grant type is not supported; client_credentials is.",
		}
	}
	app, found, open := d.find(client)
	if open {
		return client, nil
	}
	if !found {
		return "", &Refusal{
			Code:    "unauthorized_client",
			Number:  700016,
			Message: fmt.Sprintf("Application with identifier '%s' was not found in the directory.", client),
		}
	}
	assertion := form.Get("client_assertion")
	switch {
	case assertion == "" && form.Get("client_secret") == "":
		return "", refuse(7000218, "The request body must contain the following parameter: 'client_assertion' or 'client_secret'.")
	case assertion == "":
		if !slices.ContainsFunc(app.Secrets, func(s string) bool {
			return subtle.ConstantTimeCompare([]byte(s), []byte(form.Get("client_secret"))) == 1
		}) {
			return "", refuse(7000215, "Invalid client secret provided. Ensure the secret being sent in the request is the client secret value, not the client secret ID, for a secret added to app '%s'.", client)
		}
		return client, nil
	case form.Get("client_assertion_type") != assertionType:
		return "", refuse(700030, "The client assertion type must be %s.", assertionType)
	}
	return client, app.assertion(client, assertion, endpoint, c)
}

// assertion checks a signed statement of who the client is: its own, by a certificate, or that of
// an issuer whom it trusts.
func (a Application) assertion(client, text, endpoint string, c clock.PassiveClock) *Refusal {
	parser := jwt.NewParser(jwt.WithTimeFunc(c.Now), jwt.WithExpirationRequired(),
		jwt.WithValidMethods([]string{"RS256", "PS256", "ES256"}))
	claims := jwt.MapClaims{}
	unverified, _, err := parser.ParseUnverified(text, claims)
	if err != nil {
		return refuse(50027, "JWT token is invalid or malformed.")
	}
	issuer, _ := claims.GetIssuer()
	subject, _ := claims.GetSubject()
	audience, _ := claims.GetAudience()
	if issuer == client {
		if subject != client {
			return refuse(700021, "Client assertion application identifier doesn't match 'client_id' parameter.")
		}
		if !slices.Contains(audience, endpoint) {
			return refuse(700023, "Client assertion audience claim does not match Realm issuer: it is %v, and this is %s.",
				audience, endpoint)
		}
		key, refusal := a.signingKey(unverified.Header, c.Now())
		if refusal != nil {
			return refusal
		}
		return verify(parser, text, key)
	}
	for _, f := range a.Federated {
		if f.Issuer != issuer || f.Subject != subject {
			continue
		}
		want := f.Audience
		if want == "" {
			want = DefaultAudience
		}
		if !slices.Contains(audience, want) {
			return refuse(700212, "No matching federated identity record found for presented assertion audience '%v'.", audience)
		}
		keys, err := f.Keys.parse()
		if err != nil {
			return refuse(50027, "The issuer's keys are not good: %s.", err)
		}
		id, _ := unverified.Header["kid"].(string)
		key, ok := keys[id]
		if !ok {
			return refuse(5000224, "We are unable to issue tokens from this issuer: it has no key '%s'.", id)
		}
		return verify(parser, text, key)
	}
	return refuse(700213, "No matching federated identity record found for presented assertion issuer '%s' and subject '%s'.",
		issuer, subject)
}

// signingKey is the key of the registered certificate whose thumbprint the header names.
func (a Application) signingKey(header map[string]any, now time.Time) (crypto.PublicKey, *Refusal) {
	for _, text := range a.Certificates {
		found, err := certificate(text)
		if err != nil || !names(header, found) {
			continue
		}
		if now.After(found.NotAfter) || now.Before(found.NotBefore) {
			return nil, refuse(700027, "The certificate with identifier used to sign the client assertion is expired on application.")
		}
		return found.PublicKey, nil
	}
	return nil, refuse(700027, "The certificate with identifier used to sign the client assertion is not registered on application.")
}

// names reports whether a header's thumbprint is the certificate's.
func names(header map[string]any, c *x509.Certificate) bool {
	long, short := sha256.Sum256(c.Raw), sha1.Sum(c.Raw) //nolint:gosec // as above: a name of the certificate, not a signature
	for field, sum := range map[string][]byte{"x5t#S256": long[:], "x5t": short[:]} {
		text, ok := header[field].(string)
		if !ok {
			continue
		}
		for _, encoding := range []*base64.Encoding{base64.RawURLEncoding, base64.URLEncoding, base64.StdEncoding} {
			if encoding.EncodeToString(sum) == text {
				return true
			}
		}
	}
	return false
}

func verify(parser *jwt.Parser, text string, key crypto.PublicKey) *Refusal {
	if _, err := parser.Parse(text, func(*jwt.Token) (any, error) { return key, nil }); err != nil {
		return refuse(700024, "Client assertion is not within its valid time range, or failed signature validation: %s.", err)
	}
	return nil
}
