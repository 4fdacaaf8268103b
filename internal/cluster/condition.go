package cluster

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/kube"
	"github.com/azuredisk-csi/azuredisk/internal/plan/nodehealth"
	"github.com/azuredisk-csi/azuredisk/internal/plan/operation"
)

// WriteCondition writes a condition of an AzDriverNode, with the condition Ready as it is then, if it is not
// there as it should be, and reports whether it did. On a new node a condition that is True is left to the
// writer of the capacity, which saves a write per node. After a write d is the object as the API server has
// it. If d was old, the error is a Conflict.
func WriteCondition(ctx context.Context, c client.StatusClient, d *apiv1.AzDriverNode, wanted metav1.Condition) (bool, error) {
	wanted.Message = operation.Shorten(wanted.Message)
	before := meta.FindStatusCondition(d.Status.Conditions, wanted.Type)
	switch {
	case before == nil && wanted.Status == metav1.ConditionTrue && d.Status.Capacity == nil && d.Spec.VMSize != "":
		return false, nil
	case before != nil && before.Status == wanted.Status && before.Reason == wanted.Reason && before.Message == wanted.Message:
		return false, nil
	}
	changed := d.DeepCopy()
	meta.SetStatusCondition(&changed.Status.Conditions, wanted)
	if ready, differs := nodehealth.Ready(changed.Status.Conditions); differs {
		ready.LastTransitionTime = wanted.LastTransitionTime
		meta.SetStatusCondition(&changed.Status.Conditions, ready)
	}
	if err := kube.PatchStatus(ctx, c, changed, d); err != nil {
		return false, fmt.Errorf("write condition %s of node %s: %w", wanted.Type, d.Name, err)
	}
	changed.DeepCopyInto(d)
	return true, nil
}

// AboutNode returns what an event about a Node is about. Events on Nodes carry the name as UID, as
// the kubelet's do.
func AboutNode(name string) *corev1.ObjectReference {
	return &corev1.ObjectReference{
		APIVersion: "v1",
		Kind:       "Node",
		Name:       name,
		UID:        types.UID(name),
	}
}
