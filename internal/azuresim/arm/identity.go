package arm

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/azuredisk-csi/azuredisk/internal/azuresim/armerror"
)

// Tenant is the one tenant of the simulated directory. Tokens are issued under any tenant that a
// client names.
const Tenant = "00000000-0000-0000-0000-00000000a2d0"

// openRoutes are those that a client calls before it has a token.
func (s *Server) openRoutes() []route {
	open := func(method, pattern, api string, handle func(*call) (reply, error)) route {
		return route{
			method:   method,
			segments: strings.Split(pattern, "/"),
			api:      api,
			kind:     "identity",
			open:     true,
			handle:   handle,
		}
	}
	return []route{
		open("GET", "metadata/endpoints", "Metadata.Endpoints", s.endpoints),
		open("GET", "common/discovery/instance", "Identity.Discovery", s.instanceDiscovery),
		open("GET", "{tenant}/v2.0/.well-known/openid-configuration", "Identity.OpenID", s.openID),
		open("GET", "{tenant}/.well-known/openid-configuration", "Identity.OpenID", s.openID),
		open("POST", "{tenant}/oauth2/v2.0/token", "Identity.Token", s.token),
		open("POST", "{tenant}/oauth2/token", "Identity.Token", s.token),
	}
}

// endpoints describes this cloud, in the form of the api-version that the caller names.
func (s *Server) endpoints(c *call) (reply, error) {
	base := baseURL(c.Request)
	login := map[string]any{
		"loginEndpoint":    base,
		"audiences":        []string{base, "https://management.azure.com"},
		"tenant":           "common",
		"identityProvider": "AAD",
	}
	if c.URL.Query().Get("api-version") < "2019-05-01" {
		return reply{status: http.StatusOK, body: map[string]any{
			"galleryEndpoint": base, "graphEndpoint": base, "portalEndpoint": base, "authentication": login,
		}}, nil
	}
	cloud := map[string]any{
		"name": "AzureSim", "portal": base, "resourceManager": base, "authentication": login, "graph": base,
		"suffixes": map[string]string{
			"storage":        "core.windows.net",
			"keyVaultDns":    "vault.azure.net",
			"acrLoginServer": "azurecr.io",
		},
	}
	if c.URL.Query().Get("api-version") < "2022-09-01" {
		return reply{status: http.StatusOK, body: []any{cloud}}, nil
	}
	return reply{status: http.StatusOK, body: cloud}, nil
}

func (s *Server) instanceDiscovery(c *call) (reply, error) {
	host := c.Host
	return reply{status: http.StatusOK, body: map[string]any{
		"tenant_discovery_endpoint": baseURL(c.Request) + "/" + Tenant + "/v2.0/.well-known/openid-configuration",
		"api-version":               "1.1",
		"metadata": []any{map[string]any{"preferred_network": host, "preferred_cache": host,
			"aliases": []string{host}}},
	}}, nil
}

func (s *Server) openID(c *call) (reply, error) {
	base := baseURL(c.Request) + "/" + c.params["tenant"]
	return reply{status: http.StatusOK, body: map[string]any{
		"authorization_endpoint": base + "/oauth2/v2.0/authorize", "token_endpoint": base + "/oauth2/v2.0/token",
		"issuer":   base + "/v2.0",
		"jwks_uri": base + "/discovery/v2.0/keys", "response_types_supported": []string{"token"},
		"subject_types_supported":               []string{"pairwise"},
		"token_endpoint_auth_methods_supported": []string{"client_secret_post", "private_key_jwt"},
	}}, nil
}

// token answers a client-credentials grant, by secret or by assertion.
func (s *Server) token(c *call) (reply, error) {
	form, err := url.ParseQuery(string(c.body))
	if err != nil {
		return reply{}, armerror.BadRequest("invalid_request", "The request body must be a form.")
	}
	endpoint := baseURL(c.Request) + c.URL.Path
	client, refusal := s.Directory.Grant(form, endpoint, s.Clock)
	c.claims.Client = form.Get("client_id")
	if refusal != nil {
		return reply{status: http.StatusUnauthorized, body: map[string]any{
			"error": refusal.Code, "error_description": refusal.Error(), "error_codes": []int{refusal.Number},
		}}, nil
	}
	audience := form.Get("resource")
	for _, scope := range strings.Fields(form.Get("scope")) {
		if resource, ok := strings.CutSuffix(scope, "/.default"); ok {
			audience = resource
		}
	}
	token, expires, err := s.Authority.Issue(c.params["tenant"], client, audience)
	if err != nil {
		return reply{}, err
	}
	return reply{status: http.StatusOK, body: TokenDocument(token, audience, expires, s.Authority.Lifetime)}, nil
}

// TokenDocument is the answer that carries a token.
func TokenDocument(token, audience string, expires time.Time, lifetime time.Duration) any {
	seconds := int(lifetime / time.Second)
	return map[string]any{
		"token_type": "Bearer", "access_token": token, "resource": audience,
		"expires_in": seconds, "ext_expires_in": seconds, "expires_on": strconv.FormatInt(expires.Unix(), 10),
	}
}
