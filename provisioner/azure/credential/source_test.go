package credential_test

import (
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
		"a user-assigned identity": {env: map[string]string{"AZURE_CLIENT_ID": "me"},
			check: func(c credential.Config, endpoint string) bool { return c.UserAssignedIdentityID == "me" }},
		"a client secret": {
			env: map[string]string{"AZURE_CLIENT_ID": "me", "AZURE_TENANT_ID": "t", "AZURE_CLIENT_SECRET": "x"},
			check: func(c credential.Config, endpoint string) bool {
				return c.AADClientSecret == "x" && !c.UseManagedIdentityExtension
			},
		},
		"workload identity in a Government cloud": {
			env: map[string]string{
				"AZURE_CLIENT_ID":            "me",
				"AZURE_TENANT_ID":            "t",
				"AZURE_FEDERATED_TOKEN_FILE": "/f",
				"AZURE_AUTHORITY_HOST":       "https://login.microsoftonline.us/",
			},
			check: func(c credential.Config, endpoint string) bool {
				return endpoint == "https://management.usgovcloudapi.net" && c.AADFederatedTokenFile == "/f"
			},
		},
		"a cloud by its name": {env: map[string]string{"AZURE_ENVIRONMENT": "AzureChinaCloud"},
			check: func(c credential.Config, endpoint string) bool {
				return endpoint == "https://management.chinacloudapi.cn"
			}},
		"a custom endpoint": {env: map[string]string{"AZURE_RESOURCE_MANAGER_ENDPOINT": "https://arm.example/"},
			check: func(c credential.Config, endpoint string) bool { return endpoint == "https://arm.example" }},
		"a secret without a tenant": {env: map[string]string{"AZURE_CLIENT_ID": "me", "AZURE_CLIENT_SECRET": "x"},
			fault: "tenantId is missing"},
		"a certificate that is not": {
			env: map[string]string{"AZURE_CLIENT_ID": "me", "AZURE_TENANT_ID": "t",
				"AZURE_CLIENT_CERTIFICATE_PATH": "/does/not/exist"}, fault: "aadClientCertPath"},
		"nowhere to make disks": {env: map[string]string{"AZURE_SUBSCRIPTION_ID": ""}, fault: "subscriptionId is missing"},
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
			case test.fault == "" && !test.check(credentials.Config(),
				credentials.Cloud().Services[cloud.ResourceManager].Endpoint):
				t.Errorf("%+v", credentials.Config())
			}
		})
	}
}

func TestFlagsTakePrecedenceOverTheFile(t *testing.T) {
	volume := newMounted(t, map[string][]byte{"azure.json": []byte(
		`{"subscriptionId": "s", "location": "eastus", "useManagedIdentityExtension": true}`)})
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
