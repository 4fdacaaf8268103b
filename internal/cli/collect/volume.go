package collect

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cli/explain"
	"github.com/azuredisk-csi/azuredisk/internal/cluster"
	"github.com/azuredisk-csi/azuredisk/internal/kube"
)

// pod reads the subject, a pod, and its volumes.
func (c *collection) pod(ctx context.Context) error {
	p, err := get[corev1.Pod](ctx, c.reader, explain.Pods, c.Subject.Namespace, c.Subject.Name)
	if err != nil {
		return err
	}
	if p == nil {
		return c.absent(explain.Pods)
	}
	c.facts.Pod = p
	var steps []step
	for _, source := range cluster.PodVolumes(p) {
		v := &explain.Volume{Namespace: p.Namespace}
		switch {
		case source.PersistentVolumeClaim != nil:
			v.ClaimName = source.PersistentVolumeClaim.ClaimName
		case source.AzureDisk != nil:
			if disk, ok := cluster.DiskOf(&source); ok {
				v.Name = disk.VolumeName()
			}
		}
		if v.ClaimName == "" && v.Name == "" {
			continue // neither this driver's nor a claim
		}
		c.facts.Volumes = append(c.facts.Volumes, v)
		steps = append(steps, func(ctx context.Context) error { return c.volume(ctx, v) })
	}
	return together(steps...)(ctx)
}

// absent is the error for a subject that was not found, unless it may not be read.
func (c *collection) absent(what string) error {
	if c.isUnread(what) {
		return fmt.Errorf("%s cannot be read with these rights, or the cluster does not have this resource", c.Subject)
	}
	return NotFoundError{What: c.Subject.String()}
}

// claim reads the subject, a claim.
func (c *collection) claim(ctx context.Context) error {
	v := &explain.Volume{Namespace: c.Subject.Namespace, ClaimName: c.Subject.Name}
	if err := c.volume(ctx, v); err != nil {
		return err
	}
	if v.Claim == nil {
		return c.absent(explain.Claims)
	}
	c.facts.Volumes = []*explain.Volume{v}
	return nil
}

// persistentVolume reads the subject, a PersistentVolume.
func (c *collection) persistentVolume(ctx context.Context) error {
	pv, err := c.persistentVolumeNamed(ctx, c.Subject.Name)
	if err != nil {
		return err
	}
	if pv == nil {
		return c.absent(explain.Volumes)
	}
	v := &explain.Volume{PersistentVolume: pv}
	if claim := pv.Spec.ClaimRef; claim != nil && pv.Status.Phase == corev1.VolumeBound {
		v.Namespace, v.ClaimName = claim.Namespace, claim.Name
	}
	c.facts.Volumes = []*explain.Volume{v}
	return c.volume(ctx, v)
}

// persistentVolumeNamed reads a PersistentVolume. One of the in-tree plug-in gets the CSI source that
// Kubernetes uses for it.
func (c *collection) persistentVolumeNamed(ctx context.Context, name string) (*corev1.PersistentVolume, error) {
	pv, err := get[corev1.PersistentVolume](ctx, c.reader, explain.Volumes, "", name)
	if pv != nil && pv.Spec.AzureDisk != nil {
		pv.Spec.CSI = cluster.AsCSI(pv.Spec.AzureDisk)
	}
	return pv, err
}

// volume reads what is on the way from a claim to its AzVolume.
func (c *collection) volume(ctx context.Context, v *explain.Volume) error {
	if err := c.bound(ctx, v); err != nil {
		return err
	}
	if v.PersistentVolume != nil {
		v.Name = cluster.VolumeOf(v.PersistentVolume, c.DriverName)
	}
	if v.Name == "" {
		return nil
	}
	return c.inTurn(ctx, together(
		func(ctx context.Context) (err error) {
			v.AzVolume, err = get[apiv1.AzVolume](ctx, c.reader, explain.AzVolumes, c.DriverNamespace, v.Name)
			return err
		},
		func(ctx context.Context) error {
			var list apiv1.AzVolumeAttachmentList
			err := c.list(ctx, explain.AzAttachments, &list, client.InNamespace(c.DriverNamespace),
				client.MatchingFields{cluster.AttachmentVolume: v.Name})
			v.Attachments = kube.Pointers(list.Items)
			return err
		},
	), func(ctx context.Context) error {
		if c.Subject.Kind == explain.KindClaim || v.Claim == nil || !v.AsksForChange() {
			return nil
		}
		return c.events(ctx, explain.Subject{Kind: explain.KindClaim, Namespace: v.Namespace, Name: v.ClaimName})
	})
}

// bound reads a claim and its PersistentVolume; or, for a claim that is not bound, its class and the
// AzVolume that is being created for it.
func (c *collection) bound(ctx context.Context, v *explain.Volume) (err error) {
	if v.ClaimName == "" {
		return nil
	}
	if err = c.claimWithVolume(ctx, v); err != nil || v.Claim == nil {
		return err
	}
	if err = together(
		func(ctx context.Context) error { return c.attributesClass(ctx, v) },
		func(ctx context.Context) error { return c.snapshotsOf(ctx, v) },
	)(ctx); err != nil || v.Claim.Status.Phase == corev1.ClaimBound {
		return err
	}
	if c.Subject.Kind == explain.KindPod {
		if err := c.events(ctx, explain.Subject{Kind: explain.KindClaim, Namespace: v.Namespace, Name: v.ClaimName}); err != nil {
			return err
		}
	}
	return together(
		func(ctx context.Context) error { return c.class(ctx, v) },
		func(ctx context.Context) error { return c.created(ctx, v) },
		func(ctx context.Context) error { return c.source(ctx, v) },
	)(ctx)
}

// attributesClass reads whether the VolumeAttributesClass that the claim asks for exists.
func (c *collection) attributesClass(ctx context.Context, v *explain.Volume) error {
	name := ptr.Deref(v.Claim.Spec.VolumeAttributesClassName, "")
	if name == "" || name == ptr.Deref(v.Claim.Status.CurrentVolumeAttributesClassName, "") {
		return nil
	}
	class, err := get[storagev1.VolumeAttributesClass](ctx, c.reader, attributesClasses, "", name)
	v.AttributesClassMissing = err == nil && class == nil && !c.isUnread(attributesClasses)
	return err
}

const attributesClasses = "volumeattributesclasses.storage.k8s.io"

// source reads whether the source exists from which the claim is to be made.
func (c *collection) source(ctx context.Context, v *explain.Volume) error {
	source := v.Claim.Spec.DataSource
	switch {
	case source == nil:
		return nil
	case source.Kind == string(explain.KindClaim) && ptr.Deref(source.APIGroup, "") == "":
		found, err := get[corev1.PersistentVolumeClaim](ctx, c.reader, explain.Claims, v.Namespace, source.Name)
		if err == nil && found == nil && !c.isUnread(explain.Claims) {
			v.SourceMissing = "claim " + source.Name
		}
		return err
	case source.Kind == string(explain.KindSnapshot) && ptr.Deref(source.APIGroup, "") == SnapshotGroup.Group:
		found, err := c.unstructured(ctx, snapshots, source.Kind, v.Namespace, source.Name)
		if err == nil && found == nil && !c.isUnread(snapshots) {
			v.SourceMissing = "snapshot " + source.Name
		}
		return err
	}
	return nil
}

// claimWithVolume reads a claim and its PersistentVolume, unless that is read.
func (c *collection) claimWithVolume(ctx context.Context, v *explain.Volume) (err error) {
	v.Claim, err = get[corev1.PersistentVolumeClaim](ctx, c.reader, explain.Claims, v.Namespace, v.ClaimName)
	if err == nil && v.Claim != nil && v.Claim.Spec.VolumeName != "" && v.PersistentVolume == nil {
		v.PersistentVolume, err = c.persistentVolumeNamed(ctx, v.Claim.Spec.VolumeName)
	}
	return err
}

// class reads the class of a claim, or which one is the default.
func (c *collection) class(ctx context.Context, v *explain.Volume) (err error) {
	if name := v.Claim.Spec.StorageClassName; name != nil {
		if *name != "" {
			v.Class, err = get[storagev1.StorageClass](ctx, c.reader, explain.Classes, "", *name)
		}
		return err
	}
	var classes storagev1.StorageClassList
	err = c.list(ctx, explain.Classes, &classes)
	for _, class := range classes.Items {
		if class.Annotations["storageclass.kubernetes.io/is-default-class"] == "true" {
			v.DefaultClass = class.Name
		}
	}
	return err
}

// created reads the AzVolume that is being created for a claim: csi-provisioner names the volume
// after the claim's UID, and the driver names the disk after the volume.
func (c *collection) created(ctx context.Context, v *explain.Volume) error {
	var list apiv1.AzVolumeList
	err := c.list(ctx, explain.AzVolumes, &list, client.InNamespace(c.DriverNamespace),
		client.MatchingFields{"spec.disk.name": "pvc-" + string(v.Claim.UID)})
	if err == nil && len(list.Items) > 0 {
		v.AzVolume = &list.Items[0]
	}
	return err
}

// aroundVolume reads the nodes that have a volume, the pods that use it there, and those that wait
// for it.
func (c *collection) aroundVolume(ctx context.Context, v *explain.Volume) error {
	nodes := c.nodesOf(v)
	var steps []step
	for _, name := range nodes {
		steps = append(steps, func(ctx context.Context) error { return c.nodeNamed(ctx, name) })
	}
	lists := make([][]*corev1.Pod, len(nodes)+1)
	read := func(i int, field, value string) {
		steps = append(steps, func(ctx context.Context) (err error) {
			lists[i], err = c.podsBy(ctx, v.Namespace, field, value)
			return err
		})
	}
	if v.ClaimName != "" {
		for i, name := range nodes {
			read(i, "spec.nodeName", name)
		}
		read(len(nodes), "status.phase", string(corev1.PodPending))
	}
	if err := together(append(steps, func(ctx context.Context) error { return c.volumeAttachment(ctx, v) })...)(ctx); err != nil {
		return err
	}
	if p := c.facts.Pod; p != nil {
		v.Pods = append(v.Pods, p)
	}
	for _, list := range lists {
		for _, p := range list {
			known := slices.ContainsFunc(v.Pods, func(k *corev1.Pod) bool { return k.UID == p.UID })
			gone := ended(p) && p.DeletionTimestamp == nil // else it is there until its volumes are unmounted
			if !known && !gone && slices.Contains(claimsOf(p), v.ClaimName) {
				v.Pods = append(v.Pods, p)
			}
		}
	}
	more := []step{}
	for _, p := range v.Pods {
		more = append(more, func(ctx context.Context) error { return c.nodeNamed(ctx, p.Spec.NodeName) })
	}
	return together(more...)(ctx)
}

// podList is a list of pods that is read once.
type podList struct {
	once sync.Once
	pods []*corev1.Pod
	err  error
}

// podsBy returns the pods of a namespace with a value of a field. The volumes of a pod have most of
// these lists in common.
func (c *collection) podsBy(ctx context.Context, namespace, field, value string) ([]*corev1.Pod, error) {
	key := namespace + " " + field + " " + value
	c.mu.Lock()
	list := c.lists[key]
	if list == nil {
		list = &podList{}
		c.lists[key] = list
	}
	c.mu.Unlock()
	list.once.Do(func() {
		var found corev1.PodList
		list.err = c.list(ctx, explain.Pods, &found, client.InNamespace(namespace), client.MatchingFields{field: value})
		list.pods = kube.Pointers(found.Items)
	})
	return list.pods, list.err
}

func ended(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

func claimsOf(p *corev1.Pod) []string {
	var names []string
	for _, v := range p.Spec.Volumes {
		if claim := cluster.ClaimOf(p, v); claim != "" {
			names = append(names, claim)
		}
	}
	return names
}

// nodesOf returns the nodes that have a volume as primaries, those that wait included.
func (c *collection) nodesOf(v *explain.Volume) []string {
	var nodes []string
	if v.AzVolume != nil && v.AzVolume.Status.Primary != nil {
		nodes = append(nodes, v.AzVolume.Status.Primary.NodeName)
	}
	for _, a := range v.Attachments {
		if a.Spec.Role == apiv1.RolePrimary {
			nodes = append(nodes, a.Spec.NodeName)
		}
	}
	if p := c.facts.Pod; p != nil {
		nodes = append(nodes, p.Spec.NodeName)
	}
	slices.Sort(nodes)
	return slices.DeleteFunc(slices.Compact(nodes), func(name string) bool { return name == "" })
}

// volumeAttachment reads Kubernetes' VolumeAttachment of a volume to the pod's node, where there are
// any. Its name is a hash of the three.
func (c *collection) volumeAttachment(ctx context.Context, v *explain.Volume) (err error) {
	p, pv, driver := c.facts.Pod, v.PersistentVolume, c.facts.Driver.CSIDriver
	if p == nil || p.Spec.NodeName == "" || pv == nil || pv.Spec.CSI == nil || driver == nil ||
		driver.Spec.AttachRequired != nil && !*driver.Spec.AttachRequired {
		return nil
	}
	sum := sha256.Sum256([]byte(pv.Spec.CSI.VolumeHandle + pv.Spec.CSI.Driver + p.Spec.NodeName))
	v.VolumeAttachment, err = get[storagev1.VolumeAttachment](ctx, c.reader, explain.Attachments, "", fmt.Sprintf("csi-%x", sum))
	return err
}
