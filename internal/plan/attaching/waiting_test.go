package attaching_test

import (
	"testing"
	"time"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/attaching"
	"github.com/azuredisk-csi/azuredisk/internal/plan/operation"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/objects"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

func TestTheConditionSaysWhatARequestWaitsFor(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 10, 0, 0, 0, time.UTC)
	waiting := func(reason provisioner.WaitingFor, since, until time.Duration) provisioner.Waiting {
		w := provisioner.Waiting{For: reason, Since: now.Add(-since)}
		if until > 0 {
			w.Until = now.Add(until)
		}
		return w
	}
	for name, test := range map[string]struct {
		waiting provisioner.Waiting
		phase   operation.Phase
		want    string
		again   time.Duration
	}{
		"a short wait costs no write": {waiting(provisioner.WaitingForQuota, 2*time.Second, 15*time.Second), operation.PhaseBegun,
			"", time.Second},
		"three seconds are told": {waiting(provisioner.WaitingForUpdate, 3*time.Second, 0), operation.PhaseBegun,
			"the request waits for another update of VM a, in flight since 09:59:57 UTC", 3 * time.Second},
		"nothing is known": {provisioner.Waiting{}, operation.PhaseBegun, "", 3 * time.Second},
		"the quota": {waiting(provisioner.WaitingForQuota, 5*time.Second, 10*time.Second), operation.PhaseBegun,
			"Azure's quota for updates of VM a is used up; the request waits since 09:59:55 UTC, until about 10:00:10 UTC",
			3 * time.Second},
		"another update": {waiting(provisioner.WaitingForUpdate, 5*time.Second, 8*time.Second), operation.PhaseBegun,
			"the request waits for another update of VM a, in flight since 09:59:55 UTC, until about 10:00:08 UTC",
			3 * time.Second},
		"an update of an earlier process": {waiting(provisioner.WaitingForUpdate, 5*time.Second, 0), operation.PhaseBegun,
			"the request waits for another update of VM a, in flight since 09:59:55 UTC", 3 * time.Second},
		"a batch": {waiting(provisioner.WaitingForMore, 4*time.Second, 0), operation.PhaseBegun,
			"the request has joined a batch for VM a that began at 09:59:56 UTC", 3 * time.Second},
		"Azure's answer": {waiting(provisioner.WaitingForAnswer, 30*time.Second, 0), operation.PhaseBegun,
			"Azure has been asked to update VM a since 09:59:30 UTC, and has not answered", 3 * time.Second},
		"Azure has accepted": {provisioner.Waiting{}, operation.PhaseAccepted, "Azure has accepted to attach the disk", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := objects.NewAttachment("a", apiv1.RolePrimary, 2, apiv1.AttachmentAttaching)
			a.Status.VMID = "/vm/a"
			step := attaching.Next(attaching.Input{
				Now:          now,
				Attachment:   a,
				Volume:       objects.NewVolume(objects.Owned("a", 2, apiv1.OwnershipHeld)),
				VMID:         "/vm/a",
				HasFinalizer: true,
				Job: operation.Job{
					Work:     operation.WorkAttach,
					Phase:    test.phase,
					Tokens:   []string{"token"},
					Accepted: now,
				},
				Waiting: test.waiting,
			})
			reason := apiv1.ReasonDiskAttaching
			if test.waiting.For == provisioner.WaitingForQuota {
				reason = apiv1.ReasonWaitingForAzureQuota
			}
			if test.want != "" && step.Reason != reason {
				t.Errorf("got reason %s, want %s", step.Reason, reason)
			}
			if step.Message != test.want || step.RequeueAfter != test.again || step.Status.Error != nil {
				t.Errorf("got message %q, again in %v, error %v; want message %q, again in %v, no error", step.Message,
					step.RequeueAfter, step.Status.Error, test.want, test.again)
			}
		})
	}
}
