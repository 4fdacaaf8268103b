// Package auth issues and checks bearer tokens, as far as Azure's client libraries need them: JSON
// web tokens that the simulator signs as their authority.
package auth

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"k8s.io/utils/clock"

	"github.com/azuredisk-csi/azuredisk/internal/azuresim/armerror"
)

// Lifetime is how long a token is good for, unless an authority says otherwise.
const Lifetime = time.Hour

const keyBytes = 32

// leeway is how much later a token is still taken: clocks differ, and a client that was told how
// long its token lasts counts from when it was told.
const leeway = 5 * time.Second

// Authority issues and checks tokens under one key.
type Authority struct {
	// Lifetime of the tokens that it issues. New sets it; it is not changed while the authority is
	// in use.
	Lifetime time.Duration

	key   []byte
	clock clock.PassiveClock
}

// LoadKey reads the signing key from the file, and makes the file at the first time. Other
// processes may read it to issue tokens that are good here.
func LoadKey(path string) ([]byte, error) {
	key, err := os.ReadFile(path)
	if err == nil && len(key) >= keyBytes {
		return key, nil
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("read token key: %w", err)
	}
	key = make([]byte, keyBytes)
	if _, err := rand.Read(key); err != nil {
		return nil, fmt.Errorf("make token key: %w", err)
	}
	// Under another name first: a reader of the file must never see half a key.
	draft := path + ".new"
	if err := os.WriteFile(draft, key, 0o600); err != nil {
		return nil, fmt.Errorf("write token key: %w", err)
	}
	if err := os.Rename(draft, path); err != nil {
		return nil, fmt.Errorf("write token key: %w", err)
	}
	return key, nil
}

// New returns an authority. Tokens of another authority with the same key are good here, too.
func New(key []byte, c clock.PassiveClock) *Authority {
	return &Authority{
		Lifetime: Lifetime,
		key:      key,
		clock:    c,
	}
}

// Claims are what a token says.
type Claims struct {
	Audience string `json:"aud"`
	Issuer   string `json:"iss"`
	Tenant   string `json:"tid"`
	Client   string `json:"appid"`
	Object   string `json:"oid,omitempty"`
	Subject  string `json:"sub"`
	Issued   int64  `json:"iat"`
	From     int64  `json:"nbf"`
	Expires  int64  `json:"exp"`
}

var encoding = base64.RawURLEncoding

// Issue returns a token for the client and when it expires.
func (a *Authority) Issue(tenant, client, audience string) (token string, expires time.Time, err error) {
	now := a.clock.Now()
	expires = now.Add(a.Lifetime)
	body, err := json.Marshal(Claims{
		Audience: audience,
		Issuer:   "https://sts.windows.net/" + tenant + "/",
		Tenant:   tenant,
		Client:   client,
		Subject:  client,
		Issued:   now.Unix(),
		From:     now.Unix(),
		Expires:  expires.Unix(),
	})
	if err != nil {
		return "", time.Time{}, fmt.Errorf("encode token: %w", err)
	}
	signed := encoding.EncodeToString([]byte(`{"alg":"HS256","typ":"JWT"}`)) + "." + encoding.EncodeToString(body)
	return signed + "." + encoding.EncodeToString(a.sign(signed)), expires, nil
}

func (a *Authority) sign(s string) []byte {
	mac := hmac.New(sha256.New, a.key)
	mac.Write([]byte(s))
	return mac.Sum(nil)
}

// Check judges the Authorization header of a request, and says whose token it is.
func (a *Authority) Check(header string) (Claims, *armerror.Error) {
	var c Claims
	scheme, token, _ := strings.Cut(header, " ")
	if !strings.EqualFold(scheme, "Bearer") || token == "" {
		return c, armerror.New(401, "AuthenticationFailed", "Authentication failed. The 'Authorization' header is missing.")
	}
	dot := strings.LastIndexByte(token, '.')
	if dot < 0 {
		return c, armerror.New(401, "InvalidAuthenticationToken", "The access token is invalid.")
	}
	signature, err := encoding.DecodeString(token[dot+1:])
	if err != nil || subtle.ConstantTimeCompare(signature, a.sign(token[:dot])) != 1 {
		return c, armerror.New(401, "InvalidAuthenticationToken", "The access token validation failure: signature is invalid.")
	}
	_, middle, _ := strings.Cut(token[:dot], ".")
	if raw, err := encoding.DecodeString(middle); err != nil || json.Unmarshal(raw, &c) != nil {
		return Claims{}, armerror.New(401, "InvalidAuthenticationToken", "The access token is invalid.")
	}
	if a.clock.Now().Add(-leeway).Unix() >= c.Expires {
		return c, armerror.New(401, "ExpiredAuthenticationToken",
			"The access token expiry UTC time '%s' is earlier than current UTC time.",
			time.Unix(c.Expires, 0).UTC().Format(time.RFC3339))
	}
	return c, nil
}
