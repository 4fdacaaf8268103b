package cluster

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/azuredisk-csi/azuredisk/playground/aks"
	"github.com/azuredisk-csi/azuredisk/playground/azure"
	"github.com/azuredisk-csi/azuredisk/playground/cache"
	"github.com/azuredisk-csi/azuredisk/playground/host"
	"github.com/azuredisk-csi/azuredisk/playground/images"
	"github.com/azuredisk-csi/azuredisk/playground/programs"
	"github.com/azuredisk-csi/azuredisk/playground/source"
	"github.com/azuredisk-csi/azuredisk/playground/state"
	"github.com/azuredisk-csi/azuredisk/playground/topology"
)

// BuildOptions are the user's choices.
type BuildOptions struct {
	// Kubernetes is the minor version of Kubernetes, like "1.37".
	Kubernetes string
	// Profile is the kind of cluster. On AKS kube-scheduler has no configuration for the driver.
	Profile aks.Profile
	Nodes   int
	// Zones is how many zones the nodes are in, topology.DefaultZones if it is 0.
	Zones   int
	Subnet  netip.Prefix
	APIPort int
	// Latency is azuresim's latency profile and Seed its seed.
	Latency string
	// NoQuotas switches off Azure's quotas.
	NoQuotas bool
	Seed     int64
	// NoDriver leaves the driver out.
	NoDriver bool
	// PlainScheduler leaves kube-scheduler without a configuration for the driver.
	PlainScheduler bool
	// Values is a file of Helm values for the driver.
	Values string
}

// sidecars are the programs that run beside the driver's controller.
var sidecars = []string{"csi-provisioner", "csi-attacher", "csi-resizer", "csi-snapshotter"}

// driverClient is the driver's identity at azuresim.
const driverClient = "00000000-0000-0000-0000-0000000000c1"

// BuildAndUp builds what a playground is made of, as far as it is not cached, brings
// it up, and installs the driver.
func BuildAndUp(ctx context.Context, dir state.Dir, opts BuildOptions, progress Progress) (*Cluster, error) {
	if err := host.Preflight(string(dir), programs.CacheDir()); err != nil {
		return nil, fmt.Errorf("this machine cannot run a playground:\n%w", err)
	}
	if err := refuseIfUp(dir); err != nil {
		return nil, err
	}
	b, err := newBuilder(opts.Kubernetes, progress)
	if err != nil {
		return nil, err
	}
	b.dirs = append(b.dirs, string(dir))
	built, err := b.build(ctx, opts)
	if err != nil {
		return nil, err
	}
	progress("programs and images are there")
	c, err := Up(ctx, dir, built, progress)
	if err != nil {
		return nil, err
	}
	if !opts.NoDriver {
		if err = c.installSnapshots(ctx); err == nil {
			err = c.InstallDriver(ctx, opts.Values, progress)
		}
	}
	if err == nil {
		err = c.waitForDNS(ctx)
	}
	if err == nil {
		return c, nil
	}
	if ctx.Err() != nil {
		progress("interrupted: taking everything down")
		return nil, errors.Join(errInterrupted, Down(context.WithoutCancel(ctx), dir, progress))
	}
	return c, fmt.Errorf("the playground is up (`playground down` takes it down), but: %w", err)
}

type builder struct {
	root     string
	programs *programs.Builder
	store    images.Store
	// dirs are where images will be unpacked.
	dirs []string
}

func newBuilder(kubernetes string, progress Progress) (*builder, error) {
	root, err := source.Root()
	if err != nil {
		return nil, err
	}
	built, err := programs.NewBuilder(root, kubernetes, progress)
	if err != nil {
		return nil, err
	}
	return &builder{
		root:     root,
		programs: built,
		dirs:     []string{programs.CacheDir()},
		store:    images.Store{Cache: programs.CacheDir(), Progress: progress},
	}, nil
}

func (b *builder) build(ctx context.Context, opts BuildOptions) (state.Options, error) {
	out := state.Options{
		Kubernetes:     b.programs.Kubernetes,
		Profile:        opts.Profile,
		Nodes:          opts.Nodes,
		Zones:          opts.Zones,
		Subnet:         opts.Subnet,
		APIPort:        opts.APIPort,
		Latency:        opts.Latency,
		NoQuotas:       opts.NoQuotas,
		Seed:           opts.Seed,
		PlainScheduler: opts.PlainScheduler || opts.Profile != "",
	}
	var err error
	if out.Programs, err = b.programs.Ensure(ctx); err != nil {
		return out, err
	}
	pause, err := b.own(ctx, "playground", "pause")
	if err != nil {
		return out, err
	}
	if out.Pause, err = b.store.Static(ctx, "pause", "", pause); err != nil {
		return out, err
	}
	if out.DNS, err = b.static(ctx, "coredns", out.Programs); err != nil {
		return out, err
	}
	if out.Programs["azuresim"], err = b.own(ctx, ".", "azuresim"); err != nil {
		return out, err
	}
	out.Credentials = azure.Credentials{ClientID: driverClient, Secret: rand.Text()}
	if opts.NoDriver {
		return out, b.preload(ctx, &out)
	}
	if !out.PlainScheduler {
		plan, err := out.Plan()
		if err != nil {
			return out, err
		}
		out.Extender = driverExtender(plan.Extender().String())
	}
	if err := b.driver(ctx, &out); err != nil {
		return out, err
	}
	return out, b.preload(ctx, &out)
}

func (b *builder) preload(ctx context.Context, out *state.Options) error {
	out.Snapshotter = host.Snapshotter(b.dirs...)
	var err error
	out.Preloaded, err = b.store.Preload(ctx, filepath.Dir(out.Programs["containerd"]), out.Snapshotter, out.Images())
	return err
}

// driver makes the images of the driver, of its sidecars and of the snapshot-controller.
func (b *builder) driver(ctx context.Context, out *state.Options) error {
	program, err := b.own(ctx, ".", "azuredisk")
	if err != nil {
		return err
	}
	if out.Driver, err = b.store.Driver(ctx, program); err != nil {
		return err
	}
	out.Sidecars = nil
	for _, name := range sidecars {
		image, err := b.static(ctx, name, out.Programs)
		if err != nil {
			return err
		}
		out.Sidecars = append(out.Sidecars, image)
	}
	if out.SnapshotController, err = b.static(ctx, "snapshot-controller", out.Programs); err != nil {
		return err
	}
	sources, err := b.programs.Sources(ctx, "kubernetes", snapshotModule)
	out.SnapshotCRDs = filepath.Join(sources, "config", "crd")
	return err
}

// BuildImages makes all images, as far as they are not cached, and lists them.
func BuildImages(ctx context.Context, progress Progress) ([]images.Image, error) {
	b, err := newBuilder(programs.FromEnvironment(), progress)
	if err != nil {
		return nil, err
	}
	out, err := b.build(ctx, BuildOptions{Nodes: 1, Subnet: netip.MustParsePrefix(topology.DefaultSubnet)})
	return out.Images(), err
}

// UpdateDriver builds the driver and its images again, gives them to the nodes, and
// installs or upgrades the chart.
func (c *Cluster) UpdateDriver(ctx context.Context, values string, progress Progress) error {
	b, err := newBuilder(c.Options.Kubernetes.Minor, progress)
	if err != nil {
		return err
	}
	there, without := c.Options.Images(), c.Options.Driver.Ref == ""
	if err := b.driver(ctx, &c.Options); err != nil {
		return err
	}
	// Who installs the driver later is to have this one.
	if err := state.WriteJSON(c.Dir.Options(), c.Options); err != nil {
		return err
	}
	for _, image := range c.Options.Images() {
		if slices.Contains(there, image) {
			continue
		}
		progress("loading %s", image.Ref)
		if err := c.LoadImage(ctx, image.Tar); err != nil {
			return err
		}
	}
	if without { // the playground was brought up without the driver, and without what snapshots need
		if err := c.installSnapshots(ctx); err != nil {
			return err
		}
	}
	if !c.Options.PlainScheduler {
		if err := c.SetSchedulerExtender(ctx, driverExtender(c.Plan.Extender().String())); err != nil {
			return err
		}
	}
	return c.InstallDriver(ctx, values, progress)
}

func (b *builder) static(ctx context.Context, name string, paths map[string]string) (images.Image, error) {
	p, err := b.programs.Find(name)
	if err != nil {
		return images.Image{}, err
	}
	return b.store.Static(ctx, name, p.Version, paths[name])
}

// own builds a program of this repository, of the module in that folder, and returns
// its path. Go's own cache makes this quick when nothing has changed. The path has the
// hash of the program in it: one that is running is never replaced, so what a running
// playground starts again is what it started at first.
func (b *builder) own(ctx context.Context, module, name string, tags ...string) (string, error) {
	dir := filepath.Join(programs.CacheDir(), "own")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	partial, err := os.MkdirTemp(dir, "building-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(partial)
	built := filepath.Join(partial, name)
	// Without the state of the repository in it, an unchanged program has unchanged bytes.
	cmd := exec.CommandContext(ctx, "go", "build", "-ldflags", "-s -w", "-tags", strings.Join(tags, ","), "-o", built,
		"./cmd/"+name)
	cmd.Dir = filepath.Join(b.root, module)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS="+programs.GoFlags, "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", name, err, out)
	}
	data, err := os.ReadFile(built)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(data)
	path := filepath.Join(dir, fmt.Sprintf("%s-%x", name, sum[:8]))
	if err := os.Link(built, path); err != nil && !errors.Is(err, os.ErrExist) {
		return "", err
	}
	cache.Use(path)
	return path, cache.Prune(filepath.Join(dir, name+"-*"), 3)
}
