package replicas

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/azuredisk-csi/azuredisk/playground/scenario"
	"github.com/azuredisk-csi/azuredisk/playground/scenario/observer"
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

// CleanUp is the scenario clean-up.
var CleanUp = scenario.Scenario{
	Name:    "clean-up",
	Summary: "replicas are detached some time after the release of a volume",
	Title:   "Replicas are cleaned up",
	Latency: "realistic",
	Run:     cleanUp,
}

// cleanUp releases a volume and measures how long its replicas stay attached, while the
// controller's leader ends in between. Then it releases the PersistentVolume, and the replicas must
// be detached at once.
func cleanUp(ctx context.Context, e *scenario.Environment) error {
	e.Progress("setting the driver's clean-up delay to %s", cleanUpDelay)
	if _, err := e.ChangeDriver(ctx, "set the driver's clean-up delay back",
		map[string]any{"controller": map[string]any{"cleanUpDelay": cleanUpDelay.String()}}); err != nil {
		return err
	}
	w := scenario.Workload{
		Name:      "writer",
		MaxShares: 2,
		Replicas:  1,
	}
	e.Progress("making a pod that writes to a disk with a replica")
	volumes, err := e.Start(ctx, w)
	if err != nil {
		return err
	}
	if err := e.AwaitRecords(ctx, scenario.RecordsBeforeFault, w); err != nil {
		return err
	}
	v := volumes[0]
	if err := measureDelay(ctx, e, w, v); err != nil {
		return err
	}
	e.Progress("starting the pod again")
	if err := scale(ctx, e, w, 1); err != nil {
		return err
	}
	if _, err := e.AwaitReady(ctx, w); err != nil {
		return err
	}
	e.Check("the volume gets its replica again", true, "after its pod was started again")
	if err := e.JudgeAll(ctx, w); err != nil {
		return err
	}
	if err := measureAtOnce(ctx, e, w, v); err != nil {
		return err
	}
	if _, err := e.AddEvidence(ctx, e.Report.Started); err != nil {
		return err
	}
	metric := func(name string) any { return e.Report.Metrics[name] }
	e.Report.Summary = fmt.Sprintf("With a clean-up delay of %s the replicas of a released volume were detached %v s after the release, although the controller's leader ended in between; and %v s after their PersistentVolume was released. %s",
		timeline.Round(cleanUpDelay), metric("clean_up_after_seconds"), metric("clean_up_after_pv_release_seconds"),
		e.RecordsLost())
	return nil
}

// measureDelay stops the pod and measures when the volume's attachments are taken away.
func measureDelay(ctx context.Context, e *scenario.Environment, w scenario.Workload, v observer.Volume) error {
	e.Progress("stopping the pod")
	if err := scale(ctx, e, w, 0); err != nil {
		return err
	}
	released, err := awaitReleased(ctx, e, v)
	if err != nil {
		return err
	}
	kept := len(e.View.Attachments(v.Name))
	e.Check("the replicas stay when the pod has gone", kept == w.Replicas+1 || kept == w.Replicas, "%d attachments", kept)
	leads, err := e.Leader(ctx)
	if err != nil {
		return err
	}
	e.Progress("deleting the leading controller %s; the replicas are to go %s after the release", leads.Pod, cleanUpDelay)
	if err := e.Kube.CoreV1().Pods(observer.DriverNamespace).Delete(ctx, leads.Pod, metav1.DeleteOptions{}); err != nil {
		return fmt.Errorf("delete the leading controller: %w", err)
	}
	begun, gone, err := awaitDetached(ctx, e, v)
	if err != nil {
		return err
	}
	after := begun.Sub(released)
	e.Metric("clean_up_delay_seconds", scenario.Seconds(cleanUpDelay))
	e.Metric("clean_up_after_seconds", scenario.Seconds(after))
	e.Metric("detached_after_seconds", scenario.Seconds(gone.Sub(released)))
	e.Check("they are detached after the delay, and not before",
		after >= cleanUpDelay-time.Second && after <= cleanUpDelay+cleanUpLate,
		"begun %s after the recorded release, done after %s", timeline.Round(after), timeline.Round(gone.Sub(released)))
	e.Report.Figures = append(e.Report.Figures, e.WholeFigure("From the release to the clean-up", released, gone))
	return nil
}

// awaitReleased blocks until the volume has no primary and returns the recorded time of
// the release.
func awaitReleased(ctx context.Context, e *scenario.Environment, v observer.Volume) (time.Time, error) {
	var released time.Time
	err := e.View.Await(ctx, scenario.MoveTimeout, "the volume is released", func() bool {
		u := e.View.AzVolume(v.Name)
		at, err := time.Parse(time.RFC3339, observer.Text(u, "status", "lastReleasedTime"))
		released = at
		return err == nil && observer.Text(u, "status", "primary", "state") == "Released"
	})
	return released, err
}

// awaitDetached blocks until the volume is attached nowhere and returns when it was
// begun to take it away, and when that was done.
func awaitDetached(ctx context.Context, e *scenario.Environment, v observer.Volume) (begun, gone time.Time, err error) {
	err = e.View.Await(ctx, cleanUpDelay+detachTimeout, "the disk is attached nowhere", func() bool {
		attachments := e.View.Attachments(v.Name)
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
func measureAtOnce(ctx context.Context, e *scenario.Environment, w scenario.Workload, v observer.Volume) error {
	if err := setReclaim(ctx, e, v.PV, corev1.PersistentVolumeReclaimRetain); err != nil {
		return err
	}
	e.RepairLater("have the volume deleted", func(ctx context.Context) error {
		return setReclaim(ctx, e, v.PV, corev1.PersistentVolumeReclaimDelete)
	})
	e.Progress("stopping the pod and deleting its claim")
	if err := scale(ctx, e, w, 0); err != nil {
		return err
	}
	if _, err := awaitReleased(ctx, e, v); err != nil {
		return err
	}
	if err := e.Kube.CoreV1().PersistentVolumeClaims(e.Namespace).Delete(ctx, w.Claim(), metav1.DeleteOptions{}); err != nil {
		return fmt.Errorf("delete the claim %s: %w", w.Claim(), err)
	}
	var released time.Time
	err := e.View.Await(ctx, scenario.SetUpTimeout, "the PersistentVolume is released", func() bool {
		pv, err := e.View.Typed.Core().V1().PersistentVolumes().Lister().Get(v.PV)
		released = e.Clock.Now()
		return err == nil && pv.Status.Phase == corev1.VolumeReleased
	})
	if err != nil {
		return err
	}
	begun, gone, err := awaitDetached(ctx, e, v)
	if err != nil {
		return err
	}
	after := max(begun.Sub(released), 0)
	e.Metric("clean_up_after_pv_release_seconds", scenario.Seconds(after))
	e.Check("they are detached at once when the PersistentVolume is released", after <= cleanUpLate,
		"begun %s after, done after %s", timeline.Round(after), timeline.Round(gone.Sub(released)))
	e.Report.Figures = append(e.Report.Figures,
		e.WholeFigure("From the release of the PersistentVolume to the clean-up", released, gone))
	return nil
}

func setReclaim(ctx context.Context, e *scenario.Environment, pv string, policy corev1.PersistentVolumeReclaimPolicy) error {
	patch := fmt.Appendf(nil, `{"spec":{"persistentVolumeReclaimPolicy":%q}}`, policy)
	if _, err := e.Kube.CoreV1().PersistentVolumes().Patch(ctx, pv, types.MergePatchType, patch,
		metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("set the reclaim policy of %s: %w", pv, err)
	}
	return nil
}

// scale sets the number of the workload's pods, 0 or 1.
func scale(ctx context.Context, e *scenario.Environment, w scenario.Workload, pods int) error {
	patch := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, pods)
	if _, err := e.Kube.AppsV1().StatefulSets(e.Namespace).Patch(ctx, w.Name, types.MergePatchType, patch,
		metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("scale %s to %d: %w", w.Name, pods, err)
	}
	return nil
}
