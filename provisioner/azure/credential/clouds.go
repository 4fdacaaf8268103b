package credential

import (
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
)

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

// setAuthority takes the authority that the workload identity webhook names. The authority
// identifies the cloud.
func (c *Config) setAuthority(authority string) {
	for _, name := range []string{"AzurePublicCloud", "AzureChinaCloud", "AzureUSGovernmentCloud"} {
		if known, _ := knownCloud(name); strings.TrimSuffix(known.ActiveDirectoryAuthorityHost,
			"/") == strings.TrimSuffix(authority, "/") {
			c.Cloud = name
			return
		}
	}
	c.ActiveDirectoryEndpoint = authority
}

func plainHTTP(endpoint string) bool { return strings.HasPrefix(strings.ToLower(endpoint), "http://") }

// cloudConfiguration returns the endpoints in the SDK's form.
func (c *Config) cloudConfiguration() cloud.Configuration {
	known, _ := knownCloud(c.Cloud)
	manager := known.Services[cloud.ResourceManager]
	if c.ResourceManagerEndpoint != "" {
		manager.Endpoint = strings.TrimSuffix(c.ResourceManagerEndpoint, "/")
	}
	if manager.Audience == "" {
		manager.Audience = manager.Endpoint
	}
	if c.TokenAudience != "" {
		manager.Audience = c.TokenAudience
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
