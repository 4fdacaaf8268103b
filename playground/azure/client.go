package azure

import (
	"context"
	"net/http"
	"time"
)

// Client is a small client of ARM, for what the playground itself asks of Azure.
type Client struct{ arm *armClient }

// NewClient logs in at an ARM endpoint, a URL without a path.
func NewClient(ctx context.Context, endpoint string, who Credentials) (*Client, error) {
	arm := &armClient{base: endpoint, client: &http.Client{Timeout: time.Minute}}
	return &Client{arm}, arm.logIn(ctx, who)
}

// Put creates or updates a resource and waits until it is provisioned.
func (c *Client) Put(ctx context.Context, resourceID, apiVersion string, body any) error {
	return c.arm.put(ctx, resourceID+"?api-version="+apiVersion, body)
}

// Post starts an action on a resource and waits for its end.
func (c *Client) Post(ctx context.Context, resourceID, action, apiVersion string, body any) error {
	return c.arm.operate(ctx, http.MethodPost, resourceID+"/"+action+"?api-version="+apiVersion, body)
}

// Delete deletes a resource. It returns when Azure has accepted that.
func (c *Client) Delete(ctx context.Context, resourceID, apiVersion string) error {
	return c.arm.send(ctx, http.MethodDelete, resourceID+"?api-version="+apiVersion, nil)
}
