package credential

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"
)

// Dialer makes a connection, as net.Dialer.DialContext does.
type Dialer func(ctx context.Context, network, address string) (net.Conn, error)

// transports are the HTTP clients that reach Azure. They are kept until the configuration changes,
// because they hold connections.
type transports struct {
	// out goes through the proxy that HTTPS_PROXY, HTTP_PROXY and NO_PROXY name.
	out *http.Client
	// local never goes through a proxy, which would ask its own VM's metadata service.
	local *http.Client
}

// newTransports makes the clients. The certificates (PEM, "" for none) are trusted besides the
// system's.
func newTransports(certificates []byte, dial Dialer) (transports, error) {
	roots, err := rootsWith(certificates)
	if err != nil {
		return transports{}, err
	}
	return transports{out: newClient(roots, dial, http.ProxyFromEnvironment), local: newClient(roots, dial, nil)}, nil
}

func rootsWith(certificates []byte) (*x509.CertPool, error) {
	if len(certificates) == 0 {
		return nil, nil // the system's
	}
	roots, err := x509.SystemCertPool()
	if err != nil {
		return nil, fmt.Errorf("read the system's certificates: %w", err)
	}
	if !roots.AppendCertsFromPEM(certificates) {
		return nil, errors.New("read the CA bundle: it holds no certificate in PEM form")
	}
	return roots, nil
}

func newClient(roots *x509.CertPool, dial Dialer, proxy func(*http.Request) (*url.URL, error)) *http.Client {
	if dial == nil {
		dial = (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext
	}
	return &http.Client{Transport: &http.Transport{
		Proxy:                 proxy,
		DialContext:           dial,
		ForceAttemptHTTP2:     true,
		MaxIdleConns:          100,
		MaxIdleConnsPerHost:   10,
		IdleConnTimeout:       90 * time.Second,
		TLSHandshakeTimeout:   10 * time.Second,
		ExpectContinueTimeout: time.Second,
		TLSClientConfig:       &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots},
		// Pings find a dead connection before a request has to wait for it.
		HTTP2: &http.HTTP2Config{SendPingTimeout: 10 * time.Second, PingTimeout: 5 * time.Second},
	}}
}

// close closes the idle connections.
func (t transports) close() {
	t.out.CloseIdleConnections()
	t.local.CloseIdleConnections()
}
