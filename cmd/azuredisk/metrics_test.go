package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/azuredisk-csi/azuredisk/internal/config"
	"github.com/azuredisk-csi/azuredisk/internal/kube"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/apiserver"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/expect"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/loopback"
	"github.com/azuredisk-csi/azuredisk/internal/version"
)

// A real API server authenticates and authorizes the clients.
func TestSecureMetricsAreForAuthorizedClients(t *testing.T) {
	kube, namespace := apiserver.Client(t), apiserver.Namespace(t)
	settings := &config.Common{MetricsAddress: loopback.Address(t), MetricsSecure: true}
	server, err := newMetricsServer(settings, apiserver.Config(t))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- server.Start(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()

	token := func(name string) string {
		t.Helper()
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
		request := &authenticationv1.TokenRequest{}
		if err := kube.Create(t.Context(), account); err != nil {
			t.Fatal(err)
		}
		if err := kube.SubResource("token").Create(t.Context(), account, request); err != nil {
			t.Fatal(err)
		}
		return request.Status.Token
	}
	reader, stranger := token("reader"), token("stranger")
	for _, object := range []client.Object{
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "metrics-reader"},
			Rules: []rbacv1.PolicyRule{{NonResourceURLs: []string{"/metrics"}, Verbs: []string{"get"}}}},
		&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "metrics-reader"},
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "metrics-reader"},
			Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: namespace, Name: "reader"}}},
	} {
		if err := kube.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	defer transport.CloseIdleConnections()
	get := func(token string) (status int, protocol string) {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+settings.MetricsAddress+"/metrics",
			nil)
		if err != nil {
			t.Fatal(err)
		}
		if token != "" {
			request.Header.Set("Authorization", "Bearer "+token)
		}
		response, err := transport.RoundTrip(request)
		if err != nil {
			return 0, ""
		}
		defer response.Body.Close()
		return response.StatusCode, response.Proto
	}
	expect.Eventually(t, "a client that may read metrics gets them",
		func() bool { status, _ := get(reader); return status == http.StatusOK })
	for who, c := range map[string]struct {
		token string
		want  int
	}{
		"a client without a token": {"", http.StatusUnauthorized},
		// controller-runtime answers a token that the API server rejects with this.
		"a client with a token of another issuer": {"eyJhbGciOiJub25lIn0.e30.", http.StatusInternalServerError},
		"a client that may not read metrics":      {stranger, http.StatusForbidden},
		"a client that may read metrics":          {reader, http.StatusOK},
	} {
		if got, protocol := get(c.token); got != c.want || protocol != "HTTP/1.1" {
			t.Errorf("%s: got %d over %s, want %d over HTTP/1.1", who, got, protocol, c.want)
		}
	}
}

func TestMetricsThatAreOffHaveNoServer(t *testing.T) {
	t.Parallel()
	if server, err := newMetricsServer(&config.Common{MetricsAddress: "0"}, apiserver.Config(t)); server != nil || err != nil {
		t.Errorf("got %v, %v, want no server", server, err)
	}
}

// Each token that a client invents costs a review, and the calls of the program must not wait for it.
func TestReviewsOfBadClientsTakeNoShareOfTheProgramsCalls(t *testing.T) {
	t.Parallel()
	const burst = 20
	reviews := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "status": {"authenticated": false}}`)
	}))
	defer reviews.Close()
	cfg := &rest.Config{Host: reviews.URL}
	kube.Pace(cfg, 0.001, burst)
	filter, err := metricsOptions(&config.Common{MetricsSecure: true}).FilterProvider(cfg, reviews.Client())
	if err != nil {
		t.Fatal(err)
	}
	handler, err := filter(logr.Discard(), http.NotFoundHandler())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	var clients sync.WaitGroup
	for i := range 400 {
		clients.Go(func() {
			request := httptest.NewRequestWithContext(ctx, http.MethodGet, "/metrics", nil)
			request.Header.Set("Authorization", fmt.Sprintf("Bearer invented-%d", i))
			handler.ServeHTTP(httptest.NewRecorder(), request)
		})
	}
	clients.Wait()
	for i := range burst {
		if !cfg.RateLimiter.TryAccept() {
			t.Fatalf("call %d of the program waits after 400 bad clients, want %d calls at once", i+1, burst)
		}
	}
}

// A signature for each connection of some hundred clients would take the processors from the program.
func TestTheHandshakesOfMetricsAreLimited(t *testing.T) {
	t.Parallel()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.TLS = &tls.Config{}
	restrictTLS(server.TLS)
	server.StartTLS()
	defer server.Close()
	get := func(client *http.Client) error {
		response, err := client.Get(server.URL)
		if err == nil {
			err = response.Body.Close()
		}
		return err
	}
	reader := server.Client()
	if err := get(reader); err != nil {
		t.Fatal(err)
	}
	const clients = 200
	began, connected := time.Now(), 0
	for range clients {
		transport := reader.Transport.(*http.Transport).Clone()
		if get(&http.Client{Transport: transport}) == nil {
			connected++
		}
		transport.CloseIdleConnections()
	}
	if most := handshakeBurst + int(handshakesPerSecond*time.Since(began).Seconds()) + 1; connected > most {
		t.Errorf("%d of %d clients got a connection, want at most %d", connected, clients, most)
	}
	if err := get(reader); err != nil {
		t.Errorf("a reader that has a connection: got %v, want an answer", err)
	}
}

func TestTheBuildIsAMetric(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	for range 2 { // each subcommand registers it
		if err := registerBuild(registry); err != nil {
			t.Fatal(err)
		}
	}
	want := fmt.Sprintf(`# HELP azuredisk_build_info 1, with the version of the driver and of Go.
# TYPE azuredisk_build_info gauge
azuredisk_build_info{goversion="%s",version="%s"} 1
`, runtime.Version(), version.Version)
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}
