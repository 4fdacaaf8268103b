// Package departure lets the node plug-in outlast the volumes of a node that is being drained or shut down.
//
// When a machine goes, the kubelet stops the plug-in like any other pod, and without it nothing can be unmounted:
// the volumes would then have to be fenced, which takes Azure instead of a write to the API. So a plug-in that is
// told to stop on such a node goes on serving until its report is empty, within its grace period. On a node
// that stays, as in an update of the DaemonSet, it stops at once: mounts do not notice, and the next plug-in takes over.
package departure

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// lookTimeout bounds the look at the Node.
const lookTimeout = 5 * time.Second

// drainTaints are set by those who take nodes away: the cluster autoscaler, Karpenter, and this driver on a VM that is down.
var drainTaints = []string{
	"ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupted", "karpenter.sh/disruption", corev1.TaintNodeOutOfService,
}

// Leaving returns why a node counts as being drained or shut down, and "" if it does not. nil stands for a Node that is gone.
func Leaving(node *corev1.Node) string {
	switch {
	case node == nil:
		return "there is no such Node any more"
	case node.DeletionTimestamp != nil:
		return "the Node is being deleted"
	case node.Spec.Unschedulable:
		return "the Node is cordoned"
	}
	for _, taint := range node.Spec.Taints {
		if slices.Contains(drainTaints, taint.Key) {
			return "the Node has the taint " + taint.Key
		}
	}
	for _, c := range node.Status.Conditions {
		// The kubelet says so when its machine is shut down. Where it is not ready for another reason,
		// waiting a moment too long does no harm.
		if c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue {
			return "the kubelet is not ready: " + c.Reason
		}
	}
	return ""
}

// Options of Await.
type Options struct {
	// Client reads at the API server.
	Client   client.Reader
	NodeName string
	// Empty returns when no volume is in use on the node any more, or ctx ends.
	Empty func(ctx context.Context) error
	// Patience bounds the wait; 0 for none.
	Patience time.Duration
}

// Await returns when a plug-in that was told to stop may do so: at once if the node stays, otherwise when no volume is in use
// or the patience has ended. Without an answer of the API server it returns too, because no volume can be let go without it.
func Await(ctx context.Context, options Options) {
	log := logr.FromContextOrDiscard(ctx)
	if options.Patience == 0 {
		return
	}
	reason, err := look(ctx, options)
	switch {
	case err != nil:
		log.Error(err, "stopping without knowing whether the node stays")
		return
	case reason == "":
		return
	}
	log.Info("the node is leaving; serving until its volumes are let go", "reason", reason, "patience", options.Patience.String())
	ctx, cancel := context.WithTimeout(ctx, options.Patience)
	defer cancel()
	if err := options.Empty(ctx); err != nil {
		log.Error(err, "stopping although volumes are still in use here")
		return
	}
	log.Info("no volume is in use here any more")
}

func look(ctx context.Context, options Options) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	node := &corev1.Node{}
	err := options.Client.Get(ctx, client.ObjectKey{Name: options.NodeName}, node)
	if apierrors.IsNotFound(err) {
		return Leaving(nil), nil
	}
	if err != nil {
		return "", fmt.Errorf("get Node: %w", err)
	}
	return Leaving(node), nil
}
