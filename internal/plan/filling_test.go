package plan_test

import (
	"strings"
	"testing"
	"time"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

func TestDiskThatIsBeingFilledIsLookedAtAgainAndNotCreated(t *testing.T) {
	t.Parallel()
	v := newVolume(func(v *apiv1.AzVolume) { v.Status = apiv1.AzVolumeStatus{State: apiv1.VolumeCreating} })
	v.CreationTimestamp.Time = now.Add(-10 * time.Second)
	filling := plan.Truth{Disk: &provisioner.Disk{ID: "/disk", SizeBytes: 1 << 30, CompletionPercent: 37}, Filling: true}
	step := plan.Volume(plan.VolumeInput{
		Now: now, HasFinalizer: true, Volume: v, Job: plan.Job{Work: plan.WorkCreateDisk, Phase: plan.PhaseEnded, Ended: now, Truth: filling},
	})
	if step.Status.State != apiv1.VolumeCreating || step.Reason != plan.ReasonFilling || step.Status.DiskURI != "" || step.Warning || !strings.Contains(step.Message, "37 %") {
		t.Fatalf("step is %+v", step)
	}
	v.Status = step.Status
	for _, test := range []struct {
		after time.Duration
		want  plan.Work
	}{{0, plan.WorkNone}, {200 * time.Millisecond, plan.WorkNone}, {time.Hour, plan.WorkCreateDisk}} {
		step := plan.Volume(plan.VolumeInput{Now: now.Add(test.after), HasFinalizer: true, Volume: v})
		if step.Start != test.want || (step.Start == plan.WorkNone) != (step.RequeueAfter > 0) {
			t.Errorf("after %s it starts %q and looks again in %s", test.after, step.Start, step.RequeueAfter)
		}
	}
	step = plan.Volume(plan.VolumeInput{
		Now: now, HasFinalizer: true, Volume: v, Job: plan.Job{Work: plan.WorkCreateDisk, Phase: plan.PhaseEnded, Ended: now, Truth: plan.Truth{Disk: filling.Disk}},
	})
	if step.Status.State != apiv1.VolumeCreated || step.Status.Error != nil || step.Status.DiskURI != "/disk" {
		t.Errorf("when it is filled: %+v", step.Status)
	}
}
