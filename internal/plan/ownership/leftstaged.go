package ownership

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
)

// UnstageAfter is how long after the start of the release a node waits for the kubelet to unstage a
// volume. The kubelet retries a call at most every two minutes.
const UnstageAfter = 3 * time.Minute

// LeftStaged reports whether a node is to unstage a volume, which no pod there uses, without a call
// of the kubelet: the release of the ownership under which it was staged has begun, and has waited
// for UnstageAfter for the node. A kubelet that was restarted after the unpublish has forgotten the
// volume. For a multi-node volume, the deletion of the node's attachment begins the release.
// attachment is the node's, nil if there is none.
func LeftStaged(node string, epoch int64, volume *apiv1.AzVolume, attachment *apiv1.AzVolumeAttachment, now time.Time) bool {
	var since *metav1.Time
	switch primary := volume.Status.Primary; {
	case volume.Spec.Access == apiv1.AccessMultiNode:
		if attachment != nil && attachment.Spec.Epoch == epoch {
			since = attachment.DeletionTimestamp
		}
	case OwnedBy(volume, node) && primary.State == apiv1.OwnershipReleasing && primary.Epoch == epoch:
		since = primary.LastTransitionTime
	}
	return since != nil && now.Sub(since.Time) >= UnstageAfter
}
