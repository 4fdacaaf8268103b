package lifecycle

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	binding      = "binding"
	selectedNode = "volume.kubernetes.io/selected-node"
)

var bindingTests = []Test{
	{Topic: binding, Name: "a claim waits for a pod, and for the node that is selected for it", run: waitsForTheNode},
	{Topic: binding, Name: "a claim of an immediate class does not wait for a pod", run: bindsAtOnce},
}

func (t *bench) awaitPhase(ctx context.Context, pv string, phase corev1.PersistentVolumePhase) error {
	return await(ctx, fmt.Sprintf("PersistentVolume %s is %s", pv, phase), func(ctx context.Context) error {
		v, err := t.kube.CoreV1().PersistentVolumes().Get(ctx, pv, metav1.GetOptions{})
		if err != nil {
			return err
		}
		return check(v.Status.Phase == phase, "it is %s", v.Status.Phase)
	})
}

func (t *bench) checkNotSelected(ctx context.Context, name string) error {
	claim, err := t.getClaim(ctx, name)
	if err != nil {
		return err
	}
	return check(claim.Annotations[selectedNode] == "", "node %q was selected for it", claim.Annotations[selectedNode])
}

func waitsForTheNode(ctx context.Context, t *bench) error {
	if err := t.data(ctx, "4Gi"); err != nil {
		return err
	}
	if _, err := t.awaitEvent(ctx, "data", "WaitForFirstConsumer"); err != nil {
		return err
	}
	claim, err := t.getClaim(ctx, "data")
	if err != nil {
		return err
	}
	err = errors.Join(
		check(claim.Status.Phase == corev1.ClaimPending, "without a pod the claim is %s", claim.Status.Phase),
		check(claim.Annotations[selectedNode] == "", "without a pod node %q is selected", claim.Annotations[selectedNode]),
	)
	if err != nil {
		return err
	}
	pod, err := t.run(ctx, "consumer", []string{"data"})
	if err != nil {
		return err
	}
	claim, pv, err := t.awaitBound(ctx, "data")
	if err != nil {
		return err
	}
	node, err := t.Plan.Node(pod.Spec.NodeName)
	if err != nil {
		return err
	}
	disk, err := t.disk(ctx, pv)
	if err != nil {
		return err
	}
	return errors.Join(
		check(claim.Annotations[selectedNode] == node.Name, "the pod is on %s, and selected was %q", node.Name,
			claim.Annotations[selectedNode]),
		check(len(disk.Zones) == 1 && disk.Zones[0] == node.Zone, "the disk is in zones %v, and the pod's node in %s", disk.Zones,
			node.Zone),
		check(zoneOf(pv) == node.ZoneLabel(), "the volume is for nodes in %q, and the pod's is in %s", zoneOf(pv),
			node.ZoneLabel()),
	)
}

// zoneOf is the zone to which the volume's node affinity holds it; "" if it is not one.
func zoneOf(pv *corev1.PersistentVolume) string {
	if pv.Spec.NodeAffinity == nil || pv.Spec.NodeAffinity.Required == nil {
		return ""
	}
	for _, term := range pv.Spec.NodeAffinity.Required.NodeSelectorTerms {
		for _, e := range term.MatchExpressions {
			if e.Key == zoneKey && len(e.Values) == 1 {
				return e.Values[0]
			}
		}
	}
	return ""
}

func bindsAtOnce(ctx context.Context, t *bench) error {
	if _, err := t.bound(ctx, "4Gi"); err != nil {
		return err
	}
	return t.checkNotSelected(ctx, "data")
}
