// Package simtest runs azuresim for the length of a Go test, in the test's own process.
// It is v0, see SUPPORT.md.
package simtest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/azuredisk-csi/azuredisk/internal/azuresim/server"
)

// Simulator is a running azuresim.
type Simulator struct {
	// URL is where it answers as Azure, and AdminURL where it is administered: scheme, host and
	// port. Both listen on any free port of 127.0.0.1.
	URL, AdminURL string
	// Dial connects to it; nil for the net package's. HTTP sends requests to it.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	HTTP *http.Client
}

// Subscription is the one that a simulator has unless it is started with others. It has the resource
// group default, in eastus.
const Subscription = "00000000-0000-0000-0000-000000000001"

// anyone is a credential for a simulator that checks no tokens.
type anyone struct{}

// GetToken implements azcore.TokenCredential.
func (anyone) GetToken(context.Context, policy.TokenRequestOptions) (azcore.AccessToken, error) {
	return azcore.AccessToken{Token: "anything", ExpiresOn: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)}, nil
}

// Credential is accepted by a simulator that checks no tokens.
func (Simulator) Credential() azcore.TokenCredential { return anyone{} }

// ClientOptions lead clients of Azure's SDK to the simulator. The SDK does not retry.
func (s Simulator) ClientOptions() *arm.ClientOptions {
	return &arm.ClientOptions{
		ClientOptions: policy.ClientOptions{
			Cloud: cloud.Configuration{
				ActiveDirectoryAuthorityHost: s.URL,
				Services: map[cloud.ServiceName]cloud.ServiceConfiguration{cloud.ResourceManager: {
					Endpoint: s.URL,
					Audience: "https://management.azure.com",
				}},
			},
			InsecureAllowCredentialWithHTTP: true,
			Retry:                           policy.RetryOptions{MaxRetries: -1},
		},
		DisableRPRegistration: true,
	}
}

// Directory makes a directory for the length of a test, in memory if the system has one there: a
// store syncs its file at each write, and the state of a test need not survive the machine.
func Directory(t testing.TB) string {
	t.Helper()
	made, err := os.MkdirTemp("/dev/shm", "azuresim-") //nolint:usetesting // t.TempDir is not in memory
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(made) })
	return made
}

// StartInMemory is Start without sockets: clients reach the simulator through its Dial or HTTP. In
// a bubble of testing/synctest its time is the bubble's, and what waits takes no real time.
func StartInMemory(t testing.TB, change ...func(*server.Options)) Simulator {
	t.Helper()
	n := newNetwork()
	s := Start(t, append(change, func(o *server.Options) { o.ListenOn = n.listen })...)
	s.Dial = n.dial
	s.HTTP = &http.Client{Transport: &http.Transport{DialContext: n.dial}}
	t.Cleanup(s.HTTP.CloseIdleConnections)
	return s
}

// Start runs azuresim until the test and its later cleanups have ended, and returns when it
// answers. Its state is in a directory of its own, Azure takes no longer than the test needs
// ("fast"), there are no quotas and no tokens are checked, unless change says otherwise. What it
// logs goes to the test's log. A simulator that does not start, or that does not end well, fails
// the test. The test's goroutine calls it.
func Start(t testing.TB, change ...func(*server.Options)) Simulator {
	t.Helper()
	o := server.Defaults()
	o.Listen, o.AdminListen, o.StateDir = "127.0.0.1:0", "127.0.0.1:0", Directory(t)
	o.Latency, o.Throttle, o.LogLevel = "fast", "off", "error"
	for _, c := range change {
		c(&o)
	}
	// The test's own context ends before its cleanups, and those still talk to the simulator.
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ready, out := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := server.Run(ctx, o, out, t.Output())
		_ = out.CloseWithError(err)
		ended <- err
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("azuresim ended with %v", err)
		}
	})
	var azure, admin, rest string
	if _, err := fmt.Fscanf(ready, "azuresim is ready: azure=%s admin=%s %s", &azure, &admin, &rest); err != nil {
		t.Fatalf("azuresim did not start: %v", err)
	}
	go func() { _, _ = io.Copy(io.Discard, ready) }()
	scheme := "http://"
	if o.TLSCert != "" {
		scheme = "https://"
	}
	return Simulator{URL: scheme + azure, AdminURL: "http://" + admin, HTTP: http.DefaultClient}
}

// Admin calls the admin API with a document, reads the answer into out if that is not nil, and
// returns the status.
func (s Simulator) Admin(t testing.TB, method, path string, in, out any) int {
	t.Helper()
	var body bytes.Buffer
	if in != nil {
		if err := json.NewEncoder(&body).Encode(in); err != nil {
			t.Fatal(err)
		}
	}
	// Cleanups call it, too, when the test's own context has ended.
	request, err := http.NewRequestWithContext(context.WithoutCancel(t.Context()), method, s.AdminURL+path, &body)
	if err != nil {
		t.Fatal(err)
	}
	client := s.HTTP
	if client == nil {
		client = http.DefaultClient
	}
	answer, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	if out != nil {
		if err := json.NewDecoder(answer.Body).Decode(out); err != nil {
			t.Fatalf("%s %s: %s: %v", method, path, answer.Status, err)
		}
	}
	return answer.StatusCode
}
