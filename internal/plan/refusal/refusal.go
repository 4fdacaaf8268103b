// Package refusal names the refusals of a CSI call whose only record is the text of an event. Each
// of them begins with its reason, so that a reader knows the cause without interpreting a sentence.
package refusal

import (
	"fmt"
	"slices"
	"strings"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/annotation"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// Reasons are the words with which the text of a refusal begins.
var Reasons = []string{apiv1.ReasonFilesystemMismatch, apiv1.ReasonReservedElsewhere, apiv1.ReasonUsedOutsideCluster,
	apiv1.ReasonWriteRefused, apiv1.ReasonVolumePaused}

const end = ": "

// Errorf makes a FailedPrecondition whose text begins with the reason.
func Errorf(reason string, format string, args ...any) *provisioner.Error {
	return provisioner.Errorf(provisioner.FailedPrecondition, Text(reason, format), args...)
}

// Paused is the refusal of a call for which Azure would have to be asked about a paused volume, and nil for
// another volume. It is Unavailable, which is final for no caller. attempted says what was refused.
func Paused(v *apiv1.AzVolume, attempted string) error {
	why := ""
	if v != nil {
		why = annotation.Paused.Switched(v.Annotations)
	}
	if why == "" {
		return nil
	}
	return provisioner.Errorf(provisioner.Unavailable, "%s", Text(apiv1.ReasonVolumePaused, fmt.Sprintf(
		"%s: AzVolume %s has %s, so the driver requests nothing at Azure for it", attempted, v.Name, why)))
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
