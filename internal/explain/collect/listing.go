package collect

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cluster"
	"github.com/azuredisk-csi/azuredisk/internal/explain"
)

// Volumes reads all volumes with two requests, and returns a row for each volume of the namespace, or
// of the cluster if that is "".
func Volumes(ctx context.Context, from client.Reader, driverNamespace, namespace string) ([]explain.VolumeRow, error) {
	r := &reader{Reader: from}
	var volumes apiv1.AzVolumeList
	var attachments apiv1.AzVolumeAttachmentList
	err := together(
		r.listStep(explain.AzVolumes, &volumes, client.InNamespace(driverNamespace)),
		r.listStep(explain.AzAttachments, &attachments, client.InNamespace(driverNamespace)),
	)(ctx)
	if err = errors.Join(err, r.needed(explain.AzVolumes, explain.AzAttachments)); err != nil {
		return nil, err
	}
	return explain.VolumeRows(cluster.Pointers(volumes.Items), cluster.Pointers(attachments.Items), namespace), nil
}

// Nodes reads all nodes with three requests, and returns a row for each node. The Nodes themselves
// need not be readable.
func Nodes(ctx context.Context, from client.Reader, driverNamespace string) ([]explain.NodeRow, error) {
	r := &reader{Reader: from}
	var drivers apiv1.AzDriverNodeList
	var attachments apiv1.AzVolumeAttachmentList
	var nodes corev1.NodeList
	err := together(
		r.listStep(explain.AzDriverNodes, &drivers, client.InNamespace(driverNamespace)),
		r.listStep(explain.AzAttachments, &attachments, client.InNamespace(driverNamespace)),
		r.listStep(explain.NodesResource, &nodes),
	)(ctx)
	if err = errors.Join(err, r.needed(explain.AzDriverNodes, explain.AzAttachments)); err != nil {
		return nil, err
	}
	var read []*corev1.Node
	if !r.isUnread(explain.NodesResource) {
		read = cluster.Pointers(nodes.Items)
	}
	return explain.NodeRows(cluster.Pointers(drivers.Items), read, cluster.Pointers(attachments.Items)), nil
}

func (r *reader) listStep(what string, into client.ObjectList, options ...client.ListOption) step {
	return func(ctx context.Context) error { return r.list(ctx, what, into, options...) }
}

// needed returns an error for each resource that could not be read.
func (r *reader) needed(resources ...string) error {
	var errs []error
	for _, u := range r.unread {
		if slices.Contains(resources, u.What) {
			errs = append(errs, fmt.Errorf("cannot list %s: %s", u.What, u.Why))
		}
	}
	return errors.Join(errs...)
}
