package scenario

import (
	"math"
	"testing"
	"time"

	"github.com/azuredisk-csi/azuredisk/playground/recorder"
	"github.com/azuredisk-csi/azuredisk/playground/scenario/evidence"
	"github.com/azuredisk-csi/azuredisk/playground/scenario/observer"
)

// after is a moment some seconds after noon.
func after(seconds float64) time.Time {
	return noon.Add(time.Duration(math.Round(seconds*1000)) * time.Millisecond)
}

func lossAtNoon() Failover {
	return Failover{
		Workload: Workload{Name: "writer", MaxShares: 2, Replicas: 1},
		Volume:   observer.Volume{Handle: handle, PV: "pvc-1", Name: "pvc-1", Workload: "writer"},
		From:     "node-1",
		To:       "node-3",
		Old:      "old",
		New:      "new",
		Fault:    noon,
	}
}

// wholeFailover is what the watches show of a failover, with steps of others between.
func wholeFailover() []observer.Milestone {
	return []observer.Milestone{
		{At: after(-60), Kind: observer.PodRunning, Pod: "old", Node: "node-1"},
		{At: after(-30), Kind: observer.ReleaseProven, Node: "node-1", Volume: "pvc-1", Detail: "Unstaged"},
		{At: after(6), Kind: observer.NodeUnreachable, Node: "node-9", Detail: "NodeLost"},
		{At: after(7), Kind: observer.FenceDecided, Node: "node-1", Volume: "pvc-9"},
		{At: after(7.5), Kind: observer.FenceDecided, Node: "node-1", Volume: "pvc-1"},
		{At: after(7.6), Kind: observer.NodeUnreachable, Node: "node-1", Detail: "NodeLost"},
		{At: after(16), Kind: observer.ReleaseProven, Node: "node-1", Volume: "pvc-1", Detail: observer.ProofDetached},
		{At: after(16.1), Kind: observer.PodGone, Pod: "old", Node: "node-1"},
		{At: after(16.2), Kind: observer.NotInUse, Node: "node-1", Volume: "pvc-1"},
		{At: after(16.4), Kind: observer.NotAttached, Node: "node-1", Volume: "pvc-1"},
		{At: after(17), Kind: observer.AttachedTo, Node: "node-3", Volume: "pvc-1"},
		{At: after(18.5), Kind: observer.PodRunning, Pod: "new", Node: "node-3"},
		{At: after(90), Kind: observer.ReleaseProven, Node: "node-1", Volume: "pvc-1", Detail: "Unstaged"},
	}
}

func TestThePhasesOfAFailoverAreReadFromItsSteps(t *testing.T) {
	t.Parallel()
	calls := []evidence.Call{
		{Start: after(-50), Duration: time.Second, Method: "NodeStageVolume", Volume: handle, Code: "OK", Node: "node-3"},
		{Start: after(16.5), Duration: 100 * time.Millisecond, Method: "ControllerPublishVolume", Volume: handle,
			Code: "Aborted"},
		{Start: after(16.8), Duration: 100 * time.Millisecond, Method: "ControllerPublishVolume", Volume: handle, Code: "OK"},
		{Start: after(17), Duration: 500 * time.Millisecond, Method: "NodeStageVolume", Volume: handle, Code: "OK",
			Node: "node-3"},
	}
	f := lossAtNoon()
	f.Steps = readSteps(f, wholeFailover(), calls)
	if f.ProofKind != observer.ProofDetached || f.UnreachableReason != "NodeLost" {
		t.Errorf("proof %q, reason %q, want %q, %q", f.ProofKind, f.UnreachableReason, observer.ProofDetached, "NodeLost")
	}
	if !f.Published.Equal(after(16.9)) || !f.StageAsked.Equal(after(17)) || !f.Staged.Equal(after(17.5)) ||
		!f.PodDeleted.Equal(after(16.1)) || !f.Unattached.Equal(after(16.4)) || !f.NotInUse.Equal(after(16.2)) {
		t.Errorf("steps are %+v", f.Steps)
	}
	want := Phases{
		Detect:  7500 * time.Millisecond,
		Fence:   8500 * time.Millisecond,
		Unblock: 1500 * time.Millisecond,
		Total:   18500 * time.Millisecond,
	}
	if got := f.Phases(f.Fault); got != want {
		t.Errorf("phases are %+v, want %+v", got, want)
	}
}

func TestAPhaseThatWasNotSeenIsZero(t *testing.T) {
	t.Parallel()
	f := lossAtNoon()
	f.Steps = readSteps(f, nil, nil)
	if got := f.Phases(f.Fault); got != (Phases{}) {
		t.Errorf("of nothing, phases are %+v, want %+v", got, (Phases{}))
	}
	// A volume without a claim: only the node's condition tells that the loss is known.
	f.Steps = readSteps(f, []observer.Milestone{
		{At: after(5), Kind: observer.NodeUnreachable, Node: "node-1", Detail: "VMDown"},
		{At: after(6), Kind: observer.ReleaseProven, Node: "node-1", Volume: "pvc-1", Detail: observer.ProofVMDown},
	}, nil)
	if got, want := f.Phases(f.Fault), (Phases{Detect: 5 * time.Second, Fence: time.Second}); got != want {
		t.Errorf("phases are %+v, want %+v", got, want)
	}
}

func TestTheRecordsAroundAFaultAreFoundByTheirStart(t *testing.T) {
	t.Parallel()
	ack := func(start int64, writer string, seconds float64) recorder.Ack {
		return recorder.Ack{Record: recorder.Record{Start: start, Writer: writer, Time: after(seconds)}}
	}
	acks := []recorder.Ack{ack(1, "a", -9), ack(2, "a", -1), ack(3, "a", 21), ack(3, "a", 20), ack(4, "b", 30)}
	start := lastStart(acks, noon)
	if start != 2 || lastStart(acks, time.Time{}) != 4 {
		t.Errorf("last start before the fault: got %d, want 2", start)
	}
	last, next, writer := aroundNextStart(acks, start)
	if !last.Equal(after(-1)) || !next.Equal(after(20)) || writer != "a" {
		t.Errorf("last %s, next %s by %s, want %s, %s, %s", last, next, writer, after(-1), after(20), "a")
	}
}
