package verify

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
)

const (
	diskVersion    = "2025-01-02"
	vmVersion      = "2025-04-01"
	groupVersion   = "2021-04-01"
	networkVersion = "2024-05-01"

	tagOwner   = "azuresim-verify"
	tagExpires = "azuresim-verify-expires"
	prefix     = "azuresim-verify-"
)

// world is a subscription with the resource group of the run.
type world struct {
	Options
	client *arm.Client
	group  string
	made   map[string]bool // by path
}

func newWorld(o Options) (*world, error) {
	client, err := arm.NewClient("azuresim/verify", "v1.0.0", o.Credential, &arm.ClientOptions{
		DisableRPRegistration: true,
		ClientOptions: policy.ClientOptions{
			Cloud: cloud.Configuration{Services: map[cloud.ServiceName]cloud.ServiceConfiguration{
				cloud.ResourceManager: {Endpoint: o.Endpoint, Audience: "https://management.azure.com"},
			}},
			Transport:                       o.Transport,
			InsecureAllowCredentialWithHTTP: strings.HasPrefix(o.Endpoint, "http://"),
		},
	})
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	return &world{
		Options: o,
		client:  client,
		group:   prefix + strings.ToLower(rand.Text()[:8]),
		made:    map[string]bool{},
	}, nil
}

func (w *world) groupPath(group string) string {
	return "/subscriptions/" + w.Subscription + "/resourceGroups/" + group
}

// path is that of a resource of Azure Compute in the run's group.
func (w *world) path(kind, name string) string {
	return w.groupPath(w.group) + "/providers/Microsoft.Compute/" + kind + "/" + name
}

func (w *world) disk(name string) string { return w.path("disks", name) }
func (w *world) vm(name string) string   { return w.path("virtualMachines", name) }

// answer is what the platform answered.
type answer struct {
	status  int
	code    string
	message string
	header  http.Header
	body    map[string]any
}

// String is the part of an answer that rules are about.
func (a answer) String() string { return strings.TrimSpace(fmt.Sprintf("%d %s", a.status, a.code)) }

// send sends one request; body may be a text, or what is written as JSON.
func (w *world) send(ctx context.Context, method, path string, body any, header ...string) (answer, error) {
	req, err := runtime.NewRequest(ctx, method, w.Endpoint+path)
	if err != nil {
		return answer{}, err
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Raw().Header.Set(header[i], header[i+1])
	}
	if body != nil {
		raw, ok := body.(string)
		if !ok {
			encoded, err := json.Marshal(body)
			if err != nil {
				return answer{}, fmt.Errorf("encode a body: %w", err)
			}
			raw = string(encoded)
		}
		if err := req.SetBody(readSeekNop{bytes.NewReader([]byte(raw))}, "application/json"); err != nil {
			return answer{}, err
		}
	}
	resp, err := w.client.Pipeline().Do(req)
	if err != nil {
		return answer{}, fmt.Errorf("%s %s: %w", method, path, err)
	}
	return read(resp)
}

type readSeekNop struct{ *bytes.Reader }

func (readSeekNop) Close() error { return nil }

var _ io.ReadSeekCloser = readSeekNop{}

func read(resp *http.Response) (answer, error) {
	raw, err := runtime.Payload(resp)
	if err != nil {
		return answer{}, err
	}
	a := answer{status: resp.StatusCode, header: resp.Header}
	_ = json.Unmarshal(raw, &a.body) // an answer may have no body, or one that is no object
	if e, ok := a.body["error"].(map[string]any); ok {
		a.code, _ = e["code"].(string)
		a.message, _ = e["message"].(string)
	}
	return a, nil
}

// do sends a request and waits for the end of the operation that it begins. The code is then that
// of the operation.
func (w *world) do(ctx context.Context, method, path string, body any, header ...string) (answer, error) {
	a, err := w.send(ctx, method, path, body, header...)
	if err != nil {
		return a, err
	}
	return a, w.await(ctx, &a)
}

// await waits for the operation of an answer.
func (w *world) await(ctx context.Context, a *answer) error {
	for url := a.header.Get("Azure-AsyncOperation"); url != ""; {
		if err := w.pause(ctx); err != nil {
			return err
		}
		state, err := w.send(ctx, http.MethodGet, strings.TrimPrefix(url, w.Endpoint), nil)
		if err != nil {
			return err
		}
		switch state.body["status"] {
		case "Succeeded":
			return nil
		case "Failed", "Canceled":
			a.code = "then " + state.code
			return nil
		}
	}
	return nil
}

func (w *world) pause(ctx context.Context) error {
	timer := w.Clock.NewTimer(w.Poll)
	defer timer.Stop()
	select {
	case <-timer.C():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// ensure makes a resource that must be accepted, once.
func (w *world) ensure(ctx context.Context, path, version string, body any) error {
	if w.made[path] {
		return nil
	}
	a, err := w.do(ctx, http.MethodPut, path+"?api-version="+version, body)
	if err != nil {
		return err
	}
	if a.status >= http.StatusBadRequest || a.code != "" {
		return fmt.Errorf("make %s: %s: %s", path, a, a.message)
	}
	w.made[path] = true
	return nil
}

func (w *world) makeGroup(ctx context.Context, expires time.Time) error {
	return w.ensure(ctx, w.groupPath(w.group), groupVersion, map[string]any{
		"location": w.Location, "tags": map[string]string{tagOwner: w.Owner, tagExpires: expires.UTC().Format(time.RFC3339)},
	})
}

// removeLeftovers removes the groups of runs that were killed: those that have expired, and those
// whose process does not run.
func (w *world) removeLeftovers(ctx context.Context, out io.Writer) error {
	path := "/subscriptions/" + w.Subscription + "/resourceGroups?api-version=" + groupVersion
	for path != "" {
		a, err := w.send(ctx, http.MethodGet, path, nil)
		if err != nil || a.status != http.StatusOK {
			return fmt.Errorf("list resource groups: %s: %w", a, err)
		}
		list, _ := a.body["value"].([]any)
		for _, item := range list {
			g, _ := item.(map[string]any)
			name, _ := g["name"].(string)
			tags, _ := g["tags"].(map[string]any)
			owner, _ := tags[tagOwner].(string)
			text, _ := tags[tagExpires].(string)
			expires, err := time.Parse(time.RFC3339, text)
			if !strings.HasPrefix(name, prefix) || owner == "" || err != nil || w.Clock.Now().Before(expires) && w.Alive(owner) {
				continue
			}
			fmt.Fprintf(out, "removing resource group %s, which a killed run left behind\n", name)
			if err := w.removeGroup(ctx, name); err != nil {
				return err
			}
		}
		next, _ := a.body["nextLink"].(string)
		path = strings.TrimPrefix(next, w.Endpoint)
	}
	return nil
}

// removeGroup removes a resource group and what is in it.
func (w *world) removeGroup(ctx context.Context, group string) error {
	for {
		a, err := w.do(ctx, http.MethodDelete, w.groupPath(group)+"?api-version="+groupVersion, nil)
		switch {
		case err != nil:
			return fmt.Errorf("remove resource group %s: %w", group, err)
		case a.status == http.StatusNotFound || a.status == http.StatusOK:
			return nil
		case a.status >= http.StatusBadRequest && a.status != http.StatusConflict:
			return fmt.Errorf("remove resource group %s: %s: %s", group, a, a.message)
		}
		if err := w.pause(ctx); err != nil {
			return fmt.Errorf("remove resource group %s: %w", group, err)
		}
	}
}

var _ azcore.TokenCredential = Anyone{}

// Anyone is a credential for a simulator that checks no tokens.
type Anyone struct{}

// GetToken implements azcore.TokenCredential.
func (Anyone) GetToken(context.Context, policy.TokenRequestOptions) (azcore.AccessToken, error) {
	return azcore.AccessToken{Token: "anything", ExpiresOn: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)}, nil
}
