package azure

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/azuredisk-csi/azuredisk/playground/topology"
)

// Client is a small client of ARM, for what the playground itself asks of Azure.
type Client struct{ arm *armClient }

// NewClient logs in at an ARM endpoint, a URL without a path.
func NewClient(ctx context.Context, endpoint string, credentials Credentials) (*Client, error) {
	arm := &armClient{base: endpoint, client: &http.Client{Timeout: time.Minute}}
	return &Client{arm}, arm.logIn(ctx, credentials)
}

// Get reads a resource, or a page of a list, into answer. The path may be a whole URL with
// a query, as the link to a next page is. An error begins with the status of the answer.
func (c *Client) Get(ctx context.Context, path, apiVersion string, answer any) error {
	if link, err := url.Parse(path); err == nil && link.RawQuery != "" {
		return c.arm.do(ctx, http.MethodGet, link.RequestURI(), "", nil, answer)
	}
	return c.arm.do(ctx, http.MethodGet, path+"?api-version="+apiVersion, "", nil, answer)
}

// Patch changes a resource and waits until it is provisioned.
func (c *Client) Patch(ctx context.Context, resourceID, apiVersion string, body any) error {
	return c.arm.operate(ctx, http.MethodPatch, resourceID+"?api-version="+apiVersion, body)
}

// Put creates or updates a resource and waits until it is provisioned.
func (c *Client) Put(ctx context.Context, resourceID, apiVersion string, body any) error {
	return c.arm.operate(ctx, http.MethodPut, resourceID+"?api-version="+apiVersion, body)
}

// Post starts an action on a resource and waits for its end.
func (c *Client) Post(ctx context.Context, resourceID, action, apiVersion string, body any) error {
	return c.arm.operate(ctx, http.MethodPost, resourceID+"/"+action+"?api-version="+apiVersion, body)
}

// Delete deletes a resource. It returns when Azure has accepted that.
func (c *Client) Delete(ctx context.Context, resourceID, apiVersion string) error {
	_, err := c.arm.submit(ctx, http.MethodDelete, resourceID+"?api-version="+apiVersion, nil)
	return err
}

// Remove deletes a resource and waits until there is none any more.
func (c *Client) Remove(ctx context.Context, resourceID, apiVersion string) error {
	return c.arm.operate(ctx, http.MethodDelete, resourceID+"?api-version="+apiVersion, nil)
}

// CreateVM makes the VM of a node.
func (c *Client) CreateVM(ctx context.Context, node topology.Node, plan topology.Plan) error {
	return c.arm.createVM(ctx, node, plan)
}
