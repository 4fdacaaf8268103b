package cluster

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/azuredisk-csi/azuredisk/playground/host"
	"github.com/azuredisk-csi/azuredisk/playground/images"
	"github.com/azuredisk-csi/azuredisk/playground/programs"
	"github.com/azuredisk-csi/azuredisk/playground/source"
	"github.com/azuredisk-csi/azuredisk/playground/state"
)

// BuildOptions are the user's choices.
type BuildOptions struct {
	Nodes   int
	Subnet  netip.Prefix
	APIPort int
	// Latency is azuresim's latency profile and Seed its seed.
	Latency string
	Seed    int64
	// NoDriver leaves the driver out.
	NoDriver bool
	// Values is a file of Helm values for the driver.
	Values string
}

// sidecars are the programs that run beside the driver's controller.
var sidecars = []string{"csi-provisioner", "csi-attacher", "csi-resizer", "csi-snapshotter"}

// BuildAndUp builds what a playground is made of, as far as it is not cached, brings
// it up, and installs the driver.
func BuildAndUp(ctx context.Context, dir state.Dir, opts BuildOptions, progress Progress) (*Cluster, error) {
	if err := host.Preflight(string(dir), programs.CacheDir()); err != nil {
		return nil, fmt.Errorf("this machine cannot run a playground:\n%w", err)
	}
	root, err := source.Root()
	if err != nil {
		return nil, err
	}
	b := &builder{root: root, progress: progress, store: images.Store{Cache: programs.CacheDir(), Progress: progress}}
	built, err := b.build(ctx, opts)
	if err != nil {
		return nil, err
	}
	progress("programs and images are there")
	return Up(ctx, dir, built, progress)
}

type builder struct {
	root     string
	progress Progress
	store    images.Store
}

func (b *builder) build(ctx context.Context, opts BuildOptions) (state.Options, error) {
	out := state.Options{Nodes: opts.Nodes, Subnet: opts.Subnet, APIPort: opts.APIPort, Latency: opts.Latency, Seed: opts.Seed}
	var err error
	if out.Programs, err = programs.NewBuilder(b.root, b.progress).Ensure(ctx); err != nil {
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
	if opts.NoDriver {
		return out, nil
	}
	for _, name := range sidecars {
		image, err := b.static(ctx, name, out.Programs)
		if err != nil {
			return out, err
		}
		out.Images = append(out.Images, image)
	}
	return out, nil
}

func (b *builder) static(ctx context.Context, name string, paths map[string]string) (images.Image, error) {
	p, err := programs.Find(name)
	if err != nil {
		return images.Image{}, err
	}
	return b.store.Static(ctx, name, p.Version, paths[name])
}

// own builds a program of this repository, of the module in that folder, and returns
// its path. Go's own cache makes this quick when nothing has changed.
func (b *builder) own(ctx context.Context, module, name string) (string, error) {
	path := filepath.Join(programs.CacheDir(), "own", name)
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", path, "./cmd/"+name)
	cmd.Dir = filepath.Join(b.root, module)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", name, err, out)
	}
	return path, nil
}
