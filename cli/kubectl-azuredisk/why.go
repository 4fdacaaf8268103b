package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/azuredisk-csi/azuredisk/cli/collect"
	"github.com/azuredisk-csi/azuredisk/cli/explain"
)

// kinds are the names of the kinds, as kubectl has them.
var kinds = map[string]explain.Kind{
	"pod": explain.KindPod, "pods": explain.KindPod, "po": explain.KindPod,
	"pvc": explain.KindClaim, "persistentvolumeclaim": explain.KindClaim, "persistentvolumeclaims": explain.KindClaim,
	"pv": explain.KindVolume, "persistentvolume": explain.KindVolume, "persistentvolumes": explain.KindVolume,
	"node": explain.KindNode, "nodes": explain.KindNode, "no": explain.KindNode,
	"snapshot": explain.KindSnapshot, "volumesnapshot": explain.KindSnapshot, "volumesnapshots": explain.KindSnapshot,
	"vs": explain.KindSnapshot,
}

// timeout bounds a question. An API server that does not answer is itself the answer.
const timeout = 30 * time.Second

func newWhyCommand(s *settings) *cobra.Command {
	output := ""
	cmd := &cobra.Command{
		Use:   "why pod|pvc|pv|node|snapshot NAME",
		Short: "Say why an object is not ready, and what to do",
		Long: `Say in one sentence why a pod, a claim, a PersistentVolume, a node or a snapshot is not ready, what is on the
way from it to the disk, and what to do.

It reads with your own rights. With those of a namespace it explains from the pod, the claim and their events;
with those of the cluster it reads the driver's records too. It says which it used.

Exit codes:
  0  healthy
  1  it waits, and that ends without you
  2  it needs an action
  3  it cannot be told; also if there is no such object, or the API server does not answer`,
		Example: `  kubectl azuredisk why pod cart-0 -n shop
  kubectl azuredisk why pvc/data-cart-0 -n shop
  kubectl azuredisk why node aks-pool-1 -o json`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			subject, err := s.subject(args)
			if err != nil {
				return err
			}
			if err := checkOutput(output); err != nil {
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
	addOutput(cmd, &output)
	return cmd
}

// kindAndName reads KIND NAME or KIND/NAME.
func kindAndName(args []string) (kind, name string, err error) {
	kind, name, both := strings.Cut(args[0], "/")
	switch {
	case both && len(args) == 1:
	case !both && len(args) == 2:
		name = args[1]
	default:
		return "", "", errors.New("say what is asked about: KIND NAME or KIND/NAME")
	}
	return strings.ToLower(kind), name, nil
}

// subject is the object that why is asked about.
func (s *settings) subject(args []string) (explain.Subject, error) {
	kind, name, err := kindAndName(args)
	if err != nil {
		return explain.Subject{}, err
	}
	subject := explain.Subject{Kind: kinds[kind], Name: name}
	switch {
	case subject.Kind == "":
		return subject, fmt.Errorf("%q cannot be explained; expected pod, pvc, pv, node or snapshot", kind)
	case name == "":
		return subject, errors.New("the name is missing")
	case slices.Contains([]explain.Kind{explain.KindNode, explain.KindVolume}, subject.Kind):
		return subject, nil
	}
	namespace, _, err := s.kube.ToRawKubeConfigLoader().Namespace()
	subject.Namespace = namespace
	return subject, err
}

func (s *settings) ask(ctx context.Context, subject explain.Subject) (explain.Report, error) {
	reader, now, err := s.reader()
	if err != nil {
		return explain.Report{}, err
	}
	facts, err := collect.Collect(ctx, reader, collect.Options{
		Subject:         subject,
		DriverName:      s.driverName,
		DriverNamespace: s.driverNamespace,
		Now:             now.Now,
	})
	if err != nil {
		return explain.Report{}, err
	}
	return explain.Explain(facts), nil
}
