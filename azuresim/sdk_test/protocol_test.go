package sdk_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7"

	"github.com/azuredisk-csi/azuredisk/azuresim/server"
)

func TestOperationGoesOnFromAResumeToken(t *testing.T) {
	s := start(t)
	s.disk("a")
	s.vm("node", "Standard_D4s_v5")
	s.hold("vm.disks", "node")
	p, err := s.begin("node", attachments("a"))
	if err != nil {
		t.Fatal(err)
	}
	token, err := p.ResumeToken()
	if err != nil {
		t.Fatal(err)
	}
	resumed, err := s.vms.BeginAttachDetachDataDisks(t.Context(), "", "", armcompute.AttachDetachDataDisksRequest{},
		&armcompute.VirtualMachinesClientBeginAttachDetachDataDisksOptions{ResumeToken: token})
	if got := finish(t, resumed, err).DataDisks; len(got) != 1 {
		t.Errorf("got %+v, want len(got) = %v", got, 1)
	}
}

func (s *simulator) raw(method, path, body string) *http.Response {
	s.t.Helper()
	req, err := http.NewRequest(method, s.url+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { resp.Body.Close() })
	return resp
}

func TestOperationHeadersAndDocuments(t *testing.T) {
	s := start(t)
	s.disk("a")
	s.vm("node", "Standard_D4s_v5")
	s.hold("vm.disks", "node")
	vm := "/subscriptions/" + subscription + "/resourceGroups/" + group + "/providers/Microsoft.Compute/virtualMachines/node"
	resp := s.raw("POST", vm+"/attachDetachDataDisks?api-version=2025-04-01", `{"dataDisksToAttach":[{"diskId":"`+diskID("a")+`"}]}`)
	status, location := resp.Header.Get("Azure-AsyncOperation"), resp.Header.Get("Location")
	if resp.StatusCode != 202 || !strings.Contains(status, "/providers/Microsoft.Compute/locations/eastus/operations/") || !strings.Contains(location, "monitor=true") {
		t.Fatalf("%d, %v", resp.StatusCode, resp.Header)
	}
	get := func(url string) (int, map[string]any) {
		r := s.raw("GET", strings.TrimPrefix(url, s.url), "")
		raw, err := io.ReadAll(r.Body)
		if err != nil {
			t.Fatal(err)
		}
		var doc map[string]any
		if len(raw) > 0 {
			if err := json.Unmarshal(raw, &doc); err != nil {
				t.Fatal(err)
			}
		}
		return r.StatusCode, doc
	}
	if code, doc := get(status); code != 200 || doc["status"] != "InProgress" || doc["startTime"] == nil || doc["endTime"] != nil {
		t.Errorf("status while it is in flight: got %d %v", code, doc)
	}
	if code, _ := get(location); code != 202 {
		t.Errorf("location while it is in flight: got %d, want %d", code, 202)
	}
	s.eventually("the operation is done", func() bool {
		_, doc := get(status)
		return doc["status"] == "Succeeded" && doc["endTime"] != nil
	})
	if code, doc := get(location); code != 200 || len(doc["dataDisks"].([]any)) != 1 {
		t.Errorf("location after it: %d %v", code, doc)
	}

	disk := s.raw("PUT", diskID("b")+"?api-version=2025-01-02", `{"location":"East US","properties":{"creationData":{"createOption":"Empty"},"diskSizeGB":4}}`)
	if disk.StatusCode != 202 || !strings.Contains(disk.Header.Get("Location"), "/DiskOperations/") || disk.Header.Get("x-ms-request-id") == "" {
		t.Errorf("disk PUT: %d %v", disk.StatusCode, disk.Header)
	}
}

func TestRequestsAreCheckedBeforeResources(t *testing.T) {
	s := start(t)
	for name, tc := range map[string]struct {
		method, path, body string
		status             int
		code               string
	}{
		"no api-version":         {"GET", diskID("a"), "", 400, "MissingApiVersionParameter"},
		"an odd api-version":     {"GET", diskID("a") + "?api-version=latest", "", 400, "InvalidApiVersionParameter"},
		"a body that is no JSON": {"PUT", diskID("a") + "?api-version=2025-01-02", "{", 400, "InvalidRequestContent"},
		"an unknown action":      {"POST", diskID("a") + "/explode?api-version=2025-01-02", "", 404, "InvalidResourceType"},
		"an odd skip token":      {"GET", "/subscriptions/" + subscription + "/providers/Microsoft.Compute/disks?api-version=2025-01-02&$skiptoken=%21", "", 400, "InvalidSkipToken"},
		"case does not matter":   {"GET", strings.ToUpper(diskID("a")) + "?api-version=2025-01-02", "", 404, "ResourceNotFound"},
	} {
		t.Run(name, func(t *testing.T) {
			resp := s.raw(tc.method, tc.path, tc.body)
			var doc struct {
				Error struct{ Code string }
			}
			if err := json.NewDecoder(resp.Body).Decode(&doc); err != nil {
				t.Fatal(err)
			}
			if resp.StatusCode != tc.status || doc.Error.Code != tc.code {
				t.Errorf("got %d %s, want %d %s", resp.StatusCode, doc.Error.Code, tc.status, tc.code)
			}
		})
	}
}

// certificate makes a self-signed certificate for the loopback address.
func certificate(t *testing.T) (certFile, keyFile string, pool *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "azuresim"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	rawKey, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	certFile, keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	for file, raw := range map[string][]byte{certFile: certPEM, keyFile: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: rawKey})} {
		if err := os.WriteFile(file, raw, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pool = x509.NewCertPool()
	pool.AppendCertsFromPEM(certPEM)
	return certFile, keyFile, pool
}

func TestClientSecretCredentialGetsGoodTokens(t *testing.T) {
	certFile, keyFile, pool := certificate(t)
	s := start(t, func(o *server.Options) {
		o.Auth, o.TLSCert, o.TLSKey, o.Clients = "on", certFile, keyFile, []string{"driver=sesame"}
	})
	s.url = strings.Replace(s.url, "http:", "https:", 1)
	transport := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}}
	get := func(secret string) error {
		options := clientOptions(s.url)
		options.Transport = transport
		cred, err := azidentity.NewClientSecretCredential("11111111-2222-3333-4444-555555555555", "driver", secret,
			&azidentity.ClientSecretCredentialOptions{ClientOptions: options.ClientOptions, DisableInstanceDiscovery: true})
		if err != nil {
			t.Fatal(err)
		}
		disks, err := armcompute.NewDisksClient(subscription, cred, options)
		if err != nil {
			t.Fatal(err)
		}
		p, err := disks.BeginCreateOrUpdate(t.Context(), group, "a", diskParams(), nil)
		if err == nil {
			_, err = p.PollUntilDone(t.Context(), &runtime.PollUntilDoneOptions{Frequency: time.Millisecond})
		}
		return err
	}
	if err := get("sesame"); err != nil {
		t.Errorf("good secret: %v", err)
	}
	var refused *azidentity.AuthenticationFailedError
	if err := get("guess"); !errors.As(err, &refused) {
		t.Errorf("bad secret: %v", err)
	}
	options := clientOptions(s.url)
	options.Transport = transport
	disks, err := armcompute.NewDisksClient(subscription, anyToken{}, options)
	if err != nil {
		t.Fatal(err)
	}
	_, err = disks.Get(t.Context(), group, "a", nil)
	expectCode(t, responseError(t, err), 401, "InvalidAuthenticationToken")

	// A program that simulates a managed identity gets its tokens from the admin API.
	var doc struct {
		Token string `json:"access_token"`
	}
	s.adminCall("POST", "/admin/tokens", map[string]string{"client_id": "vm", "resource": "https://management.azure.com"}, &doc)
	disks, err = armcompute.NewDisksClient(subscription, fixedToken(doc.Token), options)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = disks.Get(t.Context(), group, "a", nil); err != nil {
		t.Error(err)
	}
}

type fixedToken string

func (f fixedToken) GetToken(context.Context, policy.TokenRequestOptions) (azcore.AccessToken, error) {
	return azcore.AccessToken{Token: string(f), ExpiresOn: time.Now().Add(time.Hour)}, nil
}
