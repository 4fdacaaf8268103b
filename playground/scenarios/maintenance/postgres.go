package maintenance

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/azuredisk-csi/azuredisk/playground/scenario"
	"github.com/azuredisk-csi/azuredisk/playground/scenario/observer"
	"github.com/azuredisk-csi/azuredisk/playground/timeline"
)

const (
	// longFreeze is a pause that users of AKS report several times a week.
	longFreeze = 6 * time.Second
	// freezes and powerCuts are how many there are with each patience.
	freezes, powerCuts = 5, 3
	// clientLimit is how long a client is waited for after a fault.
	clientLimit = 90 * time.Second
)

// patiences are those that are compared: one that fails over in a long freeze, and one that survives it.
var patiences = []time.Duration{2 * time.Second, 6 * time.Second}

// clients are one that gives a transaction up, as it should, and one that waits for ever, as libraries do
// by default.
var clients = []scenario.Client{{Name: "hasty", Timeout: 2 * time.Second}, {Name: "patient"}}

// FreezePostgres is the scenario freeze-postgres.
var FreezePostgres = scenario.Scenario{
	Name: "freeze-postgres",
	Summary: "the node of a PostgreSQL is paused for 6 s, and loses its power, with a patience that survives the pause and with " +
		"one that does not",
	Title:   "Azure pauses the virtual machine of a database",
	Latency: "realistic",
	Run:     freezePostgres,
}

// freezePostgres measures what the clients of a database see of a pause without notice and of a power
// cut. It needs PostgreSQL on this machine.
func freezePostgres(ctx context.Context, e *scenario.Environment) error {
	leads, err := e.Leader(ctx)
	if err != nil {
		return err
	}
	d := database{
		Environment: e,
		clientNode:  leads.Node,
		workload: scenario.Workload{
			Name:      "database",
			MaxShares: 2,
			Replicas:  1,
			Postgres:  true,
			NotOn:     leads.Node,
		},
	}
	e.Progress("making a PostgreSQL on a disk with a replica, and its clients on %s", d.clientNode)
	if err := e.ServePostgres(ctx, d.workload); err != nil {
		return err
	}
	volumes, err := e.StartAway(ctx, d.workload)
	if err != nil {
		return fmt.Errorf("%w (is PostgreSQL installed on this machine? hack/install-packages.sh postgresql:/usr/lib/postgresql)", err)
	}
	d.volume = volumes[0]
	for _, c := range clients {
		if err := e.StartClient(ctx, c, d.workload, d.clientNode); err != nil {
			return err
		}
	}
	for _, patience := range patiences {
		if err := d.with(ctx, patience); err != nil {
			return err
		}
	}
	return d.conclude(ctx)
}

// database is a PostgreSQL and what was measured of it.
type database struct {
	*scenario.Environment
	workload   scenario.Workload
	volume     observer.Volume
	clientNode string
	faults     []fault
}

// fault is a pause or a power cut, and what the clients saw of it.
type fault struct {
	kind     string
	patience time.Duration
	// same says that the same pod served the clients afterwards.
	same bool
	// gaps are the longest times without a commit, in the order of clients.
	gaps []time.Duration
	// failed counts the transactions and connections that failed; errors are the first of each client.
	failed []int64
	errors []string
}

// with makes all faults with one patience.
func (d *database) with(ctx context.Context, patience time.Duration) error {
	d.Progress("setting the patience to %s", patience)
	name := fmt.Sprintf("set the patience of %s back", patience)
	restore, err := d.ChangeDriver(ctx, name, map[string]any{"controller": map[string]any{
		"failover": map[string]any{"patience": patience.String()},
	}})
	if err != nil {
		return err
	}
	for i := range freezes + powerCuts {
		kind, makeFault := "freeze", d.freeze
		if i >= freezes {
			kind, makeFault = "power cut", d.cutPower
		}
		f := fault{
			kind:     kind,
			patience: patience,
		}
		if err := d.suffer(ctx, &f, makeFault); err != nil {
			return err
		}
		d.faults = append(d.faults, f)
	}
	if err := restore(ctx); err != nil {
		return err
	}
	d.Repaired(name)
	return nil
}

// suffer makes one fault, waits until everything is as before, and fills in what the clients saw.
func (d *database) suffer(ctx context.Context, f *fault, makeFault func(context.Context, string) error) error {
	if err := d.AwaitReplicas(ctx, d.workload, d.volume); err != nil {
		return err
	}
	before, err := d.SteadyOf([]scenario.Workload{d.workload}, []observer.Volume{d.volume})
	if err != nil {
		return err
	}
	node, began := before[0].Node, d.Clock.Now()
	for _, c := range clients {
		if _, err := d.AwaitCommit(ctx, c, began, scenario.SetUpTimeout); err != nil {
			return err
		}
	}
	began = d.Clock.Now()
	d.Progress("%s of %s with a patience of %s", f.kind, node, f.patience)
	if err := makeFault(ctx, node); err != nil {
		return err
	}
	for _, c := range clients {
		if err := d.look(ctx, f, c, began); err != nil {
			return err
		}
	}
	f.same = d.LeftAlone(before[0])
	d.Progress("the same pod: %t; no commit for %s", f.same, durations(f.gaps))
	back := func() bool { return d.View.IsBack(node, began) }
	if err := d.View.Await(ctx, scenario.BackTimeout, node+" is back", back); err != nil {
		return fmt.Errorf("%w: it is %s", err, d.View.DescribeNode(node))
	}
	return nil
}

func (d *database) freeze(ctx context.Context, node string) error {
	freeze, err := d.Freeze(ctx, node, longFreeze, nil)
	if err != nil {
		return err
	}
	// A decision may fall at the end of the freeze.
	return d.AwaitTime(ctx, freeze.Thawed.Add(freezeAftermath))
}

// cutPower leaves the node without power until a client commits again.
func (d *database) cutPower(ctx context.Context, node string) error {
	off, err := d.PowerOff(ctx, node)
	if err != nil {
		return err
	}
	// What was on its way to the clients when the power was cut has come by then.
	if _, err := d.AwaitCommit(ctx, clients[0], off.Add(time.Second), clientLimit); err != nil {
		return err
	}
	_, err = d.PowerOn(ctx, node)
	return err
}

// look fills in what a client saw since then. A client that does not commit within the limit is started
// again, as its user would do.
func (d *database) look(ctx context.Context, f *fault, c scenario.Client, began time.Time) error {
	_, err := d.AwaitCommit(ctx, c, d.Clock.Now(), clientLimit)
	f.gaps = append(f.gaps, d.LongestGap(c, began, d.Clock.Now()))
	if err != nil && ctx.Err() != nil {
		return err
	}
	failed, lost := d.ClientErrors(ctx, c, began)
	if lost != nil {
		return lost
	}
	attempts := int64(0)
	for _, o := range failed {
		attempts += o.Attempts
	}
	f.failed = append(f.failed, attempts)
	if len(failed) > 0 {
		f.errors = append(f.errors, c.Name+": "+failed[0].Error)
	}
	if err != nil {
		f.errors = append(f.errors, c.Name+" had to be started again")
		return d.StartClient(ctx, c, d.workload, d.clientNode)
	}
	return nil
}

// conclude checks that no commit is lost, and reports what was measured.
func (d *database) conclude(ctx context.Context) error {
	var rows int
	var lost []string
	for _, c := range clients {
		commits, missing, err := d.LostCommits(ctx, c, d.workload, d.clientNode)
		if err != nil {
			return err
		}
		rows, lost = rows+commits, append(lost, missing...)
	}
	d.Metric("commits", rows)
	d.Check("no acknowledged commit is lost", len(lost) == 0, "of %d; %s", rows, strings.Join(lost, "; "))
	var lines []string
	for _, patience := range patiences {
		for _, kind := range []string{"freeze", "power cut"} {
			lines = append(lines, d.line(kind, patience))
		}
	}
	d.Check(fmt.Sprintf("a patience of %s survives a freeze of %s", patiences[1], longFreeze),
		!slices.ContainsFunc(d.faults, func(f fault) bool { return f.kind == "freeze" && f.patience == patiences[1] && !f.same }),
		"in each of %d freezes the same pod is there", freezes)
	if _, err := d.AddEvidence(ctx, d.Report.Started); err != nil {
		return err
	}
	d.Report.Summary = strings.Join(lines, " ")
	return nil
}

// line is a sentence about all faults of one kind with one patience, and their metrics.
func (d *database) line(kind string, patience time.Duration) string {
	key := fmt.Sprintf("%s_patience_%.0f", strings.ReplaceAll(kind, " ", "_"), patience.Seconds())
	var gaps [2][]float64
	same, total := 0, 0
	var seen []string
	for _, f := range d.faults {
		if f.kind != kind || f.patience != patience {
			continue
		}
		total++
		if f.same {
			same++
		}
		for i := range clients {
			gaps[i] = append(gaps[i], scenario.Seconds(f.gaps[i]))
		}
		for _, text := range f.errors {
			if !slices.Contains(seen, text) {
				seen = append(seen, text)
			}
		}
	}
	for i, c := range clients {
		d.Metric("seconds_without_commit_"+key+"_"+c.Name, gaps[i])
	}
	d.Metric("same_pod_"+key, same)
	d.Metric("errors_"+key, seen)
	return fmt.Sprintf("%s, patience %s: %d of %d times the same pod; no commit for %.1f s (median; %.1f s at most) of the client that "+
		"gives up after %s, and for %.1f s (%.1f s) of the one that waits.", kind, patience, same, total,
		timeline.Median(gaps[0]), slices.Max(gaps[0]), clients[0].Timeout, timeline.Median(gaps[1]), slices.Max(gaps[1]))
}

func durations(list []time.Duration) string {
	var texts []string
	for _, d := range list {
		texts = append(texts, timeline.Round(d))
	}
	return strings.Join(texts, " and ")
}
