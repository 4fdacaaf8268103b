// Package refusal names the refusals of a CSI call whose only record is the text of an event. Each
// of them begins with its reason, so that a reader knows the cause without interpreting a sentence.
package refusal

import (
	"slices"
	"strings"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// Reasons are the words with which the text of a refusal begins.
var Reasons = []string{apiv1.ReasonFilesystemMismatch, apiv1.ReasonReservedElsewhere, apiv1.ReasonUsedOutsideCluster,
	apiv1.ReasonWriteRefused}

const end = ": "

// Errorf makes a FailedPrecondition whose text begins with the reason.
func Errorf(reason string, format string, args ...any) *provisioner.Error {
	return provisioner.Errorf(provisioner.FailedPrecondition, Text(reason, format), args...)
}

// Text begins a text with the reason.
func Text(reason, text string) string { return reason + end + text }

// In returns the reason that a text names, and what follows it. The text may have others before the
// reason, such as the kubelet's and those of gRPC. ok is false if it names none.
func In(text string) (reason, rest string, ok bool) {
	words := strings.SplitAfter(text, " ")
	for i, word := range words {
		r, is := strings.CutSuffix(word, end)
		if is && slices.Contains(Reasons, r) {
			return r, strings.Join(words[i+1:], ""), true
		}
	}
	return "", "", false
}
