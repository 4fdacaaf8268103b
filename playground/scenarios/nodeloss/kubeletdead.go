package nodeloss

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/azuredisk-csi/azuredisk/playground/scenario"
	"github.com/azuredisk-csi/azuredisk/playground/scenario/observer"
	"github.com/azuredisk-csi/azuredisk/playground/timeline"
)

const (
	// notReadyTimeout bounds how long Kubernetes may take to call a node without a kubelet not
	// Ready.
	notReadyTimeout = 2 * time.Minute
	// podProtects is for how long the volume is watched while the pod object is on the node that is
	// not Ready: longer than the driver's grace.
	podProtects = 25 * time.Second
	// maxKubeletDeadSeconds is the driver's grace of 15 s, a forced detach, and the start of the
	// pod. Where there are VolumeAttachments, Kubernetes waits for six minutes before it takes the
	// volume from the node.
	maxKubeletDeadSeconds         = 45
	maxKubeletDeadAttachedSeconds = 6*60 + 75
	kubeletDeadTimeout            = 60 * time.Second
	kubeletDeadAttachedTimeout    = 9 * time.Minute
)

// KubeletDead is the scenario kubelet-dead.
var KubeletDead = scenario.Scenario{
	Name:    "kubelet-dead",
	Summary: "the kubelet of a node dies while its pod and the node plug-in live, and the pod is deleted by force",
	Title:   "A kubelet dies and its pod continues to write",
	Latency: "realistic",
	Run:     kubeletDead,
}

// kubeletDead halts the kubelet of a node whose machine, pods and node plug-in are well. Nothing
// unmounts the volume there, the heartbeat is fresh, and the report says truthfully that the volume
// is staged. Then the pod is deleted by force.
func kubeletDead(ctx context.Context, e *scenario.Environment) error {
	w := single
	w.KeepTrying = true
	f, err := beginLoss(ctx, e, w)
	if err != nil {
		return err
	}
	resume, err := loseKubelet(ctx, e, f)
	if err != nil {
		return err
	}
	if f.Fault, err = deleteByForce(ctx, e, f); err != nil {
		return err
	}
	timeout, most := kubeletDeadTimeout, float64(maxKubeletDeadSeconds)
	if e.Report.Metrics["attach_required"] == true {
		e.Progress("with VolumeAttachments Kubernetes takes the volume back after six minutes")
		timeout, most = kubeletDeadAttachedTimeout, maxKubeletDeadAttachedSeconds
	}
	if err := e.AwaitFailover(ctx, &f, timeout); err != nil {
		return err
	}
	e.RecordFailover(f, observer.ProofDetached)
	e.Bound("after its deletion the pod runs elsewhere in", f.Took(), most)
	if err := endCutOff(ctx, e, f, func(context.Context) (time.Time, error) { return reviveKubelet(e, f, resume) }); err != nil {
		return err
	}
	e.Report.Summary = fmt.Sprintf("The kubelet of %s was halted, and its pod deleted by force. The pod ran again on %s %s later, after Azure had detached the disk (proof: %s). %s",
		f.From, f.To, timeline.Round(f.Took()), f.ProofKind, e.RecordsLost())
	return nil
}

func repairKubelet(node string) string { return "let the kubelet of " + node + " continue" }

// loseKubelet halts the kubelet, waits until the Node is not Ready, and checks that the driver
// leaves the volume to the pod that is there. resume lets the kubelet continue.
func loseKubelet(ctx context.Context, e *scenario.Environment, f scenario.Failover) (resume func() error, err error) {
	e.Progress("halting the kubelet of %s; its pods and the node plug-in continue to run", f.From)
	resume, err = e.Cluster.StopKubelet(ctx, f.From)
	if err != nil {
		return nil, err
	}
	e.RepairLater(repairKubelet(f.From), func(context.Context) error { return resume() })
	stopped := e.Say(timeline.Node(f.From), f.From, "the kubelet is halted",
		"containerd, the pods and the driver's node plug-in continue to run")
	err = e.View.Await(ctx, notReadyTimeout, f.From+" is not Ready", func() bool {
		node := e.View.Node(f.From)
		return node != nil && observer.NodeReady(node) != corev1.ConditionTrue
	})
	if err != nil {
		return nil, err
	}
	notReady := e.Clock.Now()
	e.Metric("not_ready_seconds", scenario.Seconds(notReady.Sub(stopped)))
	e.Progress("%s is not Ready; watching for %s that the driver takes nothing from the pod there", f.From, podProtects)
	if err := e.AwaitTime(ctx, notReady.Add(podProtects)); err != nil {
		return nil, err
	}
	taken := observer.First(e.View.Observer.Marks(), stopped, observer.Milestone{
		Kind:   observer.ReleaseProven,
		Node:   f.From,
		Volume: f.Volume.Name,
	})
	e.Check("the volume stays with the pod while its object is there", taken.At.IsZero(), "the node was not Ready for %s",
		timeline.Round(podProtects))
	driver := e.View.DriverNode(f.From)
	is := observer.Reachability(driver)
	e.Check("the node plug-in lives, and the driver does not take the node for lost", is.Status == "True",
		"reachable %s, %s; last heartbeat %s", is.Status, is.Reason, observer.Text(driver, "status", "heartbeatTime"))
	return resume, nil
}

// deleteByForce deletes the pod's object alone, and returns when that was asked for.
func deleteByForce(ctx context.Context, e *scenario.Environment, f scenario.Failover) (time.Time, error) {
	e.Progress("deleting %s by force", f.Workload.Pod())
	at := e.Say(timeline.Kubernetes, f.Workload.Name, "the pod is deleted by force",
		"its object is gone; its process on "+f.From+" continues to write")
	err := e.Kube.CoreV1().Pods(e.Namespace).Delete(ctx, f.Workload.Pod(), metav1.DeleteOptions{
		GracePeriodSeconds: ptr.To[int64](0), Preconditions: &metav1.Preconditions{UID: &f.Old},
	})
	if err != nil {
		return at, fmt.Errorf("delete pod %s by force: %w", f.Workload.Pod(), err)
	}
	return at, nil
}

// reviveKubelet lets the kubelet continue, and returns when that began.
func reviveKubelet(e *scenario.Environment, f scenario.Failover, resume func() error) (time.Time, error) {
	e.Progress("letting the kubelet of %s continue", f.From)
	on := e.Say(timeline.Node(f.From), f.From, "the kubelet continues", "it finds that its pod is gone")
	if err := resume(); err != nil {
		return on, fmt.Errorf("let the kubelet of %s continue: %w", f.From, err)
	}
	e.Repaired(repairKubelet(f.From))
	return on, nil
}
