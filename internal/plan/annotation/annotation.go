// Package annotation reads the annotations by which users switch an action of the driver off, or on. Each has
// two values. A value that is not known counts as the one with which the driver does not act, and is reported as
// a fault.
package annotation

import (
	"fmt"
	"slices"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
)

// Annotation is one that users set.
type Annotation struct {
	Key string
	// On switches the action on, Off switches it off. Without the annotation it is on, except that of
	// ApplyPending.
	On, Off string
	// Kinds of objects on which it is read.
	Kinds []string
}

// The kinds of objects.
const (
	Pod    = "Pod"
	Claim  = "PersistentVolumeClaim"
	Node   = "Node"
	Volume = "AzVolume"
)

// The annotations.
var (
	Failover = Annotation{Key: apiv1.AnnotationFailover, On: apiv1.FailoverEnabled, Off: apiv1.FailoverDisabled,
		Kinds: []string{Pod, Claim, Node}}
	Maintenance = Annotation{Key: apiv1.AnnotationMaintenance, On: apiv1.MaintenanceEvict, Off: apiv1.MaintenanceStay,
		Kinds: []string{Pod}}
	Steering = Annotation{Key: apiv1.AnnotationSteering, On: apiv1.SteeringEnabled, Off: apiv1.SteeringDisabled,
		Kinds: []string{Pod}}
	ApplyPending = Annotation{Key: apiv1.AnnotationApplyPending, On: apiv1.ApplyPendingEvict, Off: apiv1.ApplyPendingWait,
		Kinds: []string{Claim}}
	// Paused switches the requests to Azure off, and so its value true is Off.
	Paused = Annotation{Key: apiv1.AnnotationPaused, On: apiv1.PausedFalse, Off: apiv1.PausedTrue, Kinds: []string{Volume}}
)

// All returns the annotations that users set.
func All() []Annotation {
	return []Annotation{Failover, Maintenance, Steering, ApplyPending, Paused}
}

// Switched returns the annotation by which an object switches the action off, for the user; "" if the object
// does not.
func (a Annotation) Switched(annotations map[string]string) string {
	value, is := annotations[a.Key]
	switch {
	case !is || value == a.On:
		return ""
	case value == a.Off:
		return "the annotation " + a.Key + ": " + value
	}
	return "the annotation " + a.unknown(value)
}

func (a Annotation) unknown(value string) string {
	return fmt.Sprintf("%s: %.40q, which is neither %s nor %s and counts as %s", a.Key, value, a.On, a.Off, a.Off)
}

// Faults returns the annotations of an object of a kind whose value is not known, for the user.
func Faults(kind string, annotations map[string]string) []string {
	var faults []string
	for _, a := range All() {
		value, is := annotations[a.Key]
		if is && value != a.On && value != a.Off && slices.Contains(a.Kinds, kind) {
			faults = append(faults, "it has the annotation "+a.unknown(value))
		}
	}
	return faults
}
