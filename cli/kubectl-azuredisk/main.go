// The kubectl-azuredisk program is a plug-in of kubectl. It says with its user's own rights why a
// pod, a claim, a volume, a node or a snapshot is not ready, lists volumes and nodes, says what would
// happen if nodes were lost, applies changes that wait for a restart, and checks an installation or a cluster
// before one.
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
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cli/collect"
	"github.com/azuredisk-csi/azuredisk/internal/cli/explain"
	"github.com/azuredisk-csi/azuredisk/internal/plan/cause"
	"github.com/azuredisk-csi/azuredisk/internal/printable"
)

// answered is the error of a command whose answer is printed and has another exit code than 0.
type answered struct{ code int }

func (a answered) Error() string { return fmt.Sprintf("exit code %d", a.code) }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code, err := execute(ctx, newRootCommand())
	stop()
	if err != nil {
		fmt.Fprintln(printable.Writer(os.Stderr), "kubectl azuredisk:", err)
	}
	os.Exit(code)
}

// execute runs a command. It returns the exit code, and the error that is not yet printed.
func execute(ctx context.Context, root *cobra.Command) (int, error) {
	begun := false // cobra has taken the arguments and flags
	root.PersistentPreRun = func(*cobra.Command, []string) { begun = true }
	err := root.ExecuteContext(ctx)
	if answer, ok := errors.AsType[answered](err); ok {
		return answer.code, nil
	}
	_, missing := errors.AsType[collect.NotFoundError](err)
	switch {
	case err == nil:
		return 0, nil
	case !begun:
		return explain.ExitUsage, err
	case missing:
		return explain.ExitNotFound, err
	}
	return cause.CannotTell.ExitCode(), err
}

// settings are the flags of all commands.
type settings struct {
	kube            *genericclioptions.ConfigFlags
	driverName      string
	driverNamespace string
}

// config returns how to reach the cluster. Without any configuration client-go would ask a server on this machine.
func (s *settings) config() (*rest.Config, error) {
	config, err := s.kube.ToRESTConfig()
	if err != nil {
		return nil, err
	}
	loaded, err := s.kube.ToRawKubeConfigLoader().RawConfig()
	if err == nil && len(loaded.Clusters) == 0 && *s.kube.APIServer == "" && config.Host == localServer {
		return nil, errors.New("no cluster is configured: set KUBECONFIG to your kubeconfig, or name it with --kubeconfig")
	}
	return config, err
}

// localServer is what client-go takes without a configuration.
const localServer = "http://localhost:8080"

// reader returns a client with the user's rights, and the API server's clock.
func (s *settings) reader() (client.WithWatch, *collect.ServerClock, error) {
	config, err := s.config()
	if err != nil {
		return nil, nil, err
	}
	return collect.NewReader(config, clock.RealClock{})
}

// format of an answer: "" for text, json or yaml.
type format string

// Set takes the value of the flag.
func (f *format) Set(value string) error {
	if value != "json" && value != "yaml" {
		return errors.New("expected json or yaml")
	}
	*f = format(value)
	return nil
}

func (f *format) String() string { return string(*f) }

// Type is the value in the help.
func (f *format) Type() string { return "json|yaml" }

// addOutput gives a command the flag for its output.
func addOutput(cmd *cobra.Command) *format {
	output := new(format)
	cmd.Flags().VarP(output, "output", "o", "print the whole answer in this format")
	offered := cobra.FixedCompletions([]string{"json", "yaml"}, cobra.ShellCompDirectiveNoFileComp)
	_ = cmd.RegisterFlagCompletionFunc("output", offered) // the flag exists
	return output
}

// answer writes an answer. The outcome is the exit code.
func answer(w io.Writer, output *format, value interface{ Text() string }, outcome cause.Outcome) error {
	w = printable.Writer(w)
	err := error(nil)
	switch *output {
	case "json":
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "  ")
		encoder.SetEscapeHTML(false)
		err = encoder.Encode(value)
	case "yaml":
		var text []byte
		if text, err = yaml.Marshal(value); err == nil {
			_, err = w.Write(text)
		}
	default:
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
	root.AddCommand(newWhyCommand(s), newGetCommand(s), newUICommand(s), newWhatIfCommand(s), newApplyPendingCommand(s),
		newCheckCommand(s, doctor), newCheckCommand(s, preflight), newBundleCommand(s), newVersionCommand(s))
	namespaces := func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		return s.names(cmd.Context(), "Namespace"), cobra.ShellCompDirectiveNoFileComp
	}
	_ = root.RegisterFlagCompletionFunc("namespace", namespaces) // the flag exists
	return root
}
