package disk_test

import (
	"cmp"
	"maps"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/disk"
	"github.com/azuredisk-csi/azuredisk/internal/plan/operation"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/objects"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// asked makes a newer generation of the volume that wants something else.
func asked(change func(*apiv1.AzVolumeSpec)) func(*apiv1.AzVolume) {
	return func(v *apiv1.AzVolume) {
		v.Generation = 2
		change(&v.Spec)
	}
}

func larger(s *apiv1.AzVolumeSpec)    { s.CapacityBytes *= 2 }
func tagged(s *apiv1.AzVolumeSpec)    { s.Disk.Tags = map[string]string{"a": "b"} }
func otherTier(s *apiv1.AzVolumeSpec) { s.Disk.Tier = "P30" }
func otherSKU(s *apiv1.AzVolumeSpec)  { s.Disk.SKUName = "StandardSSD_LRS" }
func notShared(v *apiv1.AzVolume)     { v.Spec.Disk.MaxShares, v.Spec.MaxMountReplicaCount = 1, 0 }
func gathered(v *apiv1.AzVolume)      { since(time.Second)(v) }
func neverRecorded(v *apiv1.AzVolume) { v.Status.Applied = nil }
func refusedSize(v *apiv1.AzVolume) {
	v.Status.RefusedCapacity = &apiv1.Refusal{Generation: v.Generation}
}
func refusedParams(v *apiv1.AzVolume) {
	v.Status.RefusedSettings = &apiv1.Refusal{Generation: v.Generation}
}
func refusedEarlier(v *apiv1.AzVolume) { v.Status.RefusedCapacity = &apiv1.Refusal{Generation: 1} }

// begun is a volume for which another process was about to ask Azure, or did.
func begun(v *apiv1.AzVolume) {
	v.Status.State, v.Status.Operation = apiv1.VolumeUpdating, changeOf(time.Second, "")
}

// changeOf is how a status records a change that began some time ago.
func changeOf(ago time.Duration, token string) *apiv1.Operation {
	return &apiv1.Operation{Type: string(operation.WorkUpdateDisk), ResumeToken: token, StartTime: *objects.Ago(ago)}
}

func since(d time.Duration) func(*apiv1.AzVolume) {
	return func(v *apiv1.AzVolume) {
		t := metav1.NewMicroTime(objects.Now.Add(-d))
		v.Status.UpdateWantedTime, v.Status.State = &t, apiv1.VolumeUpdating
	}
}

// pending is a volume whose change waits until it is released.
func pending(v *apiv1.AzVolume) {
	meta.SetStatusCondition(&v.Status.Conditions, metav1.Condition{Type: apiv1.VolumeConditionUpdated,
		Status: metav1.ConditionFalse, Reason: apiv1.ReasonDiskUpdatePending, ObservedGeneration: v.Generation,
		Message: "it grows"})
}

// lostAgo is a volume that was released some time ago, by a node that was lost.
func lostAgo(ago time.Duration) func(*apiv1.AzVolume) {
	return func(v *apiv1.AzVolume) {
		objects.Owned("", 1, apiv1.OwnershipReleased)(v)
		v.Status.LastReleasedTime = objects.Ago(ago)
		v.Status.LastRelease = &apiv1.ReleaseRecord{NodeName: "a", Cause: apiv1.CauseNodeLost}
	}
}

func failedNow(v *apiv1.AzVolume) {
	v.Status.State, v.Status.ObservedGeneration = apiv1.VolumeUpdateFailed, v.Generation
	v.Status.Error = &apiv1.Error{Reason: "Unavailable", FailureTime: metav1.NewTime(objects.Now)}
}

func TestWhatIsAskedOfADiskThatExists(t *testing.T) {
	t.Parallel()
	held := objects.Owned("a", 1, apiv1.OwnershipHeld)
	replicas := objects.Attachments(objects.NewAttachment("b", apiv1.RoleReplica, 0, apiv1.AttachmentAttached))
	type want struct {
		start     operation.Work
		state     apiv1.VolumeState
		detach    bool
		condition string // reason of the condition Updated
		reverted  bool
	}
	created := want{state: apiv1.VolumeCreated}
	waits := want{state: apiv1.VolumeUpdating, condition: apiv1.ReasonDiskUpdating}
	changes, detaches, pends := waits, waits, created
	pends.condition = apiv1.ReasonDiskUpdatePending
	changes.start, detaches.detach = operation.WorkUpdateDisk, true
	for name, test := range map[string]struct {
		volume      *apiv1.AzVolume
		attachments []*apiv1.AzVolumeAttachment
		job         operation.Job
		want        want
	}{
		"nothing, if it is as it should be": {volume: objects.NewVolume(), want: created},
		"nothing, if only the number of replicas is another": {
			volume: objects.NewVolume(asked(func(s *apiv1.AzVolumeSpec) { s.MaxMountReplicaCount = 0 })), want: created},
		"not at once: more may follow": {volume: objects.NewVolume(notShared, asked(larger)), want: waits},
		"not at once, also in use if it is not shared": {
			volume: objects.NewVolume(notShared, asked(larger), held), want: waits},
		"not at once, also other tags of a shared disk": {volume: objects.NewVolume(asked(tagged)), attachments: replicas,
			want: waits},
		"once the time to gather is over": {
			volume: objects.NewVolume(notShared, asked(larger), since(500*time.Millisecond)), want: changes},
		"at once, if a clock of the future began to gather": {
			volume: objects.NewVolume(notShared, asked(larger), since(-time.Hour)), want: changes},
		"nothing while it is read": {volume: objects.NewVolume(),
			job: operation.Job{Work: operation.WorkReadDisk, Phase: operation.PhaseBegun}, want: created},
		"nothing, if a size that was refused is there by now": {
			volume: objects.NewVolume(asked(larger), refusedSize, func(v *apiv1.AzVolume) { v.Status.SizeBytes = 2 << 30 }),
			want:   created},
		"not while more is gathered": {volume: objects.NewVolume(notShared, asked(larger), since(100*time.Millisecond)),
			want: waits},
		"to grow": {volume: objects.NewVolume(notShared, asked(larger), gathered), want: changes},
		"to grow in use, if it is not shared": {volume: objects.NewVolume(notShared, asked(larger), gathered, held),
			want: changes},
		"other parameters": {volume: objects.NewVolume(notShared, asked(tagged), gathered), want: changes},
		"other tags of a shared disk in use": {volume: objects.NewVolume(asked(tagged), gathered, held), attachments: replicas,
			want: changes},
		"to grow without the replicas, if it is shared": {volume: objects.NewVolume(asked(larger)), attachments: replicas,
			want: detaches},
		"to grow once they are gone":        {volume: objects.NewVolume(asked(larger), gathered), want: changes},
		"another tier without the replicas": {volume: objects.NewVolume(asked(otherTier)), attachments: replicas, want: detaches},
		"another SKU without the replicas":  {volume: objects.NewVolume(asked(otherSKU)), attachments: replicas, want: detaches},
		"whether it has changed, before a change of a shared disk in use waits": {
			volume: objects.NewVolume(asked(larger), held), attachments: replicas, want: changes},
		"nothing more, while a change of a shared disk in use waits": {
			volume: objects.NewVolume(asked(larger), held, pending), attachments: replicas, want: pends},
		"the outcome of an earlier change, also while one waits": {
			volume: objects.NewVolume(asked(larger), held, pending,
				func(v *apiv1.AzVolume) { v.Status.Operation = changeOf(10*time.Second, "") }), attachments: replicas,
			want: changes},
		"nothing of it right after the loss of a node": {
			volume: objects.NewVolume(asked(larger), pending, lostAgo(time.Minute)), attachments: replicas, want: pends},
		"the change that waited, at the next release": {
			volume:      objects.NewVolume(asked(larger), pending, objects.Owned("", 1, apiv1.OwnershipReleased)),
			attachments: replicas, want: detaches},
		"the change that waited, long after the loss of a node": {
			volume: objects.NewVolume(asked(larger), pending, lostAgo(time.Hour)), attachments: replicas, want: detaches},
		"nothing that was refused, which is reverted": {volume: objects.NewVolume(notShared, asked(larger), refusedSize),
			want: want{state: apiv1.VolumeCreated, reverted: true}},
		"nothing of what was refused, if that is the parameters": {
			volume: objects.NewVolume(notShared, asked(otherSKU), refusedParams),
			want:   want{state: apiv1.VolumeCreated, reverted: true}},
		"again what was refused earlier, if it is asked for again": {
			volume: objects.NewVolume(notShared, asked(larger), refusedEarlier, gathered), want: changes},
		"whether it has changed, before a change in use waits": {volume: objects.NewVolume(asked(larger), gathered, held),
			want: changes},
		"nothing right after a failure": {volume: objects.NewVolume(notShared, asked(larger), gathered, failedNow),
			want: want{state: apiv1.VolumeUpdateFailed}},
		"to grow once the time to gather is over, although an earlier change failed": {
			volume: objects.NewVolume(notShared, asked(larger), failedNow, gathered), want: changes},
		"at once for the outcome of a failed change that is no longer wanted": {
			volume: objects.NewVolume(failedNow, gathered), want: changes},
		"to grow, if Azure has accepted the change of another process": {
			volume: objects.NewVolume(notShared, asked(larger), begun, gathered,
				func(v *apiv1.AzVolume) { v.Status.Operation = changeOf(time.Second, "t") }), want: changes},
		"to grow, if a creation was the last operation": {
			volume: objects.NewVolume(notShared, asked(larger), gathered, func(v *apiv1.AzVolume) {
				v.Status.Operation = &apiv1.Operation{Type: string(operation.WorkCreateDisk), StartTime: *objects.Ago(0)}
			}), want: changes},
		"settings without a record are compared with the disk": {volume: objects.NewVolume(notShared, neverRecorded, gathered),
			want: changes},
		"the outcome of a change that is no longer requested, if a process ended during it": {
			volume: objects.NewVolume(begun, func(v *apiv1.AzVolume) { v.Status.Operation = changeOf(10*time.Second, "") }),
			want:   changes},
		"nothing while the request of a process that no longer leads may still reach Azure": {
			volume: objects.NewVolume(asked(larger), begun, held), want: want{state: apiv1.VolumeUpdating}},
		"nothing right after another process began to ask": {
			volume: objects.NewVolume(asked(larger), begun, held,
				func(v *apiv1.AzVolume) { v.Status.Operation = changeOf(0, "") }),
			want: want{state: apiv1.VolumeUpdating}},
		"the outcome of a change that a clock of the future began": {
			volume: objects.NewVolume(begun, func(v *apiv1.AzVolume) { v.Status.Operation = changeOf(-time.Hour, "") }),
			want:   changes},
		"the outcome of a change that failed": {
			volume: objects.NewVolume(failedNow,
				func(v *apiv1.AzVolume) { v.Status.Error.FailureTime = *objects.Ago(time.Hour) }),
			want: changes},
		"but not at once": {volume: objects.NewVolume(failedNow), want: want{state: apiv1.VolumeUpdateFailed}},
		"nothing while a change is under way": {volume: objects.NewVolume(notShared, asked(larger), begun),
			job:  operation.Job{Work: operation.WorkUpdateDisk, Phase: operation.PhaseBegun, Begun: changeOf(time.Second, "")},
			want: want{state: apiv1.VolumeUpdating}},
		"nothing while a change is under way that another leader has completed": {volume: objects.NewVolume(notShared),
			job: operation.Job{Work: operation.WorkUpdateDisk, Phase: operation.PhaseAccepted, Begun: changeOf(time.Second, ""),
				Tokens: []string{"t"}}, want: created},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			step := disk.Next(disk.Input{
				Now:          objects.Now,
				HasFinalizer: true,
				Volume:       test.volume,
				Attachments:  test.attachments,
				Job:          test.job,
			})
			got := want{
				start:    step.Start,
				state:    step.Status.State,
				detach:   step.DetachAll == apiv1.ReasonVolumeUpdates,
				reverted: step.Spec != nil,
			}
			if c := meta.FindStatusCondition(step.Status.Conditions, apiv1.VolumeConditionUpdated); c != nil {
				got.condition = c.Reason
				if strings.Contains(c.Message, "  ") {
					t.Errorf("got the message %q, want one without two blanks", c.Message)
				}
			}
			if got != test.want {
				t.Fatalf("got %+v, want %+v", got, test.want)
			}
		})
	}
}

// The user asked for the old SKU again, the driver gathered more changes, and forgot in between
// that Azure had made the first one: the SKU that it reported was never again the disk's.
func TestAFailedChangeStaysUncertainUntilTheDiskIsRead(t *testing.T) {
	t.Parallel()
	failedBefore := func(v *apiv1.AzVolume) { failedNow(v); v.Status.Error.FailureTime = *objects.Ago(time.Hour) }
	replicas := objects.Attachments(objects.NewAttachment("b", apiv1.RoleReplica, 0, apiv1.AttachmentAttached))
	for name, in := range map[string]disk.Input{
		"while more is gathered":          {Volume: objects.NewVolume(notShared, failedBefore, asked(larger))},
		"while the replicas are detached": {Volume: objects.NewVolume(failedBefore, asked(larger)), Attachments: replicas},
	} {
		in.Now, in.HasFinalizer = objects.Now, true
		step := disk.Next(in)
		if step.Status.State != apiv1.VolumeUpdating || step.Start != operation.WorkNone || !disk.UpdateUncertain(&step.Status) {
			t.Errorf("%s: %s, %s, uncertain %t", name, step.Status.State, step.Start, disk.UpdateUncertain(&step.Status))
		}
		in.Volume.Status, in.Now, in.Attachments = step.Status, objects.Now.Add(time.Minute), nil
		if step = disk.Next(in); step.Start != operation.WorkUpdateDisk || !step.Uncertain {
			t.Errorf("%s: the job then: %s, uncertain %t", name, step.Start, step.Uncertain)
		}
	}
}

// A leader that was followed by another recorded what it had read before the other one's change:
// the size went back, and the SKU was never again the disk's.
func TestTheResultOfAnOvertakenChangeIsNotRecorded(t *testing.T) {
	t.Parallel()
	job := operation.Job{
		Work:   operation.WorkUpdateDisk,
		Phase:  operation.PhaseEnded,
		Ended:  objects.Now,
		Begun:  changeOf(9*time.Second, ""),
		Tokens: []string{"first", "second"},
		Truth: operation.Truth{
			Disk:   &provisioner.Disk{SizeBytes: 2 << 30, CompletionPercent: 100},
			Update: &operation.Updated{Generation: 2, Applied: &apiv1.AppliedSettings{Generation: 2}},
		},
	}
	for name, test := range map[string]struct {
		recorded *apiv1.Operation
		counts   bool
	}{
		"the change that it began":             {changeOf(9*time.Second, ""), true},
		"the change that Azure accepted first": {changeOf(8*time.Second, "first"), true},
		"the change that Azure accepted last":  {changeOf(7*time.Second, "second"), true},
		"that the other one has completed it":  {nil, false},
		"that the other one began another":     {changeOf(3*time.Second, ""), false},
		"that Azure has accepted another":      {changeOf(9*time.Second, "of the other one"), false},
	} {
		t.Run("recorded is "+name, func(t *testing.T) {
			t.Parallel()
			v := objects.NewVolume(notShared, func(v *apiv1.AzVolume) {
				v.Status.SizeBytes, v.Spec.CapacityBytes, v.Status.Operation = 4<<30, 4<<30, test.recorded
			})
			is := disk.Next(disk.Input{Now: objects.Now, HasFinalizer: true, Volume: v, Job: job}).Status
			if got := is.SizeBytes == 2<<30 && is.Applied.Generation == 2; got != test.counts {
				t.Fatalf("got %d bytes and settings %+v; want those of the job: %t", is.SizeBytes, is.Applied, test.counts)
			}
		})
	}
}

// The process was paused while it sent its request. Another leader had recorded its own result by
// then, and Azure made the late change after that.
func TestAChangeThatArrivedLateIsFollowedByALookAtTheDisk(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		work    operation.Work
		size    int64 // of the disk; 0 if it was not read
		sku     string
		refused bool
		before  func(*apiv1.AzVolume)
		want    operation.Work
	}{
		"the disk is as recorded": {size: 4 << 30, sku: "Premium_LRS"},
		"it has another size":     {size: 8 << 30, sku: "Premium_LRS", want: operation.WorkUpdateDisk},
		"it has another SKU":      {size: 4 << 30, sku: "StandardSSD_LRS", want: operation.WorkUpdateDisk},
		"it has the SKU that Azure refused to a former leader": {size: 4 << 30, sku: "StandardSSD_LRS", refused: true,
			want: operation.WorkUpdateDisk},
		"the other process recorded no settings": {size: 4 << 30, sku: "Premium_LRS", before: neverRecorded,
			want: operation.WorkUpdateDisk},
		"its result is not known":                          {},
		"it could not be read":                             {sku: "StandardSSD_LRS"},
		"the disk has grown since this process created it": {work: operation.WorkCreateDisk, size: 1 << 30, sku: "Premium_LRS"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := objects.NewVolume(notShared, func(v *apiv1.AzVolume) { v.Status.SizeBytes, v.Spec.CapacityBytes = 4<<30, 4<<30 })
			if test.refused {
				v.Spec.Disk.SKUName, v.Status.RefusedSettings = test.sku, &apiv1.Refusal{Generation: v.Generation}
			}
			truth := operation.Truth{}
			if test.sku != "" {
				found := v.Status.Applied.DeepCopy()
				found.SKUName = test.sku
				truth.Update = &operation.Updated{Applied: found}
			}
			if test.size > 0 {
				truth.Disk = &provisioner.Disk{SizeBytes: test.size, CompletionPercent: 100}
			}
			if test.before != nil {
				test.before(v)
			}
			step := disk.Next(disk.Input{
				Now:          objects.Now,
				HasFinalizer: true,
				Volume:       v,
				Job: operation.Job{
					Work:  cmp.Or(test.work, operation.WorkUpdateDisk),
					Phase: operation.PhaseEnded,
					Ended: objects.Now,
					Truth: truth,
				},
			})
			if step.Start != test.want || step.Uncertain != (test.want != operation.WorkNone) || step.Spec != nil {
				t.Errorf("got work %q, from what the disk is: %t, spec %+v; want %q and the spec as it is", step.Start,
					step.Uncertain, step.Spec, test.want)
			}
		})
	}
}

func TestOutcomeOfAChange(t *testing.T) {
	t.Parallel()
	no := provisioner.Errorf(provisioner.InvalidArgument, "Azure does not want that")
	applied := &apiv1.AppliedSettings{Generation: 2, DiskSettings: apiv1.DiskSettings{SKUName: "StandardSSD_LRS"}}
	for name, test := range map[string]struct {
		job                            operation.Job
		sizeBytes                      int64
		applied                        int64 // generation
		refusedCapacity, refusedParams bool
		state                          apiv1.VolumeState
		reason                         string
		warning                        bool
	}{
		"both parts": {
			job: operation.Job{Truth: operation.Truth{Disk: &provisioner.Disk{SizeBytes: 2 << 30, CompletionPercent: 100},
				Update: &operation.Updated{Generation: 2, Applied: applied}}}, sizeBytes: 2 << 30, applied: 2,
			state: apiv1.VolumeCreated, reason: apiv1.ReasonDiskUpdated},
		"the size alone": {
			job: operation.Job{Truth: operation.Truth{Disk: &provisioner.Disk{SizeBytes: 2 << 30, CompletionPercent: 100},
				Update: &operation.Updated{Generation: 2, RefusedSettings: no}}}, sizeBytes: 2 << 30, applied: 1,
			refusedParams: true, state: apiv1.VolumeCreated, reason: apiv1.ReasonDiskUpdateRefused, warning: true},
		"the parameters alone": {
			job: operation.Job{Truth: operation.Truth{Disk: &provisioner.Disk{SizeBytes: 1 << 30, CompletionPercent: 100},
				Update: &operation.Updated{Generation: 2, Applied: applied, RefusedCapacity: no}}}, sizeBytes: 1 << 30,
			applied: 2, refusedCapacity: true, state: apiv1.VolumeCreated, reason: apiv1.ReasonDiskUpdateRefused, warning: true},
		"a disk that is gone": {
			job: operation.Job{Err: provisioner.Errorf(provisioner.NotFound, "no disk"),
				Truth: operation.Truth{Update: &operation.Updated{Generation: 2}}}, sizeBytes: 1 << 30, applied: 1,
			refusedCapacity: true, refusedParams: true, state: apiv1.VolumeCreated, reason: apiv1.ReasonDiskUpdateRefused,
			warning: true},
		"a disk that can no longer be read, although Azure may have changed it": {
			job: operation.Job{Err: provisioner.Errorf(provisioner.Unauthorized, "no"),
				Truth: operation.Truth{Update: &operation.Updated{Generation: 2, Uncertain: true}}}, sizeBytes: 1 << 30,
			applied: 1, state: apiv1.VolumeUpdateFailed, reason: apiv1.ReasonDiskUpdateFailed, warning: true},
		"a job without a result": {
			job: operation.Job{Err: provisioner.Errorf(provisioner.InvalidArgument, "no")}, sizeBytes: 1 << 30, applied: 1,
			state: apiv1.VolumeUpdateFailed, reason: apiv1.ReasonDiskUpdateFailed, warning: true},
		"a failure that may pass": {
			job: operation.Job{Err: provisioner.Errorf(provisioner.Unavailable, "try again"),
				Truth: operation.Truth{Update: &operation.Updated{Generation: 2}}}, sizeBytes: 1 << 30, applied: 1,
			state: apiv1.VolumeUpdateFailed, reason: apiv1.ReasonDiskUpdateFailed, warning: true},
		"a conversion that continues": {
			job: operation.Job{Truth: operation.Truth{Disk: &provisioner.Disk{SizeBytes: 2 << 30, CompletionPercent: 7},
				Update: &operation.Updated{Generation: 2, Applied: applied}}}, sizeBytes: 2 << 30, applied: 2,
			state: apiv1.VolumeCreated, reason: apiv1.ReasonDiskConverting},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := objects.NewVolume(notShared, asked(larger), asked(otherSKU),
				func(v *apiv1.AzVolume) { v.Spec.CapacityBytes = 2 << 30 }, gathered)
			begun(v)
			test.job.Work, test.job.Phase = operation.WorkUpdateDisk, operation.PhaseEnded
			test.job.Ended, test.job.Begun = objects.Now, v.Status.Operation
			step := disk.Next(disk.Input{Now: objects.Now, HasFinalizer: true, Volume: v, Job: test.job})
			is := step.Status
			c := meta.FindStatusCondition(is.Conditions, apiv1.VolumeConditionUpdated)
			if is.SizeBytes != test.sizeBytes || is.Applied.Generation != test.applied || is.State != test.state || c == nil ||
				c.Reason != test.reason ||
				(is.RefusedCapacity != nil) != test.refusedCapacity || (is.RefusedSettings != nil) != test.refusedParams ||
				step.Warning != test.warning {
				t.Fatalf("%+v, condition %+v", is, c)
			}
			if (is.State == apiv1.VolumeCreated) != (is.UpdateWantedTime == nil) {
				t.Fatalf("%s, gathering since %v", is.State, is.UpdateWantedTime)
			}
			// The same result, seen again, changes nothing.
			v.Status = is
			again := disk.Next(disk.Input{Now: objects.Now, HasFinalizer: true, Volume: v, Job: test.job})
			if !equality.Semantic.DeepEqual(again.Status, is) {
				t.Fatalf("seen again it is %+v", again.Status)
			}
		})
	}
}

// sharedDisk is the disk of objects.NewVolume at VMs.
func sharedDisk(sizeBytes int64, attachedTo ...string) *provisioner.Disk {
	return &provisioner.Disk{
		SizeBytes:         sizeBytes,
		CompletionPercent: 100,
		MaxShares:         3,
		Zone:              "1",
		AttachedTo:        attachedTo,
		DiskSettings:      provisioner.DiskSettings{SKUName: "Premium_LRS"},
	}
}

// The disk was read, and the status written twice, once in a second for as long as the disk was
// attached.
func TestAChangeOfADiskThatAVMHasWithoutAnAttachmentWaits(t *testing.T) {
	t.Parallel()
	replicas := objects.Attachments(objects.NewAttachment("b", apiv1.RoleReplica, 0, apiv1.AttachmentAttached))
	owned := objects.Owned("a", 1, apiv1.OwnershipHeld)
	for name, test := range map[string]struct {
		attachedTo  []string
		attachments []*apiv1.AzVolumeAttachment
		change      func(*apiv1.AzVolume)
		generation  int64 // that the job read
		want        apiv1.VolumeState
	}{
		"a VM without an attachment":              {[]string{"/vm/x"}, nil, begun, 2, apiv1.VolumeUpdateFailed},
		"a VM whose replica can be detached":      {[]string{"/vm/b"}, replicas, begun, 2, apiv1.VolumeCreated},
		"none":                                    {nil, nil, begun, 2, apiv1.VolumeCreated},
		"a VM, if the disk is not shared":         {[]string{"/vm/x"}, nil, notShared, 2, apiv1.VolumeCreated},
		"a VM, if the change is asked for in use": {[]string{"/vm/a"}, nil, owned, 1, apiv1.VolumeCreated},
	} {
		t.Run("attached to "+name, func(t *testing.T) {
			t.Parallel()
			v := objects.NewVolume(asked(larger), begun, test.change)
			found := sharedDisk(1<<30, test.attachedTo...)
			found.MaxShares = v.Spec.Disk.MaxShares
			step := disk.Next(disk.Input{
				Now:          objects.Now,
				HasFinalizer: true,
				Volume:       v,
				Attachments:  test.attachments,
				Job: operation.Job{
					Work:  operation.WorkUpdateDisk,
					Phase: operation.PhaseEnded,
					Ended: objects.Now,
					Begun: v.Status.Operation,
					Truth: operation.Truth{
						Disk:   found,
						Update: &operation.Updated{Generation: test.generation},
					},
				},
			})
			if failed := test.want == apiv1.VolumeUpdateFailed; step.Status.State != test.want ||
				(step.RequeueAfter > 0) != failed || (step.Status.Error != nil) != failed {
				t.Fatalf("got %s with error %v, again after %v; want %s, and an error and a wait for a failure only",
					step.Status.State, step.Status.Error, step.RequeueAfter, test.want)
			} else if c := meta.FindStatusCondition(step.Status.Conditions, apiv1.VolumeConditionUpdated); failed &&
				c.Reason != apiv1.ReasonDiskUpdateFailed {
				t.Errorf("got condition %+v, want reason %s", c, apiv1.ReasonDiskUpdateFailed)
			}
		})
	}
}

// Only what the job has found missing waits: a former leader may have made the change and not recorded
// it.
func TestAChangeOfASharedDiskInUseWaitsIfTheDiskDoesNotHaveIt(t *testing.T) {
	t.Parallel()
	held, azure := objects.Owned("a", 1, apiv1.OwnershipHeld), provisioner.Errorf(provisioner.InvalidArgument, "Azure does not want that")
	const pends, refused, done = apiv1.ReasonDiskUpdatePending, apiv1.ReasonDiskUpdateRefused, apiv1.ReasonDiskUpdated
	grow := asked(func(s *apiv1.AzVolumeSpec) { s.CapacityBytes = 2 << 30 })
	for name, test := range map[string]struct {
		volume    *apiv1.AzVolume
		sizeBytes int64
		updated   operation.Updated
		want      string
		says      string
	}{
		"a disk that did not grow": {objects.NewVolume(grow, held, begun), 1 << 30, operation.Updated{Generation: 2}, pends,
			"it grows to 2Gi between two pods"},
		"a disk that has the size already": {objects.NewVolume(grow, held, begun), 2 << 30, operation.Updated{Generation: 2}, done, ""},
		"a disk of several nodes": {objects.NewVolume(grow, lostAgo(time.Second), begun, func(v *apiv1.AzVolume) {
			v.Spec.Access = apiv1.AccessMultiNode
		}), 1 << 30, operation.Updated{Generation: 2}, pends, "it grows to 2Gi when no pod uses it any more"},
		"another tier": {objects.NewVolume(asked(otherTier), held, begun), 1 << 30, operation.Updated{Generation: 2}, pends,
			"it gets tier P30 between"},
		"another SKU and size": {objects.NewVolume(grow, asked(otherSKU), held, begun), 1 << 30,
			operation.Updated{Generation: 2}, pends, "it grows to 2Gi, and it gets SKU StandardSSD_LRS between"},
		"other tags, which Azure refused": {objects.NewVolume(asked(tagged), held, begun), 1 << 30,
			operation.Updated{Generation: 2, RefusedSettings: azure}, refused, "parameters: "},
		"a disk that did not grow, and other tags, which Azure refused": {objects.NewVolume(grow, asked(tagged), held, begun), 1 << 30,
			operation.Updated{Generation: 2, RefusedSettings: azure}, refused, "parameters: "},
		"a disk that is not shared":       {objects.NewVolume(notShared, grow, held, begun), 1 << 30, operation.Updated{Generation: 2}, done, ""},
		"a size that was requested later": {objects.NewVolume(grow, held, begun), 1 << 30, operation.Updated{Generation: 1}, done, ""},
		"a disk without a primary":        {objects.NewVolume(grow, begun), 1 << 30, operation.Updated{Generation: 2}, done, ""},
		"a disk whose node was lost": {objects.NewVolume(grow, begun, lostAgo(time.Second)), 1 << 30,
			operation.Updated{Generation: 2}, pends, "it grows to 2Gi"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found := sharedDisk(test.sizeBytes)
			found.MaxShares = test.volume.Spec.Disk.MaxShares
			step := disk.Next(disk.Input{Now: objects.Now, HasFinalizer: true, Volume: test.volume, Job: operation.Job{
				Work:  operation.WorkUpdateDisk,
				Phase: operation.PhaseEnded,
				Ended: objects.Now,
				Begun: test.volume.Status.Operation,
				Truth: operation.Truth{Disk: found, Update: &test.updated},
			}})
			is := step.Status
			c := meta.FindStatusCondition(is.Conditions, apiv1.VolumeConditionUpdated)
			if c == nil || c.Reason != test.want || !strings.Contains(c.Message, test.says) || is.State != apiv1.VolumeCreated ||
				is.SizeBytes != test.sizeBytes || is.Operation != nil || is.UpdateWantedTime != nil {
				t.Fatalf("got %s with %d bytes and condition %+v, want %s with %d, %s: %q", is.State, is.SizeBytes, c,
					apiv1.VolumeCreated, test.sizeBytes, test.want, test.says)
			}
			v := test.volume.DeepCopy()
			v.Status = is
			if message, pending := disk.Pending(v); pending != (test.want == pends) || pending && message != c.Message {
				t.Errorf("got %q, %t from Pending, want %t", message, pending, test.want == pends)
			}
			if lost := is.LastRelease != nil; lost != (step.RequeueAfter > 0) {
				t.Errorf("got again after %s, want a time for a lost node alone", step.RequeueAfter)
			}
		})
	}
}

func TestRefusedPartsAreReverted(t *testing.T) {
	t.Parallel()
	v := objects.NewVolume(asked(larger), func(v *apiv1.AzVolume) { otherSKU(&v.Spec); tagged(&v.Spec) }, refusedParams)
	spec := disk.RevertRefused(v)
	if spec.Disk.SKUName != "Premium_LRS" || spec.Disk.Tags != nil || spec.CapacityBytes != 2<<30 {
		t.Fatalf("%+v", spec)
	}
	refusedSize(v)
	if spec = disk.RevertRefused(v); spec.CapacityBytes != 1<<30 {
		t.Fatalf("%+v", spec)
	}
	unknown := objects.NewVolume(asked(tagged), neverRecorded, refusedParams)
	if spec = disk.RevertRefused(unknown); !equality.Semantic.DeepEqual(*spec, unknown.Spec) {
		t.Fatalf("settings without a record are reverted: got %+v", spec)
	}
	v.Generation++
	if spec = disk.RevertRefused(v); !equality.Semantic.DeepEqual(*spec, v.Spec) {
		t.Fatalf("a later request is reverted: got %+v", spec)
	}
}

func TestChangeNamesWhatDiffersAndNothingElse(t *testing.T) {
	t.Parallel()
	iops := int64(4000)
	v := objects.NewVolume(asked(larger), func(v *apiv1.AzVolume) {
		v.Spec.Disk.Tags = map[string]string{"gone": "1", "kept": "1"}
		v.Status.Applied.Tags = map[string]string{"gone": "1", "kept": "1"}
		v.Spec.Disk.Tags = map[string]string{"kept": "2", "new": "3"}
		v.Spec.Disk.DiskIOPSReadWrite, v.Spec.Disk.NetworkAccessPolicy = &iops, "DenyAll"
		v.Status.Applied.NetworkAccessPolicy, v.Status.Applied.DiskAccessID = "AllowPrivate", "/id"
	})
	current := &provisioner.Disk{SizeBytes: 1 << 30, DiskSettings: provisioner.DiskSettings{
		SKUName:             "Premium_LRS",
		NetworkAccessPolicy: "AllowPrivate",
		PublicNetworkAccess: "Disabled",
		DiskAccessID:        "/id",
		Tags:                map[string]string{"gone": "1", "kept": "1", "foreign": "own"},
	}}
	c := disk.ChangeOf(v, current, false)
	all := c.All()
	got, want := all.Apply(current.DiskSettings), provisioner.DiskSettings{
		SKUName:             "Premium_LRS",
		DiskIOPSReadWrite:   &iops,
		NetworkAccessPolicy: "DenyAll",
		PublicNetworkAccess: "Disabled",
		Tags:                map[string]string{"kept": "2", "new": "3", "foreign": "own"},
	}
	if !equality.Semantic.DeepEqual(got, want) || all.SizeBytes != 2<<30 || c.Applied.Generation != 2 {
		t.Fatalf("got %+v of %+v, want %+v", got, all, want)
	}
	// What was found larger than it is recorded has been grown by a process that is no more.
	current.SizeBytes = 2 << 30
	if c := disk.ChangeOf(v, current, false); c.SizeBytes != 0 {
		t.Fatalf("%+v", c)
	}
}

func TestATagThatIsRemovedAloneIsRemovedFromTheDisk(t *testing.T) {
	t.Parallel()
	v := objects.NewVolume(asked(func(*apiv1.AzVolumeSpec) {}), func(v *apiv1.AzVolume) {
		v.Spec.Disk.Tags, v.Status.Applied.Tags = map[string]string{"kept": "1"}, map[string]string{"gone": "1", "kept": "1"}
	})
	current := &provisioner.Disk{
		SizeBytes: 1 << 30,
		DiskSettings: provisioner.DiskSettings{
			SKUName: "Premium_LRS",
			Tags:    map[string]string{"gone": "1", "kept": "1", "foreign": "own"},
		},
	}
	c := disk.ChangeOf(v, current, false)
	if c.Settings == nil {
		t.Fatal("got no change of the disk, want one that removes the tag")
	}
	if got, want := c.Settings.Apply(current.DiskSettings).Tags, map[string]string{
		"kept":    "1",
		"foreign": "own",
	}; !maps.Equal(got, want) {
		t.Fatalf("got tags %v, want %v", got, want)
	}
}

func TestChangeLeavesOutWhatAnAttachedSharedDiskDoesNotTake(t *testing.T) {
	t.Parallel()
	current := &provisioner.Disk{SizeBytes: 1 << 30, AttachedTo: []string{"/vm/a"}}
	if c := disk.ChangeOf(objects.NewVolume(asked(larger)), current, false); c.SizeBytes != 0 {
		t.Fatal("it grows")
	}
	if c := disk.ChangeOf(objects.NewVolume(asked(otherTier)), current, false); c.Settings != nil || c.Applied != nil {
		t.Fatalf("%+v", c)
	}
	if c := disk.ChangeOf(objects.NewVolume(asked(tagged)), current, false); c.Settings == nil || c.Applied == nil {
		t.Fatalf("%+v", c)
	}
	growing := func(s *apiv1.AzVolumeSpec) {
		larger(s)
		s.Disk.IOPSPerGiB, s.Disk.DiskIOPSReadWrite = 5, ptr.To[int64](5000)
	}
	if c := disk.ChangeOf(objects.NewVolume(asked(growing)), current, false); c.Settings != nil || c.Applied != nil {
		t.Fatalf("it gets the IOPS of the larger disk: %+v", c)
	}
	if c := disk.ChangeOf(objects.NewVolume(notShared, asked(larger)), current, false); c.SizeBytes == 0 {
		t.Fatal("it does not grow")
	}
	current.AttachedTo = nil
	owned := objects.NewVolume(asked(larger), objects.Owned("a", 1, apiv1.OwnershipHeld))
	if c := disk.ChangeOf(owned, current, false); c.SizeBytes != 0 {
		t.Fatal("it grows although it is about to be attached")
	}
}

func TestOnlySizeAndPerformanceOfASharedDiskChangeAlone(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		volume *apiv1.AzVolume
		want   bool
	}{
		"nothing":                 {objects.NewVolume(), false},
		"the size":                {objects.NewVolume(asked(larger)), true},
		"the tier":                {objects.NewVolume(asked(otherTier)), true},
		"the tags":                {objects.NewVolume(asked(tagged)), false},
		"what was never recorded": {objects.NewVolume(neverRecorded), false},
		"the size, not shared":    {objects.NewVolume(notShared, asked(larger)), false},
		"the tier, not shared":    {objects.NewVolume(notShared, asked(otherTier)), false},
	} {
		if got := disk.ChangesAlone(test.volume); got != test.want {
			t.Errorf("%s: got %t, want %t", name, got, test.want)
		}
	}
}

func TestTheConditionsNameWhatIsChanged(t *testing.T) {
	t.Parallel()
	both := func(s *apiv1.AzVolumeSpec) { larger(s); tagged(s) }
	for want, change := range map[string]func(*apiv1.AzVolumeSpec){"size": larger, "parameters": tagged,
		"size and parameters": both} {
		v := objects.NewVolume(notShared, asked(change))
		is := disk.Next(disk.Input{Now: objects.Now, HasFinalizer: true, Volume: v}).Status
		for _, condition := range []string{apiv1.VolumeConditionReady, apiv1.VolumeConditionUpdated} {
			if c := meta.FindStatusCondition(is.Conditions, condition); c == nil || c.Message != want {
				t.Errorf("got condition %s %+v, want message %q", condition, c, want)
			}
		}
	}
}

func TestARefusalOfBothPartsIsReportedOnceIfTheReasonIsOne(t *testing.T) {
	t.Parallel()
	quota := provisioner.Errorf(provisioner.InvalidArgument, "quota")
	policy := provisioner.Errorf(provisioner.InvalidArgument, "policy")
	for want, settings := range map[string]error{"size: quota": quota, "size: quota; parameters: policy": policy} {
		v := objects.NewVolume(notShared, asked(larger), begun)
		step := disk.Next(disk.Input{Now: objects.Now, HasFinalizer: true, Volume: v, Job: operation.Job{
			Work:  operation.WorkUpdateDisk,
			Phase: operation.PhaseEnded,
			Begun: v.Status.Operation,
			Truth: operation.Truth{Update: &operation.Updated{Generation: 2, RefusedCapacity: quota, RefusedSettings: settings}},
		}})
		if step.Message != want {
			t.Errorf("got message %q, want %q", step.Message, want)
		}
	}
}

func TestADiskThatGrowsForgetsTheRefusalOfItsSize(t *testing.T) {
	t.Parallel()
	for size, want := range map[int64]bool{1 << 30: true, 2 << 30: false} {
		v := objects.NewVolume(notShared, asked(larger), refusedEarlier, begun)
		is := disk.Next(disk.Input{Now: objects.Now, HasFinalizer: true, Volume: v, Job: operation.Job{
			Work:  operation.WorkUpdateDisk,
			Phase: operation.PhaseEnded,
			Begun: v.Status.Operation,
			Truth: operation.Truth{Disk: sharedDisk(size), Update: &operation.Updated{Generation: 2}},
		}}).Status
		if got := is.RefusedCapacity != nil; got != want {
			t.Errorf("a disk of %d bytes: got a refusal: %t, want %t", size, got, want)
		}
	}
}

func TestAWithdrawnChangeIsOver(t *testing.T) {
	t.Parallel()
	refusal := &apiv1.Refusal{Generation: 1}
	for was, message := range map[string]string{
		apiv1.ReasonDiskUpdating: "", apiv1.ReasonDiskUpdateFailed: "", apiv1.ReasonDiskUpdateRefused: "has been reverted",
	} {
		v := objects.NewVolume(gathered)
		v.Status.Conditions = []metav1.Condition{{Type: apiv1.VolumeConditionUpdated, Status: metav1.ConditionFalse, Reason: was}}
		v.Status.RefusedSettings = refusal
		is := disk.Next(disk.Input{Now: objects.Now, HasFinalizer: true, Volume: v}).Status
		c := meta.FindStatusCondition(is.Conditions, apiv1.VolumeConditionUpdated)
		if is.State != apiv1.VolumeCreated || c.Reason != apiv1.ReasonDiskUpdated || c.Status != metav1.ConditionTrue ||
			(c.Message == "") != (message == "") || !strings.Contains(c.Message, message) {
			t.Errorf("after %s: got %s, %+v; want %s, True %s and a message with %q", was, is.State, c, apiv1.VolumeCreated,
				apiv1.ReasonDiskUpdated, message)
		}
		if is.RefusedSettings == nil {
			t.Errorf("after %s: got no record of the refusal, want it kept", was)
		}
	}
}

// The user has set the spec back while the job ran: there is nothing left to refuse.
func TestAFailureOfAWithdrawnChangeRefusesNothing(t *testing.T) {
	t.Parallel()
	v := objects.NewVolume(begun)
	is := disk.Next(disk.Input{Now: objects.Now, HasFinalizer: true, Volume: v, Job: operation.Job{
		Work:  operation.WorkUpdateDisk,
		Phase: operation.PhaseEnded,
		Begun: v.Status.Operation,
		Err:   provisioner.Errorf(provisioner.NotFound, "no disk"),
		Truth: operation.Truth{Update: &operation.Updated{Generation: 1}},
	}}).Status
	if is.State != apiv1.VolumeCreated || is.RefusedCapacity != nil || is.RefusedSettings != nil {
		t.Errorf("got %+v, want state %s and no refusal", is, apiv1.VolumeCreated)
	}
}

// Another leader resumes the change by its token.
func TestTheTokenOfAChangeInFlightIsRecorded(t *testing.T) {
	t.Parallel()
	v := objects.NewVolume(notShared, asked(larger), gathered, begun)
	job := operation.Job{
		Work:   operation.WorkUpdateDisk,
		Phase:  operation.PhaseAccepted,
		Begun:  v.Status.Operation,
		Tokens: []string{"t"},
	}
	is := disk.Next(disk.Input{Now: objects.Now, HasFinalizer: true, Volume: v, Job: job}).Status
	if is.State != apiv1.VolumeUpdating || is.Operation == nil || is.Operation.ResumeToken != "t" {
		t.Fatalf("got %s, operation %+v; want %s, token t", is.State, is.Operation, apiv1.VolumeUpdating)
	}
	v.Status = is
	if step := disk.Next(disk.Input{Now: objects.Now, HasFinalizer: true, Volume: v}); step.Resume != "t" {
		t.Errorf("the next leader resumes %q, want token t", step.Resume)
	}
}

func TestWhenTheOutcomeOfAChangeIsUnknown(t *testing.T) {
	t.Parallel()
	creation := func(v *apiv1.AzVolume) { v.Status.Operation = &apiv1.Operation{Type: string(operation.WorkCreateDisk)} }
	failedBefore := func(v *apiv1.AzVolume) { v.Status.Error = &apiv1.Error{Reason: "Unavailable"} }
	for name, test := range map[string]struct {
		volume *apiv1.AzVolume
		want   bool
	}{
		"nothing was asked":                {objects.NewVolume(), false},
		"another operation is recorded":    {objects.NewVolume(creation), false},
		"Azure was asked":                  {objects.NewVolume(begun), true},
		"the change failed":                {objects.NewVolume(failedNow), true},
		"it failed, and more are gathered": {objects.NewVolume(failedBefore, gathered), true},
		"changes are gathered":             {objects.NewVolume(gathered), false},
		"it failed, and the disk was read": {objects.NewVolume(failedBefore), false},
	} {
		if got := disk.UpdateUncertain(&test.volume.Status); got != test.want {
			t.Errorf("%s: got %t, want %t", name, got, test.want)
		}
	}
}

func TestChangeWhoseAnswerWasLostIsTakenForMade(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		asked     func(*apiv1.AzVolumeSpec)
		has       provisioner.DiskSettings
		uncertain bool
	}{
		"a tier":                     {otherTier, provisioner.DiskSettings{SKUName: "Premium_LRS", Tier: "P30"}, false},
		"a SKU":                      {otherSKU, provisioner.DiskSettings{SKUName: "StandardSSD_LRS"}, false},
		"a tier, by another process": {otherTier, provisioner.DiskSettings{SKUName: "Premium_LRS", Tier: "P30"}, true},
	} {
		v := objects.NewVolume(asked(test.asked), objects.Owned("a", 1, apiv1.OwnershipHeld))
		c := disk.ChangeOf(v, &provisioner.Disk{SizeBytes: 1 << 30, AttachedTo: []string{"/vm/a"}, DiskSettings: test.has},
			test.uncertain)
		want := &apiv1.AppliedSettings{Generation: 2, DiskSettings: v.Spec.Disk.DiskSettings}
		if c.Settings != nil || !equality.Semantic.DeepEqual(c.Applied, want) {
			t.Errorf("%s: got change %+v to %+v, want none, to %+v", name, c.Settings, c.Applied, want)
		}
	}
}

// Azure cannot take a tier from a disk: a request for it was refused while a node used the disk.
func TestATierThatNeitherSpecNorDiskHasIsForgotten(t *testing.T) {
	t.Parallel()
	v := objects.NewVolume(asked(func(*apiv1.AzVolumeSpec) {}), objects.Owned("a", 1, apiv1.OwnershipHeld),
		func(v *apiv1.AzVolume) { v.Status.Applied.Tier = "P30" })
	c := disk.ChangeOf(v, sharedDisk(1<<30, "/vm/a"), false)
	if c.Settings != nil || c.Applied == nil || c.Applied.Tier != "" {
		t.Errorf("got change %+v to %+v, want none, and a record without a tier", c.Settings, c.Applied)
	}
}

func TestChangeThatWasSetBackBeforeItsAnswerIsUndoneOrKnown(t *testing.T) {
	t.Parallel()
	v, current := objects.NewVolume(), &provisioner.Disk{
		SizeBytes:    1 << 30,
		DiskSettings: provisioner.DiskSettings{SKUName: "StandardSSD_LRS"},
	}
	if c := disk.ChangeOf(v, current, false); c.Settings != nil || c.Applied != nil {
		t.Errorf("a change that a user made at Azure does not remain: got %+v", c)
	}
	c := disk.ChangeOf(v, current, true)
	if c.Settings == nil || c.Settings.To.SKUName != "Premium_LRS" || c.Settings.From.SKUName != "StandardSSD_LRS" ||
		c.Applied.SKUName != "Premium_LRS" {
		t.Errorf("it is not undone: %+v", c)
	}
	current.AttachedTo = []string{"/vm/a"}
	if c := disk.ChangeOf(v, current, true); c.Settings != nil || c.Applied == nil || c.Applied.SKUName != "StandardSSD_LRS" {
		t.Errorf("where it cannot be undone the record does not say what the disk is: %+v", c)
	}
}

func TestPartOfAChangeWhoseAnswerWasLostIsKeptWhenMoreIsAskedFor(t *testing.T) {
	t.Parallel()
	more := func(v *apiv1.AzVolume) { v.Spec.Disk.NetworkAccessPolicy = "AllowAll" }
	current := &provisioner.Disk{
		SizeBytes:    1 << 30,
		AttachedTo:   []string{"/vm/a"},
		DiskSettings: provisioner.DiskSettings{SKUName: "Premium_LRS", Tier: "P30"},
	}
	c := disk.ChangeOf(objects.NewVolume(asked(otherTier), more, objects.Owned("a", 1, apiv1.OwnershipHeld)), current, false)
	if c.Settings == nil || c.Settings.From.Tier != c.Settings.To.Tier || c.Settings.To.NetworkAccessPolicy != "AllowAll" ||
		c.Before.Tier != "P30" {
		t.Fatalf("%+v", c)
	}
	// What is left out because a node uses the disk does not take the rest with it.
	otherSKU := func(v *apiv1.AzVolume) { v.Spec.Disk.SKUName = "StandardSSD_LRS" }
	c = disk.ChangeOf(objects.NewVolume(asked(otherTier), otherSKU, objects.Owned("a", 1, apiv1.OwnershipHeld)), current, false)
	if c.Settings != nil || c.Applied == nil || c.Applied.Tier != "P30" || c.Applied.SKUName != "Premium_LRS" {
		t.Fatalf("%+v", c)
	}
}

func TestSettingsWithoutARecordAreComparedWithTheDisk(t *testing.T) {
	t.Parallel()
	v := objects.NewVolume(notShared, neverRecorded, func(v *apiv1.AzVolume) { v.Spec.Disk.Tags = map[string]string{"a": "b"} })
	c := disk.ChangeOf(v, &provisioner.Disk{
		SizeBytes:    1 << 30,
		DiskSettings: provisioner.DiskSettings{SKUName: "Premium_LRS", Tags: map[string]string{"a": "b", "c": "d"}},
	}, false)
	if c.Settings != nil || c.Applied == nil {
		t.Fatalf("%+v", c)
	}
}

func TestConversionIsLookedAtNowAndThen(t *testing.T) {
	t.Parallel()
	v := objects.NewVolume(notShared, func(v *apiv1.AzVolume) {
		v.Status.Conversion = &apiv1.Conversion{
			Percent:      10,
			StartTime:    *objects.Ago(2 * time.Hour),
			ObservedTime: *objects.Ago(5 * time.Minute),
		}
	})
	step := disk.Next(disk.Input{Now: objects.Now, HasFinalizer: true, Volume: v})
	if step.Start != operation.WorkNone || step.RequeueAfter != 5*time.Minute {
		t.Fatalf("%+v", step)
	}
	step = disk.Next(disk.Input{Now: objects.Now.Add(5 * time.Minute), HasFinalizer: true, Volume: v})
	if step.Start != operation.WorkReadDisk || step.Status.State != apiv1.VolumeCreated {
		t.Fatalf("%+v", step)
	}
	read := operation.Job{
		Work:  operation.WorkReadDisk,
		Phase: operation.PhaseEnded,
		Ended: objects.Now,
		Truth: operation.Truth{Disk: &provisioner.Disk{CompletionPercent: 50}},
	}
	c := disk.Next(disk.Input{Now: objects.Now, HasFinalizer: true, Volume: v, Job: read}).Status.Conversion
	if c == nil || c.Percent != 50 || !c.StartTime.Equal(&v.Status.Conversion.StartTime) ||
		!c.ObservedTime.Time.Equal(objects.Now) {
		t.Fatalf("half of it is done: got %+v, want its start as before", c)
	}
	read.Truth, read.Err = operation.Truth{}, provisioner.Errorf(provisioner.Unavailable, "try again")
	c = disk.Next(disk.Input{Now: objects.Now, HasFinalizer: true, Volume: v, Job: read}).Status.Conversion
	if c == nil || c.Percent != 10 || !c.ObservedTime.Time.Equal(objects.Now) {
		t.Fatalf("the disk cannot be read: got %+v, want 10 %%, looked at now", c)
	}
	done := operation.Job{
		Work:  operation.WorkReadDisk,
		Phase: operation.PhaseEnded,
		Ended: objects.Now,
		Truth: operation.Truth{Disk: &provisioner.Disk{
			CompletionPercent: 100,
			DiskSettings:      provisioner.DiskSettings{SKUName: "PremiumV2_LRS"},
		}},
	}
	step = disk.Next(disk.Input{Now: objects.Now, HasFinalizer: true, Volume: v, Job: done})
	if step.Status.Conversion != nil || step.Reason != apiv1.ReasonDiskConverted {
		t.Fatalf("%+v", step)
	}
}

func TestCachingOfWhatTheDiskIsNow(t *testing.T) {
	t.Parallel()
	cached := func(v *apiv1.AzVolume) { notShared(v); v.Spec.Disk.CachingMode = "ReadOnly" }
	for name, test := range map[string]struct {
		volume *apiv1.AzVolume
		want   string
	}{
		"as chosen": {objects.NewVolume(cached), "ReadOnly"},
		"shared":    {objects.NewVolume(func(v *apiv1.AzVolume) { v.Spec.Disk.CachingMode = "ReadOnly" }), "None"},
		"of ultra performance": {objects.NewVolume(cached, func(v *apiv1.AzVolume) { v.Spec.Disk.SKUName = "UltraSSD_LRS" }),
			"None"},
		"grown beyond 4095 GiB": {objects.NewVolume(cached, func(v *apiv1.AzVolume) { v.Status.SizeBytes = 4096 << 30 }), "None"},
		"converted": {objects.NewVolume(cached, asked(larger),
			func(v *apiv1.AzVolume) { v.Status.Applied.SKUName = "PremiumV2_LRS" }), "None"},
		"not converted yet": {objects.NewVolume(cached,
			asked(func(s *apiv1.AzVolumeSpec) { s.Disk.SKUName = "PremiumV2_LRS" })), "ReadOnly"},
	} {
		if got := disk.Caching(test.volume); got != test.want {
			t.Errorf("%s: %s", name, got)
		}
	}
}
