package nodeloss

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/azuredisk-csi/azuredisk/playground/recorder"
	"github.com/azuredisk-csi/azuredisk/playground/scenario"
	"github.com/azuredisk-csi/azuredisk/playground/scenario/observer"
	"github.com/azuredisk-csi/azuredisk/playground/timeline"
)

const (
	// maxPartitionSeconds is for a disk that only Azure can take from the node.
	maxPartitionSeconds = 35
	// cutOffAfterwards is how long the node stays cut off after the new pod has begun, in
	// which the old one keeps trying.
	cutOffAfterwards = 15 * time.Second
	// cleanUpCheck is how often it is looked whether a node has cleaned up: what is mounted
	// there is not to be watched.
	cleanUpCheck = time.Second
)

// Partition is the scenario node-partition.
var Partition = scenario.Scenario{
	Name:    "node-partition",
	Summary: "a node is cut off from the network while its pod continues to write",
	Title:   "A node is cut off and continues to write",
	Latency: "realistic",
	Run:     nodePartition,
}

// nodePartition cuts a node off from the network. Its pod continues to write to its disk,
// until the disk is taken from the node.
func nodePartition(ctx context.Context, e *scenario.Environment) error {
	w := single
	w.KeepTrying = true
	f, err := beginLoss(ctx, e, w)
	if err != nil {
		return err
	}
	e.Progress("cutting %s off; its pod continues to write", f.From)
	if f.Fault, err = e.Partition(ctx, f.From); err != nil {
		return err
	}
	if err := e.AwaitFailover(ctx, &f, scenario.FailoverTimeout); err != nil {
		return err
	}
	// The host of the VM answers Azure, so the forced detach may be done before the pre-emption.
	e.RecordFailover(f, f.ProofOfLoss(), observer.ProofDetached)
	e.CheckOrder(f)
	most := float64(maxPartitionSeconds)
	if f.Fencing == observer.FencingPreemption {
		most = e.PodLimit("node-partition")
	}
	e.Bound("the pod runs elsewhere after", f.Took(), most)
	return endCutOff(ctx, e, f, func(ctx context.Context) (time.Time, error) {
		e.Progress("connecting %s again", f.From)
		return e.Heal(ctx, f.From)
	})
}

// endCutOff judges a failover in which the old pod was not stopped with its node: it lets the old
// pod try to write for some time beside the new one, reads what came of that, ends the fault, and
// waits until the node has cleaned up by itself.
func endCutOff(ctx context.Context, e *scenario.Environment, f scenario.Failover,
	endFault func(context.Context) (time.Time, error)) error {
	if err := e.AwaitTime(ctx, f.FirstWrite.Add(cutOffAfterwards)); err != nil {
		return err
	}
	// The log is read before the fault ends: the kubelet deletes it as soon as it learns that the
	// pod is gone.
	outcomes, err := oldOutcomes(ctx, e, f)
	if err != nil {
		return err
	}
	recordOldWriter(e, f, outcomes)
	on, err := endFault(ctx)
	if err != nil {
		return err
	}
	if err := cleanedUp(ctx, e, f, on); err != nil {
		return err
	}
	return endLoss(ctx, e, f)
}

// oldOutcomes are what the old pod noted in its log, read on the lost node itself.
func oldOutcomes(ctx context.Context, e *scenario.Environment, f scenario.Failover) ([]recorder.Outcome, error) {
	process, err := e.Cluster.Process(ctx, f.From)
	if err != nil {
		return nil, fmt.Errorf("look into %s: %w", f.From, err)
	}
	folder := fmt.Sprintf("%s_%s_%s", e.Namespace, f.Workload.Pod(), f.Old)
	logs, err := filepath.Glob(filepath.Join(process, "root/var/log/pods", folder, "recorder", "*.log*"))
	if err != nil || len(logs) == 0 {
		return nil, errors.Join(fmt.Errorf("%s has no log of the old pod", f.From), err)
	}
	// A log that was rotated has the time in its name; the present one comes last.
	slices.SortFunc(logs, func(a, b string) int {
		return strings.Compare(strings.TrimSuffix(a, ".log")+"~", strings.TrimSuffix(b, ".log")+"~")
	})
	var outcomes []recorder.Outcome
	for _, path := range logs {
		content, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("read the old pod's log: %w", err)
		}
		found, err := recorder.ParseOutcomes(bytes.NewReader(content))
		if err != nil {
			return nil, fmt.Errorf("read the old pod's log: %w", err)
		}
		outcomes = append(outcomes, found...)
	}
	return outcomes, nil
}

// oldWriter is how a writer that was cut off came to its end.
type oldWriter struct {
	// LastDurable is when its last record was on the disk.
	LastDurable time.Time
	// Failed is when its first write failed after that; zero if none did. Error says how.
	Failed time.Time
	Error  string
	// Attempts counts those that failed from then on.
	Attempts int64
	// WhileCut counts the records that became durable after the fault.
	WhileCut int64
}

// readOldWriter finds the end of the writer in its outcomes.
func readOldWriter(outcomes []recorder.Outcome, fault time.Time) oldWriter {
	var old oldWriter
	for _, o := range outcomes {
		switch {
		case o.Durable:
			// What failed before was no end.
			old.LastDurable, old.Failed, old.Error, old.Attempts = o.To, time.Time{}, "", 0
			if o.To.After(fault) {
				old.WhileCut += o.Attempts
			}
		case old.Failed.IsZero():
			old.Failed, old.Error, old.Attempts = o.Ended, o.Error, o.Attempts
		default:
			old.Attempts += o.Attempts
		}
	}
	return old
}

// stoppedBefore reports whether the writer's writes began to fail before that time and
// none of them succeeded afterwards.
func (o oldWriter) stoppedBefore(t time.Time) bool {
	return !o.Failed.IsZero() && o.Failed.Before(t) && o.LastDurable.Before(t)
}

func recordOldWriter(e *scenario.Environment, f scenario.Failover, outcomes []recorder.Outcome) {
	old := readOldWriter(outcomes, f.Fault)
	stopped := old.stoppedBefore(f.FirstWrite)
	e.Metric("old_writer_stopped_before_new_writer_started", stopped)
	e.Metric("old_writer_failed_seconds", scenario.Seconds(scenario.Between(f.Fault, old.Failed)))
	e.Metric("old_writer_margin_seconds", scenario.Seconds(scenario.Between(old.Failed, f.FirstWrite)))
	e.Metric("old_writer_records_while_cut_off", old.WhileCut)
	e.Metric("old_writer_failed_attempts", old.Attempts)
	e.Check("the old pod continued to write while it was cut off", old.WhileCut > 0 && old.LastDurable.After(f.Fault),
		"%d records, the last one %s after the cut", old.WhileCut, timeline.Round(scenario.Between(f.Fault, old.LastDurable)))
	e.Check("its writes fail before the new pod's first record", stopped,
		"%s before; %d attempts failed: %s", timeline.Round(scenario.Between(old.Failed, f.FirstWrite)), old.Attempts, old.Error)
	for _, event := range []struct {
		at   time.Time
		step string
	}{{old.LastDurable, "last record of the pod that is cut off"}, {old.Failed, "writes fail"}} {
		if !event.at.IsZero() {
			e.Events.Add(timeline.Event{
				At:      event.at,
				Lane:    timeline.Node(f.From),
				Kind:    timeline.Workload,
				Source:  "workload",
				Step:    event.step,
				Subject: f.Workload.Name,
				Detail:  strings.TrimSpace("as the pod noted on its node " + old.Error),
			})
		}
	}
}

// cleanedUp waits until a node whose fault was over at the time on has unmounted the volume by
// itself and is used again.
func cleanedUp(ctx context.Context, e *scenario.Environment, f scenario.Failover, on time.Time) error {
	const name = "the node has cleaned up"
	if err := awaitCleanUp(ctx, e, f); err != nil {
		e.Check(name, false, "%v", err)
		return err
	}
	e.Metric("clean_up_seconds", scenario.Seconds(e.Clock.Now().Sub(on)))
	e.Check(name, true, "no mount, no staged volume, no pod %s after the fault was over", timeline.Round(e.Clock.Now().Sub(on)))
	return recordBack(ctx, e, f, on)
}

// awaitCleanUp blocks until nothing of the lost pod is left on its node.
func awaitCleanUp(ctx context.Context, e *scenario.Environment, f scenario.Failover) error {
	return e.Poll(ctx, scenario.BackTimeout, cleanUpCheck, f.From+" has cleaned up", func(ctx context.Context) error {
		left, err := leftOn(ctx, e, f)
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("left are %q", left)
		}
		return err
	})
}

// leftOn is what the lost node still has of the pod and its volume.
func leftOn(ctx context.Context, e *scenario.Environment, f scenario.Failover) ([]string, error) {
	process, err := e.Cluster.Process(ctx, f.From)
	if err != nil {
		return nil, err
	}
	mounts, err := os.ReadFile(filepath.Join(process, "mounts"))
	if err != nil {
		return nil, fmt.Errorf("read what is mounted on %s: %w", f.From, err)
	}
	left := staleMounts(string(mounts), f)
	if phase := observer.StagedPhases(e.View.DriverNode(f.From))[f.Volume.Name]; phase != "" {
		left = append(left, "the node reports the volume "+phase)
	}
	if _, err := os.Stat(filepath.Join(process, "root/var/lib/kubelet/pods", string(f.Old))); err == nil {
		left = append(left, "the kubelet has the pod's folder")
	}
	return left, nil
}

// staleMounts are the mounts of a node, as in /proc/mounts, that belong to the lost pod or
// to its volume.
func staleMounts(mounts string, f scenario.Failover) []string {
	var stale []string
	for line := range strings.Lines(mounts) {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		if target := fields[1]; strings.Contains(target, string(f.Old)) || strings.Contains(target, f.Volume.PV) {
			stale = append(stale, target)
		}
	}
	return stale
}
