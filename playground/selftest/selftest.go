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
	"github.com/azuredisk-csi/azuredisk/playground/topology"
)

// Run runs the test with that minor version of Kubernetes in the state folder, in which no
// playground may be up. It returns what failed.
func Run(ctx context.Context, dir state.Dir, kubernetes string, progress cluster.Progress) error {
	before, err := host.LookForTraces(string(dir))
	if err != nil {
		return err
	}
	for _, round := range []struct {
		name  string
		steps func(*test) []step
	}{
		{"a playground that is taken down leaves nothing", (*test).usualSteps},
		{"a playground whose supervisor is killed leaves nothing either", (*test).killSteps},
	} {
		if err := play(ctx, dir, kubernetes, before, round.steps, progress); err != nil {
			progress("FAILED: %v", err)
			return fmt.Errorf("%s: %w", round.name, err)
		}
		progress("ok: %s", round.name)
	}
	return nil
}

// play brings a playground up, runs the steps, takes it down and compares the machine
// with what it was before.
func play(ctx context.Context, dir state.Dir, kubernetes string, before host.Traces, steps func(*test) []step,
	progress cluster.Progress) error {
	t := &test{progress: progress}
	failure := t.up(ctx, dir, kubernetes)
	if failure == nil {
		failure = t.run(ctx, steps(t))
	}
	if err := cluster.Down(context.WithoutCancel(ctx), dir, progress); err != nil {
		return errors.Join(failure, err)
	}
	after, err := host.LookForTraces(string(dir), t.loops)
	if err != nil {
		return errors.Join(failure, err)
	}
	for _, id := range t.processes {
		if id.Alive() {
			failure = errors.Join(failure, fmt.Errorf("left behind: process %d", id.PID))
		}
	}
	for _, trace := range after.Since(before) {
		failure = errors.Join(failure, fmt.Errorf("left behind: %s", trace))
	}
	for _, trace := range before.Since(after) {
		failure = errors.Join(failure, fmt.Errorf("gone from the machine: %s", trace))
	}
	return failure
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

// step is one thing that is tested.
type step struct {
	name string
	run  func(context.Context) error
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

func (t *test) usualSteps() []step {
	return []step{
		{"a stranger's image is loaded to all nodes", t.loadImage},
		{"pods reach a Service by its name, from every node", t.service},
		{"pods reach the API server, azuresim and the host's collector", t.endpoints},
		{"a node finds the metadata of its VM", t.metadata},
		{"a disk appears in its VM only, is written there, and disappears", t.disk},
		{"a pod reserves a shared disk, and another node's pod takes the reservation", t.reservations},
		{"a node without power has no processes, and boots again", t.power},
		{"a partitioned node is not reached, and is again when healed", t.network},
		{"a VM that is deallocated takes its node with it", t.deallocate},
		{"the playground has the processes that it should", t.count},
	}
}

func (t *test) killSteps() []step {
	return []step{
		{"a disk is attached", t.attachDisk},
		{"the playground has the processes that it should", t.count},
		{"the supervisor is killed, and everything with it", t.kill},
	}
}

func (t *test) run(ctx context.Context, steps []step) error {
	for _, step := range steps {
		start := time.Now()
		if err := step.run(ctx); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
		t.progress("ok (%.1f s): %s", time.Since(start).Seconds(), step.name)
	}
	return nil
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
