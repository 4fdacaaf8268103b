// Package departure keeps the node plug-in running until no volume is in use on a node that is
// being drained or shut down.
//
// When a machine is drained or shut down, the kubelet stops the plug-in like any other pod, and
// without the plug-in no volume can be unmounted: the volumes would have to be fenced, with calls
// to Azure instead of a write to the API server. Therefore a plug-in that must stop on such a node
// continues to serve until its report is empty, within its grace period. On a node that remains, as
// in an update of the DaemonSet, it stops immediately: the mounts continue to work, and the next
// plug-in serves them.
package departure

import (
	"context"
	"slices"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/azuredisk-csi/azuredisk/internal/kube"
)

// lookTimeout limits the read of the Node.
const lookTimeout = 5 * time.Second

// drainTaints are the taints of nodes that are being removed. The cluster autoscaler and Karpenter
// set them, and this driver sets one if the VM is down.
var drainTaints = []string{
	"ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupted", "karpenter.sh/disruption", corev1.TaintNodeOutOfService,
}

// Leaving returns why a node counts as being drained or shut down, and "" if it does not. nil
// stands for a Node that was deleted.
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
		// The kubelet sets this when its machine is being shut down. If the node is not Ready for
		// another reason, a longer wait does no harm.
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
	// Patience limits the wait; 0 for no wait.
	Patience time.Duration
}

// Await returns when a plug-in that must stop may do so: immediately if the node remains, otherwise
// when no volume is in use or Patience has ended. If the API server does not answer, Await returns
// immediately, because the plug-in cannot report the release of a volume without it.
func Await(ctx context.Context, options Options) {
	log := logr.FromContextOrDiscard(ctx)
	if options.Patience == 0 {
		return
	}
	reason, err := look(ctx, options)
	switch {
	case err != nil:
		log.Error(err, "cannot read the Node; stopping without waiting for its volumes to be unstaged")
		return
	case reason == "":
		return
	}
	log.Info("the node is being drained or shut down; serving until its volumes are unstaged", "reason", reason, "patience",
		options.Patience.String())
	ctx, cancel := context.WithTimeout(ctx, options.Patience)
	defer cancel()
	if err := options.Empty(ctx); err != nil {
		log.Error(err, "stopping although volumes are still in use on this node")
		return
	}
	log.Info("no volume is in use on this node any more")
}

func look(ctx context.Context, options Options) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	node, err := kube.Find[corev1.Node](ctx, options.Client, client.ObjectKey{Name: options.NodeName})
	if err != nil {
		return "", err
	}
	return Leaving(node), nil
}
