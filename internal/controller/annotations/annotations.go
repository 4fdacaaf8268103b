// Package annotations reports the annotations of users whose value the driver does not know: as a Warning
// event on their object, once for each value. The leader does so; another leader does it once more.
//
// Package plan/annotation decides what such a value counts as.
package annotations

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cluster"
	"github.com/azuredisk-csi/azuredisk/internal/plan/annotation"
)

// +kubebuilder:rbac:groups="",resources=pods;persistentvolumeclaims;nodes,verbs=get;list;watch
// +kubebuilder:rbac:groups=disk.csi.azure.com,namespace=azure-disk-csi,resources=azvolumes,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=events,verbs=create;patch

// Reporter reports annotations.
type Reporter struct {
	Informers cache.Informers
	Events    events.EventRecorder
}

// SetUp adds the reporter to a manager.
func (r *Reporter) SetUp(mgr ctrl.Manager, _ string) error {
	if err := mgr.Add(r); err != nil {
		return fmt.Errorf("add the reporter of annotations: %w", err)
	}
	return nil
}

// Start begins to report. The manager calls it when this process leads.
func (r *Reporter) Start(ctx context.Context) error {
	return errors.Join(
		watch(ctx, r, annotation.Pod, &corev1.Pod{}),
		watch(ctx, r, annotation.Claim, &corev1.PersistentVolumeClaim{}),
		watch(ctx, r, annotation.Node, &corev1.Node{}),
		watch(ctx, r, annotation.Volume, &apiv1.AzVolume{}),
	)
}

type object interface {
	comparable
	client.Object
}

// watch writes an event about each fault of an object that the object did not have before.
func watch[T object](ctx context.Context, r *Reporter, kind string, of T) error {
	var none T
	_, err := cluster.OnChange(ctx, r.Informers, of, func(before, after T) {
		if after == none {
			return
		}
		var was []string
		if before != none {
			was = annotation.Faults(kind, before.GetAnnotations())
		}
		for _, fault := range annotation.Faults(kind, after.GetAnnotations()) {
			if !slices.Contains(was, fault) {
				r.Events.Eventf(about(after), nil, corev1.EventTypeWarning, apiv1.ReasonAnnotationInvalid, "ReadAnnotation",
					"%s", fault)
			}
		}
	})
	return err
}

// about is what an event about an object names.
func about(o client.Object) runtime.Object {
	if node, is := o.(*corev1.Node); is {
		return cluster.AboutNode(node.Name)
	}
	return o
}
