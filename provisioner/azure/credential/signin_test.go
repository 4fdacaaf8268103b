package credential_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http/httptest"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"k8s.io/utils/clock"
	pkcs12 "software.sslmate.com/src/go-pkcs12"

	"github.com/azuredisk-csi/azuredisk/internal/azuresim/auth"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/imds"
	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/azure"
	"github.com/azuredisk-csi/azuredisk/provisioner/azure/credential"
)

// identity is a way of signing in, and how it is changed.
type identity struct {
	files  map[string][]byte // of the mounted Secret; azure.json is among them
	next   map[string][]byte // the same, later; nil where the files stay
	grant  func()            // makes what comes next good, besides what was before
	change func()            // what changes besides the files; nil for nothing
	revoke func()            // makes what was before good no longer
	dial   credential.Dialer
	client string // whose tokens the calls have in the end
}

// ways are all the ways of signing in. Each tells where its files will be.
var ways = map[string]func(t *testing.T, s *secureSimulator, dir string) identity{
	"a client secret":                              withSecret,
	"a certificate (PEM)":                          withPEM,
	"a certificate (PKCS #12 of old, password)":    withPFX(pkcs12.LegacyDES),
	"a certificate (PKCS #12 of today, password)":  withPFX(pkcs12.Modern2023),
	"workload identity":                            withWorkload,
	"a user-assigned managed identity, to another": withManaged(false),
	"the system-assigned identity, to another":     withManaged(true),
	"a managed identity of the data plane":         withDataPlane,
}

func withSecret(t *testing.T, s *secureSimulator, _ string) identity {
	file := func(secret string) map[string][]byte {
		return map[string][]byte{"azure.json": s.azureJSON(t, map[string]any{
			"aadClientId":     "by-secret",
			"aadClientSecret": secret,
		})}
	}
	s.register(t, "by-secret", auth.Application{Secrets: []string{"old"}})
	return identity{
		files:  file("old"),
		next:   file("new"),
		client: "by-secret",
		grant:  func() { s.register(t, "by-secret", auth.Application{Secrets: []string{"old", "new"}}) },
		revoke: func() { s.register(t, "by-secret", auth.Application{Secrets: []string{"new"}}) },
	}
}

// newSigner is a certificate for signing in, of RSA as Entra ID wants it.
func newSigner(t *testing.T) pair {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	must(t, err)
	return newPair(t, key, &x509.Certificate{
		Subject:  pkix.Name{CommonName: "driver"},
		KeyUsage: x509.KeyUsageDigitalSignature,
	}, nil)
}

func withCertificate(t *testing.T, s *secureSimulator, client string, files func(pair) map[string][]byte) identity {
	old, later := newSigner(t), newSigner(t)
	register := func(certificates ...pair) {
		app := auth.Application{}
		for _, c := range certificates {
			app.Certificates = append(app.Certificates, string(c.pem()))
		}
		s.register(t, client, app)
	}
	register(old)
	return identity{
		files:  files(old),
		next:   files(later),
		client: client,
		grant:  func() { register(old, later) },
		revoke: func() { register(later) },
	}
}

func withPEM(t *testing.T, s *secureSimulator, dir string) identity {
	return withCertificate(t, s, "by-pem", func(p pair) map[string][]byte {
		return map[string][]byte{
			"azure.json": s.azureJSON(t, map[string]any{
				"aadClientId":       "by-pem",
				"aadClientCertPath": filepath.Join(dir, "client.pem"),
			}),
			"client.pem": append(p.keyPEM(t), p.pem()...),
		}
	})
}

func withPFX(encoder *pkcs12.Encoder) func(t *testing.T, s *secureSimulator, dir string) identity {
	return func(t *testing.T, s *secureSimulator, dir string) identity {
		client := fmt.Sprintf("by-pfx-%p", encoder)
		return withCertificate(t, s, client, func(p pair) map[string][]byte {
			pfx, err := encoder.Encode(p.key, p.certificate, nil, "open sesame")
			must(t, err)
			return map[string][]byte{
				"azure.json": s.azureJSON(t, map[string]any{
					"aadClientId": client, "aadClientCertPath": filepath.Join(dir, "client.pfx"),
					"aadClientCertPassword": "open sesame",
				}),
				"client.pfx": pfx,
			}
		})
	}
}

func withDataPlane(t *testing.T, s *secureSimulator, dir string) identity {
	return withCertificate(t, s, "by-data-plane", func(p pair) map[string][]byte {
		handed, err := json.Marshal(map[string]string{
			"client_id": "by-data-plane", "tenant_id": "t", "authentication_endpoint": s.URL + "/",
			"client_secret": base64.StdEncoding.EncodeToString(append(p.keyPEM(t), p.pem()...)),
		})
		must(t, err)
		return map[string][]byte{
			"azure.json":    s.azureJSON(t, map[string]any{"aadMSIDataPlaneIdentityPath": filepath.Join(dir, "identity.json")}),
			"identity.json": handed,
		}
	})
}

// withWorkload signs in with a token of a service account, whose issuer changes its key.
func withWorkload(t *testing.T, s *secureSimulator, _ string) identity {
	const issuer, subject = "https://issuer.example", "system:serviceaccount:azure-disk-csi:controller"
	token := func(id string) ([]byte, auth.Key) {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		must(t, err)
		statement := jwt.NewWithClaims(jwt.SigningMethodES256, jwt.MapClaims{
			"iss": issuer,
			"sub": subject,
			"aud": []string{auth.DefaultAudience},
			"exp": time.Now().Add(time.Hour).Unix(),
		})
		statement.Header["kid"] = id
		signed, err := statement.SignedString(key)
		must(t, err)
		public, err := auth.NewKey(id, key.Public())
		must(t, err)
		return []byte(signed + "\n"), public
	}
	oldToken, oldKey := token("old")
	newToken, newKey := token("new")
	register := func(keys ...auth.Key) {
		s.register(t, "by-workload", auth.Application{Federated: []auth.FederatedCredential{{
			Issuer:  issuer,
			Subject: subject,
			Keys:    auth.KeySet{Keys: keys},
		}}})
	}
	register(oldKey)
	projected := newMounted(t, map[string][]byte{"token": oldToken})
	return identity{
		files: map[string][]byte{"azure.json": s.azureJSON(t, map[string]any{
			"useFederatedWorkloadIdentityExtension": true, "aadClientId": "by-workload",
			"aadFederatedTokenFile": projected.path("token"),
		})},
		client: "by-workload",
		grant:  func() { register(oldKey, newKey) },
		revoke: func() { register(newKey) },
		change: func() { projected.swap(t, map[string][]byte{"token": newToken}) },
	}
}

// machine is a VM whose identities can change.
type machine struct {
	mu         sync.Mutex
	identities []imds.Identity
}

// Instance implements imds.Source.
func (m *machine) Instance(context.Context) (imds.Instance, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return imds.Instance{ResourceID: "/subscriptions/s/vm", Identities: m.identities}, nil
}

func (m *machine) set(identities ...imds.Identity) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.identities = identities
}

// withManaged signs in with an identity of the VM, which has three.
func withManaged(system bool) func(t *testing.T, s *secureSimulator, dir string) identity {
	return func(t *testing.T, s *secureSimulator, _ string) identity {
		key, err := auth.LoadKey(filepath.Join(s.states, "token.key"))
		must(t, err)
		signer, err := imds.NewSigner(key, clock.RealClock{})
		must(t, err)
		signer.Life = time.Second
		// Azure's library remembers tokens for the whole process
		name := func(text string) string { return fmt.Sprintf("%s-%t", text, system) }
		first := imds.Identity{
			ClientID:   name("first"),
			ObjectID:   "o-1",
			ResourceID: "/subscriptions/s/first",
			TenantID:   "t",
		}
		second := imds.Identity{
			ClientID:   name("second"),
			ObjectID:   "o-2",
			ResourceID: "/subscriptions/s/" + name("second"),
			TenantID:   "t",
		}
		third := imds.Identity{
			ClientID: name("third"),
			ObjectID: "o-3",
			TenantID: "t",
		}
		if !system {
			third.ResourceID = "/subscriptions/s/third"
		}
		vm := &machine{}
		vm.set(first, second, third)
		service := httptest.NewServer((&imds.Server{Source: vm, Signer: signer}).Handler())
		t.Cleanup(service.Close)
		file := func(id string) map[string][]byte {
			return map[string][]byte{"azure.json": s.azureJSON(t, map[string]any{
				"useManagedIdentityExtension": true, "userAssignedIdentityID": id, "aadClientId": "msi", "aadClientSecret": "msi",
			})}
		}
		before, old := first.ClientID, first
		if system {
			before, old = "", third
		}
		return identity{
			files:  file(before),
			next:   file(second.ResourceID),
			client: second.ClientID,
			grant:  func() {},
			revoke: func() {
				left := []imds.Identity{second}
				for _, id := range []imds.Identity{first, third} {
					if id != old {
						left = append(left, id)
					}
				}
				vm.set(left...)
			},
			dial: func(ctx context.Context, network, address string) (net.Conn, error) {
				if address == "169.254.169.254:80" {
					address = service.Listener.Addr().String()
				}
				return (&net.Dialer{}).DialContext(ctx, network, address)
			},
		}
	}
}

// caller calls Azure all the time.
type caller struct {
	mu     sync.Mutex
	calls  int
	faults []error
}

func (c *caller) run(ctx context.Context, cloud *azure.Cloud, disk string) {
	pace := time.NewTicker(20 * time.Millisecond)
	defer pace.Stop()
	for {
		_, err := cloud.Disks().Get(ctx, disk)
		if ctx.Err() != nil {
			return
		}
		c.mu.Lock()
		c.calls++
		if err != nil {
			c.faults = append(c.faults, err)
		}
		c.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-pace.C:
		}
	}
}

func (c *caller) seen() (calls int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.calls, errors.Join(c.faults...)
}

func TestEachIdentityAndItsChangeWhileCallsGoOn(t *testing.T) {
	s := startSecure(t)
	t.Run("ways", func(t *testing.T) {
		for name, way := range ways {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				signInAndChange(t, s, way)
			})
		}
	})
}

func signInAndChange(t *testing.T, s *secureSimulator, way func(*testing.T, *secureSimulator, string) identity) {
	volume := &mounted{dir: t.TempDir()}
	id := way(t, s, volume.dir)
	volume.swap(t, id.files)
	options := credential.Options{
		Source:   credential.FileSource(volume.path("azure.json"), nil),
		Interval: 50 * time.Millisecond,
		Dial:     id.dial,
	}
	credentials, cloud := s.follow(t, options)
	var changes changeLog
	credentials.OnChange(changes.add)
	ctx, cancel := context.WithCancel(t.Context())
	var work sync.WaitGroup
	defer work.Wait()
	defer cancel()
	work.Go(func() { _ = credentials.Start(ctx) })

	disk, err := makeDisk(ctx, cloud, "signin-"+rand.Text())
	if err != nil {
		t.Fatalf("the first call: %v", err)
	}
	calls := &caller{}
	work.Go(func() { calls.run(ctx, cloud, disk) })
	// Tokens last a second, so that a new one was got when that has passed.
	pass := func() {
		t.Helper()
		seen, _ := calls.seen()
		began := time.Now()
		eventually(t, "calls go on", func() bool {
			n, _ := calls.seen()
			return n > seen+20 &&
				time.Since(began) > 1500*time.Millisecond
		})
	}
	eventually(t, "calls are made", func() bool { n, _ := calls.seen(); return n > 0 })
	id.grant()
	if id.next != nil {
		volume.swap(t, id.next)
		eventually(t, "the change is taken", func() bool { return len(changes.all()) == 1 })
		if got := changes.all()[0]; got.Refused {
			t.Fatalf("refused: %s", got.Message)
		}
	}
	if id.change != nil {
		id.change()
		pass()
	}
	id.revoke()
	pass()
	n, err := calls.seen()
	if err != nil {
		t.Errorf("of %d calls some failed: %v", n, err)
	}
	t.Logf("%d calls, none failed", n)
	var log struct{ Records []struct{ Client string } }
	s.call(t, "GET", "/admin/requests?api=Disks.Get&name="+filepath.Base(disk), nil, &log)
	if last := log.Records[len(log.Records)-1].Client; last != id.client {
		t.Errorf("the last call was made as %q, want %q", last, id.client)
	}
	if id.next != nil {
		old := newMounted(t, id.files)
		s.refusesTheOldCredential(t, options, old, volume)
	}
}

// refusesTheOldCredential shows that the change took place: the old credential gets no token.
func (s *secureSimulator) refusesTheOldCredential(t *testing.T, options credential.Options, old, volume *mounted) {
	t.Helper()
	text := old.read(t, "azure.json")
	options.Source = credential.Source{Read: func(context.Context) ([]byte, error) {
		return bytes.ReplaceAll(text, []byte(volume.dir), []byte(old.dir)), nil
	}}
	_, cloud := s.follow(t, options)
	_, err := makeDisk(t.Context(), cloud, "never")
	if !errors.Is(err, provisioner.Unauthorized) {
		t.Errorf("with the old credential: %v, want Unauthorized", err)
	}
}

// changeLog keeps what became of changes.
type changeLog struct {
	mu   sync.Mutex
	list []credential.Change
}

func (l *changeLog) add(c credential.Change) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = append(l.list, c)
}

func (l *changeLog) all() []credential.Change {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]credential.Change(nil), l.list...)
}
