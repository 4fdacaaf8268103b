package main

import (
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/azuredisk-csi/azuredisk/playground/programs"
	"github.com/azuredisk-csi/azuredisk/playground/source"
)

func newProgramsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "programs",
		Short: "Build and find the programs that the playground and the tests run",
	}
	var version string
	kubernetesFlag(cmd.PersistentFlags(), &version)
	cmd.AddCommand(
		&cobra.Command{
			Use:   "list",
			Short: "List the programs, their versions and where they are or will be",
			Args:  cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				builder, err := newBuilder(version)
				if err != nil {
					return err
				}
				for _, p := range builder.Catalogue() {
					path, err := builder.Path(cmd.Context(), p.Name)
					if err != nil {
						return err
					}
					fmt.Fprintf(cmd.OutOrStdout(), "%-24s %-9s %s\n", p.Name, p.Version, path)
				}
				return nil
			},
		},
		&cobra.Command{
			Use:   "ensure [NAME...]",
			Short: "Build those of the named programs (all, if none is named) that are not there yet",
			RunE: func(cmd *cobra.Command, names []string) error {
				builder, err := newBuilder(version)
				if err != nil {
					return err
				}
				_, err = builder.Ensure(cmd.Context(), names...)
				return err
			},
		},
		&cobra.Command{
			Use:   "path NAME",
			Short: "Build the named program if it is not there yet, and print its path",
			Args:  cobra.ExactArgs(1),
			RunE: func(cmd *cobra.Command, names []string) error {
				builder, err := newBuilder(version)
				if err != nil {
					return err
				}
				paths, err := builder.Ensure(cmd.Context(), names...)
				if err != nil {
					return err
				}
				fmt.Fprintln(cmd.OutOrStdout(), paths[names[0]])
				return nil
			},
		},
	)
	return cmd
}

func newBuilder(kubernetes string) (*programs.Builder, error) {
	root, err := source.Root()
	if err != nil {
		return nil, err
	}
	return programs.NewBuilder(root, kubernetes, newProgress())
}

// kubernetesFlag adds the flag that names the version of Kubernetes.
func kubernetesFlag(flags *pflag.FlagSet, version *string) {
	oldest, newest := programs.Versions[len(programs.Versions)-1].Minor, programs.Versions[0].Minor
	flags.StringVar(version, "kubernetes", programs.FromEnvironment(),
		fmt.Sprintf("version of Kubernetes, %s to %s ($PLAYGROUND_KUBERNETES)", oldest, newest))
}
