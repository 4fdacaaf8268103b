package collect

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/azuredisk-csi/azuredisk/internal/cli/explain"
)

// SnapshotGroup is the API group and version of snapshots.
var SnapshotGroup = schema.GroupVersion{Group: "snapshot.storage.k8s.io", Version: "v1"}

// The resources of snapshots, as explain.Unread names them.
const (
	snapshots       = "volumesnapshots.snapshot.storage.k8s.io"
	snapshotClasses = "volumesnapshotclasses.snapshot.storage.k8s.io"
)

// snapshot reads the subject, a VolumeSnapshot.
func (c *collection) snapshot(ctx context.Context) error {
	s, err := c.unstructured(ctx, snapshots, "VolumeSnapshot", c.Subject.Namespace, c.Subject.Name)
	if err != nil {
		return err
	}
	if s == nil {
		return c.absent(snapshots)
	}
	text := func(o *unstructured.Unstructured, fields ...string) string {
		found, _, _ := unstructured.NestedString(o.Object, fields...)
		return found
	}
	found := &explain.Snapshot{
		Class:       text(s, "spec", "volumeSnapshotClassName"),
		SourceClaim: text(s, "spec", "source", "persistentVolumeClaimName"),
		Bound:       text(s, "status", "boundVolumeSnapshotContentName"),
		Error:       text(s, "status", "error", "message"),
		Created:     s.GetCreationTimestamp().Time,
	}
	found.Ready, _, _ = unstructured.NestedBool(s.Object, "status", "readyToUse")
	if at, err := time.Parse(time.RFC3339, text(s, "status", "error", "time")); err == nil {
		found.ErrorTime = at
	}
	c.facts.Snapshot = found
	if found.Class != "" {
		class, err := c.unstructured(ctx, snapshotClasses, "VolumeSnapshotClass", "", found.Class)
		switch {
		case err != nil:
			return err
		case class == nil:
			found.ClassMissing = !c.isUnread(snapshotClasses)
		default:
			found.Driver = text(class, "driver")
		}
	}
	if found.SourceClaim == "" || found.Bound != "" {
		return nil
	}
	claim, err := get[corev1.PersistentVolumeClaim](ctx, c.reader, explain.Claims, c.Subject.Namespace, found.SourceClaim)
	found.SourceMissing = claim == nil && !c.isUnread(explain.Claims)
	return err
}

// snapshotsOf reads the snapshots of a claim that is being deleted and that they keep.
func (c *collection) snapshotsOf(ctx context.Context, v *explain.Volume) error {
	if v.Claim.DeletionTimestamp == nil || !slices.Contains(v.Claim.Finalizers, explain.FinalizerSnapshot) {
		return nil
	}
	var list unstructured.UnstructuredList
	list.SetGroupVersionKind(SnapshotGroup.WithKind("VolumeSnapshotList"))
	if err := c.list(ctx, snapshots, &list, client.InNamespace(v.Namespace)); err != nil {
		return err
	}
	for i := range list.Items {
		s := list.Items[i].Object
		claim, _, _ := unstructured.NestedString(s, "spec", "source", "persistentVolumeClaimName")
		ready, _, _ := unstructured.NestedBool(s, "status", "readyToUse")
		if claim == v.ClaimName && !ready {
			v.Snapshots = append(v.Snapshots, list.Items[i].GetName())
		}
	}
	slices.Sort(v.Snapshots)
	return nil
}

func (c *collection) unstructured(ctx context.Context, what, kind, namespace, name string) (*unstructured.Unstructured, error) {
	found := &unstructured.Unstructured{}
	found.SetGroupVersionKind(SnapshotGroup.WithKind(kind))
	if ok, err := c.read(ctx, what, client.ObjectKey{Namespace: namespace, Name: name}, found); !ok {
		return nil, err
	}
	return found, nil
}
