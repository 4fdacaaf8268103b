package lifecycle

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/azuredisk-csi/azuredisk/playground/cluster"
	"github.com/azuredisk-csi/azuredisk/playground/images"
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
	// testTimeout covers two minutes of waiting for what the driver asks Azure once a minute.
	testTimeout = 150 * time.Second
	// cleanUpTimeout covers the deletion of what all tests have made.
	cleanUpTimeout = 2 * time.Minute
)

// Result is what came of a test.
type Result struct {
	Topic   string  `json:"topic"`
	Name    string  `json:"name"`
	Passed  bool    `json:"passed"`
	Seconds float64 `json:"seconds"`
	// Error says why it failed.
	Error string `json:"error,omitempty"`
}

// Report is what came of all tests.
type Report struct {
	Started time.Time `json:"started"`
	Seconds float64   `json:"seconds"`
	Passed  int       `json:"passed"`
	Failed  int       `json:"failed"`
	Tests   []Result  `json:"tests"`
	// LeftOut are the tests that need what this version of Kubernetes does not serve.
	LeftOut []string `json:"leftOut,omitempty"`
}

// Write writes the report to a file of that name in the folder, and returns its path.
func (r *Report) Write(dir, name string) (string, error) {
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	path := filepath.Join(dir, name)
	return path, os.WriteFile(path, append(data, '\n'), 0o644)
}

// Run runs the tests with azuresim's latencies switched to fast, and switches them back.
// An error means that they could not be run; a test that failed is in the report.
func Run(ctx context.Context, tests []Test, o Options) (report *Report, err error) {
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
		report:  &Report{Started: time.Now()},
	}
	tests, out, err := leaveOut(tests, w.serves)
	if err != nil {
		return nil, err
	}
	for _, test := range out {
		r.report.LeftOut = append(r.report.LeftOut, test.String())
		o.Print("left out      %s: Kubernetes %s does not serve %s", test, o.Cluster.Options.Kubernetes.Version,
			test.Needs.GroupResource())
	}
	leftovers, err := w.inventory(ctx)
	if err != nil {
		return nil, fmt.Errorf("see what there is before the tests: %w", err)
	}
	r.all(ctx, tests)
	r.judge(ctx, Test{
		Topic: "the end",
		Name:  "nothing of the tests is left in the cluster and at Azure",
	}, func(ctx context.Context) error {
		return w.awaitNothingBut(ctx, leftovers)
	})
	r.judge(ctx, Test{Topic: "the end", Name: "no sidecar was refused a right"}, w.checkRights)
	r.report.Seconds = time.Since(r.report.Started).Seconds()
	return r.report, ctx.Err()
}

// Add adds what came of a test that began then, and prints it.
func (r *Report) Add(topic, name string, start time.Time, err error, print func(format string, args ...any)) {
	result := Result{
		Topic:   topic,
		Name:    name,
		Passed:  err == nil,
		Seconds: time.Since(start).Seconds(),
	}
	if err != nil {
		result.Error = err.Error()
		r.Failed++
		print("FAIL %6.1f s  %s: %s\n             %s", result.Seconds, topic, name, err)
	} else {
		r.Passed++
		print("ok   %6.1f s  %s: %s", result.Seconds, topic, name)
	}
	r.Tests = append(r.Tests, result)
}

type runner struct {
	Options
	world *world

	mu     sync.Mutex
	report *Report
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
	r.judge(ctx, test, func(ctx context.Context) (err error) {
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
	})
}

func (r *runner) judge(ctx context.Context, test Test, run func(context.Context) error) {
	bounded, cancel := context.WithTimeout(ctx, testTimeout)
	defer cancel()
	start := time.Now()
	err := run(bounded)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.report.Add(test.Topic, test.Name, start, err, r.Print)
}
