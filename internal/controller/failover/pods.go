package failover

import (
	"context"
	"errors"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/crashpoint"
	"github.com/azuredisk-csi/azuredisk/internal/kube"
	"github.com/azuredisk-csi/azuredisk/internal/plan/lostnode"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
)

// deletePod deletes a pod of the node. By force only after the API server itself has shown that the
// node can no longer write to any of its volumes.
func (r *Reconciler) deletePod(ctx context.Context, o observed, d lostnode.PodDeletion, p *proofs) error {
	options := []client.DeleteOption{client.Preconditions{UID: &d.Pod.UID}}
	if d.Force {
		for _, volume := range d.Volumes {
			if free, err := p.free(ctx, volume); err != nil || !free {
				return err
			}
		}
		options = append(options, client.GracePeriodSeconds(0))
	}
	crashpoint.At("failover-before-pod-deletion")
	err := r.Client.Delete(ctx, d.Pod, options...)
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // deleted, or another pod of the same name
	}
	if err != nil {
		return fmt.Errorf("delete pod %s/%s: %w", d.Pod.Namespace, d.Pod.Name, err)
	}
	crashpoint.At("failover-after-pod-deletion")
	r.journal.podDeleted(ctx, o, d)
	return nil
}

// unserve deletes a pod of the driver that has no state and no volume, which removes it from its
// Service at once. Kubernetes would do that when it finds the node unreachable.
func (r *Reconciler) unserve(ctx context.Context, o observed, pod *corev1.Pod) error {
	crashpoint.At("failover-before-unserve")
	err := r.Client.Delete(ctx, pod, client.Preconditions{UID: &pod.UID}, client.GracePeriodSeconds(0))
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("delete pod %s/%s of the driver: %w", pod.Namespace, pod.Name, err)
	}
	r.journal.unserved(ctx, o, pod)
	return nil
}

// proofs reads the proofs that a node can no longer write to volumes from the API server. Each
// volume is read once, however many pods use it.
type proofs struct {
	r *Reconciler
	o observed

	mu    sync.Mutex
	known map[string]*lookup
}

// lookup is the result of reading a volume. free and err are set when done is closed.
type lookup struct {
	done chan struct{}
	free bool
	err  error
}

func newProofs(r *Reconciler, o observed) *proofs {
	return &proofs{
		r:     r,
		o:     o,
		known: map[string]*lookup{},
	}
}

// free reports whether the node can no longer write to the volume. It does not hold the lock while
// it reads: a slow answer delays no pods of other volumes.
func (p *proofs) free(ctx context.Context, volume string) (bool, error) {
	p.mu.Lock()
	found, begun := p.known[volume]
	if !begun {
		found = &lookup{done: make(chan struct{}), err: errors.New("reading the volume was interrupted")}
		p.known[volume] = found
	}
	p.mu.Unlock()
	if !begun {
		defer close(found.done)
		found.free, found.err = p.look(ctx, volume)
		return found.free, found.err
	}
	select {
	case <-found.done:
		return found.free, found.err
	case <-ctx.Done():
		return false, fmt.Errorf("wait for the proof of volume %s: %w", volume, ctx.Err())
	}
}

func (p *proofs) look(ctx context.Context, volume string) (bool, error) {
	v, err := kube.Find[apiv1.AzVolume](ctx, p.r.Reader, client.ObjectKey{Namespace: p.o.namespace, Name: volume})
	if err != nil {
		return false, err
	}
	// A volume that this driver has not adopted may be in use on the node unless the VM is off.
	off := p.o.Health.Off()
	if v == nil {
		return off, nil
	}
	multiNode := v.Spec.Access == apiv1.AccessMultiNode
	if !multiNode && !ownership.OwnedBy(v, p.o.NodeName) {
		return off || !ownership.Unrecorded(v), nil
	}
	a, err := kube.Find[apiv1.AzVolumeAttachment](ctx, p.r.Reader, client.ObjectKey{
		Namespace: p.o.namespace,
		Name:      apiv1.AttachmentName(volume, p.o.NodeName),
	})
	if err != nil {
		return false, err
	}
	if a == nil {
		return multiNode && (off || !ownership.Unrecorded(v)), nil
	}
	return lostnode.Volume{Volume: v, Attachment: a}.Proof() != nil, nil
}
