package credential

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
)

// The proxy is given to the client here, because net/http reads the environment once in the life of
// a process.
func TestRequestsToAzureGoThroughTheProxyAndThoseToTheVMDoNot(t *testing.T) {
	target := httptest.NewTLSServer(http.HandlerFunc(
		func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("azure")) }))
	defer target.Close()
	var asked []string
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.Method+" "+r.Host)
		connect(w, r)
	}))
	defer proxy.Close()
	at, err := url.Parse(proxy.URL)
	if err != nil {
		t.Fatal(err)
	}
	roots := target.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	client := newClient(roots, nil, http.ProxyURL(at))
	resp, err := client.Get(target.URL)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if len(asked) != 1 || asked[0] != "CONNECT "+strings.TrimPrefix(target.URL, "https://") {
		t.Errorf("the proxy was asked for %v, want one CONNECT to the target", asked)
	}
	w, err := newTransports(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	out, local := w.out.Transport.(*http.Transport), w.local.Transport.(*http.Transport)
	if out.Proxy == nil {
		t.Error("requests to Azure do not go through the proxy of the environment")
	}
	if local.Proxy != nil {
		t.Error("requests for a managed identity go through a proxy, which would answer for its own VM")
	}
}

// connect is a proxy's tunnel.
func connect(w http.ResponseWriter, r *http.Request) {
	there, err := (&net.Dialer{}).DialContext(context.WithoutCancel(r.Context()), "tcp", r.Host)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	here, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		_ = there.Close()
		return
	}
	_, _ = here.Write([]byte("HTTP/1.1 200 OK\r\n\r\n"))
	relay := func(to, from net.Conn) {
		_, _ = to.(*net.TCPConn).ReadFrom(from)
		_ = to.Close()
	}
	go relay(there, here)
	go relay(here, there)
}

func TestABundleWithoutACertificateIsRefused(t *testing.T) {
	if _, err := newTransports([]byte("nothing"), nil); err == nil ||
		!strings.Contains(err.Error(), "no certificate in PEM form") {
		t.Errorf("got %v, want an error that names the PEM form", err)
	}
}
