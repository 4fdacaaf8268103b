package azure

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/azuredisk-csi/azuredisk/playground/topology"
)

const computeVersion = "2025-04-01"

// createVMs makes a VM for each node, through ARM, as every client does.
func (a *Azure) createVMs(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	arm := &armClient{base: "http://" + a.Endpoint(), client: &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			return a.opts.Namespace.Dial(ctx, network, address)
		},
		DisableKeepAlives: true,
	}}}
	if err := arm.logIn(ctx, a.opts.Credentials); err != nil {
		return fmt.Errorf("log in to azuresim: %w", err)
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, node := range a.opts.Plan.Nodes {
		group.Go(func() error {
			if err := arm.createVM(ctx, node, a.opts.Plan); err != nil {
				return fmt.Errorf("make the VM %s: %w", node.VM(), err)
			}
			return nil
		})
	}
	return group.Wait()
}

type armClient struct {
	base   string
	token  string
	client *http.Client
}

func (c *armClient) logIn(ctx context.Context, credentials Credentials) error {
	form := url.Values{
		"grant_type":    {"client_credentials"},
		"client_id":     {credentials.ClientID},
		"client_secret": {credentials.Secret},
		"scope":         {"https://management.azure.com/.default"},
	}
	var answer struct {
		Token string `json:"access_token"`
	}
	err := c.do(ctx, http.MethodPost, "/"+topology.TenantID+"/oauth2/v2.0/token", "application/x-www-form-urlencoded",
		strings.NewReader(form.Encode()), &answer)
	c.token = answer.Token
	return err
}

// createVM makes the VM of a node. The first instance of a scale set stands for all of them.
func (c *armClient) createVM(ctx context.Context, node topology.Node, plan topology.Plan) error {
	type object = map[string]any
	if pool := node.Pool; pool != nil && !pool.NAP {
		if node.Instance > 0 {
			return nil
		}
		instances := plan.InPool(pool.Name)
		var zones []string
		for _, n := range instances {
			if !slices.Contains(zones, n.Zone) {
				zones = append(zones, n.Zone)
			}
		}
		return c.operate(ctx, http.MethodPut, pool.ScaleSetID()+"?api-version="+computeVersion, object{
			"location": topology.Region,
			"zones":    zones,
			"sku":      object{"name": topology.InstanceType, "capacity": len(instances)},
			"properties": object{
				"orchestrationMode": "Uniform",
				"virtualMachineProfile": object{
					"osProfile": object{"computerNamePrefix": pool.ScaleSet(), "adminUsername": "azureuser"},
				},
			},
		})
	}
	return c.operate(ctx, http.MethodPut, node.ResourceID()+"?api-version="+computeVersion, object{
		"location": topology.Region,
		"zones":    []string{node.Zone},
		"properties": object{
			"hardwareProfile": object{"vmSize": topology.InstanceType},
			"osProfile":       object{"computerName": node.Name, "adminUsername": "azureuser"},
			"storageProfile":  object{"dataDisks": []any{}},
		},
	})
}

// submit sends a body as JSON, or none if it is nil, and returns the header of the answer.
func (c *armClient) submit(ctx context.Context, method, path string, body any) (http.Header, error) {
	if body == nil {
		return c.exchange(ctx, method, path, "", nil, nil)
	}
	data, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	return c.exchange(ctx, method, path, "application/json", bytes.NewReader(data), nil)
}

// The pauses between two looks at a resource: at first short, then such that a VM which
// takes its time does not use up the quota of reads.
const (
	shortestLook = 100 * time.Millisecond
	longestLook  = 2 * time.Second
)

// operate starts a long-running operation and waits for its end. It asks for the state of
// the operation and not of the resource, as Azure wants it: the quota of reads of a VM
// is small, and others need it.
func (c *armClient) operate(ctx context.Context, method, path string, body any) error {
	header, err := c.submit(ctx, method, path, body)
	if err != nil {
		return err
	}
	status, err := url.Parse(header.Get("Azure-AsyncOperation"))
	if err != nil || status.Path == "" {
		return err // it was done at once
	}
	return c.waitOperation(ctx, status.RequestURI())
}

func (c *armClient) waitOperation(ctx context.Context, path string) error {
	for pause := shortestLook; ; pause = min(2*pause, longestLook) {
		var operation struct {
			Status string `json:"status"`
			Error  struct {
				Code    string `json:"code"`
				Message string `json:"message"`
			} `json:"error"`
		}
		if err := c.do(ctx, http.MethodGet, path, "", nil, &operation); err != nil {
			return err
		}
		switch operation.Status {
		case "Succeeded":
			return nil
		case "Failed", "Canceled":
			return fmt.Errorf("the operation is %s: %s: %s", operation.Status, operation.Error.Code, operation.Error.Message)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}

func (c *armClient) do(ctx context.Context, method, path, contentType string, body io.Reader, answer any) error {
	_, err := c.exchange(ctx, method, path, contentType, body, answer)
	return err
}

// exchange sends a request, reads the answer as JSON unless that is nil, and returns its header.
func (c *armClient) exchange(ctx context.Context, method, path, contentType string, body io.Reader, answer any) (http.Header,
	error) {
	request, err := http.NewRequestWithContext(ctx, method, c.base+path, body)
	if err != nil {
		return nil, err
	}
	if contentType != "" {
		request.Header.Set("Content-Type", contentType)
	}
	if c.token != "" {
		request.Header.Set("Authorization", "Bearer "+c.token)
	}
	response, err := c.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	if response.StatusCode/100 != 2 {
		return nil, fmt.Errorf("%s: %s", response.Status, strings.TrimSpace(string(text)))
	}
	if answer == nil {
		return response.Header, nil
	}
	return response.Header, json.Unmarshal(text, answer)
}
