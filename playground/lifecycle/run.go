package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/azuredisk-csi/azuredisk/playground/cluster"
	"github.com/azuredisk-csi/azuredisk/playground/images"
	"github.com/azuredisk-csi/azuredisk/playground/steps"
)

// Options of Run.
type Options struct {
	Cluster *cluster.Cluster
	// Image is the image of cmd/probe.
	Image images.Image
	// Parallel is how many tests run at once.
	Parallel int
	// Print receives a line for each test that has ended.
	Print func(format string, args ...any)
}

const (
	// testTimeout covers two minutes of waiting for what the driver asks Azure once a minute, and the
	// growth of a filesystem: the kubelet looks for it when it synchronizes the pod, each 60 to 90 s,
	// which comes after a minute for the pod on a busy machine.
	testTimeout = 4 * time.Minute
	// cleanUpTimeout covers the deletion of what all tests have made.
	cleanUpTimeout = 2 * time.Minute
)

// Run runs the tests with azuresim's latencies switched to fast, and switches them back.
// An error means that they could not be run; a test that failed is in the report.
func Run(ctx context.Context, tests []Test, o Options) (report *steps.Report, err error) {
	before := o.Cluster.Options.Latency
	if err := o.Cluster.SetLatency(ctx, "fast"); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, o.Cluster.SetLatency(context.WithoutCancel(ctx), before)) }()
	w, err := newWorld(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("prepare the tests: %w", err)
	}
	r := &runner{
		Options: o,
		world:   w,
		report:  steps.NewReport(testTimeout, o.Print),
	}
	leftovers, err := w.inventory(ctx)
	if err != nil {
		return nil, fmt.Errorf("see what there is before the tests: %w", err)
	}
	r.all(ctx, tests)
	const end = "the end"
	r.report.Run(ctx, end, steps.Step{
		Name: "nothing of the tests is left in the cluster and at Azure",
		Run:  func(ctx context.Context) error { return w.awaitNothingBut(ctx, leftovers) },
	})
	r.report.Run(ctx, end, steps.Step{Name: "no sidecar was refused a right", Run: w.checkRights})
	return r.report, ctx.Err()
}

type runner struct {
	Options
	world  *world
	report *steps.Report
}

func (r *runner) all(ctx context.Context, tests []Test) {
	var beside sync.WaitGroup
	beside.Go(func() {
		for _, test := range tests {
			if test.Disturbs && ctx.Err() == nil {
				r.one(ctx, test, r.world.disturbed)
			}
		}
	})
	var group errgroup.Group
	group.SetLimit(r.Parallel)
	for _, test := range tests {
		if test.Disturbs {
			continue
		}
		group.Go(func() error {
			if ctx.Err() == nil {
				r.one(ctx, test, "")
			}
			return nil
		})
	}
	_ = group.Wait() // what fails is in the report
	beside.Wait()
}

// one runs a test in a namespace of its own. node is where its pods go, or "" for any
// node that is not disturbed.
func (r *runner) one(ctx context.Context, test Test, node string) {
	r.report.Run(ctx, test.Topic, steps.Step{Name: test.Name, Run: func(ctx context.Context) (err error) {
		t, err := r.world.newBench(ctx, node)
		if err != nil {
			return err
		}
		defer func() {
			if err != nil {
				err = fmt.Errorf("%w\n%s", err, t.describe(context.WithoutCancel(ctx)))
			}
			err = errors.Join(err, t.cleanUp(context.WithoutCancel(ctx)))
		}()
		return test.run(ctx, t)
	}})
}
