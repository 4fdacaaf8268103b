package azure_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	testclock "k8s.io/utils/clock/testing"

	"github.com/azuredisk-csi/azuredisk/azuresim/auth"
	"github.com/azuredisk-csi/azuredisk/provisioner/azure"
)

func TestABadChangeIsRefusedAndTheOldCredentialGoesOn(t *testing.T) {
	s := startSecure(t)
	s.register(t, "driver", auth.Application{Secrets: []string{"good"}})
	file := func(more map[string]any) map[string][]byte {
		fields := map[string]any{"aadClientId": "driver", "aadClientSecret": "good"}
		for k, v := range more {
			fields[k] = v
		}
		return map[string][]byte{"azure.json": s.azureJSON(t, fields)}
	}
	volume := newMounted(t, file(nil))
	registry, now := prometheus.NewRegistry(), testclock.NewFakeClock(time.Now())
	credentials, azureCloud := s.follow(t, azure.CredentialsOptions{Source: azure.FileSource(volume.path("azure.json"), nil), Clock: now, Metrics: registry})
	var changes changeLog
	credentials.OnChange(changes.add)
	disk, err := makeDisk(t.Context(), azureCloud, "steady")
	if err != nil {
		t.Fatal(err)
	}
	for name, bad := range map[string]struct {
		files map[string][]byte
		told  string
	}{
		"half a file":                   {map[string][]byte{"azure.json": []byte(`{"tenantId": `)}, "parse"},
		"an empty file":                 {map[string][]byte{"azure.json": nil}, "empty"},
		"no file":                       {map[string][]byte{"other": []byte("x")}, "no such file"},
		"no identity":                   {file(map[string]any{"aadClientSecret": ""}), "no identity"},
		"a secret that Azure refuses":   {file(map[string]any{"aadClientSecret": "mistyped"}), "AADSTS7000215"},
		"a client that is not known":    {file(map[string]any{"aadClientId": "nobody"}), "AADSTS700016"},
		"a certificate that is not":     {file(map[string]any{"aadClientSecret": "", "aadClientCertPath": "/does/not/exist"}), "aadClientCertPath"},
		"another cloud":                 {file(map[string]any{"cloud": "AzurePublicCloud", "resourceManagerEndpoint": ""}), "takes a restart"},
		"an endpoint that is none":      {file(map[string]any{"resourceManagerEndpoint": "ftp://x"}), "resourceManagerEndpoint"},
		"an endpoint that is not there": {file(map[string]any{"resourceManagerEndpoint": "https://127.0.0.1:1"}), "ask https://127.0.0.1:1 for its endpoints"},
	} {
		t.Run(name, func(t *testing.T) {
			before := len(changes.all())
			volume.swap(t, bad.files)
			for range 3 {
				now.Step(time.Minute)
				credentials.Check(t.Context())
			}
			told := changes.all()[before:]
			if len(told) != 1 || !told[0].Refused || !strings.Contains(told[0].Message, bad.told) {
				t.Errorf("told %+v, want one refusal that says %q", told, bad.told)
			}
			if strings.Contains(told[0].Message, "mistyped") {
				t.Errorf("the secret is told: %s", told[0].Message)
			}
			if got := gauge(t, registry, "azuredisk_azure_credential_refused"); got != 1 {
				t.Errorf("the metric says %v", got)
			}
			if _, err := azureCloud.Disks().Get(t.Context(), disk); err != nil {
				t.Errorf("the old credential does not go on: %v", err)
			}
			volume.swap(t, file(nil))
			credentials.Check(t.Context())
			if got := gauge(t, registry, "azuredisk_azure_credential_refused"); got != 0 {
				t.Errorf("the fault is over, and the metric says %v", got)
			}
		})
	}
}

func TestACredentialThatAzureDoesNotKnowYetIsTriedAgain(t *testing.T) {
	s := startSecure(t)
	s.register(t, "driver", auth.Application{Secrets: []string{"old"}})
	file := func(secret string) map[string][]byte {
		return map[string][]byte{"azure.json": s.azureJSON(t, map[string]any{"aadClientId": "driver", "aadClientSecret": secret})}
	}
	volume, now := newMounted(t, file("old")), testclock.NewFakeClock(time.Now())
	credentials, _ := s.follow(t, azure.CredentialsOptions{Source: azure.FileSource(volume.path("azure.json"), nil), Clock: now})
	var changes changeLog
	credentials.OnChange(changes.add)
	volume.swap(t, file("new"))
	credentials.Check(t.Context())
	s.register(t, "driver", auth.Application{Secrets: []string{"old", "new"}})
	credentials.Check(t.Context())
	if told := changes.all(); len(told) != 1 || !told[0].Refused {
		t.Fatalf("within a moment: %+v, want the one refusal", told)
	}
	now.Step(time.Minute)
	credentials.Check(t.Context())
	if told := changes.all(); len(told) != 2 || told[1].Refused {
		t.Errorf("after a minute: %+v, want it taken up", told)
	}
}

func TestWhatTakesARestartIsTold(t *testing.T) {
	s := startSecure(t)
	s.register(t, "driver", auth.Application{Secrets: []string{"old", "new"}})
	volume := newMounted(t, map[string][]byte{"azure.json": s.azureJSON(t, map[string]any{"aadClientId": "driver", "aadClientSecret": "old"})})
	credentials, _ := s.follow(t, azure.CredentialsOptions{Source: azure.FileSource(volume.path("azure.json"), nil)})
	var changes changeLog
	credentials.OnChange(changes.add)
	volume.swap(t, map[string][]byte{"azure.json": s.azureJSON(t, map[string]any{
		"aadClientId": "driver", "aadClientSecret": "new", "subscriptionId": "another", "location": "westus",
	})})
	credentials.Check(t.Context())
	told := changes.all()
	if len(told) != 1 || told[0].Refused || !strings.Contains(told[0].Message, "the change of subscriptionId, location takes effect with the next start") {
		t.Errorf("%+v", told)
	}
	if got := credentials.Config(); got.SubscriptionID != subscription || got.Location != "eastus" {
		t.Errorf("the configuration in force changed: %+v", got)
	}
}

func TestAChangedAuthorityOfTheEndpointIsTakenUp(t *testing.T) {
	s := startSecure(t)
	s.register(t, "driver", auth.Application{Secrets: []string{"x"}})
	bundle := filepath.Join(t.TempDir(), "ca.crt")
	write(t, bundle, append(newAuthority(t, "another").pem(), s.caPEM...))
	s.ca = bundle
	volume := newMounted(t, map[string][]byte{"azure.json": s.azureJSON(t, map[string]any{"aadClientId": "driver", "aadClientSecret": "x"})})
	credentials, azureCloud := s.follow(t, azure.CredentialsOptions{Source: azure.FileSource(volume.path("azure.json"), nil)})
	var changes changeLog
	credentials.OnChange(changes.add)
	disk, err := makeDisk(t.Context(), azureCloud, "under-two-authorities")
	if err != nil {
		t.Fatal(err)
	}
	write(t, bundle, newAuthority(t, "a third").pem())
	credentials.Check(t.Context())
	if told := changes.all(); len(told) != 1 || !told[0].Refused {
		t.Fatalf("a bundle that does not fit the endpoint: %+v, want a refusal", told)
	}
	if _, err := azureCloud.Disks().Get(t.Context(), disk); err != nil {
		t.Errorf("the old bundle does not go on: %v", err)
	}
	write(t, bundle, s.caPEM)
	credentials.Check(t.Context())
	if told := changes.all(); len(told) != 2 || told[1].Refused {
		t.Errorf("a bundle that fits: %+v, want it taken up", told)
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
	if _, err := azure.OpenCredentials(t.Context(), azure.CredentialsOptions{Source: azure.FileSource(volume.path("azure.json"), nil), Metrics: registry}); err != nil {
		t.Fatal(err)
	}
	if got := gauge(t, registry, "azuredisk_azure_certificate_expiry_timestamp_seconds"); got != float64(signer.certificate.NotAfter.Unix()) {
		t.Errorf("%v, want %v", got, signer.certificate.NotAfter.Unix())
	}
	if n, err := testutil.GatherAndCount(registry, "azuredisk_azure_credential_reloads_total"); err != nil || n != 1 {
		t.Errorf("%d, %v", n, err)
	}
}

func TestTheEnvironmentAlone(t *testing.T) {
	place := map[string]string{"AZURE_SUBSCRIPTION_ID": "s", "AZURE_RESOURCE_GROUP": "g", "AZURE_LOCATION": "West Europe"}
	for name, test := range map[string]struct {
		env   map[string]string
		check func(azure.Config) bool
		fault string
	}{
		"the system-assigned identity": {env: map[string]string{}, check: func(c azure.Config) bool { return c.UseManagedIdentityExtension && c.UserAssignedIdentityID == "" }},
		"a user-assigned identity":     {env: map[string]string{"AZURE_CLIENT_ID": "me"}, check: func(c azure.Config) bool { return c.UserAssignedIdentityID == "me" }},
		"a client secret":              {env: map[string]string{"AZURE_CLIENT_ID": "me", "AZURE_TENANT_ID": "t", "AZURE_CLIENT_SECRET": "x"}, check: func(c azure.Config) bool { return c.AADClientSecret == "x" && !c.UseManagedIdentityExtension }},
		"workload identity in a Government cloud": {
			env: map[string]string{"AZURE_CLIENT_ID": "me", "AZURE_TENANT_ID": "t", "AZURE_FEDERATED_TOKEN_FILE": "/f", "AZURE_AUTHORITY_HOST": "https://login.microsoftonline.us/"},
			check: func(c azure.Config) bool {
				return endpoint(c) == "https://management.usgovcloudapi.net" && c.AADFederatedTokenFile == "/f"
			},
		},
		"a cloud by its name":           {env: map[string]string{"AZURE_ENVIRONMENT": "AzureChinaCloud"}, check: func(c azure.Config) bool { return endpoint(c) == "https://management.chinacloudapi.cn" }},
		"an endpoint of somebody's own": {env: map[string]string{"AZURE_RESOURCE_MANAGER_ENDPOINT": "https://arm.example/"}, check: func(c azure.Config) bool { return endpoint(c) == "https://arm.example" }},
		"a secret without a tenant":     {env: map[string]string{"AZURE_CLIENT_ID": "me", "AZURE_CLIENT_SECRET": "x"}, fault: "tenantId is missing"},
		"a certificate that is not":     {env: map[string]string{"AZURE_CLIENT_ID": "me", "AZURE_TENANT_ID": "t", "AZURE_CLIENT_CERTIFICATE_PATH": "/does/not/exist"}, fault: "aadClientCertPath"},
		"nowhere to make disks":         {env: map[string]string{"AZURE_SUBSCRIPTION_ID": ""}, fault: "subscriptionId is missing"},
	} {
		t.Run(name, func(t *testing.T) {
			source := azure.Source{Env: func(name string) (string, bool) {
				if v, ok := test.env[name]; ok {
					return v, true
				}
				v, ok := place[name]
				return v, ok
			}}
			credentials, err := azure.OpenCredentials(t.Context(), azure.CredentialsOptions{Source: source})
			switch {
			case test.fault == "" && err != nil:
				t.Fatal(err)
			case test.fault != "" && (err == nil || !strings.Contains(err.Error(), test.fault)):
				t.Errorf("%v, want %q", err, test.fault)
			case test.fault == "" && !test.check(credentials.Config()):
				t.Errorf("%+v", credentials.Config())
			}
		})
	}
}

func endpoint(c azure.Config) string {
	return c.CloudConfiguration().Services[cloud.ResourceManager].Endpoint
}

func TestFlagsWinOverTheFile(t *testing.T) {
	volume := newMounted(t, map[string][]byte{"azure.json": []byte(`{"subscriptionId": "s", "location": "eastus", "useManagedIdentityExtension": true}`)})
	source := azure.FileSource(volume.path("azure.json"), nil)
	source.SubscriptionID, source.ResourceGroup, source.Location = "other", "g", "West Europe"
	credentials, err := azure.OpenCredentials(t.Context(), azure.CredentialsOptions{Source: source})
	if err != nil {
		t.Fatal(err)
	}
	if c := credentials.Config(); c.SubscriptionID != "other" || c.ResourceGroup != "g" || c.Location != "westeurope" {
		t.Errorf("%+v", c)
	}
}

// What clouds say of themselves: Azure's, an Azure Stack with Entra ID and one with AD FS.
func TestAnUnknownCloudIsAskedForItsEndpoints(t *testing.T) {
	for name, test := range map[string]struct {
		answers             map[string]string // by api-version
		authority, audience string
		tenant, fault       string
	}{
		"one cloud": {
			answers:   map[string]string{"2022-09-01": `{"name":"Mars","authentication":{"loginEndpoint":"https://login.mars","audiences":["https://management.mars/","x"]}}`},
			authority: "https://login.mars", audience: "https://management.mars", tenant: "t",
		},
		"several, of which the name chooses": {
			answers:   map[string]string{"2022-09-01": `[{"name":"Venus","authentication":{"loginEndpoint":"https://login.venus","audiences":["v"]}},{"name":"mars","authentication":{"loginEndpoint":"https://login.mars/","audiences":["m"]}}]`},
			authority: "https://login.mars", audience: "m", tenant: "t",
		},
		"an Azure Stack with AD FS": {
			answers:   map[string]string{"2015-01-01": `{"authentication":{"loginEndpoint":"https://adfs.local/adfs","audiences":["https://management.adfs.local/guid"]}}`},
			authority: "https://adfs.local", audience: "https://management.adfs.local/guid", tenant: "adfs",
		},
		"several of other names":                            {answers: map[string]string{"2022-09-01": `[{"name":"a"},{"name":"b"}]`}, fault: `no cloud called "Mars"`},
		"an authority that would send secrets in the clear": {answers: map[string]string{"2022-09-01": `{"authentication":{"loginEndpoint":"http://login.mars"}}`}, fault: `loginEndpoint "http://login.mars" is not a URL of https`},
		"something else":                                    {answers: map[string]string{"2022-09-01": `<html>`}, fault: "parse the answer"},
		"nobody that answers":                               {fault: "404"},
	} {
		t.Run(name, func(t *testing.T) {
			stack := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				answer, ok := test.answers[r.URL.Query().Get("api-version")]
				if !ok || r.URL.Path != "/metadata/endpoints" {
					http.NotFound(w, r)
					return
				}
				_, _ = w.Write([]byte(answer))
			}))
			defer stack.Close()
			c, err := azure.LoadConfig([]byte(`{`+base+`, "cloud": "Mars", "aadClientId": "c", "aadClientSecret": "x", "resourceManagerEndpoint": "`+stack.URL+`"}`), nil)
			if err != nil {
				t.Fatal(err)
			}
			err = c.Discover(t.Context(), stack.Client())
			if test.fault != "" {
				if err == nil || !strings.Contains(err.Error(), test.fault) {
					t.Errorf("%v, want %q", err, test.fault)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			got := c.CloudConfiguration()
			if got.ActiveDirectoryAuthorityHost != test.authority || got.Services[cloud.ResourceManager].Audience != test.audience || c.TenantID != test.tenant {
				t.Errorf("authority %s, audience %s, tenant %s", got.ActiveDirectoryAuthorityHost, got.Services[cloud.ResourceManager].Audience, c.TenantID)
			}
			if _, err := c.Credential(); err != nil {
				t.Errorf("no credential: %v", err)
			}
		})
	}
}

func TestTheEndpointsOfAnAzureStackFromAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "stack.json")
	raw, err := json.Marshal(map[string]string{
		"name": "AzureStackCloud", "resourceManagerEndpoint": "https://management.local.stack/", "activeDirectoryEndpoint": "https://adfs.local.stack/adfs",
		"serviceManagementEndpoint": "https://management.adfs.local.stack/guid",
	})
	must(t, err)
	write(t, path, raw)
	env := func(name string) (string, bool) { return path, name == "AZURE_ENVIRONMENT_FILEPATH" }
	source := azure.Source{Env: env, Read: func(context.Context) ([]byte, error) {
		return []byte(`{` + base + `, "cloud": "AzureStackCloud", "aadClientId": "c", "aadClientSecret": "x"}`), nil
	}}
	credentials, err := azure.OpenCredentials(t.Context(), azure.CredentialsOptions{Source: source})
	if err != nil {
		t.Fatal(err)
	}
	got := credentials.Cloud()
	if manager := got.Services[cloud.ResourceManager]; manager.Endpoint != "https://management.local.stack" || manager.Audience != "https://management.adfs.local.stack/guid" ||
		got.ActiveDirectoryAuthorityHost != "https://adfs.local.stack" || credentials.Config().TenantID != "adfs" {
		t.Errorf("%+v", got)
	}
	must(t, os.Remove(path))
	if _, err := azure.OpenCredentials(t.Context(), azure.CredentialsOptions{Source: source}); err == nil || !strings.Contains(err.Error(), "AZURE_ENVIRONMENT_FILEPATH") {
		t.Errorf("without the file: %v", err)
	}
}

func TestRequestsSayWhoMakesThem(t *testing.T) {
	s := startSimulator(t)
	config := s.config(t)
	credential, err := config.Credential()
	must(t, err)
	azureCloud, err := azure.New(t.Context(), azure.Options{
		Credential: credential, Cloud: config.CloudConfiguration(), SubscriptionID: subscription,
		UserAgent: "azuredisk/v9", UserAgentPrefix: "AKS", UserAgentSuffix: "team-a",
	})
	must(t, err)
	if _, err := makeDisk(t.Context(), azureCloud, "signed"); err != nil {
		t.Fatal(err)
	}
	calls, _ := s.requests(t, 0)
	for _, c := range calls {
		if !strings.HasPrefix(c.UserAgent, "AKS azuredisk/v9 ") || !strings.HasSuffix(c.UserAgent, " team-a") {
			t.Errorf("%s: %s", c.API, c.UserAgent)
		}
	}
	if len(calls) == 0 {
		t.Error("no call was seen")
	}
}
