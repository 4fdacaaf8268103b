package credential

import (
	"context"
	"crypto/x509"
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
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"k8s.io/utils/clock"

	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// identityFile reads the file that holds the identity's certificate; nil if there is none.
func (c *Config) identityFile() ([]byte, error) {
	field, path := "", ""
	switch c.identity() {
	case identityCertificate:
		field, path = "aadClientCertPath", c.AADClientCertPath
	case identityDataPlane:
		field, path = "aadMSIDataPlaneIdentityPath", c.AADMSIDataPlaneIdentityPath
	default:
		return nil, nil
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", field, err)
	}
	return data, nil
}

// credential is a credential, and the certificate that it signs in with, if it does.
type credential struct {
	azcore.TokenCredential
	certificate *x509.Certificate
}

// credential makes the credential. file is what identityFile read.
func (c *Config) credential(file []byte, t transports) (credential, error) {
	endpoints := c.cloudConfiguration()
	options := policy.ClientOptions{Cloud: endpoints, Transport: t.out}
	// Authorities of other clouds and of simulators are not in Azure's list of known ones.
	_, known := knownCloud(c.Cloud)
	unknown := !known || c.ActiveDirectoryEndpoint != ""
	made, err := func() (credential, error) {
		switch c.identity() {
		case identityWorkload:
			return plain(azidentity.NewClientAssertionCredential(c.TenantID, c.AADClientID,
				tokenFile(c.AADFederatedTokenFile).read,
				&azidentity.ClientAssertionCredentialOptions{ClientOptions: options, DisableInstanceDiscovery: unknown}))
		case identityManaged:
			options.Transport = t.local
			made, err := azidentity.NewManagedIdentityCredential(&azidentity.ManagedIdentityCredentialOptions{
				ClientOptions: options,
				ID:            c.managedID(),
			})
			return credential{TokenCredential: managed{made}}, err
		case identitySecret:
			if plainHTTP(endpoints.ActiveDirectoryAuthorityHost) {
				return credential{TokenCredential: newPlainCredential(c, endpoints.ActiveDirectoryAuthorityHost, t.out)}, nil
			}
			return plain(azidentity.NewClientSecretCredential(c.TenantID, c.AADClientID, string(c.AADClientSecret),
				&azidentity.ClientSecretCredentialOptions{ClientOptions: options, DisableInstanceDiscovery: unknown}))
		case identityCertificate:
			certificate, err := parseCertificate(file, c.AADClientCertPassword)
			if err != nil {
				return credential{}, fmt.Errorf("aadClientCertPath %s: %w", c.AADClientCertPath, err)
			}
			return certificate.credential(c.TenantID, c.AADClientID, options, unknown)
		case identityDataPlane:
			id, certificate, err := parseDataPlaneIdentity(file)
			if err != nil {
				return credential{}, fmt.Errorf("aadMSIDataPlaneIdentityPath %s: %w", c.AADMSIDataPlaneIdentityPath, err)
			}
			options.Cloud.ActiveDirectoryAuthorityHost = id.Authority
			return certificate.credential(id.TenantID, id.ClientID, options, true)
		default:
			return credential{}, errors.New("the configuration names no identity")
		}
	}()
	if err != nil {
		return credential{}, fmt.Errorf("make a credential for Azure: %w", err)
	}
	return made, nil
}

func plain(made azcore.TokenCredential, err error) (credential, error) {
	return credential{TokenCredential: made}, err
}

func (c clientCertificate) credential(tenant, client string, options policy.ClientOptions,
	unknownAuthority bool) (credential, error) {
	made, err := azidentity.NewClientCertificateCredential(tenant, client, c.chain, c.key,
		&azidentity.ClientCertificateCredentialOptions{
			ClientOptions:            options,
			DisableInstanceDiscovery: unknownAuthority,
			SendCertificateChain:     true,
		})
	return credential{TokenCredential: made, certificate: c.chain[0]}, err
}

// managed is a managed identity. It distinguishes a refusal of the VM's metadata service from a
// missing answer, which Azure's library does not do where the VM has no system-assigned identity.
type managed struct{ azcore.TokenCredential }

// GetToken implements azcore.TokenCredential.
func (m managed) GetToken(ctx context.Context, options policy.TokenRequestOptions) (azcore.AccessToken, error) {
	token, err := m.TokenCredential.GetToken(ctx, options)
	var failed *azidentity.AuthenticationFailedError
	if err != nil && ctx.Err() == nil && !errors.As(err, &failed) {
		err = provisioner.Errorf(provisioner.Unauthorized, "get a token for the managed identity: %w", err)
	}
	return token, err
}

// tokenFile is the path of a federated token. The file is read whenever a token of Azure is asked
// for, so that no old content is used.
type tokenFile string

func (f tokenFile) read(context.Context) (string, error) {
	data, err := os.ReadFile(string(f))
	if err != nil {
		return "", fmt.Errorf("aadFederatedTokenFile: %w", err)
	}
	return strings.TrimSpace(string(data)), nil
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

// plainCredential is the client-credentials grant over plain http, which Azure's library does not
// support. It is for simulators only: a configuration with an authority over plain http is accepted
// only if resource manager is reached over plain http as well.
type plainCredential struct {
	url, client string
	secret      Secret
	clock       clock.PassiveClock
	transport   policy.Transporter
}

func newPlainCredential(c *Config, authority string, transport policy.Transporter) plainCredential {
	return plainCredential{
		url:       authority + "/" + url.PathEscape(c.TenantID) + "/oauth2/v2.0/token",
		client:    c.AADClientID,
		secret:    c.AADClientSecret,
		clock:     clock.RealClock{},
		transport: transport,
	}
}

// GetToken implements azcore.TokenCredential.
func (p plainCredential) GetToken(ctx context.Context, options policy.TokenRequestOptions) (azcore.AccessToken, error) {
	form := url.Values{
		"grant_type":    {"client_credentials"},
		"client_id":     {p.client},
		"client_secret": {string(p.secret)},
		"scope":         {strings.Join(options.Scopes, " ")},
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url, strings.NewReader(form.Encode()))
	if err != nil {
		return azcore.AccessToken{}, fmt.Errorf("ask for a token: %w", err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	resp, err := p.transport.Do(req)
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
		return azcore.AccessToken{}, refused(resp.StatusCode, answer.Error)
	}
	return azcore.AccessToken{
		Token: answer.AccessToken, ExpiresOn: p.clock.Now().Add(time.Duration(answer.ExpiresIn) * time.Second),
	}, nil
}

// refused is an authority's refusal.
func refused(status int, code string) error {
	kind := provisioner.Unauthorized
	if status >= http.StatusInternalServerError {
		kind = provisioner.Unavailable
	}
	return notRetried{provisioner.Errorf(kind, "ask for a token: the authority answered %d %s", status, code)}
}

// notRetried keeps the SDK from repeating a request.
type notRetried struct{ error }

// NonRetriable implements the SDK's marker.
func (notRetried) NonRetriable() {}

// Unwrap returns the error.
func (n notRetried) Unwrap() error { return n.error }
