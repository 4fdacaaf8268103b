package credential_test

import (
	"maps"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	testclock "k8s.io/utils/clock/testing"

	"github.com/azuredisk-csi/azuredisk/internal/azuresim/auth"
	"github.com/azuredisk-csi/azuredisk/provisioner/azure/credential"
)

func TestABadChangeIsRefusedAndTheOldCredentialGoesOn(t *testing.T) {
	s := startSecure(t)
	s.register(t, "driver", auth.Application{Secrets: []string{"good"}})
	file := func(more map[string]any) map[string][]byte {
		fields := map[string]any{"aadClientId": "driver", "aadClientSecret": "good"}
		maps.Copy(fields, more)
		return map[string][]byte{"azure.json": s.azureJSON(t, fields)}
	}
	volume := newMounted(t, file(nil))
	registry, now := prometheus.NewRegistry(), testclock.NewFakeClock(time.Now())
	credentials, azureCloud := s.follow(t, credential.Options{
		Source:  credential.FileSource(volume.path("azure.json"), nil),
		Clock:   now,
		Metrics: registry,
	})
	var changes changeLog
	credentials.OnChange(changes.add)
	disk, err := makeDisk(t.Context(), azureCloud, "steady")
	if err != nil {
		t.Fatal(err)
	}
	for name, bad := range map[string]struct {
		files    map[string][]byte
		reported string
	}{
		"half a file":                 {map[string][]byte{"azure.json": []byte(`{"tenantId": `)}, "parse"},
		"an empty file":               {map[string][]byte{"azure.json": nil}, "empty"},
		"no file":                     {map[string][]byte{"other": []byte("x")}, "no such file"},
		"no identity":                 {file(map[string]any{"aadClientSecret": ""}), "no identity"},
		"a secret that Azure refuses": {file(map[string]any{"aadClientSecret": "mistyped"}), "AADSTS7000215"},
		"a client that is not known":  {file(map[string]any{"aadClientId": "unknown"}), "AADSTS700016"},
		"a certificate that is not": {file(map[string]any{
			"aadClientSecret":   "",
			"aadClientCertPath": "/does/not/exist",
		}), "aadClientCertPath"},
		"another cloud": {file(map[string]any{
			"cloud":                   "AzurePublicCloud",
			"resourceManagerEndpoint": "",
		}), "restart the controller"},
		"an endpoint that is none": {file(map[string]any{"resourceManagerEndpoint": "ftp://x"}), "resourceManagerEndpoint"},
	} {
		t.Run(name, func(t *testing.T) {
			before := len(changes.all())
			volume.swap(t, bad.files)
			for range 3 {
				now.Step(time.Minute)
				credentials.Check(t.Context())
			}
			reported := changes.all()[before:]
			if len(reported) != 1 || !reported[0].Refused || !strings.Contains(reported[0].Message, bad.reported) {
				t.Errorf("got %+v, want one refusal that says %q", reported, bad.reported)
			}
			if strings.Contains(reported[0].Message, "mistyped") {
				t.Errorf("got %s, want the secret hidden", reported[0].Message)
			}
			if got := gauge(t, registry, "azuredisk_azure_credential_refused"); got != 1 {
				t.Errorf("azuredisk_azure_credential_refused: got %v, want 1", got)
			}
			if _, err := azureCloud.Disks().Get(t.Context(), disk); err != nil {
				t.Errorf("get a disk with the old credential: %v", err)
			}
			volume.swap(t, file(nil))
			credentials.Check(t.Context())
			if got := gauge(t, registry, "azuredisk_azure_credential_refused"); got != 0 {
				t.Errorf("azuredisk_azure_credential_refused after the fault: got %v, want 0", got)
			}
		})
	}
	if n, err := testutil.GatherAndCount(registry, "azuredisk_azure_certificate_expiry_timestamp_seconds"); err != nil || n != 0 {
		t.Errorf("got %d series of the expiry of a certificate, %v, want none for a secret", n, err)
	}
}

func TestACredentialThatAzureDoesNotKnowYetIsTriedAgain(t *testing.T) {
	s := startSecure(t)
	s.register(t, "driver", auth.Application{Secrets: []string{"old"}})
	file := func(secret string) map[string][]byte {
		return map[string][]byte{"azure.json": s.azureJSON(t, map[string]any{"aadClientId": "driver", "aadClientSecret": secret})}
	}
	volume, now := newMounted(t, file("old")), testclock.NewFakeClock(time.Now())
	credentials, _ := s.follow(t, credential.Options{Source: credential.FileSource(volume.path("azure.json"), nil), Clock: now})
	var changes changeLog
	credentials.OnChange(changes.add)
	volume.swap(t, file("new"))
	credentials.Check(t.Context())
	s.register(t, "driver", auth.Application{Secrets: []string{"old", "new"}})
	credentials.Check(t.Context())
	if reported := changes.all(); len(reported) != 1 || !reported[0].Refused {
		t.Fatalf("at once: got %+v, want one refusal", reported)
	}
	now.Step(time.Minute)
	credentials.Check(t.Context())
	if reported := changes.all(); len(reported) != 2 || reported[1].Refused {
		t.Errorf("after a minute: got %+v, want it taken", reported)
	}
}

func TestAChangeThatNeedsARestartIsReported(t *testing.T) {
	s := startSecure(t)
	s.register(t, "driver", auth.Application{Secrets: []string{"old", "new"}})
	volume := newMounted(t, map[string][]byte{"azure.json": s.azureJSON(t, map[string]any{
		"aadClientId":     "driver",
		"aadClientSecret": "old",
	})})
	credentials, _ := s.follow(t, credential.Options{Source: credential.FileSource(volume.path("azure.json"), nil)})
	var changes changeLog
	credentials.OnChange(changes.add)
	volume.swap(t, map[string][]byte{"azure.json": s.azureJSON(t, map[string]any{
		"aadClientId": "driver", "aadClientSecret": "new", "subscriptionId": "another", "location": "westus",
	})})
	credentials.Check(t.Context())
	reported := changes.all()
	if len(reported) != 1 || reported[0].Refused ||
		!strings.Contains(reported[0].Message, "the change of subscriptionId, location takes effect with the next start") {
		t.Errorf("got %+v, want a change that names subscriptionId and location", reported)
	}
	if got := credentials.Config(); got.SubscriptionID != subscription || got.Location != "eastus" {
		t.Errorf("the configuration in use: got %+v, want that of the start", got)
	}
}

func TestAChangedCABundleIsUsed(t *testing.T) {
	s := startSecure(t)
	s.register(t, "driver", auth.Application{Secrets: []string{"x"}})
	bundle := filepath.Join(t.TempDir(), "ca.crt")
	write(t, bundle, append(newAuthority(t, "another").pem(), s.caPEM...))
	s.ca = bundle
	volume := newMounted(t, map[string][]byte{"azure.json": s.azureJSON(t, map[string]any{
		"aadClientId":     "driver",
		"aadClientSecret": "x",
	})})
	credentials, azureCloud := s.follow(t, credential.Options{Source: credential.FileSource(volume.path("azure.json"), nil)})
	var changes changeLog
	credentials.OnChange(changes.add)
	disk, err := makeDisk(t.Context(), azureCloud, "under-two-authorities")
	if err != nil {
		t.Fatal(err)
	}
	write(t, bundle, newAuthority(t, "a third").pem())
	credentials.Check(t.Context())
	if reported := changes.all(); len(reported) != 1 || !reported[0].Refused {
		t.Fatalf("a bundle without the endpoint's authority: got %+v, want a refusal", reported)
	}
	if _, err := azureCloud.Disks().Get(t.Context(), disk); err != nil {
		t.Errorf("get a disk with the old bundle: %v", err)
	}
	write(t, bundle, s.caPEM)
	credentials.Check(t.Context())
	if reported := changes.all(); len(reported) != 2 || reported[1].Refused {
		t.Errorf("a bundle with the authority: got %+v, want it taken", reported)
	}
	if _, err := azureCloud.Disks().Get(t.Context(), disk); err != nil {
		t.Errorf("with the new bundle: %v", err)
	}
}

func gauge(t *testing.T, registry *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := registry.Gather()
	must(t, err)
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}

func TestTheCertificatesExpiryIsAMetric(t *testing.T) {
	signer := newSigner(t)
	volume := newMounted(t, nil)
	volume.swap(t, map[string][]byte{
		"azure.json": []byte(`{` + base + `, "aadClientId": "c", "aadClientCertPath": "` + volume.path("client.pem") + `"}`),
		"client.pem": append(signer.keyPEM(t), signer.pem()...),
	})
	registry := prometheus.NewRegistry()
	if _, err := credential.Open(t.Context(), credential.Options{
		Source:  credential.FileSource(volume.path("azure.json"), nil),
		Metrics: registry,
	}); err != nil {
		t.Fatal(err)
	}
	if got := gauge(t, registry, "azuredisk_azure_certificate_expiry_timestamp_seconds"); got != float64(
		signer.certificate.NotAfter.Unix()) {
		t.Errorf("%v, want %v", got, signer.certificate.NotAfter.Unix())
	}
	if n, err := testutil.GatherAndCount(registry, "azuredisk_azure_credential_reloads_total"); err != nil || n != 1 {
		t.Errorf("%d, %v", n, err)
	}
}
