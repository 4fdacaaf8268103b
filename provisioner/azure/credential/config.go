package credential

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"sigs.k8s.io/yaml"
)

// Config holds the fields of azure.json that the driver reads. Azure's Kubernetes components share
// this file and the meaning of its fields, except activeDirectoryEndpoint. Other fields are
// ignored; the guide to credentials lists them.
type Config struct {
	// Cloud as in "AzurePublicCloud" (the default), "AzureChinaCloud", "AzureUSGovernmentCloud". A
	// cloud of another name needs resourceManagerEndpoint and, unless that is over plain http,
	// activeDirectoryEndpoint.
	Cloud string `json:"cloud"`
	// TenantID of the identity.
	TenantID string `json:"tenantId"`
	// IdentitySystem is "azure_ad", the default and the only one.
	IdentitySystem string `json:"identitySystem"`
	// SubscriptionID, ResourceGroup and Location of the cluster. Location is lower case without
	// spaces after loading.
	SubscriptionID string `json:"subscriptionId"`
	ResourceGroup  string `json:"resourceGroup"`
	Location       string `json:"location"`
	// ExtendedLocationName is the edge zone in which disks and snapshots are created.
	// ExtendedLocationType must be "EdgeZone" if it is set.
	ExtendedLocationType string `json:"extendedLocationType"`
	ExtendedLocationName string `json:"extendedLocationName"`
	// UserAgent is put in front of the driver's user agent.
	UserAgent string `json:"userAgent"`
	// ResourceManagerEndpoint replaces the cloud's. Plain http is meant for a simulator.
	ResourceManagerEndpoint string `json:"resourceManagerEndpoint"`
	// ActiveDirectoryEndpoint replaces the cloud's authority. If it is empty and
	// ResourceManagerEndpoint is over plain http, that one is used.
	ActiveDirectoryEndpoint string `json:"activeDirectoryEndpoint"`
	// TokenAudience replaces the audience of tokens.
	TokenAudience string `json:"tokenAudience"`

	// The first of five identities that is configured: workload identity, managed identity, a
	// managed identity of the data plane, client secret, client certificate.
	UseFederatedWorkloadIdentityExtension bool   `json:"useFederatedWorkloadIdentityExtension"`
	AADFederatedTokenFile                 string `json:"aadFederatedTokenFile"`
	UseManagedIdentityExtension           bool   `json:"useManagedIdentityExtension"`
	// UserAssignedIdentityID is a client ID, or a resource ID; "" for the system-assigned identity.
	UserAssignedIdentityID      string `json:"userAssignedIdentityID"`
	AADMSIDataPlaneIdentityPath string `json:"aadMSIDataPlaneIdentityPath"`
	AADClientID                 string `json:"aadClientId"`
	AADClientSecret             Secret `json:"aadClientSecret"`
	AADClientCertPath           string `json:"aadClientCertPath"`
	AADClientCertPassword       Secret `json:"aadClientCertPassword"`
}

// Secret is a text that is hidden when it is printed.
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

func parseConfig(data []byte) (Config, error) {
	var c Config
	if err := yaml.Unmarshal(data, &c); err != nil {
		return Config{}, fmt.Errorf("parse Azure's configuration: %w", err)
	}
	return c, nil
}

// checked is the configuration in its normal form, or an error with all faults.
func (c Config) checked() (Config, error) {
	c.Location = strings.ToLower(strings.ReplaceAll(c.Location, " ", ""))
	if err := c.validate(); err != nil {
		return Config{}, fmt.Errorf("bad Azure configuration: %w", err)
	}
	return c, nil
}

// setting assigns the value of a variable to its field.
type setting struct {
	name string
	set  func(string)
}

func (l Lookup) fill(settings ...setting) {
	if l == nil {
		return
	}
	for _, s := range settings {
		if v, ok := l(s.name); ok && v != "" {
			s.set(v)
		}
	}
}

func (c *Config) overrideBy(env Lookup) {
	env.fill(
		setting{"AZURE_TENANT_ID", func(v string) { c.TenantID = v }},
		setting{"AZURE_CLIENT_ID", func(v string) { c.AADClientID = v }},
		setting{"AZURE_CLIENT_SECRET", func(v string) { c.AADClientSecret = Secret(v) }},
		setting{"AZURE_FEDERATED_TOKEN_FILE", func(v string) {
			c.AADFederatedTokenFile, c.UseFederatedWorkloadIdentityExtension = v, true
		}},
	)
}

func (c *Config) fillFrom(env Lookup) {
	c.overrideBy(env)
	env.fill(
		setting{"AZURE_SUBSCRIPTION_ID", func(v string) { c.SubscriptionID = v }},
		setting{"AZURE_RESOURCE_GROUP", func(v string) { c.ResourceGroup = v }},
		setting{"AZURE_LOCATION", func(v string) { c.Location = v }},
		setting{"AZURE_AUTHORITY_HOST", c.setAuthority},
		setting{"AZURE_ENVIRONMENT", func(v string) { c.Cloud = v }},
		setting{"AZURE_RESOURCE_MANAGER_ENDPOINT", func(v string) { c.ResourceManagerEndpoint = v }},
		setting{"AZURE_CLIENT_CERTIFICATE_PATH", func(v string) { c.AADClientCertPath = v }},
		setting{"AZURE_CLIENT_CERTIFICATE_PASSWORD", func(v string) { c.AADClientCertPassword = Secret(v) }},
	)
	if c.identity() == identityNone {
		c.UseManagedIdentityExtension, c.UserAssignedIdentityID = true, c.AADClientID
	}
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
		why := fmt.Sprintf(" for cloud %q, which is none of AzurePublicCloud, AzureChinaCloud and AzureUSGovernmentCloud",
			c.Cloud)
		need(c.ResourceManagerEndpoint, "resourceManagerEndpoint", why)
		if !plainHTTP(c.ResourceManagerEndpoint) {
			need(c.ActiveDirectoryEndpoint, "activeDirectoryEndpoint", why)
		}
	}
	if s := c.IdentitySystem; s != "" && !strings.EqualFold(s, "azure_ad") {
		faults = append(faults, fmt.Errorf("identitySystem %q must be azure_ad; AD FS of Azure Stack is not supported", s))
	}
	if (c.ExtendedLocationName != "" || c.ExtendedLocationType != "") && !strings.EqualFold(c.ExtendedLocationType, "EdgeZone") {
		faults = append(faults, fmt.Errorf("extendedLocationType %q must be EdgeZone, with a name in extendedLocationName",
			c.ExtendedLocationType))
	}
	if c.ExtendedLocationType != "" {
		need(c.ExtendedLocationName, "extendedLocationName", " for extendedLocationType "+c.ExtendedLocationType)
	}
	faults = append(faults, c.validateEndpoints())
	switch c.identity() {
	case identityWorkload:
		need(c.TenantID, "tenantId", " for workload identity")
		need(c.AADClientID, "aadClientId", " for workload identity")
		need(c.AADFederatedTokenFile, "aadFederatedTokenFile", " for workload identity")
	case identitySecret, identityCertificate:
		need(c.TenantID, "tenantId", " for a service principal")
		need(c.AADClientID, "aadClientId", " for a service principal")
	case identityNone:
		faults = append(faults, errors.New(
			"no identity: set useFederatedWorkloadIdentityExtension, useManagedIdentityExtension, aadClientSecret, aadClientCertPath or aadMSIDataPlaneIdentityPath"))
	case identityManaged, identityDataPlane:
	}
	return errors.Join(faults...)
}

func (c *Config) validateEndpoints() error {
	var faults []error
	for _, e := range []struct{ field, text string }{
		{"resourceManagerEndpoint", c.ResourceManagerEndpoint}, {"activeDirectoryEndpoint", c.ActiveDirectoryEndpoint},
	} {
		u, err := url.Parse(e.text)
		if e.text != "" && (err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http") {
			faults = append(faults, fmt.Errorf("%s %q is not a URL of http or https", e.field, e.text))
		}
	}
	if plainHTTP(c.ActiveDirectoryEndpoint) && !plainHTTP(c.ResourceManagerEndpoint) {
		faults = append(faults, fmt.Errorf(
			"activeDirectoryEndpoint %q is over plain http, which is accepted only with a resourceManagerEndpoint over plain http", c.ActiveDirectoryEndpoint))
	}
	return errors.Join(faults...)
}

type identity int

const (
	identityNone identity = iota
	identityWorkload
	identityManaged
	identityDataPlane
	identitySecret
	identityCertificate
)

// String is the kind of the identity, for logs.
func (i identity) String() string {
	return [...]string{"none", "workload identity", "managed identity", "managed identity of the data plane", "client secret",
		"client certificate"}[i]
}

func (c *Config) identity() identity {
	switch {
	case c.UseFederatedWorkloadIdentityExtension:
		return identityWorkload
	case c.UseManagedIdentityExtension:
		return identityManaged
	case c.AADMSIDataPlaneIdentityPath != "":
		return identityDataPlane
	case c.AADClientSecret != "":
		return identitySecret
	case c.AADClientCertPath != "":
		return identityCertificate
	}
	return identityNone
}
