package index

import (
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
)

// Changed lets updates through in which a part of the object changed, and all that is not an update.
func Changed[T client.Object](part func(T) any) predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(T)
		after, isT := e.ObjectNew.(T)
		return ok && isT && !equality.Semantic.DeepEqual(part(before), part(after))
	}}
}

// SinceStart leaves out what is there when the watch begins. It is for events that only lead to objects that the controller reconciles at its start anyway: in
// a large cluster the search for those takes longer than their reconciliation.
var SinceStart = predicate.Funcs{CreateFunc: func(e event.CreateEvent) bool { return !e.IsInInitialList }}

// NotCreated leaves out creations. It is for objects that lead only to such as their controller reconciles when they appear, and at its start anyway.
var NotCreated = predicate.Funcs{CreateFunc: func(event.CreateEvent) bool { return false }}

// StagedVolumes is the part of an AzDriverNode that is its report.
func StagedVolumes(d *apiv1.AzDriverNode) any { return d.Status.StagedVolumes }

// Scanned says of an AzDriverNode whether what its report does not name counts as not staged there.
func Scanned(d *apiv1.AzDriverNode) any { return ownership.ReportProvesAbsence(d) }
