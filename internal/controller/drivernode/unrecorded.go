package drivernode

import (
	"context"
	"slices"
	"strings"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cluster"
	"github.com/azuredisk-csi/azuredisk/internal/plan/identity"
)

// unrecorded requests the nodes whose VMs have the disk of a volume without an attachment, and
// makes them read their VMs at once. What becomes of the disk there is decided as in every look, by
// the node's report (ownership.RecreateAs). A VM that is no node of this cluster is left alone.
func (r *Reconciler) unrecorded(ctx context.Context, o client.Object) []reconcile.Request {
	v, ok := o.(*apiv1.AzVolume)
	if !ok || v.Status.Disk == nil {
		return nil
	}
	var requests []reconcile.Request
	for _, vm := range v.Status.Disk.UnrecordedVMs {
		nodes, err := cluster.NodesOfVM(ctx, r.Client, v.Namespace, vm)
		if err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "node of a VM that has a disk without an attachment not found", "volume", v.Name,
				"vm", vm)
		}
		for _, n := range nodes {
			if !strings.EqualFold(identity.Identify(n, nodes).VMID, vm) {
				continue
			}
			node := client.ObjectKey{Namespace: v.Namespace, Name: n.Node.Name}
			r.forget(node)
			requests = append(requests, reconcile.Request{NamespacedName: node})
		}
	}
	return requests
}

// readAgain passes AzVolumes whose disk was just read and found at VMs without an attachment. A
// refusal by Azure leads to one read, and so to one look at each of these VMs.
var readAgain = predicate.Funcs{
	CreateFunc: func(event.CreateEvent) bool { return false },
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(*apiv1.AzVolume)
		after, isVolume := e.ObjectNew.(*apiv1.AzVolume)
		if !ok || !isVolume || after.Status.Disk == nil || len(after.Status.Disk.UnrecordedVMs) == 0 {
			return false
		}
		was := before.Status.Disk
		return was == nil || !was.ReadTime.Equal(&after.Status.Disk.ReadTime) ||
			!slices.Equal(was.UnrecordedVMs, after.Status.Disk.UnrecordedVMs)
	},
	DeleteFunc: func(event.DeleteEvent) bool { return false },
}
