package scenario

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/azuredisk-csi/azuredisk/playground/recorder"
	"github.com/azuredisk-csi/azuredisk/playground/timeline"
)

// steady is a workload that must not be disturbed, as it was before.
type steady struct {
	Workload Workload
	Volume   volume
	Pod      types.UID
	Node     string
	// Claim is who held the volume, under which epoch.
	Claim string
}

// steadyOf describes the workloads as they are now.
func (e *Environment) steadyOf(workloads []Workload, volumes []volume) ([]steady, error) {
	var all []steady
	for i, w := range workloads {
		pod := e.view.pod(w.pod())
		if pod == nil || !isRunning(pod) {
			return nil, fmt.Errorf("pod %s does not run", w.pod())
		}
		all = append(all, steady{w, volumes[i], pod.UID, pod.Spec.NodeName, e.view.claimOf(volumes[i].Name)})
	}
	return all, nil
}

// judgeSteady checks that the workloads were left alone from that time on: the same pods
// hold the same volumes, and none of them had to wait long for a write.
func (e *Environment) judgeSteady(ctx context.Context, all []steady, from time.Time, patience time.Duration) error {
	for _, s := range all {
		name := s.Workload.Name
		pod := e.view.pod(s.Workload.pod())
		same := pod != nil && pod.UID == s.Pod && isRunning(pod)
		e.check("the pod of "+name+" is left alone", same && e.view.claimOf(s.Volume.Name) == s.Claim,
			"on %s; the volume was %s, and is %s", s.Node, s.Claim, e.view.claimOf(s.Volume.Name))
		until := e.Clock.Now()
		// What a pod that is cut off has written arrives later.
		waiting, cancel := context.WithTimeout(ctx, moveTimeout)
		testimony, err := e.Collector.Await(waiting, name, func(t recorder.Testimony) bool {
			return slices.ContainsFunc(t.Acks[max(0, len(t.Acks)-1000):], func(a recorder.Ack) bool { return a.Time.After(until) })
		})
		cancel()
		if err != nil {
			return fmt.Errorf("wait until %s tells of its records: %w", name, err)
		}
		pause := longestPause(testimony.Acks, from, until)
		e.metric("longest_write_pause_seconds_"+name, milli(pause))
		e.check("it goes on writing all the time", pause <= patience, "no record of %s for %s at the longest", name, timeline.Round(pause))
	}
	return nil
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

// fences is a sentence about what nothingFenced counted.
func (e *Environment) fences() string {
	return fmt.Sprintf("Decisions and proofs that took a volume from its node: %v; changes at Azure: %v.", e.Report.Metrics["fences"], e.Report.Metrics["azure_writes"])
}

// nothingFenced checks that since then no volume was taken from its node and nothing was
// asked of Azure that changes a VM or a disk.
func (e *Environment) nothingFenced(ctx context.Context, since time.Time) error {
	fenced := 0
	for _, m := range e.view.observer.marks() {
		if !m.At.Before(since) && (m.Kind == fenceDecided || m.Kind == releaseProven) {
			fenced++
		}
	}
	e.metric("fences", fenced)
	e.check("no volume is taken from its node", fenced == 0, "%d decisions and proofs", fenced)
	calls, err := e.azure.since(ctx, since)
	if err != nil {
		return err
	}
	writes := 0
	for _, c := range calls {
		if c.isWrite() && changesDiskOrVM(c) {
			writes++
		}
	}
	e.metric("azure_writes", writes)
	e.check("nothing is written to Azure, no forced detach above all", writes == 0, "%d writes among %d calls", writes, len(calls))
	return nil
}
