package scenario

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/azuredisk-csi/azuredisk/playground/recorder"
	"github.com/azuredisk-csi/azuredisk/playground/scenario/evidence"
	"github.com/azuredisk-csi/azuredisk/playground/scenario/observer"
	"github.com/azuredisk-csi/azuredisk/playground/timeline"
)

// Steady is a workload that must not be disturbed, as it was before.
type Steady struct {
	Workload Workload
	Volume   observer.Volume
	Pod      types.UID
	Node     string
	// Primary is the volume's primary and its epoch.
	Primary string
}

// earlierDisksTimeout bounds the deletion of the disks of earlier scenarios, whose detaches wait
// for one another.
const earlierDisksTimeout = 3 * time.Minute

// AwaitEarlierDisks waits until the disks of scenarios that ended before are deleted, so that
// NothingFenced counts no write that belongs to them.
func (e *Environment) AwaitEarlierDisks(ctx context.Context) error {
	return e.Poll(ctx, earlierDisksTimeout, time.Second, "the disks of earlier scenarios are deleted",
		func(ctx context.Context) error {
			namespaces, err := e.Kube.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
			if err != nil {
				return err
			}
			for _, n := range namespaces.Items {
				if n.Status.Phase == corev1.NamespaceTerminating {
					return fmt.Errorf("namespace %s is being deleted", n.Name)
				}
			}
			volumes, err := e.Kube.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
			if err != nil {
				return err
			}
			for _, v := range volumes.Items {
				if v.Status.Phase == corev1.VolumeReleased &&
					v.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete {
					return fmt.Errorf("PersistentVolume %s is Released and is to be deleted", v.Name)
				}
			}
			return nil
		})
}

// SteadyOf describes the workloads as they are now.
func (e *Environment) SteadyOf(workloads []Workload, volumes []observer.Volume) ([]Steady, error) {
	var all []Steady
	for i, w := range workloads {
		pod := e.View.Pod(w.Pod())
		if pod == nil || !observer.IsRunning(pod) {
			return nil, fmt.Errorf("pod %s does not run", w.Pod())
		}
		all = append(all, Steady{w, volumes[i], pod.UID, pod.Spec.NodeName, e.View.PrimaryOf(volumes[i].Name)})
	}
	return all, nil
}

// JudgeSteady checks that the workloads were left alone from that time on: the same pods
// hold the same volumes, and none of them had to wait long for a write.
func (e *Environment) JudgeSteady(ctx context.Context, all []Steady, from time.Time, patience time.Duration) error {
	for _, s := range all {
		name := s.Workload.Name
		e.Check("the pod of "+name+" is left alone", e.LeftAlone(s), "on %s; the volume was %s, and is %s", s.Node, s.Primary,
			e.View.PrimaryOf(s.Volume.Name))
		pause, err := e.WritePause(ctx, s.Workload, from)
		if err != nil {
			return err
		}
		e.Metric("longest_write_pause_seconds_"+name, Seconds(pause))
		e.Check("it writes all the time", pause <= patience, "no record of %s for %s at the longest", name, timeline.Round(pause))
	}
	return nil
}

// LeftAlone reports whether the same pod runs and holds the same volume.
func (e *Environment) LeftAlone(s Steady) bool {
	pod := e.View.Pod(s.Workload.Pod())
	return pod != nil && pod.UID == s.Pod && observer.IsRunning(pod) && e.View.PrimaryOf(s.Volume.Name) == s.Primary
}

// WritePause is the longest time for which the workload wrote nothing, from that time until now.
func (e *Environment) WritePause(ctx context.Context, w Workload, from time.Time) (time.Duration, error) {
	until := e.Clock.Now()
	// What a pod that is cut off has written arrives later.
	ctx, cancel := context.WithTimeout(ctx, MoveTimeout)
	defer cancel()
	received, err := e.Collector.Await(ctx, w.Name, func(t recorder.Received) bool {
		return slices.ContainsFunc(t.Acks[max(0, len(t.Acks)-1000):],
			func(a recorder.Ack) bool { return a.Time.After(until) })
	})
	if err != nil {
		return 0, fmt.Errorf("wait until %s reports its records: %w", w.Name, err)
	}
	return longestPause(received.Acks, from, until), nil
}

// longestPause is the longest time without a record between those times.
func longestPause(acks []recorder.Ack, from, until time.Time) time.Duration {
	times := []time.Time{from, until}
	for _, a := range acks {
		if a.Time.After(from) && a.Time.Before(until) {
			times = append(times, a.Time)
		}
	}
	slices.SortFunc(times, time.Time.Compare)
	var longest time.Duration
	for i := 1; i < len(times); i++ {
		longest = max(longest, times[i].Sub(times[i-1]))
	}
	return longest
}

// Fences is a sentence about what nothingFenced counted.
func (e *Environment) Fences() string {
	return fmt.Sprintf("Decisions and proofs that took a volume from its node: %v; changes at Azure: %v.",
		e.Report.Metrics["fences"], e.Report.Metrics["azure_writes"])
}

// NothingFenced checks that since then no volume was taken from its node and nothing was
// asked of Azure that changes a VM or a disk.
func (e *Environment) NothingFenced(ctx context.Context, since time.Time) error {
	fenced := e.Taken(since)
	e.Metric("fences", fenced)
	e.Check("no volume is taken from its node", fenced == 0, "%d decisions and proofs", fenced)
	calls, err := e.Azure.Since(ctx, since)
	if err != nil {
		return err
	}
	writes := 0
	for _, c := range calls {
		if c.IsWrite() && evidence.ChangesDiskOrVM(c) {
			writes++
		}
	}
	e.Metric("azure_writes", writes)
	e.Check("nothing is written to Azure, no forced detach above all", writes == 0, "%d writes among %d calls", writes,
		len(calls))
	return nil
}

// Taken counts the decisions and proofs since then that took a volume from its node.
func (e *Environment) Taken(since time.Time) int {
	taken := 0
	for _, m := range e.View.Observer.Marks() {
		if !m.At.Before(since) && (m.Kind == observer.FenceDecided || m.Kind == observer.ReleaseProven) {
			taken++
		}
	}
	return taken
}
