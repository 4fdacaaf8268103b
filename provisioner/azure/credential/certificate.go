package credential

import (
	"crypto"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	pkcs12 "software.sslmate.com/src/go-pkcs12"
)

// clientCertificate is the certificate by which a service principal signs in.
type clientCertificate struct {
	chain []*x509.Certificate // the first one belongs to the key
	key   crypto.PrivateKey
}

// parseCertificate reads PEM, or PKCS #12 with a password ("" for none). Azure's library reads PEM
// and old PKCS #12, but not the ciphers that OpenSSL 3 and newer versions of Windows use.
func parseCertificate(data []byte, password Secret) (clientCertificate, error) {
	chain, key, err := azidentity.ParseCertificates(data, []byte(password))
	if err != nil {
		modernKey, leaf, authorities, modernErr := pkcs12.DecodeChain(data, string(password))
		if modernErr != nil {
			return clientCertificate{}, fmt.Errorf("neither PEM (%w) nor PKCS #12 (%w)", err, modernErr)
		}
		chain, key = append([]*x509.Certificate{leaf}, authorities...), modernKey
	}
	return leafFirst(chain, key)
}

// leafFirst puts the certificate of the key in front.
func leafFirst(chain []*x509.Certificate, key crypto.PrivateKey) (clientCertificate, error) {
	signer, ok := key.(crypto.Signer)
	if !ok {
		return clientCertificate{}, fmt.Errorf("a key of type %T cannot sign", key)
	}
	public, ok := signer.Public().(interface{ Equal(crypto.PublicKey) bool })
	if !ok {
		return clientCertificate{}, fmt.Errorf("a key of type %T cannot be compared", key)
	}
	for i, c := range chain {
		if public.Equal(c.PublicKey) {
			chain[0], chain[i] = chain[i], chain[0]
			return clientCertificate{chain: chain, key: key}, nil
		}
	}
	return clientCertificate{}, errors.New("none of the certificates belongs to the key")
}

// dataPlaneIdentity is a managed identity that the platform provides as a certificate, as in
// clusters with a hosted control plane.
type dataPlaneIdentity struct {
	ClientID  string `json:"client_id"`
	TenantID  string `json:"tenant_id"`
	Secret    Secret `json:"client_secret"` // the certificate with its key, base64
	Authority string `json:"authentication_endpoint"`
}

func parseDataPlaneIdentity(data []byte) (dataPlaneIdentity, clientCertificate, error) {
	var id dataPlaneIdentity
	if err := json.Unmarshal(data, &id); err != nil {
		return id, clientCertificate{}, fmt.Errorf("parse the identity: %w", err)
	}
	var faults []error
	for _, f := range []struct{ name, value string }{
		{"client_id", id.ClientID}, {"tenant_id", id.TenantID}, {"client_secret", string(id.Secret)},
		{"authentication_endpoint", id.Authority},
	} {
		if f.value == "" {
			faults = append(faults, fmt.Errorf("%s is missing", f.name))
		}
	}
	if len(faults) > 0 {
		return id, clientCertificate{}, errors.Join(faults...)
	}
	raw, err := base64.StdEncoding.DecodeString(string(id.Secret))
	if err != nil {
		return id, clientCertificate{}, errors.New("client_secret is not base64")
	}
	certificate, err := parseCertificate(raw, "")
	return id, certificate, err
}
