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
	a.Status.Error = &apiv1.Error{Reason: string(kind), Message: "no", FailureTime: *objects.Ago(ago)}
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
			refusedAttach(provisioner.InvalidArgument, 0, apiv1.ReasonDiskAttachFailed), operation.WorkReadDisk},
		"a disk that another VM has": {objects.NewVolume(),
			refusedAttach(provisioner.FailedPrecondition, 0, apiv1.ReasonDiskAttachFailed), operation.WorkReadDisk},
		"a disk without a free share": {objects.NewVolume(),
			refusedAttach(provisioner.InsufficientCapacity, 0, apiv1.ReasonDiskAttachFailed), operation.WorkReadDisk},
		"a refusal after the last read": {objects.NewVolume(readAgo(time.Minute)),
			refusedAttach(provisioner.InvalidArgument, 0, apiv1.ReasonDiskAttachFailed), operation.WorkReadDisk},
		"a refusal before the last read": {objects.NewVolume(readAgo(time.Minute)),
			refusedAttach(provisioner.InvalidArgument, time.Hour, apiv1.ReasonDiskAttachFailed), operation.WorkNone},
		"a platform that is not there": {objects.NewVolume(),
			refusedAttach(provisioner.Unavailable, 0, apiv1.ReasonDiskAttachFailed), operation.WorkNone},
		"a quota": {objects.NewVolume(),
			refusedAttach(provisioner.RateLimited, 0, apiv1.ReasonDiskAttachFailed), operation.WorkNone},
		"a node that is known to be full, so that Azure was not asked": {
			objects.NewVolume(), refusedAttach(provisioner.InsufficientCapacity, 0, apiv1.ReasonNoDiskSlot), operation.WorkNone},
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
					refusedAttach(provisioner.InvalidArgument, time.Second, apiv1.ReasonDiskAttachFailed)),
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
			// A later answer that is the same is no change of the disk.
			later, changed := in, v.Status.Disk.ChangedTime
			later.Job.Ended = objects.Now.Add(time.Minute)
			if got := disk.Next(later).Status.Disk.ChangedTime; !got.Equal(changed) {
				t.Errorf("the same answer a minute later: got a change at %v, want it at %v", got, changed)
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
			c := meta.FindStatusCondition(v.Status.Conditions, apiv1.VolumeConditionDiskAsRecorded)
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
	}{{2, metav1.ConditionFalse}, {1, metav1.ConditionTrue}} {
		found.MaxShares = step.maxShares
		job := operation.Job{
			Work:  operation.WorkReadDisk,
			Phase: operation.PhaseEnded,
			Ended: objects.Now,
			Truth: operation.Truth{Disk: found},
		}
		v.Status = disk.Next(disk.Input{Now: objects.Now, HasFinalizer: true, Volume: v, Job: job}).Status
		c := meta.FindStatusCondition(v.Status.Conditions, apiv1.VolumeConditionDiskAsRecorded)
		if c == nil || c.Status != step.want {
			t.Errorf("with %d shares: got condition %+v, want status %s", step.maxShares, c, step.want)
		}
	}
}

// A disk that cannot be read was read in a loop.
func TestAReadThatFailsCountsAsARead(t *testing.T) {
	t.Parallel()
	v := objects.NewVolume(func(v *apiv1.AzVolume) { v.Spec.Disk.DiskEncryptionSetID = "/set" })
	refused := objects.Attachments(refusedAttach(provisioner.NotFound, time.Second, apiv1.ReasonDiskAttachFailed))
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
	if v.Shares() != 3 || disk.SKU(v) != "Premium_LRS" || disk.EncryptionSet(v) != "/set" || disk.DiskDiffers(v, refused[0]) {
		t.Errorf("got %d shares, SKU %s, encryption set %q; want the record's", v.Shares(), disk.SKU(v), disk.EncryptionSet(v))
	}
	found := sharedDisk(1 << 30)
	found.DiskEncryptionSetID = "/set"
	job.Err, job.Truth.Disk = nil, found
	v.Status = disk.Next(disk.Input{Now: objects.Now, HasFinalizer: true, Volume: v, Job: job}).Status
	if v.Status.Disk.ChangedTime != nil {
		t.Errorf("a read of the disk as it is recorded: got a change at %v, want none", v.Status.Disk.ChangedTime)
	}
}

func TestAReadThatFailsKeepsWhatWasReadBefore(t *testing.T) {
	t.Parallel()
	v := objects.NewVolume(readAgo(time.Hour), func(v *apiv1.AzVolume) { v.Status.Disk.SKUName = "PremiumV2_LRS" })
	job := operation.Job{
		Work:  operation.WorkReadDisk,
		Phase: operation.PhaseEnded,
		Ended: objects.Now,
		Err:   provisioner.Errorf(provisioner.Unavailable, "try again"),
	}
	v.Status = disk.Next(disk.Input{Now: objects.Now, HasFinalizer: true, Volume: v, Job: job}).Status
	if got := v.Status.Disk.ReadTime; disk.SKU(v) != "PremiumV2_LRS" || !got.Time.Equal(objects.Now) {
		t.Errorf("got SKU %s, read at %v; want PremiumV2_LRS, %v", disk.SKU(v), got, objects.Now)
	}
}

func TestOnlyARefusedAttachLeadsToARead(t *testing.T) {
	t.Parallel()
	for name, differs := range map[string]func(*apiv1.AzVolumeAttachment){
		"refused":               nil,
		"attached since":        func(a *apiv1.AzVolumeAttachment) { a.Status.State = apiv1.AttachmentAttached },
		"no longer wanted":      func(a *apiv1.AzVolumeAttachment) { objects.Deleted(a) },
		"without an error":      func(a *apiv1.AzVolumeAttachment) { a.Status.Error = nil },
		"without a condition":   func(a *apiv1.AzVolumeAttachment) { a.Status.Conditions = nil },
		"failed before Azure":   func(a *apiv1.AzVolumeAttachment) { a.Status.Conditions[0].Reason = apiv1.ReasonNoDiskSlot },
		"for a passing failure": func(a *apiv1.AzVolumeAttachment) { a.Status.Error.Reason = string(provisioner.Unavailable) },
	} {
		a := refusedAttach(provisioner.InvalidArgument, time.Second, apiv1.ReasonDiskAttachFailed)
		if differs != nil {
			differs(a)
		}
		if got, want := disk.DiskMustBeRead(objects.NewVolume(), a), differs == nil; got != want {
			t.Errorf("%s: got that the disk must be read: %t, want %t", name, got, want)
		}
		changed := objects.NewVolume(readAgo(0), func(v *apiv1.AzVolume) { v.Status.Disk.ChangedTime = objects.Ago(0) })
		if got, want := disk.DiskDiffers(changed, a), differs == nil; got != want {
			t.Errorf("%s: got that the disk differs: %t, want %t", name, got, want)
		}
	}
}

func TestADiskDiffersOnlyIfAReadSinceTheRefusalFoundAChange(t *testing.T) {
	t.Parallel()
	refused := refusedAttach(provisioner.InvalidArgument, time.Minute, apiv1.ReasonDiskAttachFailed)
	changed := func(ago time.Duration) func(*apiv1.AzVolume) {
		return func(v *apiv1.AzVolume) { v.Status.Disk.ChangedTime = objects.Ago(ago) }
	}
	for name, test := range map[string]struct {
		volume *apiv1.AzVolume
		want   bool
	}{
		"the volume is gone":               {nil, false},
		"the disk was never read":          {objects.NewVolume(), false},
		"it was read and had not changed":  {objects.NewVolume(readAgo(0)), false},
		"it had changed before":            {objects.NewVolume(readAgo(0), changed(time.Hour)), false},
		"it had changed in that second":    {objects.NewVolume(readAgo(0), changed(time.Minute)), true},
		"it had changed after the refusal": {objects.NewVolume(readAgo(0), changed(0)), true},
	} {
		if got := disk.DiskDiffers(test.volume, refused); got != test.want {
			t.Errorf("%s: got %t, want %t", name, got, test.want)
		}
	}
	if disk.DiskMustBeRead(nil, refused) {
		t.Error("the disk of a volume that is gone must be read")
	}
}

func TestAChangeRecordsADiskThatDiffers(t *testing.T) {
	t.Parallel()
	converted := sharedDisk(1 << 30)
	converted.SKUName = "PremiumV2_LRS"
	for name, test := range map[string]struct {
		before func(*apiv1.AzVolume)
		found  *provisioner.Disk
		want   bool
	}{
		"a disk as recorded":                  {begun, sharedDisk(1 << 30), false},
		"a disk that was converted":           {begun, converted, true},
		"a disk at a VM without attachment":   {begun, sharedDisk(1<<30, "/vm/x"), true},
		"a disk that differed when read last": {readAgo(time.Hour), sharedDisk(1 << 30), true},
	} {
		v := objects.NewVolume(test.before, begun)
		is := disk.Next(disk.Input{Now: objects.Now, HasFinalizer: true, Volume: v, Job: operation.Job{
			Work:  operation.WorkUpdateDisk,
			Phase: operation.PhaseEnded,
			Ended: objects.Now,
			Begun: v.Status.Operation,
			Truth: operation.Truth{Disk: test.found, Update: &operation.Updated{Generation: 1}},
		}}).Status
		if got := is.Disk != nil && is.Disk.ReadTime.Time.Equal(objects.Now); got != test.want {
			t.Errorf("%s: got reading %+v, want one: %t", name, is.Disk, test.want)
		}
	}
}

func TestAVolumeIsSettledWhenNothingChangesItsDisk(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		volume *apiv1.AzVolume
		want   bool
	}{
		"as the spec wants it":                {objects.NewVolume(), true},
		"settings that were never recorded":   {objects.NewVolume(neverRecorded), false},
		"a change with an unknown outcome":    {objects.NewVolume(begun), false},
		"a size that is yet to be applied":    {objects.NewVolume(asked(larger)), false},
		"settings that are yet to be applied": {objects.NewVolume(asked(tagged)), false},
	} {
		if got := disk.Settled(test.volume); got != test.want {
			t.Errorf("%s: got %t, want %t", name, got, test.want)
		}
	}
}

func TestAChangeOutsideTheDriverIsOneOfARecordedSetting(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change  func(*provisioner.Disk)
		sku     string
		changed bool
	}{
		"nothing":         {func(*provisioner.Disk) {}, "Premium_LRS", false},
		"the SKU":         {func(d *provisioner.Disk) { d.SKUName = "StandardSSD_LRS" }, "StandardSSD_LRS", true},
		"a tag of a user": {func(d *provisioner.Disk) { d.Tags = map[string]string{"own": "1"} }, "Premium_LRS", false},
	} {
		found := sharedDisk(1 << 30)
		test.change(found)
		has, changed := disk.ChangedOutside(objects.NewVolume(), found)
		if has.SKUName != test.sku || changed != test.changed {
			t.Errorf("%s: got SKU %s, changed %t; want %s, %t", name, has.SKUName, changed, test.sku, test.changed)
		}
	}
}
