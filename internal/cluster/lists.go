package cluster

import (
	"cmp"
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/kube"
	"github.com/azuredisk-csi/azuredisk/internal/plan/disk"
	"github.com/azuredisk-csi/azuredisk/internal/volumehandle"
)

// Attachments returns the attachments whose field AttachmentVolume or AttachmentNode has a value.
// They are the cache's own, and only to be read.
func Attachments(ctx context.Context, reader client.Reader, namespace, field, value string) ([]*apiv1.AzVolumeAttachment, error) {
	var list apiv1.AzVolumeAttachmentList
	return kube.FindBy(ctx, reader, &list, &list.Items, namespace, field, value)
}

// AttachmentsOfNode returns the attachments to a node. They are the cache's own, and only to be
// read.
func AttachmentsOfNode(ctx context.Context, reader client.Reader, namespace, node string) ([]*apiv1.AzVolumeAttachment, error) {
	return Attachments(ctx, reader, namespace, AttachmentNode, node)
}

// Held returns the volumes whose ownership a node holds. They are the cache's own, and only to be
// read.
func Held(ctx context.Context, reader client.Reader, namespace, node string) ([]*apiv1.AzVolume, error) {
	var list apiv1.AzVolumeList
	return kube.FindBy(ctx, reader, &list, &list.Items, namespace, VolumePrimary, node)
}

// Reported returns those volumes of a node's report for which the node has an attachment or holds
// the ownership. It ignores other volumes, so that a node cannot cause their reconciles by its
// staged volumes.
func Reported(ctx context.Context, reader client.Reader, d *apiv1.AzDriverNode) ([]string, error) {
	if len(d.Status.StagedVolumes) == 0 {
		return nil, nil
	}
	own := map[string]bool{}
	here, err := AttachmentsOfNode(ctx, reader, d.Namespace, d.Name)
	if err != nil {
		return nil, err
	}
	for _, a := range here {
		own[a.Spec.VolumeName] = true
	}
	held, err := Held(ctx, reader, d.Namespace, d.Name)
	if err != nil {
		return nil, err
	}
	for _, v := range held {
		own[v.Name] = true
	}
	var names []string
	for _, s := range d.Status.StagedVolumes {
		if own[s.VolumeName] {
			names = append(names, s.VolumeName)
		}
	}
	return names, nil
}

// Disk returns the disk that a PersistentVolume of a volume names, for a volume whose AzVolume is
// lost. ok is false if none names one.
func Disk(ctx context.Context, reader client.Reader, volume string) (handle volumehandle.Handle, ok bool, err error) {
	pvs, err := PersistentVolumes(ctx, reader, volume)
	if err != nil {
		return volumehandle.Handle{}, false, err
	}
	for _, pv := range pvs {
		if handle, err := volumehandle.Parse(pv.Spec.CSI.VolumeHandle); err == nil {
			return handle, true, nil
		}
	}
	return volumehandle.Handle{}, false, nil
}

// PersistentVolumes returns the PersistentVolumes of an AzVolume, by name. There can be several of
// one disk: one that was released and is kept, and another that a user created for the next claim;
// or one for each of the namespaces that share the disk. They are the cache's own, and only to be
// read.
func PersistentVolumes(ctx context.Context, reader client.Reader, volume string) ([]*corev1.PersistentVolume, error) {
	var list corev1.PersistentVolumeList
	pvs, err := kube.FindBy(ctx, reader, &list, &list.Items, "", PersistentVolumeVolume, volume)
	slices.SortFunc(pvs, func(a, b *corev1.PersistentVolume) int { return cmp.Compare(a.Name, b.Name) })
	return pvs, err
}

// PersistentVolume returns the PersistentVolume of the disk of an AzVolume, nil if there is none:
// of several the first that is bound to a claim, or else the first for which the disk must stay, or
// else the first by name. It is the cache's own, and only to be read.
func PersistentVolume(ctx context.Context, reader client.Reader, v *apiv1.AzVolume) (*corev1.PersistentVolume, error) {
	pvs, err := PersistentVolumes(ctx, reader, v.Name)
	if err != nil {
		return nil, err
	}
	pvs = slices.DeleteFunc(pvs, func(pv *corev1.PersistentVolume) bool { return !IsOf(v, pv) })
	if len(pvs) == 0 {
		return nil, nil
	}
	return slices.MinFunc(pvs, func(a, b *corev1.PersistentVolume) int { return cmp.Compare(rank(a), rank(b)) }), nil
}

func rank(pv *corev1.PersistentVolume) int {
	switch {
	case pv.Status.Phase == corev1.VolumeBound:
		return 0
	case disk.NeededBy(pv) != "":
		return 1
	default:
		return 2
	}
}

// ReadOnly reports whether the volume of a PersistentVolume is published for reading only:
// Kubernetes passes this field to ControllerPublishVolume. pv is nil if there is none.
func ReadOnly(pv *corev1.PersistentVolume) bool {
	return pv != nil && pv.Spec.CSI != nil && pv.Spec.CSI.ReadOnly
}

// ForSeveralNodes reports whether several nodes may use the volume of a PersistentVolume at once.
// Only raw block volumes can be used so.
func ForSeveralNodes(pv *corev1.PersistentVolume) bool {
	several := slices.Contains(pv.Spec.AccessModes, corev1.ReadWriteMany) ||
		slices.Contains(pv.Spec.AccessModes, corev1.ReadOnlyMany)
	return several && ptr.Deref(pv.Spec.VolumeMode, corev1.PersistentVolumeFilesystem) == corev1.PersistentVolumeBlock
}

// IsOf reports whether an AzVolume and a PersistentVolume of the driver are of the same disk.
func IsOf(v *apiv1.AzVolume, pv *corev1.PersistentVolume) bool {
	disk, err := volumehandle.Parse(pv.Spec.CSI.VolumeHandle)
	return err == nil && volumehandle.Of(v.Spec.Disk).Same(disk)
}

// PodsOf returns the pods that use the claim to which a PersistentVolume is bound. They are the
// cache's own, and only to be read.
func PodsOf(ctx context.Context, reader client.Reader, pv *corev1.PersistentVolume) ([]*corev1.Pod, error) {
	if pv == nil || pv.Spec.ClaimRef == nil {
		return nil, nil
	}
	claim := pv.Spec.ClaimRef
	return podsBy(ctx, reader, PodClaim, claim.Namespace+"/"+claim.Name)
}

// ClaimBoundTo returns the claim that a PersistentVolume is bound to; nil if there is none, also if
// another claim has its name by now. It is the cache's own, and only to be read.
func ClaimBoundTo(ctx context.Context, reader client.Reader, pv *corev1.PersistentVolume) (*corev1.PersistentVolumeClaim,
	error) {
	if pv == nil || pv.Spec.ClaimRef == nil {
		return nil, nil
	}
	claim, err := kube.Find[corev1.PersistentVolumeClaim](ctx, reader, client.ObjectKey{
		Namespace: pv.Spec.ClaimRef.Namespace,
		Name:      pv.Spec.ClaimRef.Name,
	}, client.UnsafeDisableDeepCopy)
	if err != nil || claim == nil || claim.Spec.VolumeName != pv.Name ||
		pv.Spec.ClaimRef.UID != "" && pv.Spec.ClaimRef.UID != claim.UID {
		return nil, err
	}
	return claim, nil
}

// PodsNaming returns the pods that name the disk of an AzVolume without a claim. They are the
// cache's own, and only to be read.
func PodsNaming(ctx context.Context, reader client.Reader, volume string) ([]*corev1.Pod, error) {
	return podsBy(ctx, reader, PodDisk, volume)
}

// UsedOn reports whether a pod on a node uses a volume: also a pod that is being deleted, but not a
// pod that has ended. pods reads the pods, from the cache or from the API server, and reader the
// PersistentVolumes from the cache: a volume that is in use somewhere has had its PersistentVolume
// for long.
func UsedOn(ctx context.Context, pods, reader client.Reader, volume, node string) (bool, error) {
	byClaim, naming, err := UsersOn(ctx, pods, reader, volume, node)
	return len(byClaim)+len(naming) > 0, err
}

// UsersOn returns the pods on a node that use a volume by a claim, and those that name its disk
// without one. It reads as UsedOn does.
func UsersOn(ctx context.Context, pods, reader client.Reader, volume, node string) (byClaim, naming []*corev1.Pod, err error) {
	byClaim, naming, err = PodsWith(ctx, pods, reader, volume, node)
	ended := func(p *corev1.Pod) bool {
		return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
	}
	return slices.DeleteFunc(byClaim, ended), slices.DeleteFunc(naming, ended), err
}

// PodsWith returns what UsersOn does, and the pods that have ended.
func PodsWith(ctx context.Context, pods, reader client.Reader, volume, node string) (byClaim, naming []*corev1.Pod, err error) {
	pvs, err := PersistentVolumes(ctx, reader, volume)
	if err != nil {
		return nil, nil, err
	}
	claims := map[string]bool{}
	for _, pv := range pvs {
		for _, claim := range PersistentVolumeClaimKeys(pv) {
			claims[claim] = true
		}
	}
	here, err := PodsOn(ctx, pods, node)
	if err != nil {
		return nil, nil, err
	}
	for _, p := range here {
		switch {
		case slices.ContainsFunc(PodClaimKeys(p), func(claim string) bool { return claims[claim] }):
			byClaim = append(byClaim, p)
		case slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool {
			disk, is := DiskOf(&v)
			return is && disk.VolumeName() == volume
		}):
			naming = append(naming, p)
		}
	}
	return byClaim, naming, nil
}

// PodsOn returns the pods on a node. They are the cache's own, and only to be read.
func PodsOn(ctx context.Context, reader client.Reader, node string) ([]*corev1.Pod, error) {
	return podsBy(ctx, reader, PodNode, node)
}

func podsBy(ctx context.Context, reader client.Reader, field, value string) ([]*corev1.Pod, error) {
	var list corev1.PodList
	return kube.FindBy(ctx, reader, &list, &list.Items, "", field, value)
}

// InUseNames returns the names under which Kubernetes lists a disk among the volumes in use: one for
// each spelling of its handle, because Kubernetes counts them as several volumes. Source of the
// form: GetUniqueVolumeName and the CSI plug-in's GetVolumeName.
func InUseNames(inUse []corev1.UniqueVolumeName, driverName string, disk volumehandle.Handle) []corev1.UniqueVolumeName {
	var names []corev1.UniqueVolumeName
	for _, name := range inUse {
		driver, spelled, _ := strings.Cut(strings.TrimPrefix(string(name), "kubernetes.io/csi/"), "^")
		handle, err := volumehandle.Parse(spelled)
		if err == nil && strings.EqualFold(driver, driverName) && handle.Same(disk) {
			names = append(names, name)
		}
	}
	return names
}
