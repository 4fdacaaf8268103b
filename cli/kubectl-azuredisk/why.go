package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/azuredisk-csi/azuredisk/internal/cli/collect"
	"github.com/azuredisk-csi/azuredisk/internal/cli/explain"
)

// subjects are what can be asked about.
type subjects struct {
	// offered are the names of kinds that help and completion offer.
	offered []string
	// kinds by all their names, as kubectl has them.
	kinds map[string]explain.Kind
}

// explained can be explained.
var explained = subjects{
	offered: []string{"pod", "pvc", "pv", "node", "snapshot"},
	kinds: map[string]explain.Kind{
		"pod": explain.KindPod, "pods": explain.KindPod, "po": explain.KindPod,
		"pvc": explain.KindClaim, "persistentvolumeclaim": explain.KindClaim, "persistentvolumeclaims": explain.KindClaim,
		"pv": explain.KindVolume, "persistentvolume": explain.KindVolume, "persistentvolumes": explain.KindVolume,
		"node": explain.KindNode, "nodes": explain.KindNode, "no": explain.KindNode,
		"snapshot": explain.KindSnapshot, "volumesnapshot": explain.KindSnapshot, "volumesnapshots": explain.KindSnapshot,
		"vs": explain.KindSnapshot,
	},
}

// timeout bounds a question. An API server that does not answer is itself the answer.
const timeout = 30 * time.Second

func newWhyCommand(s *settings) *cobra.Command {
	var output *format
	cmd := &cobra.Command{
		Use:   "why pod|pvc|pv|node|snapshot NAME",
		Short: "Say why an object is not ready, and what to do",
		Long: `Say in one sentence why a pod, a claim, a PersistentVolume, a node or a snapshot is not ready, what is on the
way from it to the disk, and what to do.

It reads with your own rights. With those of a namespace it explains from the pod, the claim and their events;
with those of the cluster it reads the driver's records too. It says which it used.` +
			explain.ExitHelp(func(c explain.ExitCode) string { return c.Why }),
		Example: `  kubectl azuredisk why pod cart-0 -n shop
  kubectl azuredisk why pvc/data-cart-0 -n shop
  kubectl azuredisk why node aks-pool-1 -o json`,
		Args:              func(_ *cobra.Command, args []string) error { _, err := explained.subject(args); return err },
		ValidArgsFunction: s.complete(explained),
		RunE: func(cmd *cobra.Command, args []string) error {
			subject, err := explained.subject(args)
			if err == nil && !subject.Kind.ClusterScoped() {
				subject.Namespace, _, err = s.kube.ToRawKubeConfigLoader().Namespace()
			}
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			report, err := s.ask(ctx, subject)
			if err != nil {
				return err
			}
			return answer(cmd.OutOrStdout(), output, report, report.Outcome)
		},
	}
	output = addOutput(cmd)
	return cmd
}

// subject reads KIND NAME or KIND/NAME.
func (k subjects) subject(args []string) (explain.Subject, error) {
	words := strings.Split(strings.Join(args, "/"), "/")
	if len(words) != 2 || words[1] == "" {
		return explain.Subject{}, errors.New("say what is asked about: KIND NAME or KIND/NAME")
	}
	subject := explain.Subject{Kind: k.kinds[strings.ToLower(words[0])], Name: words[1]}
	if subject.Kind == "" {
		return subject, fmt.Errorf("kind %q is not known; expected one of %s", words[0], strings.Join(k.offered, ", "))
	}
	return subject, nil
}

func (s *settings) ask(ctx context.Context, subject explain.Subject) (explain.Report, error) {
	reader, now, err := s.reader()
	if err != nil {
		return explain.Report{}, err
	}
	facts, err := s.collect(ctx, reader, now, subject)
	if err != nil {
		return explain.Report{}, err
	}
	return explain.Explain(facts), nil
}

// collect reads what there is to know about a subject.
func (s *settings) collect(ctx context.Context, reader client.Reader, now *collect.ServerClock, subject explain.Subject) (
	explain.Facts, error) {
	return collect.Collect(ctx, reader, collect.Options{
		Subject:         subject,
		DriverName:      s.driverName,
		DriverNamespace: s.driverNamespace,
		Now:             now.Now,
	})
}
