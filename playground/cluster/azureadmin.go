package cluster

import (
	"context"
	"errors"
)

// AzureAdmin is the URL of azuresim's admin API as the host reaches it, without a path.
func (c *Cluster) AzureAdmin(ctx context.Context) (string, error) {
	status, err := c.Status(ctx)
	if err != nil {
		return "", err
	}
	if status.AzureAdmin == "" {
		return "", errors.New("this playground was brought up without azuresim")
	}
	return status.AzureAdmin, nil
}
