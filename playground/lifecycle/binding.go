package lifecycle

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/azuredisk-csi/azuredisk/playground/topology"
)

const (
	staticBinding  = "static binding"
	delayedBinding = "delayed binding"

	boundByController = "pv.kubernetes.io/bound-by-controller"
	bindCompleted     = "pv.kubernetes.io/bind-completed"
	selectedNode      = "volume.kubernetes.io/selected-node"
)

var bindingTests = []Test{
	{Topic: staticBinding, Name: "a claim takes the smallest volume that is large enough", run: takesTheSmallest},
	{Topic: staticBinding, Name: "a claim takes no volume of another volume mode", run: refuses(func(pv *corev1.PersistentVolume) {
		pv.Spec.VolumeMode = ptr.To(corev1.PersistentVolumeBlock)
	})},
	{Topic: staticBinding, Name: "a claim takes no volume without its access mode", run: refuses(func(pv *corev1.PersistentVolume) {
		pv.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadOnlyMany}
	})},
	{Topic: staticBinding, Name: "a claim takes no volume of another StorageClass", run: refuses(func(pv *corev1.PersistentVolume) {
		pv.Spec.StorageClassName += "-other"
	})},
	{Topic: staticBinding, Name: "a claim takes no volume that its label selector does not match", run: refuses(func(pv *corev1.PersistentVolume) {
		pv.Labels["tier"] = "bronze"
	})},
	{Topic: staticBinding, Name: "a claim takes no volume that is another claim's", run: refuses(func(pv *corev1.PersistentVolume) {
		pv.Spec.ClaimRef = &corev1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: "default", Name: "another"}
	})},
	{Topic: staticBinding, Name: "a claim takes only a volume whose phase is Available", run: refusesReleased},
	{Topic: staticBinding, Name: "the binding is written to both sides", run: writesBothSides},
	{Topic: staticBinding, Name: "a claim of no StorageClass does not wait for a pod", run: bindsWithoutClass},
	{Topic: delayedBinding, Name: "a claim waits for a pod, and for the node that is selected for it", run: waitsForTheNode},
	{Topic: delayedBinding, Name: "a claim of an immediate class does not wait for a pod", run: bindsAtOnce},
	{Topic: delayedBinding, Name: "a volume that exists already waits for the pod, too", run: existingWaits},
}

// static makes a PersistentVolume for a disk that does not exist, in a class of the test's own.
func (t *bench) static(ctx context.Context, name, size string, change ...func(*corev1.PersistentVolume)) error {
	full := t.namespace + "-" + name
	pv := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: full, Labels: map[string]string{testLabel: "true", "tier": "gold"}},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)},
			AccessModes:                   []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			StorageClassName:              t.namespace,
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
				Driver: driverName, VolumeHandle: diskID(full),
			}},
		},
	}
	for _, c := range change {
		c(pv)
	}
	if _, err := t.kube.CoreV1().PersistentVolumes().Create(ctx, pv, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("make PersistentVolume %s: %w", name, err)
	}
	t.later("delete the PersistentVolume", func(ctx context.Context) error {
		return t.kube.CoreV1().PersistentVolumes().Delete(ctx, full, metav1.DeleteOptions{})
	})
	if pv.Spec.ClaimRef != nil {
		return nil
	}
	return t.awaitPhase(ctx, full, corev1.VolumeAvailable)
}

func diskID(name string) string {
	return fmt.Sprintf("/subscriptions/%s/resourceGroups/%s/providers/Microsoft.Compute/disks/%s", topology.SubscriptionID, topology.ResourceGroup, name)
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

// gold makes a claim select volumes by a label.
func gold(c *corev1.PersistentVolumeClaim) {
	c.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "gold"}}
}

// takes checks which of the test's volumes the claim gets.
func (t *bench) takes(ctx context.Context, claim, volume string) error {
	_, pv, err := t.awaitBound(ctx, claim)
	if err != nil {
		return err
	}
	return check(pv.Name == t.namespace+"-"+volume, "the claim has taken %s and not %s", pv.Name, volume)
}

func takesTheSmallest(ctx context.Context, t *bench) error {
	for _, size := range []string{"20Gi", "4Gi", "10Gi", "12Gi"} {
		if err := t.static(ctx, "of-"+size[:len(size)-2], size); err != nil {
			return err
		}
	}
	if err := t.claim(ctx, "data", t.namespace, "8Gi"); err != nil {
		return err
	}
	return t.takes(ctx, "data", "of-10")
}

// refuses tests that a volume which would fit best is not taken when it is changed so.
func refuses(change func(*corev1.PersistentVolume)) func(context.Context, *bench) error {
	return func(ctx context.Context, t *bench) error {
		if err := t.static(ctx, "wrong", "8Gi", change); err != nil {
			return err
		}
		if err := t.static(ctx, "right", "20Gi"); err != nil {
			return err
		}
		if err := t.claim(ctx, "data", t.namespace, "8Gi", gold); err != nil {
			return err
		}
		return t.takes(ctx, "data", "right")
	}
}

func refusesReleased(ctx context.Context, t *bench) error {
	if err := t.static(ctx, "wrong", "8Gi"); err != nil {
		return err
	}
	if err := t.claim(ctx, "first", t.namespace, "8Gi"); err != nil {
		return err
	}
	if err := t.takes(ctx, "first", "wrong"); err != nil {
		return err
	}
	if err := t.deleteClaim(ctx, "first"); err != nil {
		return err
	}
	if err := t.awaitPhase(ctx, t.namespace+"-wrong", corev1.VolumeReleased); err != nil {
		return err
	}
	if err := t.static(ctx, "right", "20Gi"); err != nil {
		return err
	}
	if err := t.claim(ctx, "data", t.namespace, "8Gi"); err != nil {
		return err
	}
	return t.takes(ctx, "data", "right")
}

func writesBothSides(ctx context.Context, t *bench) error {
	if err := t.static(ctx, "volume", "8Gi"); err != nil {
		return err
	}
	if err := t.claim(ctx, "data", t.namespace, "8Gi"); err != nil {
		return err
	}
	claim, pv, err := t.awaitBound(ctx, "data")
	if err != nil {
		return err
	}
	ref := pv.Spec.ClaimRef
	if ref == nil {
		return errors.New("the volume has no claimRef")
	}
	return errors.Join(
		check(ref.Name == claim.Name && ref.Namespace == claim.Namespace && ref.UID == claim.UID, "the volume's claimRef is %+v", ref),
		check(pv.Status.Phase == corev1.VolumeBound, "the volume is %s", pv.Status.Phase),
		check(pv.Annotations[boundByController] == "yes", "the volume's annotations are %v", pv.Annotations),
		check(claim.Annotations[boundByController] == "yes" && claim.Annotations[bindCompleted] == "yes", "the claim's annotations are %v", claim.Annotations),
	)
}

func bindsWithoutClass(ctx context.Context, t *bench) error {
	noClass := func(pv *corev1.PersistentVolume) {
		pv.Spec.StorageClassName = ""
		pv.Labels["tier"] = t.namespace
	}
	if err := t.static(ctx, "volume", "8Gi", noClass); err != nil {
		return err
	}
	err := t.claim(ctx, "data", "", "8Gi", func(c *corev1.PersistentVolumeClaim) {
		c.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"tier": t.namespace}}
	})
	if err != nil {
		return err
	}
	if err := t.takes(ctx, "data", "volume"); err != nil {
		return err
	}
	return t.checkNotSelected(ctx, "data")
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
		check(claim.Annotations[selectedNode] == node.Name, "the pod is on %s, and selected was %q", node.Name, claim.Annotations[selectedNode]),
		check(len(disk.Zones) == 1 && disk.Zones[0] == node.Zone, "the disk is in zones %v, and the pod's node in %s", disk.Zones, node.Zone),
		check(zoneOf(pv) == node.ZoneLabel(), "the volume is for nodes in %q, and the pod's is in %s", zoneOf(pv), node.ZoneLabel()),
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

func existingWaits(ctx context.Context, t *bench) error {
	class, err := t.class(ctx, "delayed", func(c *storagev1.StorageClass) { c.Provisioner = "kubernetes.io/no-provisioner" })
	if err != nil {
		return err
	}
	inClass := func(pv *corev1.PersistentVolume) { pv.Spec.StorageClassName = class }
	if err := t.static(ctx, "volume", "8Gi", inClass); err != nil {
		return err
	}
	if err := t.claim(ctx, "data", class, "8Gi"); err != nil {
		return err
	}
	if _, err := t.awaitEvent(ctx, "data", "WaitForFirstConsumer"); err != nil {
		return err
	}
	if claim, err := t.getClaim(ctx, "data"); err != nil || claim.Status.Phase != corev1.ClaimPending {
		return errors.Join(err, errors.New("the claim did not wait"))
	}
	if err := t.pod(ctx, "consumer", []string{"data"}); err != nil {
		return err
	}
	return t.takes(ctx, "data", "volume")
}
