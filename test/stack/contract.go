package stack

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"testing"

	"github.com/azuredisk-csi/azuredisk/internal/azuresim/contract"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/expect"
)

// checked starts a proxy of an endpoint, and fails the test for each exchange that contradicts Azure's
// description. It returns the proxy's endpoint.
func checked(t testing.TB, endpoint string) string {
	t.Helper()
	description, err := contract.Describe()
	expect.Must(t, err)
	target, err := url.Parse(endpoint)
	expect.Must(t, err)
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.Transport = &contract.Transport{
		Send:        http.DefaultTransport.RoundTrip,
		Description: description,
		Report:      func(fault string) { t.Error(fault) },
	}
	server := httptest.NewServer(proxy)
	t.Cleanup(server.Close)
	return server.URL
}
