// Package selftest brings a playground up without the driver and checks, from inside
// of pods and from the host, that it is what it says: a network with Services and
// names, nodes that lose and regain power and network, disks that appear and
// disappear, and a machine on which nothing is left afterwards.
package selftest

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/azuredisk-csi/azuredisk/playground/azure"
	"github.com/azuredisk-csi/azuredisk/playground/cluster"
	"github.com/azuredisk-csi/azuredisk/playground/host"
	"github.com/azuredisk-csi/azuredisk/playground/process"
	"github.com/azuredisk-csi/azuredisk/playground/state"
	"github.com/azuredisk-csi/azuredisk/playground/steps"
	"github.com/azuredisk-csi/azuredisk/playground/topology"
)

// stepTimeout covers the building of all programs of a playground.
const stepTimeout = time.Hour

// Run runs the test with that minor version of Kubernetes in the state folder, in which no
// playground may be up.
func Run(ctx context.Context, dir state.Dir, kubernetes string, progress cluster.Progress) (*steps.Report, error) {
	before, err := host.LookForTraces(string(dir))
	if err != nil {
		return nil, err
	}
	report := steps.NewReport(stepTimeout, progress)
	for _, round := range []struct {
		name  string
		steps func(*test) []steps.Step
	}{
		{"a playground that is taken down", (*test).usualSteps},
		{"a playground whose supervisor is killed", (*test).killSteps},
	} {
		t := &test{progress: progress}
		up := steps.Step{Name: "it comes up", Run: func(ctx context.Context) error { return t.up(ctx, dir, kubernetes) }}
		passed := report.Run(ctx, round.name, append([]steps.Step{up}, round.steps(t)...)...)
		down := steps.Step{Name: "it leaves nothing", Run: func(ctx context.Context) error { return t.down(ctx, dir, before) }}
		if !report.Run(context.WithoutCancel(ctx), round.name, down) || !passed {
			break
		}
	}
	return report, ctx.Err()
}

// down takes the playground down and compares the machine with what it was before.
func (t *test) down(ctx context.Context, dir state.Dir, before host.Traces) error {
	if err := cluster.Down(ctx, dir, t.progress); err != nil {
		return err
	}
	after, err := host.LookForTraces(string(dir), t.loops)
	if err != nil {
		return err
	}
	for _, id := range t.processes {
		if id.Alive() {
			err = errors.Join(err, fmt.Errorf("left behind: process %d", id.PID))
		}
	}
	for _, trace := range after.Since(before) {
		err = errors.Join(err, fmt.Errorf("left behind: %s", trace))
	}
	for _, trace := range before.Since(after) {
		err = errors.Join(err, fmt.Errorf("gone from the machine: %s", trace))
	}
	return err
}

// test is one run.
type test struct {
	*cluster.Cluster
	kube  kubernetes.Interface
	image string
	// loops is how the names of the files under the playground's loop devices begin.
	loops    string
	progress cluster.Progress
	// processes are those that ran before the playground's end.
	processes []process.Identity
}

func (t *test) up(ctx context.Context, dir state.Dir, kubernetes string) error {
	c, err := cluster.BuildAndUp(ctx, dir, cluster.BuildOptions{
		Nodes:      4,
		Subnet:     netip.MustParsePrefix(topology.DefaultSubnet),
		Latency:    "fast",
		Seed:       1,
		NoDriver:   true,
		Kubernetes: kubernetes,
	}, t.progress)
	if err != nil {
		return err
	}
	t.Cluster = c
	if t.loops, err = azure.LoopPrefix(dir.Azure()); err != nil {
		return err
	}
	t.kube, err = c.Kubernetes()
	return err
}

func (t *test) usualSteps() []steps.Step {
	return []steps.Step{
		{Name: "a stranger's image is loaded to all nodes", Run: t.loadImage},
		{Name: "pods reach a Service by its name, from every node", Run: t.service},
		{Name: "pods reach the API server, azuresim and the host's collector", Run: t.endpoints},
		{Name: "a node finds the metadata of its VM", Run: t.metadata},
		{Name: "a disk appears in its VM only, is written there, and disappears", Run: t.disk},
		{Name: "a pod reserves a shared disk, and another node's pod takes the reservation", Run: t.reservations},
		{Name: "a node without power has no processes, and boots again", Run: t.power},
		{Name: "a partitioned node is not reached, and is again when healed", Run: t.network},
		{Name: "a frozen node stands still, as its metadata announced, and goes on", Run: t.freeze},
		{Name: "a VM that is deallocated takes its node with it", Run: t.deallocate},
		{Name: "the playground has the processes that it should", Run: t.count},
	}
}

func (t *test) killSteps() []steps.Step {
	return []steps.Step{
		{Name: "a disk is attached", Run: t.attachDisk},
		{Name: "the playground has the processes that it should", Run: t.count},
		{Name: "a node is frozen", Run: t.freezeLong},
		{Name: "the supervisor is killed, and everything with it", Run: t.kill},
	}
}

func (t *test) loadImage(ctx context.Context) error {
	image, err := cluster.OwnImage(ctx, "probe", t.progress)
	if err != nil {
		return err
	}
	t.image = image.Ref
	return t.LoadImage(ctx, image.Tar)
}

// count remembers the playground's processes. There are many: six and more on each
// node, and about a dozen beside them.
func (t *test) count(context.Context) error {
	var err error
	t.processes, err = t.Processes()
	if err == nil && len(t.processes) < 30 {
		err = fmt.Errorf("there are only %d", len(t.processes))
	}
	return err
}

// processesOf counts the processes of a node that the host sees.
func processesOf(pid int) (int, error) {
	ns, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid_for_children", pid))
	if err != nil {
		return 0, err
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return 0, err
	}
	count := 0
	for _, e := range entries {
		if other, err := os.Readlink("/proc/" + e.Name() + "/ns/pid"); err == nil && other == ns {
			count++
		}
	}
	return count, nil
}
