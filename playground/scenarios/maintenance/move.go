package maintenance

import (
	"context"

	"github.com/azuredisk-csi/azuredisk/playground/scenario"
	"github.com/azuredisk-csi/azuredisk/playground/scenario/observer"
)

// beginMove makes a pod that writes, and that has to run elsewhere before its node is gone.
func beginMove(ctx context.Context, e *scenario.Environment) (scenario.Failover, error) {
	w := scenario.Workload{
		Name:      "writer",
		MaxShares: 2,
		Replicas:  1,
	}
	e.Progress("making a pod that writes to a disk with a replica")
	volumes, err := e.StartAway(ctx, w)
	if err != nil {
		return scenario.Failover{}, err
	}
	return e.LossOf(ctx, w, volumes[0])
}

// endMove checks that nothing was fenced, judges the records, and adds the evidence, from f.Fault on.
func endMove(ctx context.Context, e *scenario.Environment, f scenario.Failover) error {
	fence := observer.First(e.View.Observer.Marks(), f.Fault, observer.Milestone{Kind: observer.FenceDecided})
	e.Check("the volume is handed over, and not taken from its node", fence.At.IsZero(), "fence decided: %t", !fence.At.IsZero())
	if err := e.JudgeAll(ctx, f.Workload); err != nil {
		return err
	}
	_, err := e.AddEvidence(ctx, f.Fault)
	return err
}
