package scenario

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/utils/clock"

	"github.com/azuredisk-csi/azuredisk/playground/timeline"
)

// Options of Run.
type Options struct {
	Cluster Cluster
	// RecorderImage is the image tar of cmd/recorder, RecorderRef its name.
	RecorderImage, RecorderRef string
	// Keep leaves the scenario's namespace and volumes there.
	Keep  bool
	Clock clock.WithTicker
	// Progress receives a line for every step that a person waits for.
	Progress func(format string, args ...any)
}

// Run runs a scenario and returns its report, also if it failed. The report of a scenario that
// could not be completed has a failed check that says why.
func Run(ctx context.Context, s Scenario, o Options) *timeline.Report {
	report := &timeline.Report{
		Scenario: s.Name,
		Title:    s.Title,
		Started:  o.Clock.Now(),
		Metrics:  map[string]any{},
	}
	err := run(ctx, s, o, report)
	if err != nil {
		report.Checks = append(report.Checks, timeline.Check{Name: "the scenario was completed", Detail: err.Error()})
		report.Summary = fmt.Sprintf("The scenario could not be completed: %v. %s", err, report.Summary)
	}
	report.Ended = o.Clock.Now()
	return report
}

func run(ctx context.Context, s Scenario, o Options, report *timeline.Report) (err error) {
	env, err := newEnvironment(ctx, s.Name, o, report)
	if err != nil {
		return fmt.Errorf("prepare the scenario: %w", err)
	}
	defer func() {
		report.Events = env.Events.All()
		// What was made is given back also if the scenario was interrupted.
		err = errors.Join(err, env.close(context.WithoutCancel(ctx)))
	}()
	if err := s.Run(ctx, env); err != nil {
		return errors.Join(err, env.explain(context.WithoutCancel(ctx)))
	}
	return nil
}
