package kube

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
)

// Patch writes what changed has and before has not, outside the status. If the object has changed
// since before was read, it writes nothing and the error is a Conflict. After a success changed is
// the object as the API server has it.
//
// Fields of custom resources that this version of the driver does not know stay, also in the entries of
// lists that have keys: a later version may have written them. A write of the whole object or list
// would remove them.
func Patch(ctx context.Context, c client.Writer, changed, before client.Object) error {
	return asConflict(changed, c.Patch(ctx, changed, from(before)))
}

// PatchStatus is Patch for the status.
func PatchStatus(ctx context.Context, c client.StatusClient, changed, before client.Object) error {
	return asConflict(changed, c.Status().Patch(ctx, changed, from(before)))
}

// from is the patch of what differs from an object. Of Kubernetes' objects the caches have only a
// part, so what seems to be absent may be there: a merge patch leaves it.
func from(before client.Object) client.Patch {
	switch before.(type) {
	case *apiv1.AzVolume, *apiv1.AzVolumeAttachment, *apiv1.AzDriverNode:
		return &FieldPatch{Before: before}
	}
	return client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
}

// asConflict returns a Conflict for a patch that does not fit the object, which has changed then: the
// API server applies a patch before it compares the versions. An object that breaks a rule of its
// schema is invalid for other reasons, each with a field.
func asConflict(o client.Object, err error) error {
	if !apierrors.IsInvalid(err) {
		return err
	}
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Details != nil {
		for _, cause := range status.Status().Details.Causes {
			if cause.Field != "" && cause.Type != metav1.CauseTypeUnexpectedServerResponse {
				return err
			}
		}
	}
	return apierrors.NewConflict(schema.GroupResource{}, o.GetName(), err)
}

// Delete deletes an object if it is the one that was read, by its UID, and has not changed since;
// otherwise the error is a Conflict.
func Delete(ctx context.Context, c client.Writer, o client.Object) error {
	uid, version := o.GetUID(), o.GetResourceVersion()
	return c.Delete(ctx, o, client.Preconditions{UID: &uid, ResourceVersion: &version})
}
