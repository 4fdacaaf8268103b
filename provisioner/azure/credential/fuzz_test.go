package credential

import (
	"net/url"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
)

// FuzzConfig reads any text as azure.json. An accepted configuration is complete, and its
// description shows no secret.
func FuzzConfig(f *testing.F) {
	for _, seed := range []string{
		`{"cloud":"AzurePublicCloud","tenantId":"t","subscriptionId":"s","resourceGroup":"g","location":"West Europe","useManagedIdentityExtension":true,"userAssignedIdentityID":"id"}`,
		`{"tenantId":"t","subscriptionId":"s","resourceGroup":"g","location":"eastus","aadClientId":"c","aadClientSecret":"hush"}`,
		`{"subscriptionId":"s","resourceGroup":"g","location":"eastus","tenantId":"t","aadClientId":"c","aadClientCertPath":"/p","aadClientCertPassword":"hush"}`,
		`{"cloud":"Mars","resourceManagerEndpoint":"https://arm.mars","activeDirectoryEndpoint":"https://login.mars","subscriptionId":"s","resourceGroup":"g","location":"local","aadClientId":"c","tenantId":"t","aadClientSecret":"x"}`,
		"subscriptionId: s\nresourceGroup: g\nlocation: eastus\naadMSIDataPlaneIdentityPath: /p\n",
		`{"useFederatedWorkloadIdentityExtension":"yes"}`, `{"aadClientSecret":{"hush":1}}`, `[]`, `null`, `{`, "", "\xff\xfe",
		"a: &a [*a]", `{"resourceManagerEndpoint":"http://[::1"}`,
		`{"vmType":"vmss","cloudProviderBackoff":true,"cloudProviderRateLimitQPS":6,"location":""}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := parseConfig(text)
		if err == nil {
			c, err = c.checked()
		}
		if err != nil {
			return
		}
		if c.SubscriptionID == "" || c.ResourceGroup == "" || c.Location == "" || c.identity() == identityNone {
			t.Errorf("accepted an incomplete configuration: %+v", c)
		}
		manager, err := url.Parse(c.cloudConfiguration().Services[cloud.ResourceManager].Endpoint)
		if err != nil || manager.Host == "" || manager.Scheme != "https" && manager.Scheme != "http" {
			t.Errorf("the endpoint is %q", c.cloudConfiguration().Services[cloud.ResourceManager].Endpoint)
		}
		if plainHTTP(c.cloudConfiguration().ActiveDirectoryAuthorityHost) && manager.Scheme != "http" {
			t.Errorf("secrets would go to %s in the clear", c.cloudConfiguration().ActiveDirectoryAuthorityHost)
		}
		if again := c.describe(); len(c.AADClientSecret) > 8 && strings.Contains(again, string(c.AADClientSecret)) &&
			c.AADClientID != string(c.AADClientSecret) {
			t.Errorf("the secret shows in %q", again)
		}
	})
}

// FuzzIdentityFile reads any file as a certificate, and as an identity of the data plane.
func FuzzIdentityFile(f *testing.F) {
	f.Add([]byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"), "")
	f.Add([]byte("\x30\x82\x00\x00"), "password")
	f.Add([]byte(`{"client_id":"c","tenant_id":"t","client_secret":"AAAA","authentication_endpoint":"https://a"}`), "")
	f.Fuzz(func(t *testing.T, file []byte, password string) {
		if c, err := parseCertificate(file, Secret(password)); err == nil && (len(c.chain) == 0 || c.key == nil) {
			t.Error("accepted a file without a certificate or a key")
		}
		if id, _, err := parseDataPlaneIdentity(file); err == nil && (id.ClientID == "" || id.TenantID == "") {
			t.Errorf("accepted an incomplete identity: %+v", id)
		}
	})
}
