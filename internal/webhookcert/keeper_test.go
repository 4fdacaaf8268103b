package webhookcert

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/cert"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/azuredisk-csi/azuredisk/internal/testkit/expect"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/fakeapi"
)

const name = "azuredisk-scheduler.azure-disk-csi.svc"

// world is an API server with the objects that the chart makes, and a clock.
type world struct {
	client.Client
	clock *testingclock.FakeClock
}

func newWorld(t *testing.T) world {
	t.Helper()
	webhook := func(name string) admissionregistrationv1.MutatingWebhook {
		return admissionregistrationv1.MutatingWebhook{Name: name, TimeoutSeconds: new(int32)}
	}
	return world{
		Client: fakeapi.With(
			&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "azure-disk-csi", Name: "webhook"}},
			&admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "steer"},
				Webhooks: []admissionregistrationv1.MutatingWebhook{webhook("one.example.com"), webhook("two.example.com")}},
		).Build(),
		// client-go takes the time of the machine for new certificates.
		clock: testingclock.NewFakeClock(time.Now()),
	}
}

func (w world) keeper() *Keeper {
	return New(Options{
		Client:        w,
		Secret:        client.ObjectKey{Namespace: "azure-disk-csi", Name: "webhook"},
		Configuration: "steer",
		Names:         []string{name},
		Clock:         w.clock,
	})
}

func (w world) secret(t *testing.T) *corev1.Secret {
	t.Helper()
	secret := &corev1.Secret{}
	expect.Must(t, w.Get(t.Context(), client.ObjectKey{Namespace: "azure-disk-csi", Name: "webhook"}, secret))
	return secret
}

// bundle is what the API server trusts. It must be the same for every webhook.
func (w world) bundle(t *testing.T) []byte {
	t.Helper()
	var configuration admissionregistrationv1.MutatingWebhookConfiguration
	expect.Must(t, w.Get(t.Context(), client.ObjectKey{Name: "steer"}, &configuration))
	first := configuration.Webhooks[0].ClientConfig.CABundle
	for _, webhook := range configuration.Webhooks {
		if !bytes.Equal(webhook.ClientConfig.CABundle, first) || webhook.TimeoutSeconds == nil {
			t.Errorf("webhook %s: got other authorities than the first, or lost a field: %+v", webhook.Name, webhook)
		}
	}
	return first
}

// connect calls the keeper's server as the API server would at the time of the clock.
func (w world) connect(t *testing.T, k *Keeper) error {
	t.Helper()
	authorities := x509.NewCertPool()
	authorities.AppendCertsFromPEM(w.bundle(t))
	here, there := net.Pipe()
	defer here.Close()
	defer there.Close()
	go func() {
		_ = tls.Server(there, &tls.Config{GetCertificate: k.GetCertificate}).HandshakeContext(t.Context())
	}()
	return tls.Client(here, &tls.Config{
		RootCAs:    authorities,
		ServerName: name,
		Time:       w.clock.Now,
	}).HandshakeContext(t.Context())
}

func TestAReplicaMakesTheCertificateAndTheOthersServeIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first, second := w.keeper(), w.keeper()
	if _, err := first.GetCertificate(nil); !errors.Is(err, errNoCertificate) {
		t.Errorf("before the first check: got %v, want %v", err, errNoCertificate)
	}
	for _, k := range []*Keeper{first, second} {
		expect.Must(t, k.check(t.Context()))
		if err := w.connect(t, k); err != nil {
			t.Errorf("connect: %v", err)
		}
	}
	before := w.secret(t).ResourceVersion
	expect.Must(t, first.check(t.Context()))
	if after := w.secret(t).ResourceVersion; after != before {
		t.Errorf("a check without need wrote the Secret: version %s became %s", before, after)
	}
	if _, there := w.secret(t).Data["ca.key"]; there || len(w.secret(t).Data) != 3 {
		t.Errorf("got %d keys in the Secret, want tls.crt, tls.key and ca.crt: the authority's key is not kept",
			len(w.secret(t).Data))
	}
}

func TestACertificateIsRenewedAndTheFormerOneStaysTrusted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first, second := w.keeper(), w.keeper()
	// client-go dates certificates by the machine's clock. A long life makes the second certificate
	// valid as well, when the test's clock shows the time at which the first is due.
	first.lifetime, second.lifetime = 90*time.Hour, 900*time.Hour
	expect.Must(t, first.check(t.Context()))
	w.clock.Step(50 * time.Hour)
	expect.Must(t, second.check(t.Context()))
	served, err := second.GetCertificate(nil)
	expect.Must(t, err)
	if left := served.Leaf.NotAfter.Sub(w.clock.Now()); left > 40*time.Hour {
		t.Fatalf("a third of its life before the end: got a certificate with %s left, want the first one", left)
	}
	w.clock.Step(20 * time.Hour)
	expect.Must(t, second.check(t.Context()))
	if served, _ = second.GetCertificate(nil); served.Leaf.NotAfter.Sub(w.clock.Now()) < 100*time.Hour {
		t.Fatalf("got a certificate until %s at %s, want a new one", served.Leaf.NotAfter, w.clock.Now())
	}
	for which, k := range map[string]*Keeper{"that has the new certificate": second, "that still serves the former": first} {
		if err := w.connect(t, k); err != nil {
			t.Errorf("connect to the replica %s: %v", which, err)
		}
	}
	expect.Must(t, first.check(t.Context()))
	if now, _ := first.GetCertificate(nil); !bytes.Equal(now.Leaf.Raw, served.Leaf.Raw) {
		t.Error("the first replica does not serve the second one's certificate after a check")
	}
	// At the next renewal the oldest authority is dropped.
	w.clock.Step(700 * time.Hour)
	second.lifetime = 9000 * time.Hour
	expect.Must(t, second.check(t.Context()))
	authorities, err := cert.ParseCertsPEM(w.bundle(t))
	if err != nil || len(authorities) != 2 {
		t.Errorf("got %d authorities after two renewals (%v), want 2", len(authorities), err)
	}
}

func TestWhatIsBrokenIsReplaced(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	k := w.keeper()
	expect.Must(t, k.check(t.Context()))
	for what, spoil := range map[string]func(*corev1.Secret){
		"no data":                    func(s *corev1.Secret) { s.Data = nil },
		"another's key":              func(s *corev1.Secret) { s.Data[corev1.TLSPrivateKeyKey] = []byte("key") },
		"no authorities":             func(s *corev1.Secret) { delete(s.Data, bundleKey) },
		"authorities that are not":   func(s *corev1.Secret) { s.Data[bundleKey] = []byte("x") },
		"a certificate of long ago":  func(s *corev1.Secret) { replaceWith(s, []string{name}, -time.Minute) },
		"a certificate of other use": func(s *corev1.Secret) { replaceWith(s, []string{"other.svc"}, time.Hour) },
	} {
		secret := w.secret(t)
		spoil(secret)
		expect.Must(t, w.Update(t.Context(), secret))
		expect.Must(t, k.check(t.Context()))
		if err := w.connect(t, k); err != nil {
			t.Errorf("a Secret with %s: connect after a check: %v", what, err)
		}
	}
}

func replaceWith(s *corev1.Secret, names []string, lifetime time.Duration) {
	p, err := create(names, lifetime)
	if err != nil {
		panic(err)
	}
	s.Data = map[string][]byte{corev1.TLSCertKey: p.certificate, corev1.TLSPrivateKeyKey: p.key, bundleKey: p.bundle}
}

// Helm, a GitOps tool or a person may take the authorities out of the configuration.
func TestAuthoritiesThatAreRemovedAreWrittenAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	k := w.keeper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- k.Start(ctx) }()
	trusted := func() bool { return len(w.bundle(t)) > 0 }
	expect.Eventually(t, "the authorities are in the configuration", trusted)
	var configuration admissionregistrationv1.MutatingWebhookConfiguration
	expect.Must(t, w.Get(t.Context(), client.ObjectKey{Name: "steer"}, &configuration))
	for i := range configuration.Webhooks {
		configuration.Webhooks[i].ClientConfig.CABundle = nil
	}
	expect.Eventually(t, "the keeper waits", w.clock.HasWaiters)
	expect.Must(t, w.Update(t.Context(), &configuration))
	w.clock.Step(checkInterval)
	expect.Eventually(t, "the authorities are written again", trusted)
	cancel()
	expect.Must(t, <-ended)
}

// The loser of a race keeps nothing of its own certificate, and serves the winner's after its next
// check.
func TestARaceHasOneWinner(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first, second := w.keeper(), w.keeper()
	stale := w.secret(t)
	expect.Must(t, first.check(t.Context()))
	if _, _, err := second.replace(t.Context(), stale, pair{}, w.clock.Now()); !apierrors.IsConflict(err) {
		t.Errorf("got %v from the second write, want a conflict", err)
	}
	expect.Must(t, second.check(t.Context()))
	for _, k := range []*Keeper{first, second} {
		if err := w.connect(t, k); err != nil {
			t.Errorf("connect: %v", err)
		}
	}
}

func TestAFailureIsTriedAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	secret := w.secret(t)
	expect.Must(t, w.Delete(t.Context(), secret))
	k := w.keeper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- k.Start(ctx) }()
	expect.Eventually(t, "the keeper waits after a failure", w.clock.HasWaiters)
	secret.ResourceVersion = ""
	expect.Must(t, w.Create(t.Context(), secret))
	w.clock.Step(retryInterval)
	expect.Eventually(t, "there is a certificate", func() bool { _, err := k.GetCertificate(nil); return err == nil })
	cancel()
	expect.Must(t, <-ended)
}
