package azure

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"sigs.k8s.io/yaml"
)

// Config is what the driver reads of azure.json, the file that Azure's Kubernetes components share. Names and
// meanings are theirs, except activeDirectoryEndpoint. Fields that are not listed are ignored.
type Config struct {
	// Cloud as in "AzurePublicCloud" (the default), "AzureChinaCloud", "AzureUSGovernmentCloud".
	Cloud string `json:"cloud"`
	// TenantID of the identity.
	TenantID string `json:"tenantId"`
	// SubscriptionID, ResourceGroup and Location of the cluster. Location is lower case without spaces after loading.
	SubscriptionID string `json:"subscriptionId"`
	ResourceGroup  string `json:"resourceGroup"`
	Location       string `json:"location"`
	// ResourceManagerEndpoint replaces the cloud's. Plain http is meant for a simulator.
	ResourceManagerEndpoint string `json:"resourceManagerEndpoint"`
	// ActiveDirectoryEndpoint replaces the cloud's authority. With a plain http
	// ResourceManagerEndpoint it is that one if it is empty.
	ActiveDirectoryEndpoint string `json:"activeDirectoryEndpoint"`

	// One of four identities, the first that is configured: workload identity, managed identity, client secret, client certificate.
	UseFederatedWorkloadIdentityExtension bool   `json:"useFederatedWorkloadIdentityExtension"`
	AADFederatedTokenFile                 string `json:"aadFederatedTokenFile"`
	UseManagedIdentityExtension           bool   `json:"useManagedIdentityExtension"`
	// UserAssignedIdentityID is a client ID, or a resource ID; "" for the system-assigned identity.
	UserAssignedIdentityID string `json:"userAssignedIdentityID"`
	AADClientID            string `json:"aadClientId"`
	AADClientSecret        Secret `json:"aadClientSecret"`
	AADClientCertPath      string `json:"aadClientCertPath"`
	AADClientCertPassword  Secret `json:"aadClientCertPassword"`
}

// Secret is a text that does not show when it is printed.
type Secret string

// String hides the text.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return "(secret)"
}

// GoString hides the text.
func (s Secret) GoString() string { return s.String() }

// MarshalText hides the text.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Lookup finds an environment variable, as os.LookupEnv does.
type Lookup func(name string) (string, bool)

// ReadConfig reads azure.json from a file. See LoadConfig.
func ReadConfig(path string, env Lookup) (Config, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return Config{}, fmt.Errorf("read Azure's configuration: %w", err)
	}
	c, err := LoadConfig(data, env)
	if err != nil {
		return Config{}, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
}

// LoadConfig reads azure.json, as JSON or YAML. The variables AZURE_TENANT_ID, AZURE_CLIENT_ID, AZURE_FEDERATED_TOKEN_FILE
// and AZURE_CLIENT_SECRET, which the workload identity webhook sets, win over the file. The error tells of all faults.
func LoadConfig(data []byte, env Lookup) (Config, error) {
	var c Config
	if err := yaml.Unmarshal(data, &c); err != nil {
		return Config{}, fmt.Errorf("parse Azure's configuration: %w", err)
	}
	c.overrideBy(env)
	c.Location = normalLocation(c.Location)
	if err := c.validate(); err != nil {
		return Config{}, fmt.Errorf("bad Azure configuration: %w", err)
	}
	return c, nil
}

func (c *Config) overrideBy(env Lookup) {
	if env == nil {
		return
	}
	get := func(name string, set func(string)) {
		if v, ok := env(name); ok && v != "" {
			set(v)
		}
	}
	get("AZURE_TENANT_ID", func(v string) { c.TenantID = v })
	get("AZURE_CLIENT_ID", func(v string) { c.AADClientID = v })
	get("AZURE_CLIENT_SECRET", func(v string) { c.AADClientSecret = Secret(v) })
	get("AZURE_FEDERATED_TOKEN_FILE", func(v string) {
		c.AADFederatedTokenFile, c.UseFederatedWorkloadIdentityExtension = v, true
	})
}

func (c *Config) validate() error {
	var faults []error
	need := func(value, field, why string) {
		if value == "" {
			faults = append(faults, fmt.Errorf("%s is missing%s", field, why))
		}
	}
	need(c.SubscriptionID, "subscriptionId", "")
	need(c.ResourceGroup, "resourceGroup", "")
	need(c.Location, "location", "")
	if _, known := knownCloud(c.Cloud); !known {
		need(c.ResourceManagerEndpoint, "resourceManagerEndpoint", fmt.Sprintf(" for cloud %q, which is not known", c.Cloud))
		need(c.ActiveDirectoryEndpoint, "activeDirectoryEndpoint", fmt.Sprintf(" for cloud %q, which is not known", c.Cloud))
	}
	for field, text := range map[string]string{"resourceManagerEndpoint": c.ResourceManagerEndpoint, "activeDirectoryEndpoint": c.ActiveDirectoryEndpoint} {
		u, err := url.Parse(text)
		if text != "" && (err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http") {
			faults = append(faults, fmt.Errorf("%s %q is not a URL of http or https", field, text))
		}
	}
	if plainHTTP(c.ActiveDirectoryEndpoint) && !plainHTTP(c.ResourceManagerEndpoint) {
		faults = append(faults, errors.New("activeDirectoryEndpoint is over plain http, which is taken only together with a resourceManagerEndpoint over plain http"))
	}
	switch c.identity() {
	case identityWorkload:
		need(c.TenantID, "tenantId", " for workload identity")
		need(c.AADClientID, "aadClientId", " for workload identity")
		need(c.AADFederatedTokenFile, "aadFederatedTokenFile", " for workload identity")
	case identitySecret, identityCertificate:
		need(c.TenantID, "tenantId", " for a service principal")
		need(c.AADClientID, "aadClientId", " for a service principal")
	case identityNone:
		faults = append(faults, errors.New("no identity: set useFederatedWorkloadIdentityExtension, useManagedIdentityExtension, aadClientSecret or aadClientCertPath"))
	case identityManaged:
	}
	return errors.Join(faults...)
}

type identity int

const (
	identityNone identity = iota
	identityWorkload
	identityManaged
	identitySecret
	identityCertificate
)

func (c *Config) identity() identity {
	switch {
	case c.UseFederatedWorkloadIdentityExtension:
		return identityWorkload
	case c.UseManagedIdentityExtension:
		return identityManaged
	case c.AADClientSecret != "":
		return identitySecret
	case c.AADClientCertPath != "":
		return identityCertificate
	}
	return identityNone
}

func knownCloud(name string) (cloud.Configuration, bool) {
	switch strings.ToUpper(name) {
	case "", "AZURECLOUD", "AZUREPUBLICCLOUD":
		return cloud.AzurePublic, true
	case "AZURECHINACLOUD":
		return cloud.AzureChina, true
	case "AZUREUSGOVERNMENT", "AZUREUSGOVERNMENTCLOUD":
		return cloud.AzureGovernment, true
	}
	return cloud.Configuration{}, false
}

func plainHTTP(endpoint string) bool { return strings.HasPrefix(strings.ToLower(endpoint), "http://") }

// CloudConfiguration returns the endpoints in the SDK's form, for Options.Cloud.
func (c *Config) CloudConfiguration() cloud.Configuration {
	known, _ := knownCloud(c.Cloud)
	manager := known.Services[cloud.ResourceManager]
	if c.ResourceManagerEndpoint != "" {
		manager.Endpoint = strings.TrimSuffix(c.ResourceManagerEndpoint, "/")
	}
	if manager.Audience == "" {
		manager.Audience = manager.Endpoint
	}
	authority := known.ActiveDirectoryAuthorityHost
	switch {
	case c.ActiveDirectoryEndpoint != "":
		authority = strings.TrimSuffix(c.ActiveDirectoryEndpoint, "/")
	case plainHTTP(c.ResourceManagerEndpoint):
		authority = manager.Endpoint
	}
	return cloud.Configuration{
		ActiveDirectoryAuthorityHost: authority,
		Services:                     map[cloud.ServiceName]cloud.ServiceConfiguration{cloud.ResourceManager: manager},
	}
}
