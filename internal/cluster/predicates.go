package cluster

import (
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
)

// Changed lets updates through in which a part of the object changed, and all that is not an
// update.
func Changed[T client.Object](part func(T) any) predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(T)
		after, isT := e.ObjectNew.(T)
		return ok && isT && !equality.Semantic.DeepEqual(part(before), part(after))
	}}
}

// StagedVolumes is the node report of an AzDriverNode.
func StagedVolumes(d *apiv1.AzDriverNode) any { return d.Status.StagedVolumes }

// Scanned reports whether a volume that the report of an AzDriverNode does not name counts as not
// staged there.
func Scanned(d *apiv1.AzDriverNode) any { return ownership.ReportProvesAbsence(d) }
