package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os/exec"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/azuredisk-csi/azuredisk/internal/cli/collect"
	"github.com/azuredisk-csi/azuredisk/internal/cli/explain"
	"github.com/azuredisk-csi/azuredisk/internal/cli/ui"
)

func newUICommand(s *settings) *cobra.Command {
	listen, noPods, actions := "127.0.0.1:0", false, []ui.Action(nil)
	cmd := &cobra.Command{
		Use:   "ui",
		Short: "Show nodes, volumes and failovers on a page that is kept up to date",
		Long: `Serve a page on this machine, print its URL, and keep the page up to date until the command is interrupted. It shows
zones and nodes with their free slots, the disks as primaries and replicas, what is under way, what is not as it should
be with the answer of "why", and the last failovers. GET /overview has the same as JSON.

The page reads with your own rights and changes nothing. Without the right to read a resource, its part is empty, and
the page says so. Only programs that know the URL see what it shows.

Of more than 200 volumes or 100 nodes the page counts the rest, until you choose a namespace or type a name.` +
			explain.ExitHelp(func(c explain.ExitCode) string { return c.Others }),
		Example: `  kubectl azuredisk ui
  kubectl azuredisk ui --no-pods`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return s.serve(cmd, listen, noPods, actions)
		},
	}
	const listens = "loopback `ADDRESS:PORT` of the page; by default a free port of 127.0.0.1"
	cmd.Flags().Func("listen", listens, func(value string) error {
		address, err := netip.ParseAddrPort(value)
		if err != nil || !address.Addr().IsLoopback() {
			return errors.New("expected a loopback address and a port, as in 127.0.0.1:8080")
		}
		listen = value
		return nil
	})
	cmd.Flags().BoolVar(&noPods, "no-pods", noPods, "do not watch pods; a large cluster has many")
	cmd.Flags().Func("node-action", "give each node a button that runs a command on this machine: `NAME=COMMAND`, "+
		"with words separated by spaces, where {node} is the node's name; repeatable", func(value string) error {
		action, err := nodeAction(value)
		actions = append(actions, action)
		return err
	})
	return cmd
}

func (s *settings) serve(cmd *cobra.Command, listen string, noPods bool, actions []ui.Action) error {
	log.SetLogger(logr.Discard()) // what cannot be read is on the page
	ctx, cancel := context.WithCancel(cmd.Context())
	defer cancel()
	reader, now, err := s.reader()
	if err != nil {
		return err
	}
	watch, err := collect.NewWatch(ctx, reader, now, collect.WatchOptions{
		DriverNamespace: s.driverNamespace,
		PodNamespace:    *s.kube.Namespace,
		NoPods:          noPods,
	})
	if err != nil {
		return err
	}
	page := ui.New(ui.Options{
		Source: watch,
		Why: func(ctx context.Context, subject explain.Subject) (explain.Report, error) {
			ctx, cancel := context.WithTimeout(ctx, timeout)
			defer cancel()
			return s.ask(ctx, subject)
		},
		Actions: actions,
		Clock:   clock.RealClock{},
	})
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", listen)
	if err != nil {
		return err
	}
	server := &http.Server{
		Handler:           page,
		ReadHeaderTimeout: 10 * time.Second,
		BaseContext:       func(net.Listener) context.Context { return ctx },
	}
	go page.Run(ctx)
	go func() {
		<-ctx.Done()
		_ = server.Close() // pages have streams that do not end by themselves
	}()
	fmt.Fprintln(cmd.OutOrStdout(), page.URL(listener.Addr()))
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// nodeAction reads NAME=PROGRAM ARGUMENT...
func nodeAction(flag string) (ui.Action, error) {
	name, command, ok := strings.Cut(flag, "=")
	words := strings.Fields(command)
	if !ok || name == "" || len(words) == 0 {
		return ui.Action{}, errors.New("expected NAME=PROGRAM and its arguments")
	}
	return ui.Action{Name: name, Run: func(ctx context.Context, node string) error {
		var arguments []string
		for _, word := range words[1:] {
			arguments = append(arguments, strings.ReplaceAll(word, "{node}", node))
		}
		out, err := exec.CommandContext(ctx, words[0], arguments...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%s: %w: %s", command, err, out)
		}
		return nil
	}}, nil
}
