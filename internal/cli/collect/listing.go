package collect

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cli/explain"
)

// Volumes reads all volumes with three requests, and returns a row for each volume of the namespace, or
// of the cluster if that is "".
func Volumes(ctx context.Context, from client.Reader, driverNamespace, namespace string, now func() time.Time) (
	list explain.List[explain.VolumeRow], err error) {
	r := &reader{Reader: from}
	var volumes []*apiv1.AzVolume
	var attachments []*apiv1.AzVolumeAttachment
	var leader *coordinationv1.Lease
	ours := client.InNamespace(driverNamespace)
	err = together(
		r.leader(&leader, driverNamespace),
		listInto(r, explain.AzVolumes, &apiv1.AzVolumeList{}, &volumes, ours),
		listInto(r, explain.AzAttachments, &apiv1.AzVolumeAttachmentList{}, &attachments, ours),
	)(ctx)
	if err = errors.Join(err, r.needed(explain.AzVolumes, explain.AzAttachments)); err != nil {
		return list, err
	}
	list.Document = explain.NewDocument("VolumeList", now(), r.unread)
	list.Items = explain.VolumeRows(volumes, attachments, namespace)
	explain.OutdateVolumes(list.Items, leader, list.Time)
	return list, nil
}

// leader reads the lease of the leading controller. It stays nil if there is none in the namespace, or
// if it may not be read.
func (r *reader) leader(into **coordinationv1.Lease, namespace string) step {
	return func(ctx context.Context) (err error) {
		*into, err = get[coordinationv1.Lease](ctx, r, explain.Leases, namespace, explain.LeaseController)
		return err
	}
}

// Nodes reads all nodes with four requests, and returns a row for each node. The Nodes themselves
// need not be readable.
func Nodes(ctx context.Context, from client.Reader, driverNamespace string, now func() time.Time) (
	list explain.List[explain.NodeRow], err error) {
	r := &reader{Reader: from}
	var drivers []*apiv1.AzDriverNode
	var attachments []*apiv1.AzVolumeAttachment
	var nodes []*corev1.Node
	var leader *coordinationv1.Lease
	ours := client.InNamespace(driverNamespace)
	err = together(
		r.leader(&leader, driverNamespace),
		listInto(r, explain.AzDriverNodes, &apiv1.AzDriverNodeList{}, &drivers, ours),
		listInto(r, explain.AzAttachments, &apiv1.AzVolumeAttachmentList{}, &attachments, ours),
		listInto(r, explain.NodesResource, &corev1.NodeList{}, &nodes),
	)(ctx)
	if err = errors.Join(err, r.needed(explain.AzDriverNodes, explain.AzAttachments)); err != nil {
		return list, err
	}
	if nodes == nil && !r.isUnread(explain.NodesResource) {
		nodes = []*corev1.Node{} // there are none
	}
	list.Document = explain.NewDocument("NodeList", now(), r.unread)
	list.Items = explain.NodeRows(drivers, nodes, attachments)
	explain.OutdateNodes(list.Items, leader, list.Time)
	return list, nil
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
