// Package refusal names the refusals of a CSI call whose only record is the text of an event. Each
// of them begins with its reason, so that a reader knows the cause without interpreting a sentence.
package refusal

import (
	"slices"
	"strings"

	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// Reason is the word with which the text of a refusal begins.
type Reason string

// The reasons.
const (
	// ReasonFilesystemMismatch: the device does not hold the filesystem that is recorded for the
	// volume, or one that was requested.
	ReasonFilesystemMismatch Reason = "FilesystemMismatch"
	// ReasonReserved: a key that is not this cluster's, or another program, holds the reservation of
	// the disk.
	ReasonReserved Reason = "ReservedElsewhere"
	// ReasonInUse: a VM outside of this cluster has the disk.
	ReasonInUse Reason = "UsedOutsideCluster"
	// ReasonWrite: the API server forbids a request of the driver, by RBAC or in admission.
	ReasonWrite Reason = "WriteRefused"
)

// Reasons are all reasons.
var Reasons = []Reason{ReasonFilesystemMismatch, ReasonReserved, ReasonInUse, ReasonWrite}

const end = ": "

// Errorf makes a FailedPrecondition whose text begins with the reason.
func Errorf(reason Reason, format string, args ...any) *provisioner.Error {
	return provisioner.Errorf(provisioner.FailedPrecondition, Text(reason, format), args...)
}

// Text begins a text with the reason.
func Text(reason Reason, text string) string { return string(reason) + end + text }

// In returns the reason that a text names, and what follows it. The text may have others before the
// reason, such as the kubelet's and those of gRPC. ok is false if it names none.
func In(text string) (reason Reason, rest string, ok bool) {
	words := strings.SplitAfter(text, " ")
	for i, word := range words {
		r, is := strings.CutSuffix(word, end)
		if is && slices.Contains(Reasons, Reason(r)) {
			return Reason(r), strings.Join(words[i+1:], ""), true
		}
	}
	return "", "", false
}
