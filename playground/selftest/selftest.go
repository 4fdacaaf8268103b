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

	"github.com/azuredisk-csi/azuredisk/playground/cluster"
	"github.com/azuredisk-csi/azuredisk/playground/host"
	"github.com/azuredisk-csi/azuredisk/playground/programs"
	"github.com/azuredisk-csi/azuredisk/playground/state"
	"github.com/azuredisk-csi/azuredisk/playground/topology"
)

// Run runs the test in the state folder, in which no playground may be up. It returns
// what failed.
func Run(ctx context.Context, dir state.Dir, progress cluster.Progress) error {
	before, err := host.LookForTraces(string(dir), programs.CacheDir())
	if err != nil {
		return err
	}
	failure := use(ctx, dir, progress)
	if failure != nil {
		progress("FAILED: %v", failure)
	}
	if err := cluster.Down(context.WithoutCancel(ctx), dir, progress); err != nil {
		return errors.Join(failure, err)
	}
	after, err := host.LookForTraces(string(dir), programs.CacheDir())
	if err != nil {
		return errors.Join(failure, err)
	}
	for _, trace := range after.Since(before) {
		failure = errors.Join(failure, fmt.Errorf("left behind: %s", trace))
	}
	for _, trace := range before.Since(after) {
		failure = errors.Join(failure, fmt.Errorf("gone from the machine: %s", trace))
	}
	if failure == nil {
		progress("passed: nothing is left behind")
	}
	return failure
}

// test is one run.
type test struct {
	*cluster.Cluster
	kube     kubernetes.Interface
	image    string
	progress cluster.Progress
}

func use(ctx context.Context, dir state.Dir, progress cluster.Progress) error {
	c, err := cluster.BuildAndUp(ctx, dir, cluster.BuildOptions{
		Nodes: 4, Subnet: netip.MustParsePrefix(topology.DefaultSubnet), Latency: "fast", Seed: 1, NoDriver: true,
	}, progress)
	if err != nil {
		return err
	}
	t := &test{Cluster: c, progress: progress}
	if t.kube, err = c.Kubernetes(); err != nil {
		return err
	}
	for _, step := range []struct {
		name string
		run  func(context.Context) error
	}{
		{"a stranger's image is loaded to all nodes", t.loadImage},
		{"pods reach a Service by its name, from every node", t.service},
		{"pods reach the API server, azuresim and the host's collector", t.endpoints},
		{"a node finds the metadata of its VM", t.metadata},
		{"a disk appears in its VM only, is written there, and disappears", t.disk},
		{"a node without power has no processes, and boots again", t.power},
		{"a partitioned node is not reached, and is again when healed", t.network},
		{"a VM that is deallocated takes its node with it", t.deallocate},
	} {
		start := time.Now()
		if err := step.run(ctx); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
		progress("ok (%.1f s): %s", time.Since(start).Seconds(), step.name)
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
