package collect

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/explain"
)

// Volumes reads all volumes with two requests, and returns a row for each volume of the namespace, or
// of the cluster if that is "".
func Volumes(ctx context.Context, from client.Reader, driverNamespace, namespace string) ([]explain.VolumeRow, error) {
	r := &reader{Reader: from}
	var volumes []*apiv1.AzVolume
	var attachments []*apiv1.AzVolumeAttachment
	ours := client.InNamespace(driverNamespace)
	err := together(
		listInto(r, explain.AzVolumes, &apiv1.AzVolumeList{}, &volumes, ours),
		listInto(r, explain.AzAttachments, &apiv1.AzVolumeAttachmentList{}, &attachments, ours),
	)(ctx)
	if err = errors.Join(err, r.needed(explain.AzVolumes, explain.AzAttachments)); err != nil {
		return nil, err
	}
	return explain.VolumeRows(volumes, attachments, namespace), nil
}

// Nodes reads all nodes with three requests, and returns a row for each node. The Nodes themselves
// need not be readable.
func Nodes(ctx context.Context, from client.Reader, driverNamespace string) ([]explain.NodeRow, error) {
	r := &reader{Reader: from}
	var drivers []*apiv1.AzDriverNode
	var attachments []*apiv1.AzVolumeAttachment
	var nodes []*corev1.Node
	ours := client.InNamespace(driverNamespace)
	err := together(
		listInto(r, explain.AzDriverNodes, &apiv1.AzDriverNodeList{}, &drivers, ours),
		listInto(r, explain.AzAttachments, &apiv1.AzVolumeAttachmentList{}, &attachments, ours),
		listInto(r, explain.NodesResource, &corev1.NodeList{}, &nodes),
	)(ctx)
	if err = errors.Join(err, r.needed(explain.AzDriverNodes, explain.AzAttachments)); err != nil {
		return nil, err
	}
	if nodes == nil && !r.isUnread(explain.NodesResource) {
		nodes = []*corev1.Node{} // there are none
	}
	return explain.NodeRows(drivers, nodes, attachments), nil
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
