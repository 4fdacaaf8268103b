package nodeloss

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/azuredisk-csi/azuredisk/playground/scenario"
	"github.com/azuredisk-csi/azuredisk/playground/scenario/observer"
	"github.com/azuredisk-csi/azuredisk/playground/timeline"
)

const (
	// answers is how many pods are compared with what the command said of them, at least.
	answers = 20
	// maxWrongSeconds is how far an answer's time may be from the measured one, if Azure attaches
	// nothing: an attach takes 6 to 46 s in the recorded sessions, which no answer can know.
	maxWrongSeconds = 3
	// answerTimeout bounds one run of the command.
	answerTimeout = 30 * time.Second
)

// WhatIf is the scenario what-if.
var WhatIf = scenario.Scenario{
	Name: "what-if",
	Summary: fmt.Sprintf("nodes are lost and drained by turns, and what becomes of %d pods is what `kubectl azuredisk what-if` said",
		answers),
	Title:   "Nodes are lost and drained, as foretold",
	Latency: "realistic",
	Run:     whatIf,
}

// answer is a row of what the command says.
type answer struct {
	Pod     string
	To      string   `json:"toNode"`
	Or      []string `json:"alternativeNodes"`
	Result  string
	Seconds float64 `json:"downtimeSeconds"`
}

// outcome is what became of a pod.
type outcome struct {
	pod, to string
	warm    bool
	took    time.Duration
}

// wrong says in what an outcome differs from the answer; "" for nothing.
func (a answer) wrong(o outcome) string {
	result := "Cold"
	if o.warm {
		result = "Warm"
	}
	switch seconds := o.took.Seconds(); {
	case o.to != a.To && !slices.Contains(a.Or, o.to):
		return fmt.Sprintf("%s went to %s, and not to %s or one of %q", o.pod, o.to, a.To, a.Or)
	case result != a.Result:
		return fmt.Sprintf("%s was %s on %s, and not %s", o.pod, result, o.to, a.Result)
	case o.warm && (seconds < a.Seconds-maxWrongSeconds || seconds > a.Seconds+maxWrongSeconds):
		return fmt.Sprintf("%s took %.1f s, and not %g", o.pod, seconds, a.Seconds)
	}
	return ""
}

// whatIf loses and drains one node after the other. Before, it asks the command what would become of
// the pods there.
func whatIf(ctx context.Context, e *scenario.Environment) error {
	var workloads []scenario.Workload
	for i := range 8 {
		replicas := i % 3
		workloads = append(workloads, scenario.Workload{
			Name:           fmt.Sprintf("writer-%d", i+1),
			Replicas:       replicas,
			MaxShares:      1 + replicas,
			NoReservations: i%5 == 4,
			ZRS:            replicas == 2 || rand.IntN(2) == 0, // a zone may have two nodes only
			Interval:       manyInterval,
		})
	}
	e.Progress("making %d pods that write to disks with up to two replicas", len(workloads))
	if _, err := e.Start(ctx, workloads...); err != nil {
		return err
	}
	var wrong []string
	compared, off := 0, map[string][]float64{}
	for round := 0; compared < answers; round++ {
		volumes, err := e.AwaitAllReady(ctx, workloads...)
		if err != nil {
			return err
		}
		node, err := someNode(ctx, e)
		if err != nil {
			return err
		}
		there, at := []scenario.Workload{}, []observer.Volume{}
		for i, w := range workloads {
			if e.View.Pod(w.Pod()).Spec.NodeName == node {
				there, at = append(there, w), append(at, volumes[i])
			}
		}
		if len(there) == 0 {
			continue
		}
		drain := round%2 == 1
		said, err := ask(ctx, e, node, drain)
		if err != nil {
			return err
		}
		lose := lossOf
		if drain {
			lose = drainOf
		}
		outcomes, err := lose(ctx, e, node, there, at)
		if err != nil {
			return err
		}
		for _, o := range outcomes {
			a := said[o.pod]
			if text := a.wrong(o); text != "" {
				wrong = append(wrong, fmt.Sprintf("%s (drained: %t)", text, drain))
			}
			off[a.Result] = append(off[a.Result], scenario.Seconds(o.took)-a.Seconds)
			e.Progress("%s went to %s (warm: %t) and wrote after %s; the answer was %+v", o.pod, o.to, o.warm,
				timeline.Round(o.took), a)
		}
		compared += len(outcomes)
	}
	e.Metric("answers", compared)
	e.Metric("seconds_off_warm", off["Warm"])
	e.Metric("seconds_off_cold", off["Cold"])
	e.Check("each pod goes where the answer says, finds there what it says, and takes as long if that does not depend on Azure",
		len(wrong) == 0, "%d of %d do not: %s", len(wrong), compared, strings.Join(wrong, "; "))
	if err := e.JudgeAll(ctx, workloads...); err != nil {
		return err
	}
	e.Report.Summary = fmt.Sprintf("Of %d answers %d were wrong. %s", compared, len(wrong), e.RecordsLost())
	return nil
}

// someNode is a node of the cluster, by chance, without a controller.
func someNode(ctx context.Context, e *scenario.Environment) (string, error) {
	avoid := e.ControllerNodes()
	nodes := slices.DeleteFunc(e.View.Nodes(""), func(node string) bool { return slices.Contains(avoid, node) })
	if len(nodes) == 0 {
		return "", errors.New("controllers run on all nodes: bring the playground up with more")
	}
	return nodes[rand.IntN(len(nodes))], ctx.Err()
}

// ask runs the command. Its answers are by pod.
func ask(ctx context.Context, e *scenario.Environment, node string, drain bool) (map[string]answer, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	out, err := e.Plugin(ctx, "what-if", "node", node, "-o", "json", fmt.Sprintf("--drain=%t", drain))
	// The exit code says what the answer is.
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return nil, err
	}
	var report struct{ Pods []answer }
	if err := json.Unmarshal(out, &report); err != nil {
		return nil, fmt.Errorf("read the answer of what-if: %w", err)
	}
	answers := map[string]answer{}
	for _, a := range report.Pods {
		answers[a.Pod] = a
	}
	return answers, nil
}

// lossOf cuts the power of the node, and switches it on again when the pods write elsewhere.
func lossOf(ctx context.Context, e *scenario.Environment, node string, there []scenario.Workload, volumes []observer.Volume) (
	[]outcome, error) {
	losses := make([]scenario.Failover, len(there))
	for i, w := range there {
		var err error
		if losses[i], err = e.LossOf(ctx, w, volumes[i]); err != nil {
			return nil, err
		}
	}
	e.Progress("cutting the power of %s", node)
	fault, err := e.PowerOff(ctx, node)
	if err != nil {
		return nil, err
	}
	group, groupCtx := errgroup.WithContext(ctx)
	for i := range losses {
		losses[i].Fault = fault
		group.Go(func() error { return e.AwaitFailover(groupCtx, &losses[i], scenario.FailoverTimeout) })
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	outcomes := make([]outcome, 0, len(losses))
	for _, f := range losses {
		outcomes = append(outcomes, outcome{f.Workload.Pod(), f.To, f.OntoReplica, f.FirstWrite.Sub(fault)})
	}
	on, err := e.PowerOn(ctx, node)
	if err != nil {
		return nil, err
	}
	_, err = e.AwaitBack(ctx, node, on, losses[0])
	return outcomes, err
}

// drainOf drains the node, and lifts the cordon when the pods write elsewhere.
func drainOf(ctx context.Context, e *scenario.Environment, node string, there []scenario.Workload, volumes []observer.Volume) (
	[]outcome, error) {
	e.Progress("draining %s", node)
	uncordon := "uncordon " + node
	e.RepairLater(uncordon, func(ctx context.Context) error { return e.SetCordon(ctx, node, false) })
	moves, err := e.Drain(ctx, node, there, volumes)
	if err != nil {
		return nil, err
	}
	outcomes := make([]outcome, 0, len(moves))
	for _, m := range moves {
		outcomes = append(outcomes, outcome{m.Workload.Pod(), m.To, m.OntoReplica, m.Pause()})
	}
	if err := e.SetCordon(ctx, node, false); err != nil {
		return nil, err
	}
	e.Repaired(uncordon)
	// The taint of the cordon goes a moment later, and until then the command knows that nothing can
	// go there.
	return outcomes, e.View.Await(ctx, answerTimeout, node+" has no taint", func() bool {
		n := e.View.Node(node)
		return n != nil && len(n.Spec.Taints) == 0
	})
}
