// Package maintenance decides what Azure has announced for a node's VM: from the document of
// scheduled events that the instance metadata serves, or from the Node's condition that the node
// problem detector of AKS writes.
//
// Events sets the status of the AzDriverNode in the node plug-in. The controller uses FromNode only
// for a node whose plug-in does not follow the metadata. Policies say what the driver does before
// the maintenance.
package maintenance

import (
	"cmp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
)

const (
	// mostEvents, longestID and longestSource are what the AzDriverNode takes.
	mostEvents, longestID, longestSource = 16, 128, 32
	// longestDuration is the longest duration that an AzDriverNode says: a day.
	longestDuration = 24 * 60 * 60
)

// Document is the document of scheduled events, as the instance metadata serves it. It is the same
// for all VMs of an availability set or of a scale set.
type Document struct {
	Events []DocumentEvent `json:"Events"`
}

// DocumentEvent is one event in the document.
type DocumentEvent struct {
	EventID     string   `json:"EventId"`
	EventType   string   `json:"EventType"`
	EventStatus string   `json:"EventStatus"`
	Resources   []string `json:"Resources"`
	// NotBefore is a time as in "Mon, 19 Sep 2016 18:29:47 GMT", and "" when the event has begun.
	NotBefore   string `json:"NotBefore"`
	EventSource string `json:"EventSource"`
	// DurationInSeconds is -1 if the duration is not known.
	DurationInSeconds *int64 `json:"DurationInSeconds"`
}

// kinds are the kinds of events that the driver knows.
var kinds = []apiv1.MaintenanceType{
	apiv1.MaintenanceFreeze, apiv1.MaintenanceReboot, apiv1.MaintenanceRedeploy, apiv1.MaintenancePreempt,
	apiv1.MaintenanceTerminate,
}

// VMName returns the name by which the document names a VM: that of the VM, or for an instance of a
// uniform scale set those of the set and of the instance, as in "pool_3".
func VMName(vmID string) string {
	parts := strings.Split(vmID, "/")
	name := parts[len(parts)-1]
	if n := len(parts); n >= 4 && strings.EqualFold(parts[n-2], "virtualMachines") &&
		strings.EqualFold(parts[n-4], "virtualMachineScaleSets") {
		return parts[n-3] + "_" + name
	}
	return name
}

// Events returns the events of the document that concern a VM, ordered by their IDs. Events of other
// VMs and of unknown kinds are left out, and events without an ID or with a NotBefore that is no
// time: nothing can be derived from them.
func Events(document Document, vmID string) []apiv1.MaintenanceEvent {
	name := VMName(vmID)
	var events []apiv1.MaintenanceEvent
	for _, e := range document.Events {
		if !slices.ContainsFunc(e.Resources, func(r string) bool { return strings.EqualFold(r, name) }) {
			continue
		}
		if event, ok := eventOf(e); ok {
			events = append(events, event)
		}
	}
	slices.SortStableFunc(events, func(a, b apiv1.MaintenanceEvent) int { return cmp.Compare(a.EventID, b.EventID) })
	events = slices.CompactFunc(events, func(a, b apiv1.MaintenanceEvent) bool { return a.EventID == b.EventID })
	return events[:min(len(events), mostEvents)]
}

func eventOf(e DocumentEvent) (event apiv1.MaintenanceEvent, ok bool) {
	i := slices.IndexFunc(kinds, func(k apiv1.MaintenanceType) bool { return strings.EqualFold(string(k), e.EventType) })
	if i < 0 || e.EventID == "" || len(e.EventID) > longestID {
		return event, false
	}
	event = apiv1.MaintenanceEvent{
		EventID: e.EventID,
		Type:    kinds[i],
		Started: strings.EqualFold(e.EventStatus, "Started"),
	}
	if len(e.EventSource) <= longestSource {
		event.Source = e.EventSource
	}
	if d := e.DurationInSeconds; d != nil && *d >= 0 {
		seconds := int32(min(*d, longestDuration))
		event.DurationSeconds = &seconds
	}
	if event.Started {
		return event, true
	}
	at, err := parseTime(e.NotBefore)
	event.NotBeforeTime = &metav1.Time{Time: at}
	return event, err == nil
}

// parseTime reads a time of the document. Earlier versions of the API have the second form.
func parseTime(s string) (time.Time, error) {
	at, err := time.Parse(time.RFC1123, s)
	if err != nil {
		at, err = time.Parse(time.RFC3339, s)
	}
	return at.UTC(), err
}

// NodeCondition is the condition of the Node by which the node problem detector of AKS says that an
// event of the VM is scheduled.
const NodeCondition = "VMEventScheduled"

// Announced returns the events of the VM of a node: those that its node plug-in reports, or if that
// does not follow the metadata, those of the Node's condition.
func Announced(d *apiv1.AzDriverNode, node *corev1.Node) []apiv1.MaintenanceEvent {
	switch {
	case d.Status.Maintenance != nil:
		return d.Status.Maintenance.Events
	case node != nil:
		return FromNode(node)
	}
	return nil
}

// FromNode returns the event that the Node's condition VMEventScheduled names, at most one. Its
// message is as in "Freeze Scheduled: Mon, 19 Sep 2016 18:29:47 GMT. … EventId: ID". An event
// without a time counts as one that has begun. The duration is not known.
func FromNode(node *corev1.Node) []apiv1.MaintenanceEvent {
	for _, c := range node.Status.Conditions {
		if c.Type != NodeCondition || c.Status != corev1.ConditionTrue {
			continue
		}
		kind, rest, found := strings.Cut(c.Message, " Scheduled")
		if !found {
			return nil
		}
		e := DocumentEvent{
			EventID:     NodeCondition + " " + c.LastTransitionTime.UTC().Format(time.RFC3339),
			EventType:   kind,
			EventStatus: "Started",
		}
		if _, after, named := strings.Cut(rest, "EventId: "); named {
			id, _, _ := strings.Cut(after, " ")
			e.EventID = cmp.Or(strings.TrimRight(id, ".,;"), e.EventID)
		}
		if at, _, timed := strings.Cut(strings.TrimLeft(rest, ": "), " GMT"); timed {
			e.EventStatus, e.NotBefore = "Scheduled", at+" GMT"
		}
		if event, ok := eventOf(e); ok {
			return []apiv1.MaintenanceEvent{event}
		}
	}
	return nil
}
