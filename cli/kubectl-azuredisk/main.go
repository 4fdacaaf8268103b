// The kubectl-azuredisk program is a plug-in of kubectl. It says with its user's own rights why a
// pod, a claim, a volume, a node or a snapshot is not ready, lists volumes and nodes, says what would
// happen if nodes were lost, and checks an installation or a cluster before one.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/cli/collect"
	"github.com/azuredisk-csi/azuredisk/internal/plan/cause"
	"github.com/azuredisk-csi/azuredisk/internal/printable"
	"github.com/azuredisk-csi/azuredisk/internal/version"
)

// answered is the error of a command whose answer is printed and has another exit code than 0.
type answered struct{ code int }

func (a answered) Error() string { return fmt.Sprintf("exit code %d", a.code) }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := newRootCommand().ExecuteContext(ctx)
	stop()
	if answer, ok := errors.AsType[answered](err); ok {
		os.Exit(answer.code)
	}
	if err != nil {
		fmt.Fprintln(printable.Writer(os.Stderr), "kubectl azuredisk:", err)
		os.Exit(cause.CannotTell.ExitCode())
	}
}

// settings are the flags of all commands.
type settings struct {
	kube            *genericclioptions.ConfigFlags
	driverName      string
	driverNamespace string
}

// reader returns a client with the user's rights, and the API server's clock.
func (s *settings) reader() (client.WithWatch, *collect.ServerClock, error) {
	config, err := s.kube.ToRESTConfig()
	if err != nil {
		return nil, nil, err
	}
	return collect.NewReader(config, clock.RealClock{})
}

// addOutput gives a command the flag for its output.
func addOutput(cmd *cobra.Command, output *string) {
	cmd.Flags().StringVarP(output, "output", "o", "", "json for the whole answer as JSON")
}

func checkOutput(output string) error {
	if output != "" && output != "json" {
		return fmt.Errorf("--output is %q, expected json", output)
	}
	return nil
}

func writeJSON(w io.Writer, value any) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(value)
}

// answer writes an answer as text or as JSON. The outcome is the exit code.
func answer(w io.Writer, output string, value interface{ Text() string }, outcome cause.Outcome) error {
	w = printable.Writer(w)
	err := error(nil)
	if output == "json" {
		err = writeJSON(w, value)
	} else {
		_, err = io.WriteString(w, value.Text())
	}
	if code := outcome.ExitCode(); err == nil && code != 0 {
		return answered{code}
	}
	return err
}

func newRootCommand() *cobra.Command { return newCommand(genericclioptions.NewConfigFlags(true)) }

func newCommand(kube *genericclioptions.ConfigFlags) *cobra.Command {
	s := &settings{kube: kube}
	root := &cobra.Command{
		Use:           "kubectl-azuredisk",
		Short:         "Explain and list the volumes of the Azure Disk CSI driver, and check its installation",
		SilenceUsage:  true,
		SilenceErrors: true,
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl azuredisk"},
	}
	// The flags of a connection, as kubectl names them.
	s.kube.CacheDir = nil
	s.kube.AddFlags(root.PersistentFlags())
	root.PersistentFlags().StringVar(&s.driverName, "driver-name", "disk.csi.azure.com", "name of the CSI driver")
	root.PersistentFlags().StringVar(&s.driverNamespace, "driver-namespace", apiv1.DefaultNamespace,
		"namespace of the driver's objects")
	root.AddCommand(newWhyCommand(s), newGetCommand(s), newUICommand(s), newWhatIfCommand(s), newCheckCommand(s, doctor),
		newCheckCommand(s, preflight), newBundleCommand(s))
	root.AddCommand(&cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), version.Version)
			return err
		},
	})
	return root
}
