package maintenance

import (
	"context"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/azuredisk-csi/azuredisk/playground/scenario"
	"github.com/azuredisk-csi/azuredisk/playground/scenario/observer"
	"github.com/azuredisk-csi/azuredisk/playground/timeline"
)

// UnsyncedWrites is the scenario unsynced-writes.
var UnsyncedWrites = scenario.Scenario{
	Name:    "unsynced-writes",
	Summary: "a node leaves in several ways, and its pod has written records that it has not synced",
	Title:   "Data that was not synced when a node leaves",
	Latency: "realistic",
	Run:     unsyncedWrites,
}

// eventNotice is how long before its start a scheduled event is announced: the driver moves pods two
// minutes before at the earliest. The machine goes as soon as they are gone.
const eventNotice = 100 * time.Second

// departure is a way in which a node leaves.
type departure struct {
	name string
	// play returns when the node has left, or has begun to.
	play func(context.Context, *scenario.Environment, scenario.Failover) error
	// loses: the pod does not end in good order, and may lose what it has not synced.
	loses bool
}

// departures are the ways that the playground can play. A drain is the same for `kubectl drain`, the
// cluster autoscaler, AKS's scale-down and a reimage: the machine is gone as soon as the pod's object is.
// The kubelet's graceful shutdown needs systemd.
var departures = []departure{
	{name: "drain", play: drainAndCut},
	{name: "node-deletion", loses: true, play: deleteNode},
	{name: "karpenter", play: func(ctx context.Context, e *scenario.Environment, f scenario.Failover) error {
		_, err := e.RemoveAsKarpenter(ctx, f.From)
		return err
	}},
	{name: "preempt", play: announced("Preempt")},
	{name: "terminate", play: announced("Terminate")},
	{name: "redeploy", play: announced("Redeploy")},
	{name: "power-cut", loses: true, play: func(ctx context.Context, e *scenario.Environment, f scenario.Failover) error {
		_, err := e.PowerOff(ctx, f.From)
		return err
	}},
}

// unsyncedWrites plays the departures one after the other, each with a pod of its own.
func unsyncedWrites(ctx context.Context, e *scenario.Environment) error {
	var results []string
	for _, d := range departures {
		lost, acknowledged, err := playDeparture(ctx, e, d)
		if err != nil {
			return fmt.Errorf("%s: %w", d.name, err)
		}
		e.Metric("acknowledged_"+d.name, acknowledged)
		e.Metric("lost_"+d.name, lost)
		if !d.loses {
			e.Check(d.name+": no record of a pod that ended in good order is lost", lost == 0, "%d of %d are lost",
				lost, acknowledged)
		}
		results = append(results, fmt.Sprintf("%s: %d of %d", d.name, lost, acknowledged))
	}
	e.Report.Summary = "A node left in several ways under a pod that did not sync its records. Lost were of " +
		strings.Join(results, ", of ") + "."
	_, err := e.AddEvidence(ctx, e.Report.Started)
	return err
}

func playDeparture(ctx context.Context, e *scenario.Environment, d departure) (lost, acknowledged int, err error) {
	w := scenario.Workload{
		Name:      "writer-" + d.name,
		MaxShares: 2,
		Replicas:  1,
		Unsynced:  true,
	}
	e.Progress("%s: making a pod that writes and does not sync", d.name)
	volumes, err := e.StartAway(ctx, w)
	if err != nil {
		return 0, 0, err
	}
	f, err := e.LossOf(ctx, w, volumes[0])
	if err != nil {
		return 0, 0, err
	}
	e.Progress("%s: %s leaves", d.name, f.From)
	if err := d.play(ctx, e, f); err != nil {
		return 0, 0, err
	}
	err = e.View.Await(ctx, scenario.MoveTimeout, w.Pod()+" runs on another node than "+f.From, func() bool {
		pod := e.View.Pod(w.Pod())
		return pod != nil && pod.UID != f.Old && observer.IsRunning(pod) && pod.Spec.NodeName != f.From
	})
	if err != nil {
		return 0, 0, err
	}
	if _, err := e.AwaitWriter(ctx, w, string(e.View.Pod(w.Pod()).UID)); err != nil {
		return 0, 0, err
	}
	result, err := e.JudgeHistory(ctx, w)
	if err != nil {
		return 0, 0, err
	}
	since := e.Clock.Now()
	if err := e.RepairAll(ctx); err != nil {
		return 0, 0, err
	}
	err = e.View.Await(ctx, scenario.BackTimeout, f.From+" is used again", func() bool { return e.View.IsBack(f.From, since) })
	return len(result.Lost), result.Acknowledged, err
}

// drainAndCut drains a node, and cuts its power as soon as the object of the pod is gone.
func drainAndCut(ctx context.Context, e *scenario.Environment, f scenario.Failover) error {
	e.RepairLater("uncordon "+f.From, func(ctx context.Context) error { return e.SetCordon(ctx, f.From, false) })
	if err := e.SetCordon(ctx, f.From, true); err != nil {
		return err
	}
	asked := e.Say(timeline.Kubernetes, f.Workload.Name, "the pod is evicted", "its node is cordoned")
	err := e.Kube.CoreV1().Pods(e.Namespace).Delete(ctx, f.Workload.Pod(),
		metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(f.Old))})
	if err != nil {
		return fmt.Errorf("delete pod %s: %w", f.Workload.Pod(), err)
	}
	return cutWithoutPod(ctx, e, f, "drain", asked)
}

// announced has Azure announce an event before which the driver evicts pods, and cuts the power of the
// node as soon as the object of the pod is gone.
func announced(kind string) func(context.Context, *scenario.Environment, scenario.Failover) error {
	return func(ctx context.Context, e *scenario.Environment, f scenario.Failover) error {
		policy := strings.ToLower(kind)
		if _, err := e.ChangeDriver(ctx, "set the policy for "+policy+" back", map[string]any{"controller": map[string]any{
			"maintenance": map[string]any{policy: "move"},
		}}); err != nil {
			return err
		}
		asked := e.Say(timeline.Azure, f.From, kind+" is announced", "a scheduled event is in the metadata of the VM")
		event, err := e.Azure.Announce(ctx, kind, f.From, eventNotice, -1)
		if err != nil {
			return err
		}
		e.RepairLater("end the event "+kind, func(ctx context.Context) error { return e.Azure.EndEvent(ctx, event.ID) })
		return cutWithoutPod(ctx, e, f, policy, asked)
	}
}

// cutWithoutPod cuts the power of a node as soon as the object of the pod is gone.
func cutWithoutPod(ctx context.Context, e *scenario.Environment, f scenario.Failover, name string, asked time.Time) error {
	err := e.View.Await(ctx, scenario.MoveTimeout, "the object of "+f.Workload.Pod()+" is gone", func() bool {
		pod := e.View.Pod(f.Workload.Pod())
		return pod == nil || pod.UID != f.Old
	})
	if err != nil {
		return err
	}
	cut, err := e.PowerOff(ctx, f.From)
	e.Metric(name+"_power_cut_after_seconds", scenario.Seconds(cut.Sub(asked)))
	return err
}

// deleteNode deletes the Node of a machine that continues. Kubernetes deletes the objects of its pods
// by force. The kubelet makes the Node again when it starts.
func deleteNode(ctx context.Context, e *scenario.Environment, f scenario.Failover) error {
	e.RepairLater("start "+f.From+" again", func(ctx context.Context) error {
		if err := e.Cluster.PowerOff(ctx, f.From); err != nil {
			return err
		}
		return e.Cluster.PowerOn(ctx, f.From)
	})
	e.Say(timeline.Kubernetes, f.From, "the Node is deleted", "its machine continues")
	if err := e.Kube.CoreV1().Nodes().Delete(ctx, f.From, metav1.DeleteOptions{}); err != nil {
		return fmt.Errorf("delete the Node %s: %w", f.From, err)
	}
	return nil
}
