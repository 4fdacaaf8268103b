package credential_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"

	"github.com/azuredisk-csi/azuredisk/provisioner/azure/credential"
)

func TestTheEnvironmentWithoutAFile(t *testing.T) {
	place := map[string]string{"AZURE_SUBSCRIPTION_ID": "s", "AZURE_RESOURCE_GROUP": "g", "AZURE_LOCATION": "West Europe"}
	for name, test := range map[string]struct {
		env   map[string]string
		check func(c credential.Config, endpoint string) bool
		fault string
	}{
		"the system-assigned identity": {env: map[string]string{}, check: func(c credential.Config, endpoint string) bool {
			return c.UseManagedIdentityExtension && c.UserAssignedIdentityID == ""
		}},
		"a user-assigned identity": {env: map[string]string{"AZURE_CLIENT_ID": "me"}, check: func(c credential.Config, endpoint string) bool { return c.UserAssignedIdentityID == "me" }},
		"a client secret": {env: map[string]string{"AZURE_CLIENT_ID": "me", "AZURE_TENANT_ID": "t", "AZURE_CLIENT_SECRET": "x"}, check: func(c credential.Config, endpoint string) bool {
			return c.AADClientSecret == "x" && !c.UseManagedIdentityExtension
		}},
		"workload identity in a Government cloud": {
			env: map[string]string{"AZURE_CLIENT_ID": "me", "AZURE_TENANT_ID": "t", "AZURE_FEDERATED_TOKEN_FILE": "/f", "AZURE_AUTHORITY_HOST": "https://login.microsoftonline.us/"},
			check: func(c credential.Config, endpoint string) bool {
				return endpoint == "https://management.usgovcloudapi.net" && c.AADFederatedTokenFile == "/f"
			},
		},
		"a cloud by its name": {env: map[string]string{"AZURE_ENVIRONMENT": "AzureChinaCloud"}, check: func(c credential.Config, endpoint string) bool {
			return endpoint == "https://management.chinacloudapi.cn"
		}},
		"a custom endpoint":         {env: map[string]string{"AZURE_RESOURCE_MANAGER_ENDPOINT": "https://arm.example/"}, check: func(c credential.Config, endpoint string) bool { return endpoint == "https://arm.example" }},
		"a secret without a tenant": {env: map[string]string{"AZURE_CLIENT_ID": "me", "AZURE_CLIENT_SECRET": "x"}, fault: "tenantId is missing"},
		"a certificate that is not": {env: map[string]string{"AZURE_CLIENT_ID": "me", "AZURE_TENANT_ID": "t", "AZURE_CLIENT_CERTIFICATE_PATH": "/does/not/exist"}, fault: "aadClientCertPath"},
		"nowhere to make disks":     {env: map[string]string{"AZURE_SUBSCRIPTION_ID": ""}, fault: "subscriptionId is missing"},
	} {
		t.Run(name, func(t *testing.T) {
			source := credential.Source{Env: func(name string) (string, bool) {
				if v, ok := test.env[name]; ok {
					return v, true
				}
				v, ok := place[name]
				return v, ok
			}}
			credentials, err := credential.Open(t.Context(), credential.Options{Source: source})
			switch {
			case test.fault == "" && err != nil:
				t.Fatal(err)
			case test.fault != "" && (err == nil || !strings.Contains(err.Error(), test.fault)):
				t.Errorf("%v, want %q", err, test.fault)
			case test.fault == "" && !test.check(credentials.Config(), credentials.Cloud().Services[cloud.ResourceManager].Endpoint):
				t.Errorf("%+v", credentials.Config())
			}
		})
	}
}

func TestFlagsTakePrecedenceOverTheFile(t *testing.T) {
	volume := newMounted(t, map[string][]byte{"azure.json": []byte(`{"subscriptionId": "s", "location": "eastus", "useManagedIdentityExtension": true}`)})
	source := credential.FileSource(volume.path("azure.json"), nil)
	source.SubscriptionID, source.ResourceGroup, source.Location = "other", "g", "West Europe"
	credentials, err := credential.Open(t.Context(), credential.Options{Source: source})
	if err != nil {
		t.Fatal(err)
	}
	if c := credentials.Config(); c.SubscriptionID != "other" || c.ResourceGroup != "g" || c.Location != "westeurope" {
		t.Errorf("%+v", c)
	}
}

// The metadata of Azure, of an Azure Stack with Entra ID, and of one with AD FS.
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
		"several, and the name chooses": {
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
		"no metadata":                                       {fault: "404"},
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
			ca := filepath.Join(t.TempDir(), "ca.crt")
			write(t, ca, pair{certificate: stack.Certificate()}.pem())
			credentials, err := credential.Open(t.Context(), credential.Options{Source: credential.Source{CAFile: ca, Read: func(context.Context) ([]byte, error) {
				return []byte(`{` + base + `, "cloud": "Mars", "aadClientId": "c", "aadClientSecret": "x", "resourceManagerEndpoint": "` + stack.URL + `"}`), nil
			}}})
			if test.fault != "" {
				if err == nil || !strings.Contains(err.Error(), test.fault) {
					t.Errorf("%v, want %q", err, test.fault)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			got, c := credentials.Cloud(), credentials.Config()
			if got.ActiveDirectoryAuthorityHost != test.authority || got.Services[cloud.ResourceManager].Audience != test.audience || c.TenantID != test.tenant {
				t.Errorf("authority %s, audience %s, tenant %s", got.ActiveDirectoryAuthorityHost, got.Services[cloud.ResourceManager].Audience, c.TenantID)
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
	source := credential.Source{Env: env, Read: func(context.Context) ([]byte, error) {
		return []byte(`{` + base + `, "cloud": "AzureStackCloud", "aadClientId": "c", "aadClientSecret": "x"}`), nil
	}}
	credentials, err := credential.Open(t.Context(), credential.Options{Source: source})
	if err != nil {
		t.Fatal(err)
	}
	got := credentials.Cloud()
	if manager := got.Services[cloud.ResourceManager]; manager.Endpoint != "https://management.local.stack" || manager.Audience != "https://management.adfs.local.stack/guid" ||
		got.ActiveDirectoryAuthorityHost != "https://adfs.local.stack" || credentials.Config().TenantID != "adfs" {
		t.Errorf("%+v", got)
	}
	must(t, os.Remove(path))
	if _, err := credential.Open(t.Context(), credential.Options{Source: source}); err == nil || !strings.Contains(err.Error(), "AZURE_ENVIRONMENT_FILEPATH") {
		t.Errorf("without the file: %v", err)
	}
}
