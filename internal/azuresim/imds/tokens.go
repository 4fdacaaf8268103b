package imds

import (
	"crypto/rand"
	"fmt"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/google/uuid"
	"k8s.io/utils/clock"
)

// tokenLife is how long a managed identity's token lasts on Azure.
const tokenLife = 24 * time.Hour

// keyBytes is the least that a signing key must have.
const keyBytes = 32

// Signer makes tokens as Entra ID makes them. With the front end's key (HMAC, SHA-256) the front
// end accepts them; a verifier of real tokens does not.
type Signer struct {
	// Life of the tokens. NewSigner sets Azure's; it is not changed while the signer is in use.
	Life time.Duration

	key   []byte
	clock clock.PassiveClock
}

// NewSigner returns a signer with the front end's key, or, if key is empty, with a random one.
func NewSigner(key []byte, c clock.PassiveClock) (*Signer, error) {
	if len(key) == 0 {
		key = make([]byte, keyBytes)
		if _, err := rand.Read(key); err != nil {
			return nil, fmt.Errorf("make token key: %w", err)
		}
	}
	if len(key) < keyBytes {
		return nil, fmt.Errorf("token key has %d bytes, at least %d are needed", len(key), keyBytes)
	}
	return &Signer{
		Life:  tokenLife,
		key:   key,
		clock: c,
	}, nil
}

// token is a signed access token and when it begins and ends.
type token struct {
	signed         string
	issued, expiry time.Time
}

// sign makes a token of the identity for the resource.
func (s *Signer) sign(identity Identity, vmID, resource string) (token, error) {
	now := s.clock.Now().Truncate(time.Second)
	t := token{issued: now, expiry: now.Add(s.Life)}
	mirid := identity.ResourceID
	if mirid == "" {
		mirid = vmID
	}
	signed, err := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{
		"aud":       strings.TrimSuffix(resource, "/"),
		"iss":       "https://sts.windows.net/" + identity.TenantID + "/",
		"iat":       t.issued.Unix(),
		"nbf":       t.issued.Unix(),
		"exp":       t.expiry.Unix(),
		"appid":     identity.ClientID,
		"oid":       identity.ObjectID,
		"sub":       identity.ObjectID,
		"tid":       identity.TenantID,
		"idtyp":     "app",
		"ver":       "1.0",
		"xms_mirid": mirid,
	}).SignedString(s.key)
	if err != nil {
		return token{}, fmt.Errorf("sign token: %w", err)
	}
	t.signed = signed
	return t, nil
}

// orMade is id, or one made from the name where id is empty.
func orMade(id, name string) string {
	if id != "" {
		return id
	}
	return madeID(name)
}

// madeID is a GUID that depends on the name alone.
func madeID(name string) string {
	return uuid.NewSHA1(uuid.NameSpaceURL, []byte("azuresim "+strings.ToLower(name))).String()
}
