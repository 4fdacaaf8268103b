package disk_test

import (
	"strings"
	"testing"
	"time"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/disk"
	"github.com/azuredisk-csi/azuredisk/internal/plan/operation"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/objects"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

func TestDiskThatIsBeingFilledIsLookedAtAgainAndNotCreated(t *testing.T) {
	t.Parallel()
	v := objects.NewVolume(func(v *apiv1.AzVolume) { v.Status = apiv1.AzVolumeStatus{State: apiv1.VolumeCreating} })
	v.CreationTimestamp.Time = objects.Now.Add(-10 * time.Second)
	filling := operation.Truth{Disk: &provisioner.Disk{
		ID:                "/disk",
		SizeBytes:         1 << 30,
		CompletionPercent: 37,
	}, Filling: true}
	step := disk.Next(disk.Input{
		Now:          objects.Now,
		HasFinalizer: true,
		Volume:       v,
		Job: operation.Job{Work: operation.WorkCreateDisk, Phase: operation.PhaseEnded, Ended: objects.Now,
			Truth: filling},
	})
	if step.Status.State != apiv1.VolumeCreating || step.Reason != apiv1.ReasonDiskFilling || step.Status.DiskID != "" ||
		step.Warning || !strings.Contains(step.Message, "37 %") {
		t.Fatalf("step is %+v", step)
	}
	v.Status = step.Status
	for _, test := range []struct {
		after time.Duration
		want  operation.Work
	}{{0, operation.WorkNone}, {200 * time.Millisecond, operation.WorkNone}, {time.Hour, operation.WorkCreateDisk}} {
		step := disk.Next(disk.Input{Now: objects.Now.Add(test.after), HasFinalizer: true, Volume: v})
		if step.Start != test.want || (step.Start == operation.WorkNone) != (step.RequeueAfter > 0) {
			t.Errorf("after %s it starts %q and looks again in %s", test.after, step.Start, step.RequeueAfter)
		}
	}
	step = disk.Next(disk.Input{
		Now:          objects.Now,
		HasFinalizer: true,
		Volume:       v,
		Job: operation.Job{
			Work:  operation.WorkCreateDisk,
			Phase: operation.PhaseEnded,
			Ended: objects.Now,
			Truth: operation.Truth{Disk: filling.Disk},
		},
	})
	if step.Status.State != apiv1.VolumeCreated || step.Status.Error != nil || step.Status.DiskID != "/disk" {
		t.Errorf("when it is filled: %+v", step.Status)
	}
}
