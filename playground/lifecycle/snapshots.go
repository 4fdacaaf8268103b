package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
)

const copying = "copying"

var snapshotTests = []Test{
	{Topic: copying, Name: "a snapshot keeps what was written before it, and a new volume starts with that", run: restores},
	{Topic: copying, Name: "a deleted VolumeSnapshot takes its snapshot at Azure with it", run: deletesSnapshot},
	{Topic: copying, Name: "a clone has its source's data, is larger if wanted, and is used beside it on one node", run: clones},
}

// snapshot makes a VolumeSnapshot of a claim, with a class of its own, and waits until it can be
// used. It returns the handle of the snapshot, which is its ID at Azure.
func (t *bench) snapshot(ctx context.Context, name, claim string) (handle string, err error) {
	class := newObject("VolumeSnapshotClass", t.namespace+"-"+name)
	class.Object["driver"], class.Object["deletionPolicy"] = driverName, "Delete"
	if _, err := t.dyn.Resource(snapshotClasses).Create(ctx, class, metav1.CreateOptions{}); err != nil {
		return "", fmt.Errorf("make VolumeSnapshotClass: %w", err)
	}
	t.later("delete the VolumeSnapshotClass", func(ctx context.Context) error {
		return t.dyn.Resource(snapshotClasses).Delete(ctx, class.GetName(), metav1.DeleteOptions{})
	})
	snapshot := newObject("VolumeSnapshot", name)
	snapshot.Object["spec"] = map[string]any{
		"volumeSnapshotClassName": class.GetName(),
		"source":                  map[string]any{"persistentVolumeClaimName": claim},
	}
	if _, err := t.dyn.Resource(snapshots).Namespace(t.namespace).Create(ctx, snapshot, metav1.CreateOptions{}); err != nil {
		return "", fmt.Errorf("make VolumeSnapshot: %w", err)
	}
	return handle, await(ctx, "the snapshot can be used", func(ctx context.Context) error {
		s, err := t.dyn.Resource(snapshots).Namespace(t.namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		status, _, _ := unstructured.NestedMap(s.Object, "status")
		if ready, _ := status["readyToUse"].(bool); !ready {
			return fmt.Errorf("its status is %v", status)
		}
		content, _ := status["boundVolumeSnapshotContentName"].(string)
		c, err := t.dyn.Resource(snapshotContents).Get(ctx, content, metav1.GetOptions{})
		if err != nil {
			return err
		}
		handle, _, err = unstructured.NestedString(c.Object, "status", "snapshotHandle")
		return err
	})
}

func newObject(kind, name string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{}}
	o.SetAPIVersion(snapshots.GroupVersion().String())
	o.SetKind(kind)
	o.SetName(name)
	o.SetLabels(labels())
	return o
}

// from makes a claim start with the content of a snapshot or of another claim.
func from(group, kind, name string) func(*corev1.PersistentVolumeClaim) {
	return func(c *corev1.PersistentVolumeClaim) {
		c.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: kind, Name: name}
		if group != "" {
			c.Spec.DataSource.APIGroup = ptr.To(group)
		}
	}
}

func restores(ctx context.Context, t *bench) error {
	pod, pv, err := t.volume(ctx, "4Gi")
	if err != nil {
		return err
	}
	if _, err := t.probe(ctx, pod.Name, "put", filePath("data", "file"), "before the snapshot"); err != nil {
		return err
	}
	if _, err := t.snapshot(ctx, "kept", "data"); err != nil {
		return err
	}
	if _, err := t.probe(ctx, pod.Name, "put", filePath("data", "file"), "after the snapshot"); err != nil {
		return err
	}
	if err := t.claim(ctx, "restored", pv.Spec.StorageClassName, "4Gi",
		from(snapshots.Group, "VolumeSnapshot", "kept")); err != nil {
		return err
	}
	// On the same node, where two filesystems of one identity would be in each other's way.
	if _, err := t.run(ctx, "reader", []string{"restored"}, on(pod.Spec.NodeName)); err != nil {
		return err
	}
	return errors.Join(
		t.expect(ctx, "before the snapshot", "reader", "cat", filePath("restored", "file")),
		t.expect(ctx, "after the snapshot", pod.Name, "cat", filePath("data", "file")),
	)
}

func deletesSnapshot(ctx context.Context, t *bench) error {
	if _, err := t.bound(ctx, "4Gi"); err != nil {
		return err
	}
	handle, err := t.snapshot(ctx, "short-lived", "data")
	if err != nil {
		return err
	}
	var there struct {
		Name string `json:"name"`
	}
	if err := t.arm.Get(ctx, handle, snapshotVersion, &there); err != nil {
		return fmt.Errorf("look for the snapshot at Azure: %w", err)
	}
	if err := t.dyn.Resource(snapshots).Namespace(t.namespace).Delete(ctx, "short-lived", metav1.DeleteOptions{}); err != nil {
		return err
	}
	return await(ctx, "the snapshot is deleted at Azure", func(ctx context.Context) error {
		err := t.arm.Get(ctx, handle, snapshotVersion, &there)
		switch {
		case err == nil:
			return errors.New("it is there")
		case strings.HasPrefix(err.Error(), "404"):
			return nil
		}
		return err
	})
}

func clones(ctx context.Context, t *bench) error {
	pod, pv, err := t.volume(ctx, "4Gi")
	if err != nil {
		return err
	}
	if _, err := t.probe(ctx, pod.Name, "put", filePath("data", "file"), "cloned"); err != nil {
		return err
	}
	if err := t.claim(ctx, "clone", pv.Spec.StorageClassName, "6Gi", from("", "PersistentVolumeClaim", "data")); err != nil {
		return err
	}
	if _, err := t.run(ctx, "reader", []string{"clone"}, on(pod.Spec.NodeName)); err != nil {
		return err
	}
	return errors.Join(
		t.expect(ctx, "cloned", "reader", "cat", filePath("clone", "file")),
		t.expect(ctx, "cloned", pod.Name, "cat", filePath("data", "file")),
		t.awaitSize(ctx, "reader", dataDir+"/clone", 6, true),
	)
}
