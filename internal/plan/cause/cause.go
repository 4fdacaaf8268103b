// Package cause is the table of what the driver says: one row for each reason that users meet in a
// condition, an event, or an answer of kubectl azuredisk. The IDs are constants of api/v1.
//
// A decision returns the ID of a row. The condition and the event carry it with a message. The command
// and the generated pages (troubleshooting.md, reference/reasons.md) print the row, so that a cause
// has one name, one meaning and one advice.
package cause

import (
	"slices"
	"time"
)

// Cause is a row of the table.
type Cause struct {
	// ID is the reason of the condition or event, and the name in an answer.
	ID string
	// Group is the chapter of the page on troubleshooting. It and Outcome are "" for a reason that only
	// reports what happened.
	Group   string
	Outcome Outcome
	// On are the objects whose conditions or events have the reason.
	On []Object
	// Seen is what else users see: reasons of Kubernetes' events, codes of Azure, fixed texts.
	Seen []string
	// Usually is how long it lasts at most in most cases; 0 if that is not known.
	Usually time.Duration
	// Means says what it is.
	Means string
	// Next is what the reader does about it.
	Next string
}

// Outcome is what a cause means for the reader.
type Outcome string

// The outcomes, in the order of their severity.
const (
	// Healthy: nothing is wrong.
	Healthy Outcome = "Healthy"
	// Waits: it ends without an action of the reader.
	Waits Outcome = "Waits"
	// CannotTell: what was seen does not decide it.
	CannotTell Outcome = "CannotTell"
	// NeedsAction: it does not end without an action.
	NeedsAction Outcome = "NeedsAction"
)

// Severity orders the outcomes. Of several volumes, the reader learns of the worst one first.
func (o Outcome) Severity() int {
	return slices.Index([]Outcome{Healthy, Waits, CannotTell, NeedsAction}, o)
}

// ExitCode is the exit code of the command for an outcome.
func (o Outcome) ExitCode() int {
	if i := slices.Index([]Outcome{Healthy, Waits, NeedsAction}, o); i >= 0 {
		return i
	}
	return 3
}

// Worse returns the worse one of two outcomes.
func Worse(a, b Outcome) Outcome {
	if b.Severity() > a.Severity() {
		return b
	}
	return a
}

// Object is a kind of object with conditions or events of the driver: a chapter of the page on reasons.
type Object string

// The chapters of the page on reasons, in its order.
const (
	OnAttachment Object = "AzVolumeAttachment"
	OnVolume     Object = "AzVolume"
	OnNode       Object = "AzDriverNode and Node"
	OnFailover   Object = "Failover"
	OnPod        Object = "Pods"
	OnController Object = "Controller"
)

// Objects returns the chapters of the page on reasons.
func Objects() []Object {
	return []Object{OnAttachment, OnVolume, OnNode, OnFailover, OnPod, OnController}
}

// The chapters of the page on troubleshooting.
const (
	groupFine     = "Nothing is wrong with the volumes"
	groupClaim    = "A claim is Pending or Terminating"
	groupPlace    = "A pod has no node"
	groupHolder   = "Another node has the volume"
	groupFailover = "A node is lost"
	groupNode     = "A node cannot take volumes"
	groupAttach   = "The disk is not attached"
	groupAzure    = "Azure or the driver refuses"
	groupMount    = "The volume is not mounted"
	groupUse      = "A mounted volume does not work"
	groupDisk     = "The disk differs from what was requested"
	groupSnapshot = "A snapshot is not ready"
	groupDriver   = "The driver does not run"
	groupUnknown  = "The cause is not known"
)

// Groups returns the chapters of the page on troubleshooting, in its order.
func Groups() []string {
	return []string{groupClaim, groupPlace, groupHolder, groupFailover, groupNode, groupAttach, groupAzure, groupMount,
		groupUse, groupDisk, groupSnapshot, groupDriver, groupUnknown, groupFine}
}

var table = slices.Concat(ofClaims, ofPlaces, ofHolders, ofFailovers, ofNodes, ofAttaches, ofAzure, ofMounts, ofUses,
	ofDisks, ofSnapshots, ofDriver, ofUnknown, ofFine, reported)

// Table returns all rows. They are only read.
func Table() []Cause { return table }

// Of returns the row of an ID. The zero row of an unknown ID cannot tell.
func Of(id string) Cause {
	i := slices.IndexFunc(table, func(c Cause) bool { return c.ID == id })
	if i < 0 {
		return Cause{ID: id, Outcome: CannotTell}
	}
	return table[i]
}

// group gives rows their chapter, and the next step to those that need none.
func group(name string, rows ...Cause) []Cause {
	for i := range rows {
		rows[i].Group = name
		switch {
		case rows[i].Next != "":
		case rows[i].Outcome == Waits:
			rows[i].Next = "nothing: it ends by itself"
		case rows[i].Outcome == Healthy:
			rows[i].Next = "nothing"
		}
	}
	return rows
}
