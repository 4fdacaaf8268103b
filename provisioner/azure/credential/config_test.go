package credential_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"

	"github.com/azuredisk-csi/azuredisk/provisioner/azure/credential"
)

const base = `"subscriptionId": "s", "resourceGroup": "g", "location": "West Europe", "tenantId": "t"`

// open opens credentials with a text for azure.json.
func open(t *testing.T, text string, env map[string]string) (*credential.Credentials, error) {
	t.Helper()
	return credential.Open(t.Context(), credential.Options{Source: credential.Source{
		Read: func(context.Context) ([]byte, error) { return []byte(text), nil },
		Env:  func(name string) (string, bool) { v, ok := env[name]; return v, ok },
	}})
}

func TestConfigurations(t *testing.T) {
	for name, test := range map[string]struct {
		file   string
		env    map[string]string
		faults []string // the error names each; none for a good configuration
	}{
		"a managed identity, as on AKS": {file: `{` + base +
			`, "useManagedIdentityExtension": true, "aadClientId": "msi", "aadClientSecret": "msi"}`},
		"a client secret":            {file: `{` + base + `, "aadClientId": "c", "aadClientSecret": "x"}`},
		"YAML":                       {file: "subscriptionId: s\nresourceGroup: g\nlocation: eastus\nuseManagedIdentityExtension: true\n"},
		"unknown fields are ignored": {file: `{` + base + `, "useManagedIdentityExtension": true, "vnetName": "v"}`},
		"a secret from the environment": {
			file: `{` + base + `}`,
			env:  map[string]string{"AZURE_CLIENT_ID": "c", "AZURE_CLIENT_SECRET": "x"},
		},
		"a workload identity by its webhook": {
			file: `{` + base + `}`,
			env:  map[string]string{"AZURE_CLIENT_ID": "c", "AZURE_TENANT_ID": "t2", "AZURE_FEDERATED_TOKEN_FILE": "/f"},
		},
		"a simulator over plain http": {file: `{` + base +
			`, "aadClientId": "c", "aadClientSecret": "x", "resourceManagerEndpoint": "http://127.0.0.1:1"}`},
		"no identity": {
			file:   `{` + base + `, "useManagedIdentityExtension": false}`,
			faults: []string{"no identity"},
		},
		"every fault at once": {
			file: `{"cloud": "Mars", "aadClientSecret": "x"}`,
			faults: []string{"subscriptionId", "resourceGroup", "location", "Mars", "tenantId", "aadClientId",
				"resourceManagerEndpoint", "activeDirectoryEndpoint"},
		},
		"an endpoint that is no URL": {
			file:   `{` + base + `, "useManagedIdentityExtension": true, "resourceManagerEndpoint": "ftp://x"}`,
			faults: []string{"resourceManagerEndpoint", "ftp://x"},
		},
		"a secret must not go to Azure over plain http": {
			file:   `{` + base + `, "aadClientId": "c", "aadClientSecret": "x", "activeDirectoryEndpoint": "http://x"}`,
			faults: []string{"plain http"},
		},
		"an edge zone": {file: `{` + base +
			`, "useManagedIdentityExtension": true, "extendedLocationType": "EdgeZone", "extendedLocationName": "attatlanta1"}`},
		"an edge zone without a name": {
			file:   `{` + base + `, "useManagedIdentityExtension": true, "extendedLocationType": "EdgeZone"}`,
			faults: []string{"extendedLocationName is missing"},
		},
		"an extended location of another type": {
			file:   `{` + base + `, "useManagedIdentityExtension": true, "extendedLocationType": "CustomLocation", "extendedLocationName": "x"}`,
			faults: []string{`extendedLocationType "CustomLocation" must be EdgeZone`},
		},
		"an unknown identity system": {
			file:   `{` + base + `, "useManagedIdentityExtension": true, "identitySystem": "ldap"}`,
			faults: []string{`identitySystem "ldap" must be azure_ad`},
		},
		"not JSON": {file: `{`, faults: []string{"parse"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := open(t, test.file, test.env)
			if (err != nil) != (len(test.faults) > 0) {
				t.Fatalf("error %v, want faults %v", err, test.faults)
			}
			for _, fault := range test.faults {
				if !strings.Contains(err.Error(), fault) {
					t.Errorf("got %[2]v, want it to name %[1]q", fault, err)
				}
			}
		})
	}
}

func TestTheEnvironmentTakesPrecedenceAndSecretsAreHidden(t *testing.T) {
	env := map[string]string{"AZURE_TENANT_ID": "other", "AZURE_CLIENT_ID": "me", "AZURE_CLIENT_SECRET": "hush"}
	credentials, err := open(t, `{`+base+`, "aadClientId": "c", "aadClientSecret": "x"}`, env)
	if err != nil {
		t.Fatal(err)
	}
	c := credentials.Config()
	if c.TenantID != "other" || c.AADClientID != "me" || c.AADClientSecret != "hush" || c.Location != "westeurope" {
		t.Errorf("got %+v, want the values of the environment", c)
	}
	for _, shown := range []string{fmt.Sprintf("%v %+v %#v %s", c, c, c, c.AADClientSecret)} {
		if strings.Contains(shown, "hush") {
			t.Errorf("got %s, want the secret hidden", shown)
		}
	}
}

func TestClouds(t *testing.T) {
	for file, want := range map[string][2]string{
		`{` + base + `, "useManagedIdentityExtension": true}`:                                                                                                   {"https://management.azure.com", "https://login.microsoftonline.com/"},
		`{` + base + `, "useManagedIdentityExtension": true, "cloud": "AzureChinaCloud"}`:                                                                       {"https://management.chinacloudapi.cn", "https://login.chinacloudapi.cn/"},
		`{` + base + `, "useManagedIdentityExtension": true, "cloud": "AZUREUSGOVERNMENTCLOUD"}`:                                                                {"https://management.usgovcloudapi.net", "https://login.microsoftonline.us/"},
		`{` + base + `, "useManagedIdentityExtension": true, "resourceManagerEndpoint": "http://localhost:7788/"}`:                                              {"http://localhost:7788", "http://localhost:7788"},
		`{` + base + `, "useManagedIdentityExtension": true, "cloud": "Mars", "resourceManagerEndpoint": "https://a", "activeDirectoryEndpoint": "https://b/"}`: {"https://a", "https://b"},
	} {
		credentials, err := open(t, file, nil)
		if err != nil {
			t.Fatal(err)
		}
		got := credentials.Cloud()
		if at := got.Services[cloud.ResourceManager].Endpoint; at != want[0] || got.ActiveDirectoryAuthorityHost != want[1] {
			t.Errorf("%s: got %s and %s, want %v", file, at, got.ActiveDirectoryAuthorityHost, want)
		}
		if got.Services[cloud.ResourceManager].Audience == "" {
			t.Errorf("%s: got no audience, want one", file)
		}
	}
}
