package view

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
)

// ConflictRetry is how soon to look again at an object that somebody else changed meanwhile.
const ConflictRetry = 25 * time.Millisecond

// AttachmentsOfNode returns the attachments to a node. They are the cache's own, and only to be read.
func AttachmentsOfNode(ctx context.Context, reader client.Reader, namespace, node string) ([]apiv1.AzVolumeAttachment, error) {
	var list apiv1.AzVolumeAttachmentList
	err := reader.List(ctx, &list, client.InNamespace(namespace), client.MatchingFields{AttachmentNode: node}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, fmt.Errorf("list attachments of node %s: %w", node, err)
	}
	return list.Items, nil
}

// PersistentVolume returns the PersistentVolume of an AzVolume, nil if there is none. It is the cache's own, and only to be read.
func PersistentVolume(ctx context.Context, reader client.Reader, volume string) (*corev1.PersistentVolume, error) {
	var list corev1.PersistentVolumeList
	if err := reader.List(ctx, &list, client.MatchingFields{PersistentVolumeVolume: volume}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list PersistentVolumes of volume %s: %w", volume, err)
	}
	if len(list.Items) == 0 {
		return nil, nil
	}
	return &list.Items[0], nil
}

// PodsOf returns the pods that use the claim to which a PersistentVolume is bound. They are the cache's own, and only to be read.
func PodsOf(ctx context.Context, reader client.Reader, pv *corev1.PersistentVolume) ([]*corev1.Pod, error) {
	if pv == nil || pv.Spec.ClaimRef == nil {
		return nil, nil
	}
	claim := pv.Spec.ClaimRef
	var list corev1.PodList
	if err := reader.List(ctx, &list, client.MatchingFields{PodClaim: claim.Namespace + "/" + claim.Name}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list pods of claim %s/%s: %w", claim.Namespace, claim.Name, err)
	}
	pods := make([]*corev1.Pod, 0, len(list.Items))
	for i := range list.Items {
		pods = append(pods, &list.Items[i])
	}
	return pods, nil
}
