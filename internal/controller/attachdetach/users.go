package attachdetach

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/azuredisk-csi/azuredisk/internal/cluster"
	"github.com/azuredisk-csi/azuredisk/internal/volumehandle"
)

// source is how a pod uses a volume: by the PersistentVolume to which its PersistentVolumeClaim is
// bound, or by the disk that it names itself. The objects are the cache's own.
type source struct {
	pv     *corev1.PersistentVolume
	inline *corev1.Volume
}

// users finds the pods that use the volume by any PersistentVolume of its disk, or name its disk
// themselves.
func (r *Reconciler) users(ctx context.Context, volume string, o *observed) error {
	pvs, err := cluster.PersistentVolumes(ctx, r.Client, volume)
	if err != nil {
		return err
	}
	for _, pv := range pvs {
		if handle, err := volumehandle.Parse(pv.Spec.CSI.VolumeHandle); err != nil || !o.isOf(handle) {
			continue
		}
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
	pods, err := cluster.PodsNaming(ctx, r.Client, volume)
	if err != nil {
		return err
	}
	for _, p := range pods {
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
