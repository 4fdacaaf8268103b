package cluster

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/kube"
	"github.com/azuredisk-csi/azuredisk/internal/plan/refusal"
	"github.com/azuredisk-csi/azuredisk/internal/volumehandle"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// Records are the custom resources of one namespace.
type Records struct {
	// Client reads from the cache, which has the indexes, and writes; Reader reads from the API
	// server.
	Client client.Client
	Reader client.Reader
	// Watch reports changes in the cache.
	Watch     *Watch
	Namespace string
}

// Unpaused returns refusal.Paused for a disk whose AzVolume is paused, from the cache. A caller that is going
// to ask Azure about the disk calls it first. attempted says what is refused.
func (r *Records) Unpaused(ctx context.Context, handle volumehandle.Handle, attempted string) error {
	v, err := kube.Find[apiv1.AzVolume](ctx, r.Client, r.Key(handle.VolumeName()), client.UnsafeDisableDeepCopy)
	if err != nil || v == nil || !volumehandle.Of(v.Spec.Disk).Same(handle) {
		return err
	}
	return refusal.Paused(v, attempted)
}

// Key returns the key of an object in the namespace.
func (r *Records) Key(name string) client.ObjectKey {
	return client.ObjectKey{Namespace: r.Namespace, Name: name}
}

// Volume reads an AzVolume from the API server. It returns nil if there is none, and a
// FailedPrecondition if the AzVolume of that name, which a user may have created, is of another
// disk.
func (r *Records) Volume(ctx context.Context, handle volumehandle.Handle) (*apiv1.AzVolume, error) {
	v, err := kube.Find[apiv1.AzVolume](ctx, r.Reader, r.Key(handle.VolumeName()))
	if err != nil || v == nil {
		return nil, err
	}
	if !volumehandle.Of(v.Spec.Disk).Same(handle) {
		return nil, provisioner.Errorf(provisioner.FailedPrecondition,
			"read the AzVolume of disk %s: AzVolume %s has its name and is of disk %s; if it was created manually, delete it",
			handle, v.Name, volumehandle.Of(v.Spec.Disk))
	}
	return v, nil
}

// Attachment returns an attachment, or nil if there is none.
func (r *Records) Attachment(ctx context.Context, reader client.Reader, volume, node string) (*apiv1.AzVolumeAttachment, error) {
	return kube.Find[apiv1.AzVolumeAttachment](ctx, reader, r.Key(apiv1.AttachmentName(volume, node)))
}

// Attachments returns the attachments of a volume. They may be the cache's own, and are only read.
func (r *Records) Attachments(ctx context.Context, reader client.Reader, volume string) ([]*apiv1.AzVolumeAttachment, error) {
	return Attachments(ctx, reader, r.Namespace, AttachmentVolume, volume)
}

// EpochOf returns the epoch of a volume, 0 before a node first acquired ownership.
func EpochOf(v *apiv1.AzVolume) int64 {
	if v.Status.Primary == nil {
		return 0
	}
	return v.Status.Primary.Epoch
}

// ErrChanged makes RetryChanged call again.
var ErrChanged = errors.New("the object has changed since it was read")

// IsChanged says that an object changed, or was deleted, between a read and the write that failed.
func IsChanged(err error) bool {
	return errors.Is(err, ErrChanged) || apierrors.IsConflict(err) || apierrors.IsNotFound(err)
}

// RetryChanged calls try, which reads objects and writes one of them, until its error is not that the
// object has changed. what names the object in the error after the last try, which is a Conflict.
func RetryChanged(what string, try func() error) error {
	err := kube.Retry(IsChanged, try)
	if IsChanged(err) {
		return provisioner.Errorf(provisioner.Conflict, "write %s: other clients change it too often: %v", what, err)
	}
	return err
}

// UnconfirmCustody removes the confirmation that this cluster uses the disk of a volume, after
// Azure has contradicted it; see AzVolumeStatus.ConfirmedUID. The write is unconditional: whatever
// has changed since, it is right to ask Azure once more. An AzVolume that does not exist is no
// error.
func UnconfirmCustody(ctx context.Context, c client.Client, key client.ObjectKey) error {
	v := &apiv1.AzVolume{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	patch := client.RawPatch(types.MergePatchType, []byte(`{"status":{"confirmedUID":null}}`))
	if err := c.Status().Patch(ctx, v, patch); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("remove the confirmation of volume %s: %w", key.Name, err)
	}
	return nil
}
