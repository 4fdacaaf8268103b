package scheduler

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

// issued is a certificate that may not have been issued yet.
type issued struct{ *tls.Certificate }

func (i issued) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if i.Certificate == nil {
		return nil, errors.New("no certificate yet")
	}
	return i.Certificate, nil
}

func (issued) Start(context.Context) error { return nil }

func TestTheExpiryOfNoCertificateHasNoSeries(t *testing.T) {
	t.Parallel()
	if got := testutil.CollectAndCount(expiry{issued{}}); got != 0 {
		t.Errorf("got %d series without a certificate, want 0", got)
	}
	leaf := &x509.Certificate{NotAfter: time.Unix(1_900_000_000, 0)}
	if got := testutil.ToFloat64(expiry{issued{&tls.Certificate{Leaf: leaf}}}); got != 1_900_000_000 {
		t.Errorf("got the expiry %v, want 1900000000", got)
	}
}
