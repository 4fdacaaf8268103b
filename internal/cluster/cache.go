package cluster

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/annotation"
	"github.com/azuredisk-csi/azuredisk/internal/plan/claimstatus"
	"github.com/azuredisk-csi/azuredisk/internal/plan/maintenance"
)

// CacheOptions are the options of the controller's cache: the custom resources of one namespace,
// and only those fields of Kubernetes' own objects that the controller reads.
func CacheOptions(namespace string) cache.Options {
	own := cache.ByObject{Namespaces: map[string]cache.Config{namespace: {}}}
	return cache.Options{
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			&apiv1.AzVolume{}:           own,
			&apiv1.AzVolumeAttachment{}: own,
			&apiv1.AzDriverNode{}:       own,
			&corev1.Node{}:              {Transform: transform(trimNode)},
			&corev1.Pod{}: {Transform: transform(trimPod), Field: fields.AndSelectors(
				fields.OneTermNotEqualSelector("status.phase", string(corev1.PodSucceeded)),
				fields.OneTermNotEqualSelector("status.phase", string(corev1.PodFailed)),
			)},
			&corev1.Namespace{}:             {Transform: transform(trimNamespace)},
			&corev1.PersistentVolume{}:      {Transform: transform(trimPersistentVolume)},
			&corev1.PersistentVolumeClaim{}: {Transform: transform(trimPersistentVolumeClaim)},
		},
	}
}

// transform makes a transform of a function that trims an object.
func transform[T any](trim func(*T) *T) toolscache.TransformFunc {
	return func(object any) (any, error) {
		if o, is := object.(*T); is {
			return trim(o), nil
		}
		return object, nil
	}
}

func trimMeta(o metav1.ObjectMeta, labels bool) metav1.ObjectMeta {
	m := metav1.ObjectMeta{
		Name:              o.Name,
		Namespace:         o.Namespace,
		UID:               o.UID,
		ResourceVersion:   o.ResourceVersion,
		CreationTimestamp: o.CreationTimestamp,
		DeletionTimestamp: o.DeletionTimestamp,
	}
	if labels {
		m.Labels = o.Labels
	}
	return m
}

func trimNode(n *corev1.Node) *corev1.Node {
	trimmed := &corev1.Node{ObjectMeta: trimMeta(n.ObjectMeta, true)}
	trimmed.Annotations = keptAnnotations(n.Annotations)
	trimmed.Spec = corev1.NodeSpec{
		ProviderID:    n.Spec.ProviderID,
		Taints:        n.Spec.Taints,
		Unschedulable: n.Spec.Unschedulable,
	}
	trimmed.Status.VolumesInUse = n.Status.VolumesInUse
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady || c.Type == maintenance.NodeCondition {
			c.LastHeartbeatTime = metav1.Time{}
			trimmed.Status.Conditions = append(trimmed.Status.Conditions, c)
		}
	}
	// Where the node is probed.
	for _, a := range n.Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			trimmed.Status.Addresses = append(trimmed.Status.Addresses, a)
		}
	}
	trimmed.Status.DaemonEndpoints = n.Status.DaemonEndpoints
	return trimmed
}

// trimNamespace keeps the fields that a namespaceSelector reads.
func trimNamespace(n *corev1.Namespace) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: trimMeta(n.ObjectMeta, true)}
}

func trimPod(p *corev1.Pod) *corev1.Pod {
	trimmed := &corev1.Pod{ObjectMeta: trimMeta(p.ObjectMeta, true)}
	trimmed.OwnerReferences = p.OwnerReferences
	trimmed.Annotations = keptAnnotations(p.Annotations)
	trimmed.Spec = corev1.PodSpec{NodeName: p.Spec.NodeName, Affinity: podAffinity(p.Spec.Affinity)}
	if len(PodClaimKeys(p)) > 0 { // where the pod may run matters only if it has a volume
		trimmed.Spec.Affinity, trimmed.Spec.NodeSelector = p.Spec.Affinity, p.Spec.NodeSelector
		trimmed.Spec.Tolerations, trimmed.Spec.TopologySpreadConstraints = p.Spec.Tolerations, p.Spec.TopologySpreadConstraints
	}
	trimmed.Spec.Volumes = PodVolumes(p)
	trimmed.Status.Phase = p.Status.Phase
	return trimmed
}

// PodVolumes returns the volumes of a pod to which another node could write at the same time: its
// claims, those of ephemeral volumes included, and storage outside of the node.
func PodVolumes(p *corev1.Pod) []corev1.Volume {
	var volumes []corev1.Volume
	for _, v := range p.Spec.Volumes {
		if claim := ClaimOf(p, v); claim != "" {
			volumes = append(volumes, corev1.Volume{Name: v.Name, VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim, ReadOnly: claimReadOnly(v)},
			}})
		} else if !local(v.VolumeSource) {
			volumes = append(volumes, outside(v))
		}
	}
	return volumes
}

// podAffinity keeps the part of a pod's affinity that concerns other pods, because it may keep them
// off a node.
func podAffinity(a *corev1.Affinity) *corev1.Affinity {
	if a == nil || (a.PodAffinity == nil && a.PodAntiAffinity == nil) {
		return nil
	}
	return &corev1.Affinity{PodAffinity: a.PodAffinity, PodAntiAffinity: a.PodAntiAffinity}
}

// ClaimOf returns the name of the claim that a volume of a pod names, also an ephemeral one; "" for
// another volume.
func ClaimOf(p *corev1.Pod, v corev1.Volume) string {
	switch {
	case v.PersistentVolumeClaim != nil:
		return v.PersistentVolumeClaim.ClaimName
	case v.Ephemeral != nil:
		return p.Name + "-" + v.Name
	default:
		return ""
	}
}

func claimReadOnly(v corev1.Volume) bool {
	return v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ReadOnly
}

// local reports whether a volume that a pod names without a claim lives and dies with the pod or with
// its node, so that no other node can write to it. A kind of volume that is not known to be local,
// also one that is newer than this driver, counts as storage outside of the node.
func local(s corev1.VolumeSource) bool {
	return s.EmptyDir != nil || s.HostPath != nil || s.Secret != nil || s.ConfigMap != nil || s.DownwardAPI != nil ||
		s.Projected != nil || s.Image != nil || s.GitRepo != nil || s.CSI != nil && slices.Contains(localDrivers, s.CSI.Driver)
}

// localDrivers are CSI drivers whose inline volumes have secrets or certificates that the node itself
// writes. Other drivers have storage outside of the node as inline volumes, as Azure Files does.
var localDrivers = []string{"secrets-store.csi.k8s.io", "csi.cert-manager.io", "spiffe.csi.cert-manager.io", "csi.spiffe.io"}

// outside returns what the cache keeps of a volume outside of the node.
func outside(v corev1.Volume) corev1.Volume {
	if v.CSI == nil {
		return v
	}
	return corev1.Volume{Name: v.Name, VolumeSource: corev1.VolumeSource{
		CSI: &corev1.CSIVolumeSource{Driver: v.CSI.Driver, ReadOnly: v.CSI.ReadOnly},
	}}
}

// keptAnnotations returns the annotations that users set for the driver, the webhook's mark, and what a Node has
// for autoscalers, without others.
func keptAnnotations(annotations map[string]string) map[string]string {
	var kept map[string]string
	keep := func(key string) {
		if value, is := annotations[key]; is {
			if kept == nil {
				kept = map[string]string{}
			}
			kept[key] = value
		}
	}
	for _, a := range annotation.All() {
		keep(a.Key)
	}
	keep(apiv1.AnnotationSteered)
	keep(apiv1.AnnotationScaleDownDisabled)
	return kept
}

// inTreeDriver is the driver that Kubernetes has serve in-tree azureDisk volumes, whatever this one
// is called.
const inTreeDriver = "disk.csi.azure.com"

func trimPersistentVolume(pv *corev1.PersistentVolume) *corev1.PersistentVolume {
	trimmed := &corev1.PersistentVolume{ObjectMeta: trimMeta(pv.ObjectMeta, false)}
	if claim := pv.Spec.ClaimRef; claim != nil {
		trimmed.Spec.ClaimRef = &corev1.ObjectReference{
			Namespace: claim.Namespace,
			Name:      claim.Name,
			UID:       claim.UID,
		}
	}
	if ForSeveralNodes(pv) {
		trimmed.Spec.AccessModes, trimmed.Spec.VolumeMode = pv.Spec.AccessModes, pv.Spec.VolumeMode
	}
	trimmed.Spec.NodeAffinity = pv.Spec.NodeAffinity
	trimmed.Spec.VolumeAttributesClassName = pv.Spec.VolumeAttributesClassName
	trimmed.Spec.PersistentVolumeReclaimPolicy = pv.Spec.PersistentVolumeReclaimPolicy
	if pv.Spec.CSI != nil {
		trimmed.Spec.CSI = &corev1.CSIPersistentVolumeSource{
			Driver:       pv.Spec.CSI.Driver,
			VolumeHandle: pv.Spec.CSI.VolumeHandle,
			ReadOnly:     pv.Spec.CSI.ReadOnly,
		}
		if sku := SKU(pv.Spec.CSI.VolumeAttributes); sku != "" {
			trimmed.Spec.CSI.VolumeAttributes = map[string]string{"skuName": sku}
		}
	}
	if pv.Spec.AzureDisk != nil {
		trimmed.Spec.CSI = AsCSI(pv.Spec.AzureDisk)
	}
	trimmed.Status.Phase = pv.Status.Phase
	return trimmed
}

// AsCSI returns an in-tree volume as Kubernetes has this driver serve it: as a CSI volume with the
// disk's ID for a handle.
func AsCSI(disk *corev1.AzureDiskVolumeSource) *corev1.CSIPersistentVolumeSource {
	return &corev1.CSIPersistentVolumeSource{
		Driver:       inTreeDriver,
		VolumeHandle: disk.DataDiskURI,
		ReadOnly:     disk.ReadOnly != nil && *disk.ReadOnly,
	}
}

// SKU returns the SKU among the parameters of a StorageClass, or the attributes of a
// PersistentVolume; "" if they do not name it.
func SKU(parameters map[string]string) string {
	for key, value := range parameters {
		if strings.EqualFold(key, "skuName") || strings.EqualFold(key, "storageAccountType") {
			return value
		}
	}
	return ""
}

func trimPersistentVolumeClaim(c *corev1.PersistentVolumeClaim) *corev1.PersistentVolumeClaim {
	trimmed := &corev1.PersistentVolumeClaim{ObjectMeta: trimMeta(c.ObjectMeta, false)}
	trimmed.Annotations = keptAnnotations(c.Annotations)
	if c.DeletionTimestamp != nil {
		trimmed.Finalizers = c.Finalizers
	}
	trimmed.Spec.VolumeName, trimmed.Spec.StorageClassName = c.Spec.VolumeName, c.Spec.StorageClassName
	trimmed.Spec.DataSource = c.Spec.DataSource
	if claimstatus.MayChange(c) {
		trimmed.Spec.Resources, trimmed.Spec.VolumeAttributesClassName = c.Spec.Resources, c.Spec.VolumeAttributesClassName
		trimmed.Status.Capacity = c.Status.Capacity
		trimmed.Status.CurrentVolumeAttributesClassName = c.Status.CurrentVolumeAttributesClassName
	}
	if owner := metav1.GetControllerOf(c); owner != nil { // the pod of an ephemeral volume
		trimmed.OwnerReferences = []metav1.OwnerReference{*owner}
	}
	return trimmed
}
