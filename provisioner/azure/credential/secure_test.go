package credential_test

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/azuredisk-csi/azuredisk/azuresim/simtest"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/auth"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/server"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/expect"
	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/azure"
	"github.com/azuredisk-csi/azuredisk/provisioner/azure/credential"
)

const (
	subscription = "00000000-0000-0000-0000-000000000001"
	group        = "default"
)

// secureSimulator is azuresim as Azure is reached: over HTTPS, with a certificate of an authority
// of the test's own, under a name that no library knows, and with tokens for the applications of
// its directory alone.
type secureSimulator struct {
	simtest.Simulator
	ca     string // path of the authority's certificate
	caPEM  []byte
	states string // the simulator's own directory
}

// startSecure runs azuresim. Tokens last for as short as they can, so that a credential is used all
// the time.
func startSecure(t *testing.T) *secureSimulator {
	t.Helper()
	dir := t.TempDir()
	s := &secureSimulator{ca: filepath.Join(dir, "ca.crt"), states: filepath.Join(dir, "state")}
	authority := newAuthority(t, "azuresim test authority")
	s.caPEM = authority.pem()
	write(t, s.ca, s.caPEM)
	certificate := authority.issue(t, "azuresim")
	cert, key := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	write(t, cert, certificate.pem())
	write(t, key, certificate.keyPEM(t))
	s.Simulator = simtest.Start(t, func(o *server.Options) {
		o.StateDir, o.Auth, o.TokenLifetime = s.states, "on", time.Second
		o.TLSCert, o.TLSKey = cert, key
	})
	// While the directory is empty, every client gets tokens.
	s.register(t, "registered", auth.Application{Secrets: []string{"something"}})
	return s
}

func (s *secureSimulator) call(t *testing.T, method, path string, in, out any) {
	t.Helper()
	if status := s.Admin(t, method, path, in, out); status >= 300 {
		t.Fatalf("%s %s: got %d", method, path, status)
	}
}

// register says with what a client may ask for tokens, from now on.
func (s *secureSimulator) register(t *testing.T, client string, app auth.Application) {
	t.Helper()
	s.call(t, "PUT", "/admin/applications/"+client, app, nil)
}

// azureJSON is a configuration for the simulator, with what else it shall say.
func (s *secureSimulator) azureJSON(t *testing.T, more map[string]any) []byte {
	t.Helper()
	fields := map[string]any{
		"cloud": "AzureSim", "resourceManagerEndpoint": s.URL, "activeDirectoryEndpoint": s.URL,
		"tenantId":       "00000000-0000-0000-0000-00000000a2d0",
		"subscriptionId": subscription, "resourceGroup": group, "location": "East US",
	}
	maps.Copy(fields, more)
	raw, err := json.Marshal(fields)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// follow opens credentials that are read often, and makes a client of Azure that signs in with
// them.
func (s *secureSimulator) follow(t *testing.T, options credential.Options) (*credential.Credentials, *azure.Cloud) {
	t.Helper()
	options.Source.CAFile = s.ca
	credentials, err := credential.Open(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	cloud, err := azure.New(t.Context(), azure.Options{
		Credential:     credentials,
		Transport:      credentials,
		Cloud:          credentials.Cloud(),
		SubscriptionID: subscription,
		UserAgent:      "azuredisk",
	})
	if err != nil {
		t.Fatal(err)
	}
	credentials.OnChange(func(change credential.Change) {
		if !change.Refused {
			cloud.Renew()
		}
	})
	return credentials, cloud
}

func makeDisk(ctx context.Context, cloud *azure.Cloud, name string) (id string, err error) {
	id = fmt.Sprintf("/subscriptions/%s/resourceGroups/%s/providers/Microsoft.Compute/disks/%s", subscription, group, name)
	op, err := cloud.Disks().Create(ctx, provisioner.DiskSpec{
		ID:           id,
		Location:     "eastus",
		SizeBytes:    4 << 30,
		MaxShares:    1,
		DiskSettings: provisioner.DiskSettings{SKUName: "Premium_LRS"},
	})
	if err != nil {
		return id, err
	}
	return id, op.Wait(ctx)
}

// mounted is a volume of a Secret as the kubelet makes it: the files are links into a directory
// that is swapped as a whole.
type mounted struct {
	dir    string
	serial int
}

func newMounted(t *testing.T, files map[string][]byte) *mounted {
	t.Helper()
	m := &mounted{dir: t.TempDir()}
	m.swap(t, files)
	return m
}

func (m *mounted) path(name string) string { return filepath.Join(m.dir, name) }

func (m *mounted) read(t *testing.T, name string) []byte {
	t.Helper()
	raw, err := os.ReadFile(m.path(name))
	must(t, err)
	return raw
}

// swap puts other files in the place of those that are there.
func (m *mounted) swap(t *testing.T, files map[string][]byte) {
	t.Helper()
	m.serial++
	data := fmt.Sprintf("..%d", m.serial)
	must(t, os.Mkdir(m.path(data), 0o755))
	for name, content := range files {
		write(t, filepath.Join(m.dir, data, name), content)
		if _, err := os.Lstat(m.path(name)); err != nil {
			must(t, os.Symlink(filepath.Join("..data", name), m.path(name)))
		}
	}
	must(t, os.Symlink(data, m.path("..data_tmp")))
	must(t, os.Rename(m.path("..data_tmp"), m.path("..data")))
	if m.serial > 1 {
		must(t, os.RemoveAll(m.path(fmt.Sprintf("..%d", m.serial-1))))
	}
}

func write(t *testing.T, path string, content []byte) {
	t.Helper()
	must(t, os.WriteFile(path, content, 0o600))
}

var must, eventually = expect.Must, expect.Eventually

// pair is a certificate and its key.
type pair struct {
	certificate *x509.Certificate
	key         crypto.Signer
}

func newAuthority(t *testing.T, name string) pair {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	return newPair(t, key, &x509.Certificate{
		Subject:               pkix.Name{CommonName: name},
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign,
	}, nil)
}

// issue makes a server's certificate.
func (p pair) issue(t *testing.T, name string) pair {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	return newPair(t, key, &x509.Certificate{
		Subject:     pkix.Name{CommonName: name},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, &p)
}

// newPair makes a certificate for the key, signed by the parent, or by itself.
func newPair(t *testing.T, key crypto.Signer, template *x509.Certificate, parent *pair) pair {
	t.Helper()
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	must(t, err)
	template.SerialNumber, template.NotBefore, template.NotAfter = serial, time.Now().Add(-time.Hour), time.Now().Add(
		24*time.Hour)
	signer, above := key, template
	if parent != nil {
		signer, above = parent.key, parent.certificate
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, above, key.Public(), signer)
	must(t, err)
	certificate, err := x509.ParseCertificate(raw)
	must(t, err)
	return pair{certificate: certificate, key: key}
}

func (p pair) pem() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.certificate.Raw})
}

func (p pair) keyPEM(t *testing.T) []byte {
	t.Helper()
	raw, err := x509.MarshalPKCS8PrivateKey(p.key)
	must(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw})
}
