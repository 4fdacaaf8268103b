package credential

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
)

const identitySystemADFS = "adfs"

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

// setAuthority takes the authority that the workload identity webhook names. The authority identifies the cloud.
func (c *Config) setAuthority(authority string) {
	for _, name := range []string{"AzurePublicCloud", "AzureChinaCloud", "AzureUSGovernmentCloud"} {
		if known, _ := knownCloud(name); strings.TrimSuffix(known.ActiveDirectoryAuthorityHost, "/") == strings.TrimSuffix(authority, "/") {
			c.Cloud = name
			return
		}
	}
	c.ActiveDirectoryEndpoint = authority
}

func plainHTTP(endpoint string) bool { return strings.HasPrefix(strings.ToLower(endpoint), "http://") }

// cloudConfiguration returns the endpoints in the SDK's form. For a cloud that is not known by name, discover has to be called first, or the authority is
// missing.
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

// undiscovered says whether the cloud itself has to be asked for its authority.
func (c *Config) undiscovered() bool {
	_, known := knownCloud(c.Cloud)
	return !known && c.ActiveDirectoryEndpoint == "" && !plainHTTP(c.ResourceManagerEndpoint)
}

// takeEnvironmentFile takes the endpoints of an Azure Stack from the file that AZURE_ENVIRONMENT_FILEPATH names, in the form that Azure's tools share.
// Endpoints in azure.json take precedence.
func (c *Config) takeEnvironmentFile(data []byte) error {
	var file struct {
		ResourceManagerEndpoint   string `json:"resourceManagerEndpoint"`
		ActiveDirectoryEndpoint   string `json:"activeDirectoryEndpoint"`
		TokenAudience             string `json:"tokenAudience"`
		ServiceManagementEndpoint string `json:"serviceManagementEndpoint"`
	}
	if err := json.Unmarshal(data, &file); err != nil {
		return fmt.Errorf("parse the file of AZURE_ENVIRONMENT_FILEPATH: %w", err)
	}
	if file.TokenAudience == "" {
		file.TokenAudience = file.ServiceManagementEndpoint
	}
	for _, f := range []struct {
		field *string
		value string
	}{
		{&c.ResourceManagerEndpoint, file.ResourceManagerEndpoint}, {&c.ActiveDirectoryEndpoint, file.ActiveDirectoryEndpoint}, {&c.TokenAudience, file.TokenAudience},
	} {
		if *f.field == "" {
			*f.field = f.value
		}
	}
	c.trimAuthority()
	return nil
}

// trimAuthority removes the path of AD FS from the authority, and makes it the tenant.
func (c *Config) trimAuthority() {
	trimmed, isADFS := strings.CutSuffix(strings.TrimSuffix(c.ActiveDirectoryEndpoint, "/"), "/"+identitySystemADFS)
	if isADFS {
		c.ActiveDirectoryEndpoint, c.TenantID = trimmed, identitySystemADFS
	}
}

// The versions of the endpoint metadata: the one that lists clouds, and the one that every Azure Stack has.
const (
	metadataVersion      = "2022-09-01"
	metadataVersionStack = "2015-01-01"
	maxMetadata          = 1 << 20
)

// discover asks the resource manager of a cloud that is not known by name for the authority and the audience. For other clouds it does nothing.
func (c *Config) discover(ctx context.Context, transport policy.Transporter) error {
	if !c.undiscovered() {
		return nil
	}
	var faults []error
	for _, version := range []string{metadataVersion, metadataVersionStack} {
		body, err := c.metadata(ctx, transport, version)
		if err == nil {
			err = c.takeMetadata(body)
		}
		if err == nil {
			return nil
		}
		faults = append(faults, fmt.Errorf("version %s: %w", version, err))
	}
	return fmt.Errorf("ask %s for its endpoints, because cloud %q is not known and activeDirectoryEndpoint is not set: %w",
		c.ResourceManagerEndpoint, c.Cloud, errors.Join(faults...))
}

func (c *Config) metadata(ctx context.Context, transport policy.Transporter, version string) ([]byte, error) {
	target := strings.TrimSuffix(c.ResourceManagerEndpoint, "/") + "/metadata/endpoints?" + url.Values{"api-version": {version}}.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return nil, fmt.Errorf("make request: %w", err)
	}
	resp, err := transport.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxMetadata))
	if err != nil {
		return nil, fmt.Errorf("read the answer: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the answer is %s: %.200s", resp.Status, body)
	}
	return body, nil
}

// takeMetadata reads the endpoint metadata in any of its three forms: one cloud, a list of one, or a list from which the name chooses.
func (c *Config) takeMetadata(body []byte) error {
	type description struct {
		Name           string `json:"name"`
		Authentication struct {
			LoginEndpoint string   `json:"loginEndpoint"`
			Audiences     []string `json:"audiences"`
		} `json:"authentication"`
	}
	var one description
	var several []description
	switch errOne, errSeveral := json.Unmarshal(body, &one), json.Unmarshal(body, &several); {
	case errOne == nil:
		several = []description{one}
	case errSeveral != nil:
		return fmt.Errorf("parse the answer: %w", errOne)
	}
	for _, d := range several {
		if len(several) > 1 && !strings.EqualFold(d.Name, c.Cloud) {
			continue
		}
		if u, err := url.Parse(d.Authentication.LoginEndpoint); err != nil || u.Scheme != "https" || u.Host == "" {
			return fmt.Errorf("loginEndpoint %q is not a URL of https", d.Authentication.LoginEndpoint)
		}
		c.ActiveDirectoryEndpoint = strings.TrimSuffix(d.Authentication.LoginEndpoint, "/")
		if c.TokenAudience == "" && len(d.Authentication.Audiences) > 0 {
			c.TokenAudience = strings.TrimSuffix(d.Authentication.Audiences[0], "/")
		}
		c.trimAuthority()
		return nil
	}
	return fmt.Errorf("no cloud called %q among the %d in the answer", c.Cloud, len(several))
}
