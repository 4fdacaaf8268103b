package attachment

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cluster"
	"github.com/azuredisk-csi/azuredisk/internal/kube"
	"github.com/azuredisk-csi/azuredisk/internal/plan/attaching"
	"github.com/azuredisk-csi/azuredisk/internal/plan/nodehealth"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
)

// helpers returns the healthy nodes with a replica that can take the reservation of the disk from
// the attachment's node, in the order of their names; nil if the fence has nothing to take.
func (r *Reconciler) helpers(ctx context.Context, volume *apiv1.AzVolume, a *apiv1.AzVolumeAttachment) ([]attaching.Helper,
	error) {
	if !ownership.FenceDecided(volume, a.Spec.NodeName) {
		return nil, nil // as nearly always: then the report need not be read
	}
	report, err := r.driverNode(ctx, r.Client, a.Namespace, a.Spec.NodeName)
	if err != nil || !attaching.MayPreempt(volume, a, report) {
		return nil, err
	}
	all, err := cluster.Attachments(ctx, r.Client, a.Namespace, cluster.AttachmentVolume, a.Spec.VolumeName)
	if err != nil {
		return nil, err
	}
	var helpers []attaching.Helper
	for _, other := range all {
		if other.Spec.Role != apiv1.RoleReplica || other.Status.State != apiv1.AttachmentAttached ||
			other.DeletionTimestamp != nil {
			continue
		}
		view, err := r.Nodes.View(ctx, other.Spec.NodeName)
		if err != nil {
			return nil, err
		}
		node, err := r.driverNode(ctx, r.Client, a.Namespace, other.Spec.NodeName)
		if err != nil {
			return nil, err
		}
		if view == nil || node == nil || view.Health != nodehealth.Healthy {
			continue
		}
		helpers = append(helpers, attaching.HelperOf(node, volume, a))
	}
	slices.SortFunc(helpers, func(x, y attaching.Helper) int { return cmp.Compare(x.NodeName, y.NodeName) })
	return helpers, nil
}

func (r *Reconciler) driverNode(ctx context.Context, reader client.Reader, namespace, name string) (*apiv1.AzDriverNode, error) {
	return kube.Find[apiv1.AzDriverNode](ctx, reader, client.ObjectKey{Namespace: namespace, Name: name})
}

// ask writes the request to take the reservation from the attachment's node into the AzDriverNode
// of a helper. A request that is there stays: the cache may be behind.
func (r *Reconciler) ask(ctx context.Context, volume *apiv1.AzVolume, a *apiv1.AzVolumeAttachment, helper string) error {
	err := retry.OnError(retry.DefaultRetry, apierrors.IsInvalid, func() error {
		node, err := r.driverNode(ctx, r.Reader, a.Namespace, helper)
		if err != nil || node == nil || attaching.HelperOf(node, volume, a).Request != nil {
			return err
		}
		patch, err := addRequest(node.Spec.Requests, apiv1.FenceRequest{
			VolumeName:  volume.Name,
			VolumeUID:   volume.UID,
			NodeName:    a.Spec.NodeName,
			Epoch:       a.Spec.Epoch,
			RequestTime: metav1.NewMicroTime(r.Clock.Now()),
		})
		if err != nil {
			return err
		}
		return r.Client.Patch(ctx, node, patch)
	})
	if err != nil {
		return fmt.Errorf("ask node %s to fence node %s from volume %s: %w", helper, a.Spec.NodeName, a.Spec.VolumeName, err)
	}
	ctrl.LoggerFrom(ctx).Info("asked a node to take the reservation of the disk", "volume", a.Spec.VolumeName, "node",
		a.Spec.NodeName, "helper", helper)
	return nil
}

// addRequest adds a request, which replaces the one for the same volume. A compare-and-swap of the
// object, or of all requests, would fail whenever the node reports something or another volume is
// asked for, as happens all the time when a node with many volumes is lost. The API server refuses
// the patch as invalid if what it replaces has changed, and if there is a request for the volume
// already, because the requests are a map by volume.
func addRequest(old *apiv1.NodeRequests, request apiv1.FenceRequest) (client.Patch, error) {
	type operation struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value any    `json:"value"`
	}
	const requests, path = "/spec/requests", "/spec/requests/fences"
	only := []apiv1.FenceRequest{request}
	operations := []operation{{"test", requests, nil}, {"add", requests, apiv1.NodeRequests{Fences: only}}}
	if old != nil {
		i := slices.IndexFunc(old.Fences, func(r apiv1.FenceRequest) bool { return r.VolumeName == request.VolumeName })
		at := fmt.Sprintf("%s/%d", path, i)
		switch {
		case i >= 0:
			operations = []operation{{"test", at, old.Fences[i]}, {"replace", at, request}}
		case len(old.Fences) > 0:
			operations = []operation{{"add", path + "/-", request}}
		default:
			operations = []operation{{"test", path, nil}, {"add", path, only}}
		}
	}
	data, err := json.Marshal(operations)
	return client.RawPatch(types.JSONPatchType, data), err
}

// answered requests the attachments about which a node has answered.
func answered(_ context.Context, o client.Object) []reconcile.Request {
	d, ok := o.(*apiv1.AzDriverNode)
	if !ok {
		return nil
	}
	var requests []reconcile.Request
	for _, result := range d.Status.FenceResults {
		key := client.ObjectKey{Namespace: d.Namespace, Name: apiv1.AttachmentName(result.VolumeName, result.NodeName)}
		requests = append(requests, reconcile.Request{NamespacedName: key})
	}
	return requests
}
