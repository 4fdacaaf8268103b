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
	"github.com/azuredisk-csi/azuredisk/image/licence"
	"github.com/azuredisk-csi/azuredisk/image/provenance"
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
	root.AddCommand(newFetch(), newBuild(), newNotices(), newChart(), newPush(), newSign())
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
	cmd.Flags().StringVar(&opts.licence, "licence", "", "file of the driver's licence")
	cmd.Flags().Int64Var(&opts.created, "created", 0, "time of the commit in seconds since 1970")
	cmd.Flags().StringVar(&opts.cache, "cache", "", "folder in which packages are kept")
	for _, name := range []string{"program", "out", "version", "licence", "cache"} {
		_ = cmd.MarkFlagRequired(name)
	}
	addOrigin(cmd, &opts.origin)
	return cmd
}

type buildOptions struct {
	programs                            map[string]string
	out, bills, version, licence, cache string
	created                             int64
	origin                              provenance.Build
}

func build(cmd *cobra.Command, opts buildOptions) error {
	lock, err := debian.ParseLock(image.LockText)
	if err != nil {
		return err
	}
	from := newFetcher(cmd, opts.cache)
	version := image.Version{
		Name:     opts.version,
		Revision: opts.origin.Revision,
		Created:  time.Unix(opts.created, 0).UTC(),
		Home:     opts.origin.Home,
	}
	for architecture := range opts.programs {
		if _, ok := lock.Packages[architecture]; !ok {
			return fmt.Errorf("--program: no image can be made for the architecture %q; want some of %v", architecture,
				image.Platforms())
		}
	}
	variants, err := buildVariants(cmd.Context(), from, lock, opts, version)
	if err != nil {
		return err
	}
	for _, architecture := range image.Platforms() {
		if file, ok := opts.programs[architecture]; ok {
			program, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			opts.origin.Programs = append(opts.origin.Programs, program)
			opts.origin.Packages = append(opts.origin.Packages, lock.Packages[architecture]...)
		}
	}
	for _, variant := range variants {
		if err := report(cmd, variant, opts.bills); err != nil {
			return err
		}
	}
	if err := image.WriteLayout(opts.out, variants, version); err != nil {
		return err
	}
	if err := writeProvenance(opts.out, opts.origin); err != nil {
		return err
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s: version %s\n", opts.out, version.Name)
	return nil
}

// addOrigin adds the flags that say who builds, from what.
func addOrigin(cmd *cobra.Command, origin *provenance.Build) {
	cmd.Flags().StringVar(&origin.Home, "home", "", "URL of the repository")
	cmd.Flags().StringVar(&origin.Revision, "revision", "", "the commit; empty if there are other changes, and then no provenance is written")
	cmd.Flags().StringVar(&origin.Builder, "builder", "", "URI of who builds")
	cmd.Flags().StringVar(&origin.Invocation, "invocation", "", "URI of the run of the builder")
	cmd.Flags().StringToStringVar(&origin.Parameters, "parameters", nil, "the target and the variables that the builder was given, as NAME=VALUE,…")
	_, _ = cmd.MarkFlagRequired("home"), cmd.MarkFlagRequired("builder")
}

// writeProvenance writes the provenance of a layout. It removes that of an earlier one.
func writeProvenance(layout string, origin provenance.Build) error {
	file := provenance.File(layout)
	if origin.Revision == "" {
		return os.RemoveAll(file)
	}
	text, err := origin.Predicate()
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}

// buildVariants makes the variants at once, and returns them in the order of image.Platforms.
func buildVariants(ctx context.Context, from debian.Fetcher, lock debian.Lock, opts buildOptions,
	version image.Version) ([]image.Variant, error) {
	architectures := slices.DeleteFunc(image.Platforms(),
		func(architecture string) bool { return opts.programs[architecture] == "" })
	variants := make([]image.Variant, len(architectures))
	group, ctx := errgroup.WithContext(ctx)
	for i, architecture := range architectures {
		group.Go(func() error {
			driver, err := readDriver(opts.programs[architecture], opts.licence)
			if err != nil {
				return err
			}
			tools, err := image.FetchTools(ctx, from, lock, architecture)
			if err != nil {
				return err
			}
			variants[i], err = image.NewVariant(tools, driver, version)
			return err
		})
	}
	return variants, group.Wait()
}

func readDriver(program, text string) (driver image.Driver, err error) {
	if driver.Licence, err = os.ReadFile(text); err != nil {
		return driver, err
	}
	if driver.Program, err = os.ReadFile(program); err != nil {
		return driver, err
	}
	driver.Notices, err = noticesOf(driver.Program)
	return driver, err
}

func noticesOf(program []byte) ([]byte, error) {
	modules, err := licence.Modules(program)
	if err != nil {
		return nil, err
	}
	return licence.Notices(modules)
}

func newNotices() *cobra.Command {
	var program, out string
	cmd := &cobra.Command{
		Use:   "notices",
		Short: "Write the licences and notices of the modules that a program is built from",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			data, err := os.ReadFile(program)
			if err != nil {
				return err
			}
			text, err := noticesOf(data)
			if err != nil {
				return fmt.Errorf("%s: %w", program, err)
			}
			return os.WriteFile(out, text, 0o644)
		},
	}
	cmd.Flags().StringVar(&program, "program", "", "file of the program, which was built on this machine")
	cmd.Flags().StringVar(&out, "out", "", "file to write")
	_, _ = cmd.MarkFlagRequired("program"), cmd.MarkFlagRequired("out")
	return cmd
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
	var origin provenance.Build
	cmd := &cobra.Command{
		Use:   "chart",
		Short: "Make an OCI layout from a packaged Helm chart",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			packaged, err := os.ReadFile(archive)
			if err != nil {
				return err
			}
			if err := image.WriteChartLayout(out, packaged); err != nil {
				return err
			}
			return writeProvenance(out, origin)
		},
	}
	cmd.Flags().StringVar(&archive, "archive", "", "file of the packaged chart")
	cmd.Flags().StringVar(&out, "out", "", "folder of the OCI layout, which is replaced")
	_, _ = cmd.MarkFlagRequired("archive"), cmd.MarkFlagRequired("out")
	addOrigin(cmd, &origin)
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
		Short: "Sign what is pushed of an OCI layout, and how it was built, in cosign's format",
		Args:  cobra.NoArgs,
		Long:  "Sign what is pushed of an OCI layout, and how it was built, in cosign's format. The password of the key is in COSIGN_PASSWORD.",
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
