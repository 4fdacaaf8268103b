package azure

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"k8s.io/utils/clock"
)

// Credential makes the credential that the configuration names, by Azure's identity library. It asks for no token yet.
func (c *Config) Credential() (azcore.TokenCredential, error) {
	endpoints := c.CloudConfiguration()
	options := policy.ClientOptions{Cloud: endpoints}
	// Authorities of Azure Stack and simulators are not in the directory of known ones.
	_, known := knownCloud(c.Cloud)
	unknown := !known || c.ActiveDirectoryEndpoint != ""
	made, err := func() (azcore.TokenCredential, error) {
		switch c.identity() {
		case identityWorkload:
			return azidentity.NewWorkloadIdentityCredential(&azidentity.WorkloadIdentityCredentialOptions{
				ClientOptions: options, ClientID: c.AADClientID, TenantID: c.TenantID, TokenFilePath: c.AADFederatedTokenFile, DisableInstanceDiscovery: unknown,
			})
		case identityManaged:
			return azidentity.NewManagedIdentityCredential(&azidentity.ManagedIdentityCredentialOptions{ClientOptions: options, ID: c.managedID()})
		case identitySecret:
			if plainHTTP(endpoints.ActiveDirectoryAuthorityHost) {
				return newPlainCredential(c, endpoints.ActiveDirectoryAuthorityHost), nil
			}
			return azidentity.NewClientSecretCredential(c.TenantID, c.AADClientID, string(c.AADClientSecret),
				&azidentity.ClientSecretCredentialOptions{ClientOptions: options, DisableInstanceDiscovery: unknown})
		case identityCertificate:
			return c.certificateCredential(options, unknown)
		default:
			return nil, errors.New("no identity is configured")
		}
	}()
	if err != nil {
		return nil, fmt.Errorf("make a credential for Azure: %w", err)
	}
	return made, nil
}

func (c *Config) managedID() azidentity.ManagedIDKind {
	switch {
	case c.UserAssignedIdentityID == "":
		return nil
	case strings.HasPrefix(c.UserAssignedIdentityID, "/"):
		return azidentity.ResourceID(c.UserAssignedIdentityID)
	default:
		return azidentity.ClientID(c.UserAssignedIdentityID)
	}
}

func (c *Config) certificateCredential(options policy.ClientOptions, unknownAuthority bool) (azcore.TokenCredential, error) {
	data, err := os.ReadFile(c.AADClientCertPath)
	if err != nil {
		return nil, err
	}
	certificates, key, err := azidentity.ParseCertificates(data, []byte(c.AADClientCertPassword))
	if err != nil {
		return nil, fmt.Errorf("parse %s: %w", c.AADClientCertPath, err)
	}
	return azidentity.NewClientCertificateCredential(c.TenantID, c.AADClientID, certificates, key,
		&azidentity.ClientCertificateCredentialOptions{ClientOptions: options, DisableInstanceDiscovery: unknownAuthority, SendCertificateChain: true})
}

// plainCredential is the client-credentials grant over plain http, which Azure's library refuses to speak.
// It serves simulators only: a configuration with an authority over plain http is taken only if
// resource manager is reached over plain http as well.
type plainCredential struct {
	url, client string
	secret      Secret
	clock       clock.PassiveClock
}

func newPlainCredential(c *Config, authority string) plainCredential {
	return plainCredential{
		url: authority + "/" + url.PathEscape(c.TenantID) + "/oauth2/v2.0/token", client: c.AADClientID, secret: c.AADClientSecret, clock: clock.RealClock{},
	}
}

// GetToken implements azcore.TokenCredential.
func (p plainCredential) GetToken(ctx context.Context, options policy.TokenRequestOptions) (azcore.AccessToken, error) {
	form := url.Values{
		"grant_type": {"client_credentials"}, "client_id": {p.client}, "client_secret": {string(p.secret)}, "scope": {strings.Join(options.Scopes, " ")},
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url, strings.NewReader(form.Encode()))
	if err != nil {
		return azcore.AccessToken{}, fmt.Errorf("ask for a token: %w", err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return azcore.AccessToken{}, fmt.Errorf("ask for a token: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return azcore.AccessToken{}, fmt.Errorf("read a token: %w", err)
	}
	var answer struct {
		AccessToken string `json:"access_token"`
		ExpiresIn   int64  `json:"expires_in"`
		Error       string `json:"error"`
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return azcore.AccessToken{}, fmt.Errorf("read a token: %w", err)
	}
	if resp.StatusCode != http.StatusOK || answer.AccessToken == "" {
		return azcore.AccessToken{}, refusedToken{status: resp.StatusCode, code: answer.Error}
	}
	return azcore.AccessToken{
		Token: answer.AccessToken, ExpiresOn: p.clock.Now().Add(time.Duration(answer.ExpiresIn) * time.Second),
	}, nil
}

// refusedToken is an authority's refusal.
type refusedToken struct {
	status int
	code   string
}

// Error implements error.
func (r refusedToken) Error() string {
	return fmt.Sprintf("ask for a token: the authority answered %d %s", r.status, r.code)
}

// NonRetriable keeps the SDK from asking again.
func (refusedToken) NonRetriable() {}

// endpointOf is the endpoint of resource manager.
func endpointOf(c cloud.Configuration) string { return c.Services[cloud.ResourceManager].Endpoint }
