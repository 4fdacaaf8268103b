package volume

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/disk"
)

// usable records in a status the problem that nodes report of the volume; see disk.Usable.
func (r *Reconciler) usable(ctx context.Context, o observed, status *apiv1.AzVolumeStatus) (*disk.Problem, error) {
	reports, err := r.reportsOf(ctx, o, disk.ProblemReporters(o.volume, o.attachments))
	if err != nil {
		return nil, err
	}
	return disk.Usable(o.volume, reports, o.now, status), nil
}

// tellProblem writes the events about a problem, and about its end: on the volume, its PersistentVolumeClaim
// and all of its pods, because those on other nodes wait for it.
func (r *Reconciler) tellProblem(ctx context.Context, o observed, found disk.Problem) {
	ctrl.LoggerFrom(ctx).Info("a problem of a volume on its node", "volume", o.volume.Name, "reason", found.Reason,
		"message", found.Message)
	kind := corev1.EventTypeWarning
	if found.Reason == apiv1.ReasonNoProblem {
		kind = corev1.EventTypeNormal
	}
	r.tellAll(r.usersOf(ctx, o, func(*corev1.Pod) bool { return true }), kind, found.Reason,
		"volume "+o.volume.Name+": "+found.Message)
}
