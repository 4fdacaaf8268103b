package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/azuredisk-csi/azuredisk/internal/cli/collect"
	"github.com/azuredisk-csi/azuredisk/internal/cli/explain"
	"github.com/azuredisk-csi/azuredisk/internal/cluster"
	"github.com/azuredisk-csi/azuredisk/internal/kube"
	"github.com/azuredisk-csi/azuredisk/internal/plan/cause"
	"github.com/azuredisk-csi/azuredisk/internal/plan/claimstatus"
	"github.com/azuredisk-csi/azuredisk/internal/plan/disk"
	"github.com/azuredisk-csi/azuredisk/internal/printable"
)

// changed are the objects whose changes can be applied.
var changed = subjects{
	offered: []string{"claim"},
	kinds: map[string]explain.Kind{
		"claim": explain.KindClaim, "pvc": explain.KindClaim, "persistentvolumeclaim": explain.KindClaim,
		"persistentvolumeclaims": explain.KindClaim,
	},
}

// askAgain is the time between two looks at a change.
const askAgain = time.Second

// applying is a run of apply-pending.
type applying struct {
	*settings
	subject explain.Subject
	api     client.Client
	now     *collect.ServerClock
	out     io.Writer
	began   time.Time
	// evicted are the pods that were evicted.
	evicted []types.UID
}

func newApplyPendingCommand(s *settings) *cobra.Command {
	patience := 5 * time.Minute
	cmd := &cobra.Command{
		Use:   "apply-pending claim NAME",
		Short: "Evict the pods of a claim so that a change of its disk is made that waits for their restart",
		Long: `Make a change of a claim's size or class now that waits for the next restart of the claim's pods (DiskUpdatePending):
evict the pods by the Eviction API, which respects PodDisruptionBudgets, and wait until the claim has what it asks for. The
pods are without their volumes for as long as a detach and an attach take. Nothing is scaled.

It needs the right to evict pods (create pods/eviction in the namespace). It evicts none if nothing waits, or if a pod has no
controller that creates it again.` + explain.ExitHelp(func(c explain.ExitCode) string { return c.Others }) +
			fmt.Sprintf("\n  %-2d  the change is not made: the answer of why is printed\n  %-2d  there is no such claim",
				cause.NeedsAction.ExitCode(), explain.ExitNotFound),
		Example: `  kubectl azuredisk apply-pending claim data-cart-0 -n shop
  kubectl azuredisk apply-pending claim data-cart-0 -n shop --timeout 10m`,
		Args:              func(_ *cobra.Command, args []string) error { _, err := changed.subject(args); return err },
		ValidArgsFunction: s.complete(changed),
		RunE: func(cmd *cobra.Command, args []string) error {
			subject, err := changed.subject(args)
			if err == nil {
				subject.Namespace, _, err = s.kube.ToRawKubeConfigLoader().Namespace()
			}
			if err != nil {
				return err
			}
			api, now, err := s.reader()
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), patience)
			defer cancel()
			a := &applying{settings: s, subject: subject, api: api, now: now, out: printable.Writer(cmd.OutOrStdout()),
				began: time.Now()}
			err = a.run(ctx)
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return fmt.Errorf("%s: not done within %s; kubectl azuredisk why pvc %s says why", subject, patience, subject.Name)
			}
			return err
		},
	}
	cmd.Flags().DurationVar(&patience, "timeout", patience, "how long to wait for the change")
	return cmd
}

// run evicts the pods when the change waits for them, and returns when the claim has what it asks for.
func (a *applying) run(ctx context.Context) error {
	for applied := false; ; {
		claim, err := kube.Find[corev1.PersistentVolumeClaim](ctx, a.api, client.ObjectKey{
			Namespace: a.subject.Namespace, Name: a.subject.Name,
		})
		switch {
		case err != nil:
			return err
		case claim == nil:
			return collect.NotFoundError{What: a.subject.String()}
		case !claimstatus.AsksForChange(claim):
			a.say("%s has the size and the class that it asks for", a.subject)
			return nil
		}
		if slices.Contains(claim.Spec.AccessModes, corev1.ReadWriteMany) {
			return fmt.Errorf("%s may be used on several nodes at once, and its disk is changed when no pod uses it: scale its workload "+
				"down and up", a.subject)
		}
		if applied {
			err = a.returned(ctx)
		} else {
			applied, err = a.apply(ctx)
		}
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(askAgain):
		}
	}
}

// returned is the error if a successor of an evicted pod runs and the change still waits.
func (a *applying) returned(ctx context.Context) error {
	pods, err := a.pods(ctx)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(pods, func(p *corev1.Pod) bool {
		return p.Status.Phase == corev1.PodRunning && !slices.Contains(a.evicted, p.UID)
	})
	if i < 0 {
		return nil
	}
	facts, err := a.collect(ctx, a.api, a.now, a.subject)
	if err != nil || !facts.ChangeWaits() {
		return err
	}
	return fmt.Errorf("pod %s runs on node %s, which still has the volume, so the change goes on waiting: try again when another "+
		"node can take the pod, or scale its workload down and up", pods[i].Name, pods[i].Spec.NodeName)
}

// apply evicts the pods if the change waits for them. It returns false if the change is being made, or has not
// come to the driver.
func (a *applying) apply(ctx context.Context) (applied bool, err error) {
	facts, err := a.collect(ctx, a.api, a.now, a.subject)
	if err != nil {
		return false, err
	}
	if !facts.ChangeWaits() {
		report := explain.Explain(facts)
		if report.Outcome == cause.Waits {
			return false, nil
		}
		return false, answer(a.out, new(format), report, cause.NeedsAction)
	}
	pods, err := a.pods(ctx)
	if err != nil {
		return false, err
	}
	for _, p := range pods {
		if _, why := disk.LeavesFor(p); why != "" {
			return false, fmt.Errorf("pod %s is not evicted: %s; delete it and create it again", p.Name, why)
		}
	}
	for _, p := range pods {
		if leaves, _ := disk.LeavesFor(p); !leaves {
			continue
		}
		gone, err := kube.Evict(ctx, a.api, p)
		switch {
		case apierrors.IsTooManyRequests(err):
			return false, fmt.Errorf("pod %s is not evicted, and the change goes on waiting: %w", p.Name, err)
		case err != nil:
			return false, fmt.Errorf("evict pod %s: %w", p.Name, err)
		case !gone:
			continue
		}
		a.evicted = append(a.evicted, p.UID)
		a.say("pod %s is evicted from node %s", p.Name, p.Spec.NodeName)
	}
	return true, nil
}

// pods are those that use the claim.
func (a *applying) pods(ctx context.Context) (users []*corev1.Pod, err error) {
	list := &corev1.PodList{}
	if err := a.api.List(ctx, list, client.InNamespace(a.subject.Namespace)); err != nil {
		return nil, fmt.Errorf("list the pods of the claim: %w", err)
	}
	for i := range list.Items {
		if slices.Contains(cluster.PodClaimKeys(&list.Items[i]), a.subject.Namespace+"/"+a.subject.Name) {
			users = append(users, &list.Items[i])
		}
	}
	return users, nil
}

// say prints a line with the time that has passed.
func (a *applying) say(message string, args ...any) {
	fmt.Fprintf(a.out, "%5.1fs  %s\n", time.Since(a.began).Seconds(), fmt.Sprintf(message, args...))
}
