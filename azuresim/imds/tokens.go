package imds

import (
	"crypto/rand"
	"crypto/rsa"
	"fmt"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/google/uuid"
	"k8s.io/utils/clock"
)

// tokenLife is how long a managed identity's token lasts on Azure.
const tokenLife = 24 * time.Hour

// keyBits is enough for a token that nobody but the simulator believes.
const keyBits = 2048

// Signer makes tokens as Entra ID makes them, signed with a key of its own that nobody trusts.
type Signer struct {
	key   *rsa.PrivateKey
	clock clock.PassiveClock
}

// NewSigner returns a signer with a fresh key.
func NewSigner(c clock.PassiveClock) (*Signer, error) {
	key, err := rsa.GenerateKey(rand.Reader, keyBits)
	if err != nil {
		return nil, fmt.Errorf("make token key: %w", err)
	}
	return &Signer{key: key, clock: c}, nil
}

// token is a signed access token and when it begins and ends.
type token struct {
	signed         string
	issued, expiry time.Time
}

// sign makes a token of the identity for the resource.
func (s *Signer) sign(identity Identity, vmID, resource string) (token, error) {
	now := s.clock.Now().Truncate(time.Second)
	t := token{issued: now, expiry: now.Add(tokenLife)}
	mirid := identity.ResourceID
	if mirid == "" {
		mirid = vmID
	}
	signed, err := jwt.NewWithClaims(jwt.SigningMethodRS256, jwt.MapClaims{
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
