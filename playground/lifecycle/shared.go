package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/azuredisk-csi/azuredisk/playground/cluster"
)

const sharing = "sharing"

var sharedTests = []Test{
	{Topic: sharing, Name: "a ReadWriteMany block volume is used on two nodes at once", run: sharesBlock},
	{Topic: sharing, Name: "a ReadWriteOncePod volume has one pod in the whole cluster", run: holdsToOnePod},
	{Topic: sharing, Name: "two pods on one node share a ReadWriteOnce volume", run: sharesOnOneNode},
	{Topic: sharing, Name: "a pod that moves to the node with the replica needs no new attach", run: movesToTheReplica},
}

func sharesBlock(ctx context.Context, t *bench) error {
	class, err := t.class(ctx, "shared", parameters("maxShares", "2", "cachingMode", "None"))
	if err != nil {
		return err
	}
	if err := t.claim(ctx, "shared", class, "4Gi", block, accessMode(corev1.ReadWriteMany)); err != nil {
		return err
	}
	a, b := t.pair()
	if _, err := t.run(ctx, "first", []string{"shared"}, on(a)); err != nil {
		return err
	}
	if _, err := t.run(ctx, "second", []string{"shared"}, on(b)); err != nil {
		return err
	}
	const text = "written on the first node"
	if _, err := t.probe(ctx, "first", "write", devicePath("shared"), text); err != nil {
		return err
	}
	if err := t.expect(ctx, text, "second", "read", devicePath("shared"), fmt.Sprint(len(text))); err != nil {
		return err
	}
	_, pv, err := t.awaitBound(ctx, "shared")
	if err != nil {
		return err
	}
	disk, err := t.disk(ctx, pv)
	if err != nil {
		return err
	}
	for _, name := range []string{a, b} {
		node, err := t.Plan.Node(name)
		if err != nil {
			return err
		}
		if !disk.attachedTo(node) {
			return fmt.Errorf("the disk is not attached to %s", name)
		}
	}
	if err := t.deletePod(ctx, "first"); err != nil {
		return err
	}
	if err := t.awaitPodGone(ctx, "first"); err != nil {
		return err
	}
	return t.expect(ctx, text, "second", "read", devicePath("shared"), fmt.Sprint(len(text)))
}

func holdsToOnePod(ctx context.Context, t *bench) error {
	class, err := t.class(ctx, "single")
	if err != nil {
		return err
	}
	if err := t.claim(ctx, "data", class, "4Gi", accessMode(corev1.ReadWriteOncePod)); err != nil {
		return err
	}
	if _, err := t.run(ctx, "first", []string{"data"}); err != nil {
		return err
	}
	if err := t.pod(ctx, "second", []string{"data"}); err != nil {
		return err
	}
	_, err = t.awaitPod(ctx, "second", "is told why it waits", func(p *corev1.Pod) error {
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
				return check(strings.Contains(c.Message, "ReadWriteOncePod"), "%s", c.Message)
			}
		}
		return errors.New("nothing is said yet")
	})
	if err != nil {
		return err
	}
	if err := t.deletePod(ctx, "first"); err != nil {
		return err
	}
	_, err = t.awaitRunning(ctx, "second")
	return err
}

func sharesOnOneNode(ctx context.Context, t *bench) error {
	pod, _, err := t.volume(ctx, "4Gi")
	if err != nil {
		return err
	}
	// The scheduler knows by itself where the volume is only by its zone: the node is named.
	if _, err := t.run(ctx, "second", []string{"data"}, on(pod.Spec.NodeName)); err != nil {
		return err
	}
	if _, err := t.probe(ctx, "second", "put", filePath("data", "file"), "from the second"); err != nil {
		return err
	}
	return t.expect(ctx, "from the second", pod.Name, "cat", filePath("data", "file"))
}

func movesToTheReplica(ctx context.Context, t *bench) error {
	class, err := t.class(ctx, "replicated", parameters("maxShares", "2", "maxMountReplicaCount", "1", "cachingMode", "None"))
	if err != nil {
		return err
	}
	if err := t.claim(ctx, "data", class, "4Gi"); err != nil {
		return err
	}
	// Were the pod held to its node, there would be no other for the replica.
	before, err := t.run(ctx, "before", []string{"data"}, inZone(zone1))
	if err != nil {
		return err
	}
	if _, err := t.probe(ctx, "before", "put", filePath("data", "file"), "kept"); err != nil {
		return err
	}
	_, pv, err := t.awaitBound(ctx, "data")
	if err != nil {
		return err
	}
	replica, err := t.awaitReplica(ctx, pv)
	if err != nil {
		return err
	}
	if err := t.deletePod(ctx, "before"); err != nil {
		return err
	}
	after, err := t.run(ctx, "after", []string{"data"}, func(p *corev1.Pod) {
		not := &p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchExpressions[0]
		not.Values = append(not.Values, before.Spec.NodeName)
	})
	if err != nil {
		return err
	}
	primary, err := t.dyn.Resource(azAttachments).Namespace(cluster.DriverNamespace).Get(ctx, replica.GetName(), metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("look for the attachment that was the replica: %w", err)
	}
	return errors.Join(
		check(after.Spec.NodeName == specOf(primary, "nodeName"), "the pod runs on %s, and the replica was on %s", after.Spec.NodeName, specOf(primary, "nodeName")),
		check(primary.GetUID() == replica.GetUID() && specOf(primary, "role") == "Primary", "the replica has not become the primary"),
		t.expect(ctx, "kept", "after", "cat", filePath("data", "file")),
	)
}

// awaitReplica waits until the volume has a replica that is attached.
func (t *bench) awaitReplica(ctx context.Context, pv *corev1.PersistentVolume) (replica *unstructured.Unstructured, err error) {
	return replica, await(ctx, "the volume has a replica", func(ctx context.Context) error {
		volume, err := t.azVolumeOf(ctx, pv)
		if err != nil {
			return err
		}
		list, err := t.dyn.Resource(azAttachments).Namespace(cluster.DriverNamespace).List(ctx, metav1.ListOptions{
			FieldSelector: fields.OneTermEqualSelector("spec.volumeName", volume).String(),
		})
		if err != nil {
			return err
		}
		for i := range list.Items {
			state, _, _ := unstructured.NestedString(list.Items[i].Object, "status", "state")
			if specOf(&list.Items[i], "role") == "Replica" && state == "Attached" {
				replica = &list.Items[i]
				return nil
			}
		}
		return fmt.Errorf("it has %d attachments, and none is", len(list.Items))
	})
}

// azVolumeOf returns the name of the AzVolume of a volume whose disk has the name of its PersistentVolume; "" if there is none.
func (t *bench) azVolumeOf(ctx context.Context, pv *corev1.PersistentVolume) (string, error) {
	list, err := t.dyn.Resource(azVolumes).Namespace(cluster.DriverNamespace).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("spec.disk.name", pv.Name).String(),
	})
	if err != nil || len(list.Items) == 0 {
		return "", err
	}
	return list.Items[0].GetName(), nil
}

func specOf(o *unstructured.Unstructured, field string) string {
	text, _, _ := unstructured.NestedString(o.Object, "spec", field)
	return text
}
