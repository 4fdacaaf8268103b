package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/config"
	"github.com/azuredisk-csi/azuredisk/internal/kube"
	"github.com/azuredisk-csi/azuredisk/internal/node/imds"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// Node and cluster are looked up for so long before the plug-in gives up and leaves it to its
// restart.
const (
	identifyInterval = 2 * time.Second
	identifyTimeout  = time.Minute
)

// nodeIdentity is the VM, the cluster and the boot of this node.
type nodeIdentity struct {
	instance apiv1.AzDriverNodeSpec
	cluster  provisioner.ClusterIdentity
	bootID   string
}

// identify finds out what this node is.
func identify(ctx context.Context, settings *config.Node, api client.Client) (nodeIdentity, error) {
	bootID, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return nodeIdentity{}, fmt.Errorf("read boot ID: %w", err)
	}
	instance, err := identifyVM(ctx, settings, api)
	if err != nil {
		return nodeIdentity{}, err
	}
	cluster, err := identifyCluster(ctx, api)
	if err != nil {
		return nodeIdentity{}, err
	}
	logr.FromContextOrDiscard(ctx).Info("this node is", "vmID", instance.VMID, "vmSize", instance.VMSize,
		"location", instance.Location, "zone", instance.Zone, "cluster", cluster)
	return nodeIdentity{instance: instance, cluster: cluster, bootID: strings.TrimSpace(string(bootID))}, nil
}

// identifyVM finds out which VM this node is. Shortly after a boot neither the metadata service nor
// the Node may be able to say.
func identifyVM(ctx context.Context, settings *config.Node, api client.Client) (apiv1.AzDriverNodeSpec, error) {
	sources := make([]imds.Source, 0, len(settings.MetadataSources))
	for _, source := range settings.MetadataSources {
		sources = append(sources, imds.Source(source))
	}
	options := imds.Options{
		Sources:  sources,
		Endpoint: settings.IMDSEndpoint,
		Node: func(ctx context.Context) (*corev1.Node, error) {
			found := &corev1.Node{}
			return found, api.Get(ctx, client.ObjectKey{Name: settings.NodeName}, found)
		},
	}
	var instance apiv1.AzDriverNodeSpec
	err := untilKnown(ctx, "which VM this node is cannot be found out yet", func(ctx context.Context) (err error) {
		instance, err = imds.Find(ctx, options)
		return err
	})
	return instance, err
}

// identifyCluster finds out which cluster this node belongs to.
func identifyCluster(ctx context.Context, api client.Reader) (provisioner.ClusterIdentity, error) {
	var uid string
	err := untilKnown(ctx, "which cluster this is cannot be found out yet", func(ctx context.Context) (err error) {
		uid, err = kube.UID(ctx, api)
		return err
	})
	return provisioner.NewClusterIdentity(uid), err
}

// untilKnown repeats find until it succeeds. After identifyTimeout it returns the last error of
// find.
func untilKnown(ctx context.Context, notYet string, find func(context.Context) error) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, identifyInterval, identifyTimeout, true, func(ctx context.Context) (bool, error) {
		if last = find(ctx); last != nil {
			logr.FromContextOrDiscard(ctx).Info(notYet, "reason", last.Error())
		}
		return last == nil, nil
	})
	if err != nil && last != nil {
		return last
	}
	return err
}

// diskAt returns how instance metadata is asked which disk is at a LUN; nil where the node does not
// use it, or it does not answer: each use of a new device would wait for it in vain.
func diskAt(ctx context.Context, settings *config.Node) func(context.Context, int32) (string, error) {
	if !slices.Contains(settings.MetadataSources, string(imds.SourceIMDS)) {
		return nil
	}
	ask := func(ctx context.Context, lun int32) (string, error) {
		return imds.DiskAt(ctx, settings.IMDSEndpoint, lun)
	}
	if _, err := ask(ctx, 0); err != nil {
		logr.FromContextOrDiscard(ctx).Info(
			"instance metadata does not list the disks of this VM; devices are identified without it", "reason", err.Error())
		return nil
	}
	return ask
}
