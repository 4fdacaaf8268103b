package scenario

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/azuredisk-csi/azuredisk/playground/scenario/evidence"
	"github.com/azuredisk-csi/azuredisk/playground/state"
	"github.com/azuredisk-csi/azuredisk/playground/timeline"
)

const (
	// powerTimeout covers the slowest start or deallocation of a VM at Azure, its tail
	// included.
	powerTimeout = 3 * time.Minute
	// repairTimeout bounds each repair at the end of a scenario.
	repairTimeout = 5 * time.Minute
)

// repair undoes what a scenario has broken. do is idempotent.
type repair struct {
	name string
	do   func(context.Context) error
}

// RepairLater registers a repair for the end of the scenario, however it ends. What was
// broken last is repaired first.
func (e *Environment) RepairLater(name string, do func(context.Context) error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.repairs = append(e.repairs, repair{name, do})
}

// Repaired removes a registered repair: the scenario itself has done it.
func (e *Environment) Repaired(name string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.repairs = slices.DeleteFunc(e.repairs, func(r repair) bool { return r.name == name })
}

// ChangeDriver upgrades the driver with these Helm values over those that it has, and returns what takes
// that back. The repair of that name does so at the end of the scenario, also after an error.
func (e *Environment) ChangeDriver(ctx context.Context, repair string, values map[string]any) (
	restore func(context.Context) error, err error) {
	restore, err = e.Cluster.ChangeDriver(ctx, values)
	if restore != nil {
		e.RepairLater(repair, restore)
	}
	return restore, err
}

// repairPower, repairNetwork and repairVM are the names of the repairs of a node.
func repairPower(node string) string   { return "give " + node + " its power back" }
func repairNetwork(node string) string { return "connect " + node + " again" }
func repairVM(node string) string      { return "start the VM " + node }

// RepairAll does all repairs that are still registered. It is called at the end of a scenario, and by
// a scenario that breaks several things one after the other.
func (e *Environment) RepairAll(ctx context.Context) error {
	e.mu.Lock()
	repairs := slices.Clone(e.repairs)
	e.repairs = nil
	e.mu.Unlock()
	var failures []error
	for _, r := range slices.Backward(repairs) {
		ctx, cancel := context.WithTimeout(ctx, repairTimeout)
		if err := r.do(ctx); err != nil {
			failures = append(failures, fmt.Errorf("%s: %w", r.name, err))
		}
		cancel()
	}
	return errors.Join(failures...)
}

// Say puts something that the scenario does into the timeline, and returns its time.
func (e *Environment) Say(lane timeline.Lane, subject, step, detail string) time.Time {
	now := e.Clock.Now()
	e.Events.Add(timeline.Event{
		At:      now,
		Lane:    lane,
		Kind:    timeline.State,
		Source:  "scenario",
		Subject: subject,
		Step:    step,
		Detail:  detail,
	})
	return now
}

// PowerOff cuts the power of a node and returns when that began: its disks fail at
// once.
func (e *Environment) PowerOff(ctx context.Context, node string) (time.Time, error) {
	e.RepairLater(repairPower(node), func(ctx context.Context) error { return e.Cluster.PowerOn(ctx, node) })
	at := e.Say(timeline.Node(node), node, "power cut",
		"its disks fail, what its cache held is lost, then its processes are gone; Azure says that the VM runs")
	if err := e.Cluster.PowerOff(ctx, node); err != nil {
		return at, fmt.Errorf("cut the power of %s: %w", node, err)
	}
	return at, nil
}

// PowerOn boots the node and returns when that began.
func (e *Environment) PowerOn(ctx context.Context, node string) (time.Time, error) {
	at := e.Say(timeline.Node(node), node, "power on", "it boots with what was on its disk")
	if err := e.Cluster.PowerOn(ctx, node); err != nil {
		return at, fmt.Errorf("give %s its power back: %w", node, err)
	}
	e.Repaired(repairPower(node))
	return at, nil
}

// Freeze pauses a node, and returns when it goes on. If notice is not nil, it is announced to
// the VM that long before.
func (e *Environment) Freeze(ctx context.Context, node string, length time.Duration, notice *time.Duration) (state.Freeze,
	error) {
	freeze, err := e.Cluster.Freeze(ctx, node, length, notice)
	if err != nil {
		return freeze, fmt.Errorf("freeze %s: %w", node, err)
	}
	for _, step := range []struct {
		at         time.Time
		what, more string
	}{
		{freeze.Announced, "a freeze is announced", "a scheduled event is in the metadata of its VM"},
		{freeze.Frozen, "frozen", "its processes and its network stand still"},
		{freeze.Thawed, "goes on", "after " + timeline.Round(freeze.Thawed.Sub(freeze.Frozen))},
	} {
		if !step.at.IsZero() {
			e.Events.Add(timeline.Event{
				At:      step.at,
				Lane:    timeline.Node(node),
				Kind:    timeline.State,
				Source:  "scenario",
				Subject: node,
				Step:    step.what,
				Detail:  step.more,
			})
		}
	}
	return freeze, nil
}

// Partition cuts a node off from the network and returns when that began.
func (e *Environment) Partition(ctx context.Context, node string) (time.Time, error) {
	e.RepairLater(repairNetwork(node), func(ctx context.Context) error { return e.Cluster.Heal(ctx, node) })
	at := e.Say(timeline.Node(node), node, "cut off",
		"its network cable is pulled; its pods continue to run and reach their disks")
	if err := e.Cluster.Partition(ctx, node); err != nil {
		return at, fmt.Errorf("cut %s off: %w", node, err)
	}
	return at, nil
}

// Heal connects the node again and returns when that began.
func (e *Environment) Heal(ctx context.Context, node string) (time.Time, error) {
	at := e.Say(timeline.Node(node), node, "connected again", "its network cable is plugged in")
	if err := e.Cluster.Heal(ctx, node); err != nil {
		return at, fmt.Errorf("connect %s again: %w", node, err)
	}
	e.Repaired(repairNetwork(node))
	return at, nil
}

// Deallocate has Azure deallocate the VM of a node and returns when Azure says that it
// is: that is when its machine is off.
func (e *Environment) Deallocate(ctx context.Context, node string) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, powerTimeout)
	defer cancel()
	e.RepairLater(repairVM(node), func(ctx context.Context) error { return e.Cluster.StartVM(ctx, node) })
	type seen struct {
		at  time.Time
		err error
	}
	down := make(chan seen, 1)
	listening := make(chan struct{})
	go func() {
		at, err := e.Azure.AwaitPower(ctx, node, "deallocated", func() { close(listening) })
		down <- seen{at, err}
	}()
	select {
	case <-listening:
	case failed := <-down:
		return failed.at, failed.err
	}
	e.Say(timeline.Azure, node, "deallocation of "+node+" is asked for", "an operator stops the VM by Azure's API")
	if err := e.Cluster.DeallocateVM(ctx, node); err != nil {
		return time.Time{}, fmt.Errorf("deallocate the VM %s: %w", node, err)
	}
	is := <-down
	if is.err != nil {
		return is.at, is.err
	}
	e.Events.Add(timeline.Event{
		At:      is.at,
		Lane:    timeline.Node(node),
		Kind:    timeline.State,
		Source:  "azuresim",
		Subject: node,
		Step:    "VM is down",
		Detail:  "Azure says that the VM is deallocated; its machine has no power",
	})
	return is.at, nil
}

// StartVM has Azure start the VM of a node and returns when that was asked for, after
// it was done.
func (e *Environment) StartVM(ctx context.Context, node string) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, powerTimeout)
	defer cancel()
	at := e.Say(timeline.Azure, node, "start of "+node+" is asked for", "an operator starts the VM by Azure's API")
	if err := e.Cluster.StartVM(ctx, node); err != nil {
		return at, fmt.Errorf("start the VM %s: %w", node, err)
	}
	e.Repaired(repairVM(node))
	return at, nil
}

// BreakAzure gives azuresim those rules for faults, until each expires or the scenario ends.
func (e *Environment) BreakAzure(ctx context.Context, rules ...evidence.AzureFault) error {
	e.RepairLater("remove azuresim's faults", func(ctx context.Context) error {
		return e.Azure.Call(ctx, http.MethodDelete, "/admin/faults", nil, nil)
	})
	var what []string
	for _, rule := range rules {
		if err := e.Azure.Call(ctx, http.MethodPost, "/admin/faults", rule, nil); err != nil {
			return err
		}
		what = append(what, fmt.Sprintf("%s %s: %d %s", rule.Method, rule.Kind, rule.Status, rule.Code))
	}
	e.Say(timeline.Azure, "", "Azure refuses for "+rules[0].For, strings.Join(what, "; "))
	return nil
}
