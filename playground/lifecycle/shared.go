package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/azuredisk-csi/azuredisk/playground/cluster"
)

const sharing = "sharing"

var sharedTests = []Test{
	{Topic: sharing, Name: "a ReadWriteMany block volume is used on two nodes at once", run: sharesBlock},
	{Topic: sharing, Name: "a ReadWriteOncePod volume has one pod in the whole cluster", run: holdsToOnePod},
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

// azVolumeOf returns the name of the AzVolume of a volume whose disk has the name of its
// PersistentVolume; "" if there is none.
func (t *bench) azVolumeOf(ctx context.Context, pv *corev1.PersistentVolume) (string, error) {
	list, err := t.dyn.Resource(azVolumes).Namespace(cluster.DriverNamespace).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("spec.disk.name", pv.Name).String(),
	})
	if err != nil || len(list.Items) == 0 {
		return "", err
	}
	return list.Items[0].GetName(), nil
}
