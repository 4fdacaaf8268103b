package attaching

import (
	"fmt"
	"path"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/operation"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// tellAfter is how long a request waits until the condition says for what. Shorter waits would cost
// a write for each attachment of a burst.
const tellAfter = 3 * time.Second

// tellWaiting says in the condition what a request that Azure has not accepted yet waits for. reason
// is the condition's, unless the request waits for Azure's quota.
func (s *Step) tellWaiting(in Input, reason string) {
	w := in.Waiting
	if in.Job.Phase != operation.PhaseBegun {
		return
	}
	s.RequeueAfter = tellAfter // no event tells that the request waits for something else
	if w.For == "" {
		return
	}
	if left := tellAfter - in.Now.Sub(w.Since); left > 0 {
		s.RequeueAfter = left
		return
	}
	if w.For == provisioner.WaitingForQuota {
		reason = apiv1.ReasonWaitingForAzureQuota
	}
	s.condition(in, metav1.ConditionFalse, reason, waitingMessage(w, path.Base(in.Attachment.Status.VMID)))
}

// waitingMessage describes a wait. It is the same as long as the request waits for the same.
func waitingMessage(w provisioner.Waiting, vm string) string {
	since, until := clockTime(w.Since), ""
	if !w.Until.IsZero() {
		until = ", until about " + clockTime(w.Until)
	}
	switch w.For {
	case provisioner.WaitingForQuota:
		return fmt.Sprintf("Azure's quota for updates of VM %s is used up; the request waits since %s%s", vm, since, until)
	case provisioner.WaitingForUpdate:
		return fmt.Sprintf("the request waits for another update of VM %s, in flight since %s%s", vm, since, until)
	case provisioner.WaitingForMore:
		return fmt.Sprintf("the request has joined a batch for VM %s that began at %s", vm, since)
	default:
		return fmt.Sprintf("Azure has been asked to update VM %s since %s, and has not answered%s", vm, since, until)
	}
}

func clockTime(t time.Time) string { return t.UTC().Format(time.TimeOnly) + " UTC" }
