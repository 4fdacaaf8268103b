package volume

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cluster"
	"github.com/azuredisk-csi/azuredisk/internal/kube"
	"github.com/azuredisk-csi/azuredisk/internal/plan/disk"
)

// forget deletes the object of a volume, and does not touch the disk. It is a conflict if the
// volume has changed, or if the API server has the PersistentVolume.
func (r *Reconciler) forget(ctx context.Context, v *apiv1.AzVolume, why string) error {
	pv, err := r.recordedPersistentVolume(ctx, v)
	if err != nil {
		return err
	}
	if pv != nil {
		return conflict(v, fmt.Sprintf("PersistentVolume %s is there", pv.Name))
	}
	if err := kube.Delete(ctx, r.Client, v); err != nil {
		return fmt.Errorf("forget volume: %w", err)
	}
	ctrl.LoggerFrom(ctx).Info("volume is forgotten", "volume", v.Name, "message", why)
	return nil
}

// givesUp reports whether a step begins to carry out the deletion of an object that DeleteVolume did
// not ask for. It cannot be undone.
func givesUp(v *apiv1.AzVolume, step disk.Step) bool {
	begins := step.RemoveFinalizer || step.Status.State == apiv1.VolumeDeleting
	return begins && !v.Leaving() && !v.DeletesDisk()
}

// unneeded returns a conflict if the API server has the PersistentVolume that is recorded, and the
// object must stay for it. A PersistentVolume that no leader has recorded yet is not found: then the
// object is removed, the disk remains, and the next publish adopts it.
func (r *Reconciler) unneeded(ctx context.Context, v *apiv1.AzVolume) error {
	pv, err := r.recordedPersistentVolume(ctx, v)
	if err != nil || pv == nil {
		return err
	}
	if why := disk.NeededBy(pv); why != "" {
		return conflict(v, why)
	}
	return nil
}

// recordedPersistentVolume reads the PersistentVolume that the status names from the API server; nil
// if there is none of this disk. The cache of PersistentVolumes can be older than the cache of
// AzVolumes, in which another leader has recorded it.
func (r *Reconciler) recordedPersistentVolume(ctx context.Context, v *apiv1.AzVolume) (*corev1.PersistentVolume, error) {
	if v.Status.PersistentVolume == "" {
		return nil, nil
	}
	pv, err := kube.Find[corev1.PersistentVolume](ctx, r.Reader, client.ObjectKey{Name: v.Status.PersistentVolume})
	if err != nil {
		return nil, fmt.Errorf("read PersistentVolume %s before its volume is given up: %w", v.Status.PersistentVolume, err)
	}
	if pv == nil || pv.Spec.AzureDisk == nil && (pv.Spec.CSI == nil || !cluster.IsOf(v, pv)) {
		return nil, nil
	}
	return pv, nil
}

func conflict(v *apiv1.AzVolume, why string) error {
	return apierrors.NewConflict(apiv1.GroupVersion.WithResource("azvolumes").GroupResource(), v.Name, fmt.Errorf("%s", why))
}
