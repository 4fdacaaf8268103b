// Package attachdetach publishes volumes to the nodes of the pods that use them, and unpublishes
// them, where Kubernetes does not: a driver whose CSIDriver says attachRequired: false uses no
// attach/detach controller, no VolumeAttachments and no sidecar csi-attacher (ADR 0011).
//
// It does not decide which node may have a volume. It calls the CSI controller server as the
// sidecar would, and writes neither ownership nor proofs; publishing.Next decides which calls to make,
// and one that was refused pauses.
//
// In both modes it writes events that tell pods why they wait for a volume that another node holds.
// It keeps in memory only the events that it has written, so that each is written once.
package attachdetach

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cluster"
	"github.com/azuredisk-csi/azuredisk/internal/kube"
	"github.com/azuredisk-csi/azuredisk/internal/plan/identity"
	"github.com/azuredisk-csi/azuredisk/internal/plan/nodehealth"
	"github.com/azuredisk-csi/azuredisk/internal/plan/operation"
	"github.com/azuredisk-csi/azuredisk/internal/plan/publishing"
	"github.com/azuredisk-csi/azuredisk/internal/volumehandle"
)

// +kubebuilder:rbac:groups=disk.csi.azure.com,namespace=azure-disk-csi,resources=azvolumes;azvolumeattachments;azdrivernodes,verbs=get;list;watch
// +kubebuilder:rbac:groups=disk.csi.azure.com,namespace=azure-disk-csi,resources=azvolumes/status,verbs=patch
// +kubebuilder:rbac:groups="",resources=nodes;pods;persistentvolumes;persistentvolumeclaims,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=pods/status,verbs=patch
// +kubebuilder:rbac:groups=storage.k8s.io,resources=csinodes,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=events,verbs=create;patch

// callTimeout limits one call; what is not complete by then is requested again.
const callTimeout = 15 * time.Second

// Publisher is the CSI controller server.
type Publisher interface {
	ControllerPublishVolume(context.Context, *csi.ControllerPublishVolumeRequest) (*csi.ControllerPublishVolumeResponse, error)
	ControllerUnpublishVolume(context.Context, *csi.ControllerUnpublishVolumeRequest) (*csi.ControllerUnpublishVolumeResponse,
		error)
}

// Options of a Reconciler.
type Options struct {
	// Client reads from the cache; Reader from the API server.
	Client client.Client
	Reader client.Reader
	// Publisher is nil where Kubernetes makes the calls. Then the reconciler only tells pods why
	// they wait.
	Publisher Publisher
	Events    events.EventRecorder
	Clock     clock.PassiveClock
	// DriverName is the CSI driver's, by which its PersistentVolumes are known.
	DriverName string
}

// Reconciler reconciles the nodes to which a volume is published with the pods that use it.
type Reconciler struct {
	Options
	told    told
	refused refused
	idle    idle
	// waits are the pauses after calls that only have to wait.
	waits workqueue.TypedRateLimiter[reconcile.Request]
}

// New makes a Reconciler.
func New(options Options) *Reconciler {
	return &Reconciler{Options: options, waits: pauses()}
}

// observed is a volume and what a decision about its nodes needs.
type observed struct {
	publishing.Input
	// name of the AzVolume, whether or not there is one.
	name string
	// sources say how each of the pods uses the volume.
	sources map[client.ObjectKey]source
	// strangers name the disk, and do not get it.
	strangers []stranger
}

// Reconcile makes the calls that are due for one volume. The request has the name of the AzVolume,
// whether or not there is one yet, and the namespace of the custom resources. It blocks until Azure
// has accepted or refused the requests, at most callTimeout for each call.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	o, err := r.observe(ctx, request)
	if err != nil {
		return reconcile.Result{}, err
	}
	r.told.keep(o)
	r.refuseStrangers(o)
	after, explainErr := r.explain(ctx, o) // first, because a call may take some time
	if r.Publisher == nil {
		return reconcile.Result{RequeueAfter: after}, explainErr
	}
	var rest time.Duration
	o.Idle, rest = r.idle.look(o.name, o.Input, r.Clock.Now())
	step := publishing.Next(o.Input)
	hasPod := func(node string) bool { return publishing.PublishedFor(o.Pods, node) != nil }
	publish, pause := r.refused.due(o.name, step.Publish, hasPod, r.Clock.Now())
	step.Publish = publish
	after = operation.Sooner(after, operation.Sooner(pause, rest))
	err = r.act(ctx, o, step)
	if !waits(err) {
		r.waits.Forget(request)
		return reconcile.Result{RequeueAfter: after}, errors.Join(explainErr, err)
	}
	ctrl.LoggerFrom(ctx).V(1).Info("a call waits", "reason", err.Error())
	return reconcile.Result{RequeueAfter: operation.Sooner(after, r.waits.When(request))}, explainErr
}

// waits reports whether an error says of each call that failed that nothing is wrong: Azure, or a node, has not
// done yet what the call waits for. Such a call is repeated, and is no failure of the reconciliation. Without an
// error nothing waits.
func waits(err error) bool {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return !slices.ContainsFunc(joined.Unwrap(), func(e error) bool { return !waits(e) })
	}
	return status.Code(err) == codes.Aborted
}

// act makes the calls of a step.
func (r *Reconciler) act(ctx context.Context, o observed, step publishing.Step) error {
	var unpublish, publish []call
	for _, node := range step.Unpublish {
		unpublish = append(unpublish, func() error { return r.unpublish(ctx, o, node) })
	}
	for _, node := range step.Publish {
		publish = append(publish, func() error { return r.publish(ctx, o, node) })
	}
	if o.Volume != nil && o.Volume.Spec.Access == apiv1.AccessMultiNode {
		// The nodes are independent, and none must wait for another's proof.
		return together(append(unpublish, publish...))
	}
	if err := inTurn(unpublish); err != nil {
		return err // a publish to the next node would only be refused, because the last node holds the volume
	}
	return inTurn(publish)
}

// call is a call of the Publisher for one node.
type call func() error

// inTurn makes calls one after the other, even if one fails.
func inTurn(calls []call) error {
	var failures []error
	for _, c := range calls {
		failures = append(failures, c())
	}
	return errors.Join(failures...)
}

// together makes calls concurrently, and returns when all have returned.
func together(calls []call) error {
	failures := make([]error, len(calls))
	var wg sync.WaitGroup
	for i, c := range calls {
		wg.Go(func() { failures[i] = c() })
	}
	wg.Wait()
	return errors.Join(failures...)
}

// observe reads the volume and its surroundings from the cache. The objects belong to the cache,
// and must not be changed.
func (r *Reconciler) observe(ctx context.Context, request reconcile.Request) (observed, error) {
	o := observed{name: request.Name, sources: map[client.ObjectKey]source{}}
	var err error
	if o.Volume, err = kube.Find[apiv1.AzVolume](ctx, r.Client, request.NamespacedName,
		client.UnsafeDisableDeepCopy); err != nil {
		return o, err
	}
	if err := r.users(ctx, request.Name, &o); err != nil {
		return o, err
	}
	if o.Attachments, err = cluster.Attachments(ctx, r.Client, request.Namespace, cluster.AttachmentVolume,
		request.Name); err != nil {
		return o, err
	}
	return o, r.nodes(ctx, request.Namespace, &o)
}

// nodes reads the facts of the nodes that matter, so that the decision does no I/O. The objects
// share memory with the cache and must not be changed.
func (r *Reconciler) nodes(ctx context.Context, namespace string, o *observed) error {
	reports, lost, identities := map[string]*apiv1.AzDriverNode{}, map[string]bool{}, map[string]identity.Identity{}
	for _, name := range nodesOf(o.Input) {
		var err error
		if reports[name], err = kube.Find[apiv1.AzDriverNode](ctx, r.Client, client.ObjectKey{
			Namespace: namespace,
			Name:      name,
		}, client.UnsafeDisableDeepCopy); err != nil {
			return err
		}
		n, err := kube.Find[corev1.Node](ctx, r.Client, client.ObjectKey{Name: name}, client.UnsafeDisableDeepCopy)
		if err != nil {
			return err
		}
		lost[name] = nodehealth.KubernetesLost(n)
		if identities[name], err = cluster.IdentityOf(ctx, r.Client, n, reports[name]); err != nil {
			return err
		}
	}
	o.Report = func(node string) *apiv1.AzDriverNode { return reports[node] }
	o.Identity = func(node string) identity.Identity { return identities[node] }
	o.KubernetesLost = func(node string) bool { return lost[node] }
	return nil
}

// nodesOf returns the nodes that a decision can be about.
func nodesOf(in publishing.Input) []string {
	var nodes []string
	for _, p := range in.Pods {
		nodes = append(nodes, p.Spec.NodeName)
	}
	for _, a := range in.Attachments {
		nodes = append(nodes, a.Spec.NodeName)
	}
	if in.Volume != nil && in.Volume.Status.Primary != nil {
		nodes = append(nodes, in.Volume.Status.Primary.NodeName)
	}
	return slices.DeleteFunc(slices.Compact(slices.Sorted(slices.Values(nodes))), func(name string) bool { return name == "" })
}

func (r *Reconciler) unpublish(ctx context.Context, o observed, node string) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if done, err := r.stillDone(ctx, o, node); !done {
		return err
	}
	request := &csi.ControllerUnpublishVolumeRequest{VolumeId: volumehandle.Of(o.Volume.Spec.Disk).String(), NodeId: node}
	if _, err := r.Publisher.ControllerUnpublishVolume(ctx, request); err != nil {
		return fmt.Errorf("unpublish volume from node %s: %w", node, err)
	}
	ctrl.LoggerFrom(ctx).Info("the volume was unpublished", "node", node)
	return nil
}

// stillDone reports whether the API server agrees with the cache that a node no longer uses the
// volume. For a multi-node volume an unpublish cannot be undone: if a pod that the cache does not
// know yet has staged the volume, the attachment's deletion would wait as long as the pod runs. A
// volume for one node at a time can be acquired again by the same node while it is being released,
// so nothing is read for it. If the node still uses it, the report that says so is an event that
// the cache has yet to deliver.
func (r *Reconciler) stillDone(ctx context.Context, o observed, node string) (bool, error) {
	if o.Volume.Spec.Access != apiv1.AccessMultiNode {
		return true, nil
	}
	report := &apiv1.AzDriverNode{}
	err := r.Reader.Get(ctx, client.ObjectKey{Namespace: o.Volume.Namespace, Name: node}, report)
	if apierrors.IsNotFound(err) {
		report = nil
	} else if err != nil {
		return false, fmt.Errorf("unpublish volume from node %s: read AzDriverNode: %w", node, err)
	}
	now := o.Input
	now.Report = func(string) *apiv1.AzDriverNode { return report }
	return now.Done(node), nil
}

func (r *Reconciler) publish(ctx context.Context, o observed, node string) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	pod := publishing.PublishedFor(o.Pods, node)
	request, name, err := r.request(ctx, o.sources[client.ObjectKeyFromObject(pod)], pod.Namespace, node)
	if apierrors.IsNotFound(err) {
		return nil // the PersistentVolume has just been deleted
	}
	if err == nil {
		_, err = r.Publisher.ControllerPublishVolume(ctx, request)
	}
	if waits(err) { // the call ended before the attach was accepted, and nothing has failed
		r.tell(o, node, corev1.EventTypeNormal, apiv1.ReasonWaitingForVolume,
			fmt.Sprintf("volume %s is not attached to node %s yet: %s", name, node, describe(err)))
	} else if err != nil {
		r.tell(o, node, corev1.EventTypeWarning, apiv1.ReasonFailedAttachVolume,
			fmt.Sprintf("volume %s cannot be attached to node %s: %s", name, node, describe(err)))
	}
	if status.Code(err) == codes.NotFound && o.Volume == nil { // the disk, or else the node
		r.refused.note(o.name, node, pause{since: r.Clock.Now(), lasts: absentPause})
	}
	if status.Code(err) == codes.ResourceExhausted {
		r.refused.note(o.name, node, pause{since: r.Clock.Now(), lasts: refusedPause})
		err = errors.Join(err, r.reject(ctx, o, node,
			fmt.Sprintf("volume %s cannot be attached to node %s: %s", name, node, describe(err))))
	}
	if err != nil {
		return fmt.Errorf("publish volume to node %s: %w", node, err)
	}
	ctrl.LoggerFrom(ctx).Info("the volume was published", "node", node)
	r.tell(o, node, corev1.EventTypeNormal, apiv1.ReasonSuccessfulAttachVolume,
		fmt.Sprintf("volume %s is attached to node %s, or about to be", name, node))
	return nil
}
