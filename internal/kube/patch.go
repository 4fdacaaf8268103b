package kube

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Patch writes what changed has and before has not, outside the status. If the object has changed
// since before was read, it writes nothing and the error is a Conflict. After a success changed is
// the object as the API server has it.
func Patch(ctx context.Context, c client.Writer, changed, before client.Object) error {
	return c.Patch(ctx, changed, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
}

// PatchStatus is Patch for the status.
func PatchStatus(ctx context.Context, c client.StatusClient, changed, before client.Object) error {
	return c.Status().Patch(ctx, changed, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
}

// Delete deletes an object if it is the one that was read, by its UID, and has not changed since;
// otherwise the error is a Conflict.
func Delete(ctx context.Context, c client.Writer, o client.Object) error {
	uid, version := o.GetUID(), o.GetResourceVersion()
	return c.Delete(ctx, o, client.Preconditions{UID: &uid, ResourceVersion: &version})
}
