package webhookcert

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"time"

	"k8s.io/client-go/util/cert"
)

// pair is a serving certificate with its key, and the authorities that clients trust.
type pair struct {
	// certificate and key are the serving certificate, followed by its authority, and its key, as
	// PEM.
	certificate, key []byte
	// bundle has the authority of the certificate first, and then the authority of the former
	// certificate, as PEM.
	bundle []byte
}

// create makes a pair for the names. The key of its authority is forgotten at once, so that no
// other certificate can be signed with it.
func create(names []string, lifetime time.Duration) (pair, error) {
	certificate, key, err := cert.GenerateSelfSignedCertKeyWithOptions(cert.SelfSignedCertKeyOptions{
		Host:         names[0],
		AlternateDNS: names[1:],
		MaxAge:       lifetime,
	})
	if err != nil {
		return pair{}, fmt.Errorf("make a certificate: %w", err)
	}
	chain, err := cert.ParseCertsPEM(certificate)
	if err != nil || len(chain) < 2 {
		return pair{}, fmt.Errorf("read the new certificate: %d parts, want 2: %w", len(chain), err)
	}
	return pair{
		certificate: certificate,
		key:         key,
		bundle:      encode(chain[1]),
	}, nil
}

// succeed adds the authority of the former pair to the bundle of the new one, because other
// replicas serve the former certificate until they read the new one.
func (p pair) succeed(former pair, now time.Time) pair {
	authorities, err := cert.ParseCertsPEM(former.bundle)
	if err != nil || !now.Before(authorities[0].NotAfter) {
		return p
	}
	p.bundle = append(bytes.Clone(p.bundle), encode(authorities[0])...)
	return p
}

// load checks that the certificate is for all of the names at that time, and that clients trust it.
// The result has the certificate's end in its Leaf.
func (p pair) load(names []string, now time.Time) (*tls.Certificate, error) {
	loaded, err := tls.X509KeyPair(p.certificate, p.key)
	if err != nil {
		return nil, fmt.Errorf("certificate and key: %w", err)
	}
	authorities := x509.NewCertPool()
	if !authorities.AppendCertsFromPEM(p.bundle) {
		return nil, fmt.Errorf("authorities: no certificate in %d bytes", len(p.bundle))
	}
	for _, name := range names {
		_, err := loaded.Leaf.Verify(x509.VerifyOptions{
			DNSName:     name,
			Roots:       authorities,
			CurrentTime: now,
		})
		if err != nil {
			return nil, fmt.Errorf("verify the certificate for %s: %w", name, err)
		}
	}
	return &loaded, nil
}

// isDue reports whether a certificate should be replaced: a third of its life, or less, is left.
func isDue(leaf *x509.Certificate, now time.Time) bool {
	return now.Add(leaf.NotAfter.Sub(leaf.NotBefore) / 3).After(leaf.NotAfter)
}

func encode(certificate *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: cert.CertificateBlockType, Bytes: certificate.Raw})
}
