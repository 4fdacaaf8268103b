package auth

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rsa"
	"encoding/base64"
	"errors"
	"fmt"
	"math/big"
)

// KeySet is a JSON web key set of public keys, as issuers publish it.
type KeySet struct {
	Keys []Key `json:"keys"`
}

// Key is a public key: of RSA (n and e) or on the curve P-256 (x and y).
type Key struct {
	Type  string `json:"kty"`
	ID    string `json:"kid,omitempty"`
	N     string `json:"n,omitempty"`
	E     string `json:"e,omitempty"`
	Curve string `json:"crv,omitempty"`
	X     string `json:"x,omitempty"`
	Y     string `json:"y,omitempty"`
}

// NewKey returns the key of a public key.
func NewKey(id string, public crypto.PublicKey) (Key, error) {
	text := func(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }
	switch k := public.(type) {
	case *rsa.PublicKey:
		return Key{
			Type: "RSA",
			ID:   id,
			N:    text(k.N.Bytes()),
			E:    text(big.NewInt(int64(k.E)).Bytes()),
		}, nil
	case *ecdsa.PublicKey:
		point, err := k.Bytes() // 4, x, y
		if err != nil || k.Curve != elliptic.P256() {
			return Key{}, errors.New("only the curve P-256 is known")
		}
		return Key{
			Type:  "EC",
			ID:    id,
			Curve: "P-256",
			X:     text(point[1:33]),
			Y:     text(point[33:]),
		}, nil
	}
	return Key{}, fmt.Errorf("a key of type %T is not known", public)
}

// parse returns the keys by their ID.
func (s KeySet) parse() (map[string]crypto.PublicKey, error) {
	if len(s.Keys) == 0 {
		return nil, errors.New("a key is needed")
	}
	keys := map[string]crypto.PublicKey{}
	for _, k := range s.Keys {
		public, err := k.public()
		if err != nil {
			return nil, fmt.Errorf("key %q: %w", k.ID, err)
		}
		keys[k.ID] = public
	}
	return keys, nil
}

func (k Key) public() (crypto.PublicKey, error) {
	var faults []error
	number := func(name, text string) *big.Int {
		raw, err := base64.RawURLEncoding.DecodeString(text)
		if err != nil || len(raw) == 0 {
			faults = append(faults, fmt.Errorf("%s is not base64url", name))
		}
		return new(big.Int).SetBytes(raw)
	}
	switch {
	case k.Type == "RSA":
		public := &rsa.PublicKey{N: number("n", k.N), E: int(number("e", k.E).Int64())}
		return public, errors.Join(faults...)
	case k.Type == "EC" && k.Curve == "P-256":
		x, y := number("x", k.X), number("y", k.Y)
		if err := errors.Join(faults...); err != nil {
			return nil, err
		}
		point := make([]byte, 65)
		point[0] = 4
		if x.BitLen() > 256 || y.BitLen() > 256 {
			return nil, errors.New("not a point of P-256")
		}
		x.FillBytes(point[1:33])
		y.FillBytes(point[33:])
		return ecdsa.ParseUncompressedPublicKey(elliptic.P256(), point)
	}
	return nil, fmt.Errorf("kty %q with crv %q is neither RSA nor EC with P-256", k.Type, k.Curve)
}
