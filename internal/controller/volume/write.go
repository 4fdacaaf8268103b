package volume

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/kube"
	"github.com/azuredisk-csi/azuredisk/internal/plan/disk"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

func (r *Reconciler) setFinalizer(ctx context.Context, v *apiv1.AzVolume, step disk.Step) error {
	changed := v.DeepCopy()
	if step.AddFinalizer {
		controllerutil.AddFinalizer(changed, apiv1.FinalizerVolume)
	} else {
		controllerutil.RemoveFinalizer(changed, apiv1.FinalizerVolume)
	}
	if err := kube.Patch(ctx, r.Client, changed, v); err != nil {
		return fmt.Errorf("set finalizer of volume: %w", err)
	}
	if step.RemoveFinalizer {
		ctrl.LoggerFrom(ctx).Info("volume is deleted", "volume", v.Name, "reason", step.Reason, "message", step.Message)
		if step.Reason == apiv1.ReasonDiskKept {
			r.event(v, step.Warning, step.Reason, step.Message)
		}
	}
	return nil
}

func (r *Reconciler) writeStatus(ctx context.Context, o observed, step disk.Step) (bool, error) {
	if equality.Semantic.DeepEqual(o.volume.Status, step.Status) {
		return false, nil
	}
	changed := o.volume.DeepCopy()
	changed.Status = step.Status
	if err := kube.PatchStatus(ctx, r.Client, changed, o.volume); err != nil {
		return false, fmt.Errorf("write status of volume: %w", err)
	}
	if o.volume.Status.State != step.Status.State || turned(&o.volume.Status, &step.Status) {
		ctrl.LoggerFrom(ctx).Info("volume changes state", "volume", o.volume.Name, "state", step.Status.State, "reason",
			step.Reason, "message", step.Message)
		r.event(o.volume, step.Warning, step.Reason, step.Message)
	}
	return true, nil
}

// turned reports whether the disk came to match the spec or its record, or ceased to, or does so
// for another reason, or whether the object was deleted and is kept.
func turned(before, after *apiv1.AzVolumeStatus) bool {
	now, then := meta.FindStatusCondition(after.Conditions, apiv1.VolumeConditionDiskAsRecorded),
		meta.FindStatusCondition(before.Conditions, apiv1.VolumeConditionDiskAsRecorded)
	if now != nil && (then == nil || now.Reason != then.Reason || now.Message != then.Message) {
		return true
	}
	if kept := heldBack(after); kept && !heldBack(before) {
		return true
	}
	is, was := meta.FindStatusCondition(after.Conditions, apiv1.VolumeConditionUpdated),
		meta.FindStatusCondition(before.Conditions, apiv1.VolumeConditionUpdated)
	return is != nil && (was == nil || is.Reason != was.Reason || is.Reason == apiv1.ReasonDiskUpdateRefused &&
		textOf(is.Message) != textOf(was.Message))
}

// heldBack reports whether the object was deleted and is kept.
func heldBack(status *apiv1.AzVolumeStatus) bool {
	c := meta.FindStatusCondition(status.Conditions, apiv1.VolumeConditionReady)
	return c != nil && c.Reason == apiv1.ReasonVolumeDeletionHeld
}

// textOf is a message without the IDs of Azure's answers, which differ with each repetition.
func textOf(message string) string {
	text, _ := provisioner.CutRequestIDs(message)
	return text
}

// writeSpec reverts the refused values in the spec.
func (r *Reconciler) writeSpec(ctx context.Context, v *apiv1.AzVolume, spec apiv1.AzVolumeSpec) error {
	if equality.Semantic.DeepEqual(v.Spec, spec) {
		return nil
	}
	changed := v.DeepCopy()
	changed.Spec = spec
	if err := kube.Patch(ctx, r.Client, changed, v); err != nil {
		return fmt.Errorf("revert refused changes in the spec of the volume: %w", err)
	}
	ctrl.LoggerFrom(ctx).Info("refused changes in the volume's spec were reverted", "volume", v.Name)
	return nil
}

func (r *Reconciler) event(v *apiv1.AzVolume, warning bool, reason, message string) {
	kind := corev1.EventTypeNormal
	if warning {
		kind = corev1.EventTypeWarning
	}
	if message == "" {
		message = "disk " + v.Spec.Disk.Name
	}
	if reason != "" {
		r.Events.Eventf(v, nil, kind, reason, reason, "%s", message)
	}
}
