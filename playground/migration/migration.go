// Package migration follows the guide from the V1 driver to this one and back,
// docs/guides/migrate-from-v1.md, on a playground that is up. It reads the shell blocks of the
// guide and runs them as they are printed, one after the other: to this driver, back, and to this
// driver again while pods use the volumes.
//
// V1 itself is represented by what it leaves in a cluster: a Helm release with its CSIDriver
// object, a Deployment and a DaemonSet of its names (whose pods do nothing), its Secret, a
// StorageClass with its parameters, PersistentVolumes and disks with its attributes and tags, and a
// VolumeAttachment. What is on the disks is checked at every station.
//
// In the same way it follows the guides to an installation, an upgrade and an uninstallation.
package migration

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/azuredisk-csi/azuredisk/playground/azure"
	"github.com/azuredisk-csi/azuredisk/playground/cluster"
	"github.com/azuredisk-csi/azuredisk/playground/images"
	"github.com/azuredisk-csi/azuredisk/playground/source"
	"github.com/azuredisk-csi/azuredisk/playground/steps"
)

// The sections of the guide that are followed.
const (
	switchOver = "Switch to this driver"
	switchBack = "Switch back to V1"
	removeV1   = "Remove V1"
)

// Options of Run.
type Options struct {
	Cluster *cluster.Cluster
	// Image is the image of cmd/probe, which only Run needs.
	Image images.Image
	// Print receives a line for each step that has ended.
	Print func(format string, args ...any)
}

// stepTimeout bounds a step.
const stepTimeout = 6 * time.Minute

// journey is one run.
type journey struct {
	Options
	guide source.Guide
	arm   *azure.Client
	// dir is where the guide's commands are run; it has links to what they expect there.
	dir string
	env []string
	// before are the disks as V1 left them.
	before map[string]diskFacts
	// pods are the UIDs of the pods that must not be disturbed.
	pods map[string]string
}

// Run follows the guide and returns a report with a result for each step. It stops at the first
// that fails. An error means that it could not begin.
func Run(ctx context.Context, o Options) (report *steps.Report, err error) {
	latency := o.Cluster.Options.Latency
	if err := o.Cluster.SetLatency(ctx, "fast"); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, o.Cluster.SetLatency(context.WithoutCancel(ctx), latency)) }()
	j, err := prepare(ctx, o, "migrate-from-v1.md")
	if err != nil {
		return nil, fmt.Errorf("prepare the migration: %w", err)
	}
	defer os.RemoveAll(j.dir)
	return j.report(ctx, "migration", j.steps())
}

// report runs the steps up to the first that fails.
func (j *journey) report(ctx context.Context, topic string, list []steps.Step) (*steps.Report, error) {
	report := steps.NewReport(stepTimeout, j.Print)
	report.Run(ctx, topic, list...)
	return report, ctx.Err()
}

func (j *journey) steps() []steps.Step {
	follow := func(heading string) func(context.Context) error {
		return func(ctx context.Context) error { return j.follow(ctx, heading) }
	}
	return []steps.Step{
		{Name: "the cluster has V1's objects, and its disks have data", Run: j.layOut},
		{Name: "there: " + switchOver, Run: follow(switchOver)},
		{Name: "a volume that V1 left attached is detached with its VolumeAttachment", Run: j.detachLeft},
		{Name: "pods find their data on V1's, static and in-tree volumes", Run: j.startPods},
		{Name: "a claim of V1's StorageClass gets a disk", Run: j.provision},
		{Name: "back: " + switchBack, Run: follow(switchBack)},
		{
			Name: "the pods kept running, the disks are unchanged and not reserved, and nothing of this driver is left",
			Run:  j.checkBack,
		},
		{Name: "there again, while pods use the volumes: " + switchOver, Run: follow(switchOver)},
		{Name: "the pods have not noticed", Run: j.checkPods},
		{Name: "the pods move to another node and find there what they wrote", Run: j.movePods},
		{Name: removeV1, Run: follow(removeV1)},
		{Name: "a claim that V1 made is deleted with its disk, and the others keep theirs", Run: j.deleteClaims},
		{Name: "what was laid out is taken away", Run: j.cleanUp},
	}
}

// prepare makes the folder in which the guide's commands find kubectl, helm and the chart.
func prepare(ctx context.Context, o Options, guide string) (*journey, error) {
	root, err := source.Root()
	if err != nil {
		return nil, err
	}
	j := &journey{
		Options: o,
		before:  map[string]diskFacts{},
		pods:    map[string]string{},
	}
	if j.guide, err = source.ReadGuide(filepath.Join(root, "docs", "guides", guide)); err != nil {
		return nil, err
	}
	if j.dir, err = os.MkdirTemp("", "migration-"); err != nil {
		return nil, err
	}
	if err := os.Mkdir(filepath.Join(j.dir, "bin"), 0o755); err != nil {
		return nil, err
	}
	links := map[string]string{"charts": filepath.Join(root, "charts")}
	for _, name := range []string{"kubectl", "helm"} {
		if links["bin/"+name], err = o.Cluster.Program(name); err != nil {
			return nil, err
		}
	}
	for name, target := range links {
		if err := os.Symlink(target, filepath.Join(j.dir, name)); err != nil {
			return nil, err
		}
	}
	j.env = append(os.Environ(), "KUBECONFIG="+o.Cluster.Dir.Kubeconfig(),
		"PATH="+filepath.Join(j.dir, "bin")+":"+os.Getenv("PATH"),
		"HELM_CACHE_HOME="+j.dir, "HELM_CONFIG_HOME="+j.dir, "HELM_DATA_HOME="+j.dir)
	if j.arm, err = o.Cluster.AzureClient(ctx); err != nil {
		return nil, err
	}
	if o.Image.Tar == "" {
		return j, nil
	}
	return j, o.Cluster.LoadImage(ctx, o.Image.Tar)
}
