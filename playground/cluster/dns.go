package cluster

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
)

// waitForDNS waits until the cluster's names are served. It comes last, since nothing
// that is installed before needs them, and pods of the cluster's own start beside it.
func (c *Cluster) waitForDNS(ctx context.Context) error {
	client, err := c.Kubernetes()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	err = wait.PollUntilContextCancel(ctx, 200*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		dns, err := client.AppsV1().Deployments("kube-system").Get(ctx, "coredns", metav1.GetOptions{})
		return err == nil && dns.Status.AvailableReplicas > 0, nil
	})
	if err != nil {
		return fmt.Errorf("wait for the cluster's name server: %w", err)
	}
	return nil
}
