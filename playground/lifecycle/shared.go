package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
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
	pod, _, err := t.volume(ctx, "data", "4Gi")
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
	a, b := t.pair()
	if _, err := t.run(ctx, "before", []string{"data"}, on(a)); err != nil {
		return err
	}
	if _, err := t.probe(ctx, "before", "put", filePath("data", "file"), "kept"); err != nil {
		return err
	}
	_, pv, err := t.awaitBound(ctx, "data")
	if err != nil {
		return err
	}
	replica, err := t.Plan.Node(b)
	if err != nil {
		return err
	}
	err = await(ctx, "the disk has a replica", func(ctx context.Context) error {
		disk, err := t.disk(ctx, pv)
		if err != nil {
			return err
		}
		return check(disk.attachedTo(replica), "it is attached to %v", disk.ManagedByExtended)
	})
	if err != nil {
		return err
	}
	if err := t.deletePod(ctx, "before"); err != nil {
		return err
	}
	pod, err := t.run(ctx, "after", []string{"data"})
	if err != nil {
		return err
	}
	disk, err := t.disk(ctx, pv)
	if err != nil {
		return err
	}
	node, err := t.Plan.Node(pod.Spec.NodeName)
	if err != nil {
		return err
	}
	return errors.Join(
		check(disk.attachedTo(node), "the pod runs on %s, to which the disk is not attached", node.Name),
		t.expect(ctx, "kept", "after", "cat", filePath("data", "file")),
	)
}
