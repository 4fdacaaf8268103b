// Command image makes the driver's container image and the artifact of its chart, pushes them and
// signs them.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/azuredisk-csi/azuredisk/image"
	"github.com/azuredisk-csi/azuredisk/image/debian"
	"github.com/azuredisk-csi/azuredisk/image/registry"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	root := &cobra.Command{
		Use:           "image",
		Short:         "Make, push and sign the driver's container image and its chart",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(newFetch(), newBuild(), newChart(), newPush(), newSign())
	if err := root.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

func newFetch() *cobra.Command {
	var cache string
	cmd := &cobra.Command{
		Use:   "fetch",
		Short: "Download the packages of the image, so that build finds them",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			lock, err := debian.ParseLock(image.LockText)
			if err != nil {
				return err
			}
			return newFetcher(cmd, cache).FetchAll(cmd.Context(), lock)
		},
	}
	cmd.Flags().StringVar(&cache, "cache", "", "folder in which packages are kept")
	_ = cmd.MarkFlagRequired("cache")
	return cmd
}

func newFetcher(cmd *cobra.Command, cache string) debian.Fetcher {
	return debian.NewFetcher(cache, func(format string, args ...any) { fmt.Fprintf(cmd.ErrOrStderr(), format+"\n", args...) })
}

func newBuild() *cobra.Command {
	var opts buildOptions
	cmd := &cobra.Command{
		Use:   "build",
		Short: "Make an OCI layout from the drivers that are built",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return build(cmd, opts) },
	}
	cmd.Flags().StringToStringVar(&opts.programs, "program", nil, "the driver for each architecture, as ARCHITECTURE=FILE,…")
	cmd.Flags().StringVar(&opts.out, "out", "", "folder of the OCI layout, which is replaced")
	cmd.Flags().StringVar(&opts.bills, "sbom", "", "folder to which the SPDX documents are written as well")
	cmd.Flags().StringVar(&opts.version, "version", "", "the driver's version, which is the image's tag")
	cmd.Flags().StringVar(&opts.revision, "revision", "", "the commit that the driver is built from")
	cmd.Flags().StringVar(&opts.home, "home", "", "URL of the repository")
	cmd.Flags().Int64Var(&opts.created, "created", 0, "time of the commit in seconds since 1970")
	cmd.Flags().StringVar(&opts.cache, "cache", "", "folder in which packages are kept")
	for _, name := range []string{"program", "out", "version", "home", "cache"} {
		_ = cmd.MarkFlagRequired(name)
	}
	return cmd
}

type buildOptions struct {
	programs                                   map[string]string
	out, bills, version, revision, home, cache string
	created                                    int64
}

func build(cmd *cobra.Command, opts buildOptions) error {
	lock, err := debian.ParseLock(image.LockText)
	if err != nil {
		return err
	}
	from := newFetcher(cmd, opts.cache)
	version := image.Version{
		Name:     opts.version,
		Revision: opts.revision,
		Created:  time.Unix(opts.created, 0).UTC(),
		Home:     opts.home,
	}
	for architecture := range opts.programs {
		if _, ok := lock.Packages[architecture]; !ok {
			return fmt.Errorf("--program: no image can be made for the architecture %q; want some of %v", architecture,
				image.Platforms())
		}
	}
	variants, err := buildVariants(cmd.Context(), from, lock, opts.programs, version)
	if err != nil {
		return err
	}
	for _, variant := range variants {
		if err := report(cmd, variant, opts.bills); err != nil {
			return err
		}
	}
	if err := image.WriteLayout(opts.out, variants, version); err != nil {
		return err
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s: version %s\n", opts.out, version.Name)
	return nil
}

// buildVariants makes the variants at once, and returns them in the order of image.Platforms.
func buildVariants(ctx context.Context, from debian.Fetcher, lock debian.Lock, programs map[string]string,
	version image.Version) ([]image.Variant, error) {
	architectures := slices.DeleteFunc(image.Platforms(), func(architecture string) bool { return programs[architecture] == "" })
	variants := make([]image.Variant, len(architectures))
	group, ctx := errgroup.WithContext(ctx)
	for i, architecture := range architectures {
		group.Go(func() error {
			program, err := os.ReadFile(programs[architecture])
			if err != nil {
				return err
			}
			tools, err := image.FetchTools(ctx, from, lock, architecture)
			if err != nil {
				return err
			}
			variants[i], err = image.NewVariant(tools, program, version)
			return err
		})
	}
	return variants, group.Wait()
}

func report(cmd *cobra.Command, variant image.Variant, bills string) error {
	size, err := variant.Size()
	if err != nil {
		return err
	}
	digest, err := variant.Image.Digest()
	if err != nil {
		return err
	}
	fmt.Fprintf(cmd.OutOrStdout(), "linux/%s: %s, %.1f MB compressed\n", variant.Architecture, digest, float64(size)/1e6)
	if bills == "" {
		return nil
	}
	if err := os.MkdirAll(bills, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(bills, "azuredisk-linux-"+variant.Architecture+".spdx.json"), variant.SBOM, 0o644)
}

func newChart() *cobra.Command {
	var archive, out string
	cmd := &cobra.Command{
		Use:   "chart",
		Short: "Make an OCI layout from a packaged Helm chart",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			packaged, err := os.ReadFile(archive)
			if err != nil {
				return err
			}
			return image.WriteChartLayout(out, packaged)
		},
	}
	cmd.Flags().StringVar(&archive, "archive", "", "file of the packaged chart")
	cmd.Flags().StringVar(&out, "out", "", "folder of the OCI layout, which is replaced")
	_, _ = cmd.MarkFlagRequired("archive"), cmd.MarkFlagRequired("out")
	return cmd
}

func newPush() *cobra.Command {
	var dir, repository string
	cmd := &cobra.Command{
		Use:   "push",
		Short: "Push an OCI layout, with Docker's credentials",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			pushed, err := registry.Push(cmd.Context(), dir, repository)
			for _, ref := range pushed {
				fmt.Fprintln(cmd.OutOrStdout(), "pushed", ref.Name())
			}
			return err
		},
	}
	addTarget(cmd, &dir, &repository)
	return cmd
}

func newSign() *cobra.Command {
	var dir, repository, key string
	cmd := &cobra.Command{
		Use:   "sign",
		Short: "Sign the image of an OCI layout that is pushed, in cosign's format",
		Args:  cobra.NoArgs,
		Long:  "Sign the image of an OCI layout that is pushed, in cosign's format. The password of the key is in COSIGN_PASSWORD.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			signer, err := registry.LoadKey(key, []byte(os.Getenv("COSIGN_PASSWORD")))
			if err != nil {
				return err
			}
			signed, err := registry.Sign(cmd.Context(), dir, repository, signer)
			for _, ref := range signed {
				fmt.Fprintln(cmd.OutOrStdout(), "signed", ref.Name())
			}
			return err
		},
	}
	addTarget(cmd, &dir, &repository)
	cmd.Flags().StringVar(&key, "key", "", "file of the private key, as `cosign generate-key-pair` writes it")
	_ = cmd.MarkFlagRequired("key")
	return cmd
}

func addTarget(cmd *cobra.Command, dir, repository *string) {
	cmd.Flags().StringVar(dir, "layout", "", "folder of the OCI layout")
	cmd.Flags().StringVar(repository, "repository", "", "where the image is pushed to, like registry.example.com/azuredisk")
	_, _ = cmd.MarkFlagRequired("layout"), cmd.MarkFlagRequired("repository")
}
