package attachdetach

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cluster"
	"github.com/azuredisk-csi/azuredisk/internal/plan/publishing"
	"github.com/azuredisk-csi/azuredisk/internal/volumehandle"
)

// source is how a pod uses a volume: by the PersistentVolume to which its PersistentVolumeClaim is
// bound, or by the disk that it names itself. The objects are the cache's own.
type source struct {
	pv     *corev1.PersistentVolume
	inline *corev1.Volume
}

// stranger is a pod that names a disk itself that a claim of another namespace has.
type stranger struct {
	pod   *corev1.Pod
	claim string
}

// users finds the pods that use the volume by any PersistentVolume of its disk, or name its disk
// themselves.
func (r *Reconciler) users(ctx context.Context, volume string, o *observed) error {
	pvs, err := cluster.PersistentVolumes(ctx, r.Client, volume)
	if err != nil {
		return err
	}
	pvs = slices.DeleteFunc(pvs, func(pv *corev1.PersistentVolume) bool {
		handle, err := volumehandle.Parse(pv.Spec.CSI.VolumeHandle)
		return err != nil || !o.isOf(handle)
	})
	for _, pv := range pvs {
		claim, err := cluster.ClaimBoundTo(ctx, r.Client, pv)
		if err != nil {
			return err
		}
		if claim == nil {
			continue // it was released, for example: a pod with a PersistentVolumeClaim of that name now uses another volume
		}
		pods, err := cluster.PodsOf(ctx, r.Client, pv)
		if err != nil {
			return err
		}
		for _, p := range pods {
			o.use(p, source{pv: pv})
		}
	}
	return r.naming(ctx, volume, pvs, o)
}

// naming finds the pods that name the disk of the volume themselves. One that may not is no user of
// the volume: the pods of the claim must not wait for it.
func (r *Reconciler) naming(ctx context.Context, volume string, pvs []*corev1.PersistentVolume, o *observed) error {
	pods, err := cluster.PodsNaming(ctx, r.Client, volume)
	if err != nil {
		return err
	}
	for _, p := range pods {
		if claim := publishing.ClaimElsewhere(p.Namespace, pvs, o.Volume); claim != "" {
			o.strangers = append(o.strangers, stranger{pod: p, claim: claim})
			continue
		}
		for i := range p.Spec.Volumes {
			handle, ok := cluster.DiskOf(&p.Spec.Volumes[i])
			if ok && handle.VolumeName() == volume && o.isOf(handle) {
				o.use(p, source{inline: &p.Spec.Volumes[i]})
			}
		}
	}
	return nil
}

// isOf reports whether the AzVolume, if there is one, has the name that its disk requires. An
// AzVolume that was created manually need not be.
func (o *observed) isOf(disk volumehandle.Handle) bool {
	return o.Volume == nil || volumehandle.Of(o.Volume.Spec.Disk).Same(disk)
}

// use adds a pod, once: it can use one volume by several names.
func (o *observed) use(p *corev1.Pod, by source) {
	key := client.ObjectKeyFromObject(p)
	if _, known := o.sources[key]; known {
		return
	}
	o.sources[key] = by
	o.Pods = append(o.Pods, p)
}

// refuseStrangers writes an event on each stranger that has a node, once.
func (r *Reconciler) refuseStrangers(o observed) {
	for _, s := range o.strangers {
		if s.pod.Spec.NodeName == "" || s.pod.DeletionTimestamp != nil || !r.told.first(o.name, s.pod.UID, "stranger") {
			continue
		}
		r.event(s.pod, corev1.EventTypeWarning, apiv1.ReasonFailedAttachVolume, fmt.Sprintf(
			"the disk of AzVolume %s is not attached for this pod, which names it as azureDisk: claim %s of another namespace has it",
			o.name, s.claim))
	}
}
