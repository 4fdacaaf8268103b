package scheduler

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	testingclock "k8s.io/utils/clock/testing"

	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/expect"
)

func listener(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// startRun runs the extender; stop tells it to stop and returns what Run returned.
func startRun(t *testing.T, change func(*Options), config *rest.Config) (o Options, stop func() error) {
	t.Helper()
	o = Options{
		Config:          config,
		Namespace:       apiv1.DefaultNamespace,
		DriverName:      driver,
		Listener:        listener(t),
		HealthListener:  listener(t),
		MaxRequestBytes: 1 << 20,
		Registry:        prometheus.NewRegistry(),
		Clock:           clock.RealClock{},
	}
	if change != nil {
		change(&o)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, o) }()
	stopped := false
	stop = func() error {
		if stopped {
			return nil
		}
		stopped = true
		cancel()
		return <-ended
	}
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
	return o, stop
}

// status returns 0 where there is no answer.
func status(client *http.Client, url string) int {
	response, err := client.Get(url)
	if err != nil {
		return 0
	}
	defer response.Body.Close()
	return response.StatusCode
}

func TestRunServesUntilItIsToldToStop(t *testing.T) {
	t.Parallel()
	_, config := startAPI(t, node("node-a"), node("node-b"),
		claim("data", "pv", "ours"), volume("pv", driver, diskURI("data")),
		azva("data", "node-b", apiv1.RoleReplica, apiv1.AttachmentAttached))
	o, stop := startRun(t, nil, config)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	url, health := "http://"+o.Listener.Addr().String(), "http://"+o.HealthListener.Addr().String()
	expect.Eventually(t, "the extender is ready", func() bool { return status(client, health+"/readyz") == http.StatusOK })

	body, _ := json.Marshal(extenderv1.ExtenderArgs{Pod: pod("data"), NodeNames: names("node-a", "node-b", "node-c")})
	response, err := client.Post(url+"/filter", "application/json", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var result extenderv1.ExtenderFilterResult
	if err := json.NewDecoder(response.Body).Decode(&result); err != nil {
		t.Fatal(err)
	}
	if len(*result.NodeNames) != 2 || result.FailedAndUnresolvableNodes["node-c"] == "" {
		t.Errorf("filter answered %+v", result)
	}

	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if code := status(client, url+"/healthz"); code != 0 {
		t.Errorf("answers %d after it has stopped", code)
	}
}

// The extender tells every client where the disks of a claim are. A cluster that is steered by the
// webhook does not need it, and no probe does.
func TestTheHealthPortDoesNotServeTheExtender(t *testing.T) {
	t.Parallel()
	_, config := startAPI(t, node("node-a"), claim("data", "pv", "ours"), volume("pv", driver, diskURI("data")))
	for name, change := range map[string]func(*Options){
		"beside the extender":  func(*Options) {},
		"without the extender": func(o *Options) { o.Listener.Close(); o.Listener = nil },
	} {
		t.Run(name, func(t *testing.T) {
			o, _ := startRun(t, change, config)
			client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
			health := "http://" + o.HealthListener.Addr().String()
			expect.Eventually(t, "the program is ready", func() bool { return status(client, health+"/readyz") == http.StatusOK })
			body, _ := json.Marshal(extenderv1.ExtenderArgs{Pod: pod("data"), NodeNames: names("node-a")})
			for _, path := range []string{"/filter", "/prioritize"} {
				response, err := client.Post(health+path, "application/json", bytes.NewReader(body))
				if err != nil {
					t.Fatal(err)
				}
				response.Body.Close()
				if response.StatusCode != http.StatusNotFound {
					t.Errorf("POST %s: got %d, want %d", path, response.StatusCode, http.StatusNotFound)
				}
			}
		})
	}
}

func TestRunAnswersWhileItSaysThatItStops(t *testing.T) {
	t.Parallel()
	_, config := startAPI(t)
	o, stop := startRun(t, func(o *Options) { o.ShutdownDelay = time.Hour }, config)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	url := "http://" + o.Listener.Addr().String()
	expect.Eventually(t, "the extender is ready", func() bool { return status(client, url+"/readyz") == http.StatusOK })
	// The delay has no end here: Run ends because one of its servers is taken away.
	ended := make(chan error, 1)
	go func() { ended <- stop() }()
	expect.Eventually(t, "it says that it stops",
		func() bool { return status(client, url+"/readyz") == http.StatusServiceUnavailable })
	if code := status(client, url+"/healthz"); code != http.StatusOK {
		t.Errorf("answers %d while it stops", code)
	}
	o.HealthListener.Close()
	if err := <-ended; err == nil {
		t.Error("a server that broke was not reported")
	}
}

func TestRunDoesNotAnswerOutOfIgnorance(t *testing.T) {
	t.Parallel()
	closed := listener(t)
	address := closed.Addr().String()
	closed.Close()
	// The clock stands still, so a request waits for the caches for as long as its caller does.
	clock := testingclock.NewFakeClock(epoch)
	o, stop := startRun(t, func(o *Options) { o.Clock = clock }, &rest.Config{Host: "http://" + address})
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	url := "http://" + o.Listener.Addr().String()
	expect.Eventually(t, "the extender answers", func() bool { return status(client, url+"/healthz") == http.StatusOK })
	if code := status(client, url+"/readyz"); code != http.StatusServiceUnavailable {
		t.Errorf("readyz answers %d", code)
	}
	filter := func(p *corev1.Pod) int {
		body, _ := json.Marshal(extenderv1.ExtenderArgs{Pod: p, NodeNames: names("node-a")})
		response, err := client.Post(url+"/filter", "application/json", bytes.NewReader(body))
		if err != nil {
			t.Error(err)
			return 0
		}
		defer response.Body.Close()
		return response.StatusCode
	}
	if code := filter(pod()); code != http.StatusOK {
		t.Errorf("a pod without volumes gets %d", code)
	}
	answer := make(chan int, 1)
	go func() { answer <- filter(pod("data")) }()
	expect.Eventually(t, "a request waits for the caches", clock.HasWaiters)
	clock.Step(requestPatience)
	if code := <-answer; code != http.StatusServiceUnavailable {
		t.Errorf("a pod with a claim gets %d", code)
	}
	clock.Step(startPatience)
	if code := filter(pod("data")); code != http.StatusServiceUnavailable {
		t.Errorf("later, and at once, it gets %d", code)
	}
	ended := make(chan error, 1)
	go func() { ended <- stop() }()
	expect.Eventually(t, "it waits out the delay before it stops", clock.HasWaiters)
	clock.Step(time.Second)
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestARequestThatComesBeforeTheCachesAreFilledWaitsForThem(t *testing.T) {
	t.Parallel()
	_, config := startAPI(t, node("node-a"), claim("data", "pv", "ours"), volume("pv", driver, diskURI("data")))
	seen, err := observe(t.Context(), config, &View{
		Namespace:  apiv1.DefaultNamespace,
		DriverName: driver,
	})
	if err != nil {
		t.Fatal(err)
	}
	clock := testingclock.NewFakeClock(epoch)
	ready := seen.await(clock, startPatience, requestPatience)
	handler, _ := newExtender(func(e *extender) { e.Observer, e.Ready = seen, ready })
	body, _ := json.Marshal(extenderv1.ExtenderArgs{Pod: pod("data"), NodeNames: names("node-a", "node-b")})
	answer := make(chan string, 1)
	go func() { answer <- post(handler, "/filter", body).Body.String() }()
	expect.Eventually(t, "the request waits", clock.HasWaiters)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- seen.start(ctx) }()
	if text := <-answer; !strings.Contains(text, `"NodeNames":["node-a"]`) {
		t.Errorf("answered %s", text)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestRunRefusesOldTLS(t *testing.T) {
	t.Parallel()
	_, config := startAPI(t)
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	writeCertificate(t, certFile, keyFile, 1)
	o, _ := startRun(t, func(o *Options) { o.CertFile, o.KeyFile = certFile, keyFile }, config)
	dial := func(version uint16) error {
		conn, err := tls.Dial("tcp", o.Listener.Addr().String(), &tls.Config{
			InsecureSkipVerify: true,
			MinVersion:         tls.VersionTLS10,
			MaxVersion:         version,
		})
		if err == nil {
			conn.Close()
		}
		return err
	}
	expect.Eventually(t, "TLS 1.3 is served", func() bool { return dial(tls.VersionTLS13) == nil })
	if err := dial(tls.VersionTLS12); err != nil {
		t.Errorf("TLS 1.2: %v", err)
	}
	if dial(tls.VersionTLS11) == nil {
		t.Error("TLS 1.1 is served")
	}
}

func TestRunTakesUpARenewedCertificate(t *testing.T) {
	t.Parallel()
	_, config := startAPI(t)
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	writeCertificate(t, certFile, keyFile, 1)
	o, _ := startRun(t, func(o *Options) { o.CertFile, o.KeyFile = certFile, keyFile }, config)
	serial := func() int64 {
		conn, err := tls.Dial("tcp", o.Listener.Addr().String(), &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			return 0
		}
		defer conn.Close()
		return conn.ConnectionState().PeerCertificates[0].SerialNumber.Int64()
	}
	expect.Eventually(t, "the first certificate is served", func() bool { return serial() == 1 })
	writeCertificate(t, certFile, keyFile, 2)
	expect.Eventually(t, "the second certificate is served", func() bool { return serial() == 2 })
}

func TestRunRefusesACertificateThatItCannotRead(t *testing.T) {
	t.Parallel()
	_, config := startAPI(t)
	l := listener(t)
	defer l.Close()
	err := Run(context.Background(), Options{
		Config:    config,
		Namespace: "n",
		Listener:  l,
		CertFile:  "/does/not/exist",
		KeyFile:   "/does/not/exist",
		Registry:  prometheus.NewRegistry(),
		Clock:     clock.RealClock{},
	})
	if err == nil {
		t.Error("no error")
	}
}

func writeCertificate(t *testing.T, certFile, keyFile string, serial int64) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial),
		Subject:      pkix.Name{CommonName: "extender"},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(time.Hour),
		DNSNames:     []string{"localhost"},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{
		keyFile:  {Type: "EC PRIVATE KEY", Bytes: keyDER},
		certFile: {Type: "CERTIFICATE", Bytes: der},
	} {
		temporary := file + ".new"
		if err := os.WriteFile(temporary, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(temporary, file); err != nil {
			t.Fatal(err)
		}
	}
}
