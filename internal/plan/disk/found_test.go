package disk_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/disk"
	"github.com/azuredisk-csi/azuredisk/internal/plan/operation"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/objects"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// refusedAttach is a primary whose attach Azure refused a time ago.
func refusedAttach(kind provisioner.Kind, ago time.Duration, reason string) *apiv1.AzVolumeAttachment {
	a := objects.NewAttachment("a", apiv1.RolePrimary, 1, apiv1.AttachmentFailed)
	a.Status.Error = &apiv1.Error{Kind: string(kind), Message: "no", Time: *objects.Ago(ago)}
	a.Status.Conditions = []metav1.Condition{{
		Type:               apiv1.AttachmentConditionAttached,
		Status:             metav1.ConditionFalse,
		Reason:             reason,
		LastTransitionTime: *objects.Ago(ago),
	}}
	return a
}

func readAgo(ago time.Duration) func(*apiv1.AzVolume) {
	return func(v *apiv1.AzVolume) {
		v.Status.Disk = &apiv1.DiskReading{ReadTime: *objects.Ago(ago), SKUName: "Premium_LRS", MaxShares: 3, Zone: "1"}
	}
}

// Azure refused to attach a disk that was converted, or shared, outside the driver, as often as it
// was asked.
func TestARefusedAttachLeadsToOneReadOfTheDisk(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		volume     *apiv1.AzVolume
		attachment *apiv1.AzVolumeAttachment
		want       operation.Work
	}{
		"an argument that Azure refuses": {objects.NewVolume(),
			refusedAttach(provisioner.InvalidArgument, 0, apiv1.ReasonAttachFailed), operation.WorkReadDisk},
		"a disk that another VM has": {objects.NewVolume(),
			refusedAttach(provisioner.FailedPrecondition, 0, apiv1.ReasonAttachFailed), operation.WorkReadDisk},
		"a disk without a free share": {objects.NewVolume(),
			refusedAttach(provisioner.InsufficientCapacity, 0, apiv1.ReasonAttachFailed), operation.WorkReadDisk},
		"a refusal after the last read": {objects.NewVolume(readAgo(time.Minute)),
			refusedAttach(provisioner.InvalidArgument, 0, apiv1.ReasonAttachFailed), operation.WorkReadDisk},
		"a refusal before the last read": {objects.NewVolume(readAgo(time.Minute)),
			refusedAttach(provisioner.InvalidArgument, time.Hour, apiv1.ReasonAttachFailed), operation.WorkNone},
		"a platform that is not there": {objects.NewVolume(),
			refusedAttach(provisioner.Unavailable, 0, apiv1.ReasonAttachFailed), operation.WorkNone},
		"a quota": {objects.NewVolume(),
			refusedAttach(provisioner.RateLimited, 0, apiv1.ReasonAttachFailed), operation.WorkNone},
		"a node that is known to be full, so that Azure was not asked": {
			objects.NewVolume(), refusedAttach(provisioner.InsufficientCapacity, 0, apiv1.ReasonNoSlot), operation.WorkNone},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			step := disk.Next(disk.Input{
				Now:          objects.Now,
				HasFinalizer: true,
				Volume:       test.volume,
				Attachments:  objects.Attachments(test.attachment),
			})
			if step.Start != test.want || step.Status.State != apiv1.VolumeCreated {
				t.Errorf("got work %q of a volume that is %s, want %q, %s", step.Start, step.Status.State, test.want,
					apiv1.VolumeCreated)
			}
		})
	}
}

func TestWhatWasReadCountsWhereItDiffersFromTheRecord(t *testing.T) {
	t.Parallel()
	const set = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/diskEncryptionSets/other"
	cached := func(v *apiv1.AzVolume) {
		notShared(v)
		v.Spec.Disk.CachingMode, v.Spec.MaxMountReplicaCount = "ReadOnly", 0
	}
	for name, test := range map[string]struct {
		volume     *apiv1.AzVolume
		change     func(*provisioner.Disk)
		caching    string
		shares     int32
		replicas   int32
		sku        string
		set        string
		differs    string
		unrecorded []string
	}{
		"nothing has changed": {objects.NewVolume(cached), func(*provisioner.Disk) {}, "ReadOnly", 1, 0, "Premium_LRS", "", "",
			nil},
		"converted": {objects.NewVolume(cached), func(d *provisioner.Disk) { d.SKUName = "PremiumV2_LRS" },
			"None", 1, 0, "PremiumV2_LRS", "", "the SKU is PremiumV2_LRS, recorded as Premium_LRS", nil},
		"more shares: the replicas remain as the record says": {objects.NewVolume(cached),
			func(d *provisioner.Disk) { d.MaxShares = 2 }, "None", 2, 0, "Premium_LRS", "", "maxShares is 2, recorded as 1", nil},
		"fewer shares: the replicas follow the disk": {objects.NewVolume(
			func(v *apiv1.AzVolume) { v.Spec.MaxMountReplicaCount = 2 }), func(d *provisioner.Disk) { d.MaxShares = 2 },
			"None", 2, 1, "Premium_LRS", "", "maxShares is 2, recorded as 3", nil},
		"one share": {objects.NewVolume(), func(d *provisioner.Disk) { d.MaxShares = 1 },
			"None", 1, 0, "Premium_LRS", "", "maxShares is 1, recorded as 3", nil},
		"grown beyond what is cached": {objects.NewVolume(cached), func(d *provisioner.Disk) { d.SizeBytes = 4096 << 30 }, "None",
			1, 0, "Premium_LRS", "", "", nil},
		"moved to another zone": {objects.NewVolume(cached), func(d *provisioner.Disk) { d.Zone = "2" },
			"ReadOnly", 1, 0, "Premium_LRS", "", "the zone is 2, recorded as 1", nil},
		"encrypted with another set": {objects.NewVolume(cached), func(d *provisioner.Disk) { d.DiskEncryptionSetID = set },
			"ReadOnly", 1, 0, "Premium_LRS", set, "the disk encryption set is " + set + ", recorded as not set", nil},
		"attached to a VM without an attachment": {objects.NewVolume(cached),
			func(d *provisioner.Disk) { d.AttachedTo = []string{"/vm/x", "/VM/a"} },
			"ReadOnly", 1, 0, "Premium_LRS", "", "", []string{"/vm/x"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := test.volume
			found := sharedDisk(1 << 30)
			found.MaxShares = v.Spec.Disk.MaxShares
			test.change(found)
			in := disk.Input{
				Now:          objects.Now,
				HasFinalizer: true,
				Volume:       v,
				Attachments: objects.Attachments(
					refusedAttach(provisioner.InvalidArgument, time.Second, apiv1.ReasonAttachFailed)),
				Job: operation.Job{
					Work:  operation.WorkReadDisk,
					Phase: operation.PhaseEnded,
					Ended: objects.Now,
					Truth: operation.Truth{Disk: found},
				},
			}
			v.Status = disk.Next(in).Status
			if again := disk.Next(in).Status; !equality.Semantic.DeepEqual(again, v.Status) {
				t.Errorf("the same answer, seen again, changes the status to %+v, from %+v", again, v.Status)
			}
			if got := disk.Caching(v); got != test.caching {
				t.Errorf("got host caching %s, want %s", got, test.caching)
			}
			if v.Shares() != test.shares || v.WantedReplicas() != test.replicas {
				t.Errorf("got %d shares and %d replicas, want %d and %d", v.Shares(), v.WantedReplicas(), test.shares,
					test.replicas)
			}
			if disk.SKU(v) != test.sku || disk.EncryptionSet(v) != test.set {
				t.Errorf("got SKU %s and encryption set %q, want %s, %q", disk.SKU(v), disk.EncryptionSet(v), test.sku, test.set)
			}
			if !slices.Equal(v.Status.Disk.UnrecordedVMs, test.unrecorded) {
				t.Errorf("got unrecorded VMs %v, want %v", v.Status.Disk.UnrecordedVMs, test.unrecorded)
			}
			c := meta.FindStatusCondition(v.Status.Conditions, disk.ConditionDiskChanged)
			if (c != nil) != (test.differs != "") || c != nil && !strings.HasSuffix(c.Message, ": "+test.differs) {
				t.Errorf("got condition %+v, want one that says %q", c, test.differs)
			}
			same := test.differs == "" && found.SizeBytes == 1<<30
			if differs := disk.DiskDiffers(v, in.Attachments[0]); differs == same {
				t.Errorf("the next attach is another request: %t, want %t", differs, !same)
			}
			if disk.DiskMustBeRead(v, in.Attachments[0]) {
				t.Error("the disk is read again although Azure has refused nothing since")
			}
		})
	}
}

func TestTheConditionEndsWhenTheDiskIsAsRecorded(t *testing.T) {
	t.Parallel()
	v := objects.NewVolume(notShared)
	found := sharedDisk(1 << 30)
	for _, step := range []struct {
		maxShares int32
		want      metav1.ConditionStatus
	}{{2, metav1.ConditionTrue}, {1, metav1.ConditionFalse}} {
		found.MaxShares = step.maxShares
		job := operation.Job{
			Work:  operation.WorkReadDisk,
			Phase: operation.PhaseEnded,
			Ended: objects.Now,
			Truth: operation.Truth{Disk: found},
		}
		v.Status = disk.Next(disk.Input{Now: objects.Now, HasFinalizer: true, Volume: v, Job: job}).Status
		if c := meta.FindStatusCondition(v.Status.Conditions, disk.ConditionDiskChanged); c == nil || c.Status != step.want {
			t.Errorf("with %d shares: got condition %+v, want status %s", step.maxShares, c, step.want)
		}
	}
}

// A disk that cannot be read was read in a loop.
func TestAReadThatFailsCountsAsARead(t *testing.T) {
	t.Parallel()
	v := objects.NewVolume()
	refused := objects.Attachments(refusedAttach(provisioner.NotFound, time.Second, apiv1.ReasonAttachFailed))
	job := operation.Job{
		Work:  operation.WorkReadDisk,
		Phase: operation.PhaseEnded,
		Ended: objects.Now,
		Err:   provisioner.Errorf(provisioner.NotFound, "no disk"),
	}
	v.Status = disk.Next(disk.Input{
		Now:          objects.Now,
		HasFinalizer: true,
		Volume:       v,
		Attachments:  refused,
		Job:          job,
	}).Status
	if step := disk.Next(disk.Input{
		Now:          objects.Now,
		HasFinalizer: true,
		Volume:       v,
		Attachments:  refused,
	}); step.Start != operation.WorkNone {
		t.Errorf("got work %q, want none", step.Start)
	}
	if v.Shares() != 3 || disk.SKU(v) != "Premium_LRS" || disk.DiskDiffers(v, refused[0]) {
		t.Errorf("got %d shares, SKU %s; want the record's", v.Shares(), disk.SKU(v))
	}
}
