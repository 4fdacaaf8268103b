package verify

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"k8s.io/utils/clock"

	"github.com/azuredisk-csi/azuredisk/internal/azuresim/rules"
)

// Options of a run.
type Options struct {
	Subscription, Location string
	// Endpoint of Resource Manager.
	Endpoint string
	// Subnet of the two VMs, a resource ID. If it is empty, a virtual network is created.
	Subnet string
	// MaxCost limits what the run may cost, in US dollars: it ends when that much may have been
	// spent.
	MaxCost float64
	// Rules to play and questions to ask; all if empty.
	Rules      []string
	Credential azcore.TokenCredential
	Transport  policy.Transporter // the SDK's own if nil
	Clock      clock.WithTicker
	// Poll is the pause between two looks at an operation.
	Poll time.Duration
	// Owner is this process, by host and number, and Alive reports whether another is running.
	Owner string
	Alive func(owner string) bool
}

// Prices in US dollars an hour, generous: two VMs of vmSize with their OS disks, and a few small
// disks.
const (
	hourlyCost  = 0.40
	cleanUpTime = 15 * time.Minute
	shortestRun = 10 * time.Minute
	longestRun  = time.Hour
)

// Difference is a rule in which azuresim differs from the platform.
type Difference struct{ Rule, Simulator, Platform string }

// Run plays the rules and asks the questions, and writes one line for each. It removes what it made, also if ctx ends.
func Run(ctx context.Context, o Options, out io.Writer) (differences []Difference, err error) {
	limit := min(longestRun, time.Duration(o.MaxCost/hourlyCost*float64(time.Hour))-cleanUpTime)
	if limit < shortestRun {
		return nil, fmt.Errorf("a run of %s and its clean-up cost up to $%.2f: the limit of $%.2f is too low",
			shortestRun, hourlyCost*(shortestRun+cleanUpTime).Hours(), o.MaxCost)
	}
	plays, err := chosen(o.Rules)
	if err != nil {
		return nil, err
	}
	w, err := newWorld(o)
	if err != nil {
		return nil, err
	}
	if err := w.removeLeftovers(ctx, out); err != nil {
		return nil, err
	}
	playing, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	fmt.Fprintf(out, "resource group %s in %s, for at most %s and $%.2f\n", w.group, o.Location, limit.Round(time.Second),
		o.MaxCost)
	defer func() {
		cleaning, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpTime)
		defer cancel()
		err = errors.Join(err, w.removeGroup(cleaning, w.group))
	}()
	if err := w.makeGroup(playing, o.Clock.Now().Add(limit+cleanUpTime)); err != nil {
		return nil, err
	}
	if differences, err = w.play(playing, plays, out); err != nil {
		return differences, err
	}
	return differences, w.ask(playing, asked(o.Rules), func(format string, args ...any) { fmt.Fprintf(out, format, args...) })
}

func (w *world) play(ctx context.Context, plays []play, out io.Writer) (differences []Difference, err error) {
	for _, p := range plays {
		got, err := p.run(ctx, w)
		if err != nil {
			return differences, fmt.Errorf("rule %s could not be played: %w", p.rule, err)
		}
		if got == p.want {
			fmt.Fprintf(out, "same    %s: %s\n", p.rule, got)
			continue
		}
		fmt.Fprintf(out, "DIFFERS %s: azuresim: %s; platform: %s\n", p.rule, p.want, got)
		differences = append(differences, Difference{
			Rule:      p.rule,
			Simulator: p.want,
			Platform:  got,
		})
	}
	fmt.Fprintf(out, "%d rules played, %d differ; %d of all rules are not played\n", len(plays), len(differences),
		len(rules.All)-len(played()))
	return differences, nil
}

// chosen returns the plays of the named rules in their order, all if there are none.
func chosen(names []string) ([]play, error) {
	all := allPlays()
	for _, name := range names {
		if !slices.Contains(played(), name) && len(asked([]string{name})) == 0 {
			return nil, fmt.Errorf("rule %q is not played; these are: %s", name, strings.Join(played(), ", "))
		}
	}
	return slices.DeleteFunc(all, func(p play) bool { return len(names) > 0 && !slices.Contains(names, p.rule) }), nil
}

// played are the rules that are played, without duplicates.
func played() []string {
	var names []string
	for _, p := range allPlays() {
		if !slices.Contains(names, p.rule) {
			names = append(names, p.rule)
		}
	}
	return names
}
