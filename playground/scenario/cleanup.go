package scenario

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/azuredisk-csi/azuredisk/playground/timeline"
)

const (
	// cleanUpDelay is what the driver's setting cleanUpDelay is set to, 5 minutes by
	// default, to keep the run short.
	cleanUpDelay = 40 * time.Second
	// cleanUpLate is by how much the clean-up may be late, and at once may be: the time of
	// the release is recorded in whole seconds.
	cleanUpLate = 5 * time.Second
	// detachTimeout is above the tail of a detach.
	detachTimeout = 3 * time.Minute
)

// cleanUp releases a volume and measures how long its replicas stay attached, while the
// controller's leader goes away in the middle; then it releases the PersistentVolume,
// upon which they must go at once.
func cleanUp(ctx context.Context, e *Environment) error {
	e.Progress("setting the driver's clean-up delay to %s", cleanUpDelay)
	restore, err := e.Cluster.ChangeDriver(ctx, map[string]any{"controller": map[string]any{"cleanUpDelay": cleanUpDelay.String()}})
	if restore != nil {
		e.mendLater("set the driver's clean-up delay back", restore)
	}
	if err != nil {
		return err
	}
	w := Workload{Name: "writer", MaxShares: 2, Replicas: 1}
	e.Progress("making a pod that writes to a disk with a replica")
	volumes, err := e.start(ctx, w)
	if err != nil {
		return err
	}
	if err := e.awaitRecords(ctx, quietWrites, w); err != nil {
		return err
	}
	v := volumes[0]
	if err := e.measureDelay(ctx, w, v); err != nil {
		return err
	}
	e.Progress("starting the pod again")
	if err := e.scale(ctx, w, 1); err != nil {
		return err
	}
	if _, err := e.awaitReady(ctx, w); err != nil {
		return err
	}
	e.check("the volume gets its replica again", true, "after its pod was started again")
	if err := e.judgeAll(ctx, w); err != nil {
		return err
	}
	if err := e.measureAtOnce(ctx, w, v); err != nil {
		return err
	}
	if _, err := e.addEvidence(ctx, e.Report.Started); err != nil {
		return err
	}
	metric := func(name string) any { return e.Report.Metrics[name] }
	e.Report.Summary = fmt.Sprintf("With a clean-up delay of %s the replicas of a released volume were detached %v s after the release, though the controller's leader went away meanwhile; and %v s after their PersistentVolume was released. %s",
		timeline.Round(cleanUpDelay), metric("clean_up_after_seconds"), metric("clean_up_after_pv_release_seconds"), e.recordsLost())
	return nil
}

// measureDelay stops the pod and measures when the volume's attachments are taken away.
func (e *Environment) measureDelay(ctx context.Context, w Workload, v volume) error {
	e.Progress("stopping the pod")
	if err := e.scale(ctx, w, 0); err != nil {
		return err
	}
	released, err := e.awaitReleased(ctx, v)
	if err != nil {
		return err
	}
	kept := len(e.view.attachments(v.Name))
	e.check("the replicas stay when the pod has gone", kept == w.Replicas+1 || kept == w.Replicas, "%d attachments", kept)
	leads, err := e.leader(ctx)
	if err != nil {
		return err
	}
	e.Progress("deleting the leading controller %s; the replicas are to go %s after the release", leads.Pod, cleanUpDelay)
	if err := e.kube.CoreV1().Pods(driverNamespace).Delete(ctx, leads.Pod, metav1.DeleteOptions{}); err != nil {
		return fmt.Errorf("delete the leading controller: %w", err)
	}
	begun, gone, err := e.awaitDetached(ctx, v)
	if err != nil {
		return err
	}
	after := begun.Sub(released)
	e.metric("clean_up_delay_seconds", milli(cleanUpDelay))
	e.metric("clean_up_after_seconds", milli(after))
	e.metric("detached_after_seconds", milli(gone.Sub(released)))
	e.check("they are detached after the delay, and not before", after >= cleanUpDelay-time.Second && after <= cleanUpDelay+cleanUpLate,
		"begun %s after the recorded release, done after %s", timeline.Round(after), timeline.Round(gone.Sub(released)))
	e.Report.Figures = append(e.Report.Figures, e.wholeFigure("From the release to the clean-up", released, gone))
	return nil
}

// awaitReleased blocks until nobody holds the volume and returns the recorded time of
// the release.
func (e *Environment) awaitReleased(ctx context.Context, v volume) (time.Time, error) {
	var released time.Time
	err := e.view.await(ctx, moveTimeout, "the volume is released", func() bool {
		u := e.view.azVolume(v.Name)
		at, err := time.Parse(time.RFC3339, text(u, "status", "lastReleasedTime"))
		released = at
		return err == nil && text(u, "status", "primary", "state") == "Released"
	})
	return released, err
}

// awaitDetached blocks until the volume is attached nowhere and returns when it was
// begun to take it away, and when that was done.
func (e *Environment) awaitDetached(ctx context.Context, v volume) (begun, gone time.Time, err error) {
	err = e.view.await(ctx, cleanUpDelay+detachTimeout, "the disk is attached nowhere", func() bool {
		attachments := e.view.attachments(v.Name)
		for _, a := range attachments {
			if a.Deleting && begun.IsZero() {
				begun = e.Clock.Now()
			}
		}
		if len(attachments) > 0 {
			return false
		}
		gone = e.Clock.Now()
		return true
	})
	return begun, gone, err
}

// measureAtOnce stops the pod, deletes the claim of a volume that is to be kept, and
// measures when its attachments are taken away.
func (e *Environment) measureAtOnce(ctx context.Context, w Workload, v volume) error {
	if err := e.setReclaim(ctx, v.PV, corev1.PersistentVolumeReclaimRetain); err != nil {
		return err
	}
	e.mendLater("have the volume deleted", func(ctx context.Context) error {
		return e.setReclaim(ctx, v.PV, corev1.PersistentVolumeReclaimDelete)
	})
	e.Progress("stopping the pod and deleting its claim")
	if err := e.scale(ctx, w, 0); err != nil {
		return err
	}
	if _, err := e.awaitReleased(ctx, v); err != nil {
		return err
	}
	if err := e.kube.CoreV1().PersistentVolumeClaims(e.Namespace).Delete(ctx, w.claim(), metav1.DeleteOptions{}); err != nil {
		return fmt.Errorf("delete the claim %s: %w", w.claim(), err)
	}
	var released time.Time
	err := e.view.await(ctx, setUpTimeout, "the PersistentVolume is released", func() bool {
		pv, err := e.view.typed.Core().V1().PersistentVolumes().Lister().Get(v.PV)
		released = e.Clock.Now()
		return err == nil && pv.Status.Phase == corev1.VolumeReleased
	})
	if err != nil {
		return err
	}
	begun, gone, err := e.awaitDetached(ctx, v)
	if err != nil {
		return err
	}
	after := max(begun.Sub(released), 0)
	e.metric("clean_up_after_pv_release_seconds", milli(after))
	e.check("they are detached at once when the PersistentVolume is released", after <= cleanUpLate, "begun %s after, done after %s", timeline.Round(after), timeline.Round(gone.Sub(released)))
	e.Report.Figures = append(e.Report.Figures, e.wholeFigure("From the release of the PersistentVolume to the clean-up", released, gone))
	return nil
}

func (e *Environment) setReclaim(ctx context.Context, pv string, policy corev1.PersistentVolumeReclaimPolicy) error {
	patch := fmt.Appendf(nil, `{"spec":{"persistentVolumeReclaimPolicy":%q}}`, policy)
	if _, err := e.kube.CoreV1().PersistentVolumes().Patch(ctx, pv, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("set the reclaim policy of %s: %w", pv, err)
	}
	return nil
}

// scale sets the number of the workload's pods, 0 or 1.
func (e *Environment) scale(ctx context.Context, w Workload, pods int) error {
	patch := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, pods)
	if _, err := e.kube.AppsV1().StatefulSets(e.Namespace).Patch(ctx, w.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("scale %s to %d: %w", w.Name, pods, err)
	}
	return nil
}
