package replicas

import (
	"context"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/azuredisk-csi/azuredisk/playground/scenario"
	"github.com/azuredisk-csi/azuredisk/playground/scenario/observer"
	"github.com/azuredisk-csi/azuredisk/playground/timeline"
)

const (
	// otherClusterVM is the VM of the other cluster.
	otherClusterVM = "production"
	// refusalTimeout covers the start of the pod and several tries to publish its volume.
	refusalTimeout = 2 * time.Minute
	// refusalLasts is for how long the other cluster's VM keeps the disk after the first refusal.
	// The publish is repeated in that time.
	refusalLasts = 30 * time.Second
)

// TwoClusters is the scenario two-clusters.
var TwoClusters = scenario.Scenario{
	Name:    "two-clusters",
	Summary: "a volume is restored here while a VM of another cluster has its disk, and is refused until the disk is detached there",
	Title:   "Two clusters and one disk",
	Run:     twoClusters,
}

// twoClusters removes the records of a volume, as if the PersistentVolume had been restored into
// this cluster, gives the disk to a VM that is no node, and starts the pod.
func twoClusters(ctx context.Context, e *scenario.Environment) error {
	w := scenario.Workload{
		Name:      "writer",
		MaxShares: 3,
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
	v, node := volumes[0], e.View.Pod(w.Pod()).Spec.NodeName
	e.Progress("stopping the pod and removing the AzVolume")
	if err := scale(ctx, e, w, 0); err != nil {
		return err
	}
	if _, err := awaitReleased(ctx, e, v); err != nil {
		return err
	}
	if err := forget(ctx, e, v); err != nil {
		return err
	}
	e.Progress("attaching the disk to the VM %s, which is no node", otherClusterVM)
	has, detach, err := e.Cluster.AttachElsewhere(ctx, otherClusterVM, node, v.Handle)
	if detach != nil {
		e.RepairLater("delete the VM "+otherClusterVM, detach)
	}
	if err != nil {
		return err
	}
	e.Progress("starting the pod again")
	started := e.Clock.Now()
	if err := scale(ctx, e, w, 1); err != nil {
		return err
	}
	message, err := awaitRefusal(ctx, e, started)
	if err != nil {
		return err
	}
	e.Check("the refusal says what to do", strings.Contains(message, "az vm disk detach"), "%s", message)
	if err := e.AwaitTime(ctx, e.Clock.Now().Add(refusalLasts)); err != nil {
		return err
	}
	pod := e.View.Pod(w.Pod())
	e.Check("the pod does not run while the other cluster has the disk", pod == nil || !observer.IsRunning(pod), "pod %s",
		w.Pod())
	there, err := has(ctx)
	if err != nil {
		return err
	}
	e.Check("the other cluster keeps the disk", there, "attached to %s: %t", otherClusterVM, there)
	e.Progress("detaching the disk from %s, as az vm disk detach does", otherClusterVM)
	detached := e.Clock.Now()
	if err := detach(ctx); err != nil {
		return err
	}
	e.Repaired("delete the VM " + otherClusterVM)
	if _, err := e.AwaitReady(ctx, w); err != nil {
		return err
	}
	e.Metric("ready_after_detach_seconds", scenario.Seconds(e.Clock.Now().Sub(detached)))
	if err := e.JudgeAll(ctx, w); err != nil {
		return err
	}
	if _, err := e.AddEvidence(ctx, e.Report.Started); err != nil {
		return err
	}
	e.Report.Figures = []timeline.Figure{e.WholeFigure("From the start of the pod to its volume", started, e.Clock.Now())}
	e.Report.Summary = fmt.Sprintf("A volume was restored while a VM of another cluster had its disk. The publish was refused, and the VM kept the disk. "+
		"The volume and its replica were there %v s after the disk was detached from that VM. %s",
		e.Report.Metrics["ready_after_detach_seconds"], e.RecordsLost())
	return nil
}

// forget deletes the AzVolume, waits until the disk is attached nowhere, and takes the finalizer
// away, which stays while there is a PersistentVolume.
func forget(ctx context.Context, e *scenario.Environment, v observer.Volume) error {
	object := e.View.AzVolume(v.Name)
	path := fmt.Sprintf("/apis/disk.csi.azure.com/v1/namespaces/%s/azvolumes/%s", object.GetNamespace(), object.GetName())
	if err := e.Kube.Discovery().RESTClient().Delete().AbsPath(path).Do(ctx).Error(); err != nil {
		return fmt.Errorf("delete AzVolume %s: %w", object.GetName(), err)
	}
	if err := e.View.Await(ctx, detachTimeout, "the disk is attached nowhere", func() bool {
		return len(e.View.Attachments(v.Name)) == 0
	}); err != nil {
		return err
	}
	if err := e.Kube.Discovery().RESTClient().Patch(types.MergePatchType).AbsPath(path).
		Body([]byte(`{"metadata":{"finalizers":null}}`)).Do(ctx).Error(); err != nil {
		return fmt.Errorf("remove the finalizer of AzVolume %s: %w", object.GetName(), err)
	}
	return e.View.Await(ctx, detachTimeout, "the AzVolume is gone",
		func() bool { return e.View.AzVolume(v.Name).GetName() == "" })
}

// awaitRefusal blocks until an event says that the disk is at the other cluster's VM, and returns
// its message.
func awaitRefusal(ctx context.Context, e *scenario.Environment, since time.Time) (message string, err error) {
	err = e.Poll(ctx, refusalTimeout, time.Second, "an event names the VM "+otherClusterVM, func(ctx context.Context) error {
		events, err := e.Kube.CoreV1().Events(e.Namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for i := range events.Items {
			if strings.Contains(events.Items[i].Message, "/"+otherClusterVM+", which is no node of this cluster") {
				message = events.Items[i].Message
				return nil
			}
		}
		return fmt.Errorf("%d events since %s, and none names it", len(events.Items), since.UTC().Format(time.TimeOnly))
	})
	return message, err
}
