package attachment

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	runner "github.com/azuredisk-csi/azuredisk/internal/controller/work"
	"github.com/azuredisk-csi/azuredisk/internal/plan/operation"
	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/fake"
)

const (
	compute = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/"
	lostVM  = compute + "virtualMachines/lost"
)

// withLostVM runs a test in virtual time with a VM that has n disks, of a platform where a forced
// detach takes eight seconds.
func withLostVM(t *testing.T, n int, test func(t *testing.T, cloud *fake.Cloud, disks []string)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		cloud := fake.New(fake.Options{Latency: fake.Latency{ForceDetach: 8 * time.Second}})
		vm := provisioner.Instance{ID: lostVM, Size: "Standard_M128s"}
		var disks []string
		for i := range n {
			id := fmt.Sprintf("%sdisks/pvc-%d", compute, i)
			cloud.AddDisk(provisioner.Disk{ID: id, MaxShares: 3})
			disks = append(disks, id)
			vm.DataDisks = append(vm.DataDisks, provisioner.Attachment{DiskID: id, LUN: int32(i)})
		}
		cloud.AddVM(vm)
		test(t, cloud, disks)
	})
}

func TestTheNextLeaderResumesTheForcedDetachOfTheLast(t *testing.T) {
	withLostVM(t, 1, func(t *testing.T, cloud *fake.Cloud, disks []string) {
		began := time.Now()
		ctx, kill := context.WithCancel(t.Context())
		tokens := make(chan string, 1)
		go func() {
			_, _ = newDiskWork(cloud).fence("pvc-0", disks[0], lostVM, "")(ctx,
				func(op provisioner.Operation) { tokens <- op.Token() })
		}()
		token := <-tokens
		time.Sleep(5 * time.Second)
		kill()
		truth, err := newDiskWork(cloud.Reopen()).fence("pvc-0", disks[0], lostVM, token)(t.Context(),
			func(op provisioner.Operation) {
				if op.Token() != token && op.Token() != "" {
					t.Errorf("got another forced detach, %q, want the one in flight to be resumed", op.Token())
				}
			})
		if err != nil || truth.Attached {
			t.Fatalf("%+v, %v", truth, err)
		}
		if took := time.Since(began); took < 8*time.Second || took > 8100*time.Millisecond {
			t.Errorf("the proof came after %v, want it at the end of the forced detach, which takes 8s", took)
		}
	})
}

func TestAnUnknownTokenIsReplacedByAForcedDetach(t *testing.T) {
	withLostVM(t, 1, func(t *testing.T, cloud *fake.Cloud, disks []string) {
		truth, err := newDiskWork(cloud).fence("pvc-0", disks[0], lostVM, "unknown")(t.Context(), func(provisioner.Operation) {})
		if n := cloud.CallCount(fake.AttachmentsForceDetach); err != nil || truth.Attached || n != 1 {
			t.Errorf("%+v, %v, %d forced detaches", truth, err, n)
		}
	})
}

func TestTheFencesOfOneVMReadItTogether(t *testing.T) {
	const n = 40
	withLostVM(t, n, func(t *testing.T, cloud *fake.Cloud, disks []string) {
		// In virtual time all callers have called before a read that takes any time at all is over.
		for _, read := range []fake.Method{fake.InstancesGet, fake.AttachmentsList} {
			cloud.Inject(fake.Fault{Method: read, Delay: 50 * time.Millisecond})
		}
		work, truths := newDiskWork(cloud), make(chan operation.Truth, n)
		for i, disk := range disks {
			go func() {
				truth, err := work.fence(fmt.Sprintf("pvc-%d", i), disk, lostVM, "")(t.Context(), func(provisioner.Operation) {})
				if err != nil {
					t.Error(err)
				}
				truths <- truth
			}()
		}
		for range n {
			if truth := <-truths; truth.Attached {
				t.Error("a disk is still attached")
			}
		}
		if reads := cloud.CallCount(fake.InstancesGet) + cloud.CallCount(fake.AttachmentsList); reads > 6 {
			t.Errorf("%d reads of the VM", reads)
		}
	})
}

// The attach was asked for and Azure's list of disks did not show it yet. That list was taken for a
// proof, and then the disk was attached.
func TestTheProofOfAFenceComesAfterASupersededAttachHasEnded(t *testing.T) {
	for name, sendingFor := range map[string]time.Duration{
		"an attach that the platform has accepted": 0,
		"an attach that is being sent":             3 * time.Second,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cloud := fake.New(fake.Options{Latency: fake.Latency{Attach: 12 * time.Second, ForceDetach: 8 * time.Second}})
				disk := compute + "disks/pvc-0"
				cloud.AddDisk(provisioner.Disk{ID: disk, MaxShares: 3})
				cloud.AddVM(provisioner.Instance{ID: lostVM, Size: "Standard_M128s"})
				if sendingFor > 0 {
					cloud.Inject(fake.Fault{Method: fake.AttachmentsAttach, Delay: sendingFor})
				}
				work, jobs := newDiskWork(cloud), runner.New(t.Context(), clock.RealClock{}, 1)
				volume := &apiv1.AzVolume{Status: apiv1.AzVolumeStatus{DiskID: disk}}
				object := &apiv1.AzVolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "pvc-0-a"}}
				jobs.Start(object, operation.WorkAttach, nil, work.attach(volume, lostVM, "", nil))
				time.Sleep(time.Second)
				began := time.Now()
				jobs.Start(object, operation.WorkFence, nil, work.fence("pvc-0", disk, lostVM, ""))
				for jobs.Job(object).Phase != operation.PhaseEnded {
					time.Sleep(100 * time.Millisecond)
				}
				job, took := jobs.Job(object), time.Since(began)
				if job.Work != operation.WorkFence || job.Err != nil || job.Truth.Attached || took > 9*time.Second {
					t.Errorf("got %+v after %v, want a fence that finds the disk detached within 9s", job, took)
				}
				time.Sleep(time.Minute)
				if got := cloud.State().Instances[0].DataDisks; len(got) != 0 {
					t.Errorf("the VM has %v a minute after the proof, want no disk", got)
				}
			})
		})
	}
}

func TestTheTruthOfAnAttachNamesTheVMThatWasAsked(t *testing.T) {
	cloud, disk := fake.New(fake.Options{}), compute+"disks/pvc-0"
	cloud.AddDisk(provisioner.Disk{ID: disk, MaxShares: 3})
	cloud.AddVM(provisioner.Instance{ID: lostVM, Size: "Standard_M128s"})
	volume := &apiv1.AzVolume{Status: apiv1.AzVolumeStatus{DiskID: disk}}
	truth, err := newDiskWork(cloud).attach(volume, lostVM, "", nil)(t.Context(), func(provisioner.Operation) {})
	if err != nil || !truth.Attached || truth.VMID != lostVM {
		t.Errorf("got %+v, %v; want it attached to %s", truth, err, lostVM)
	}
}

// Of an attachment whose AzVolume is lost only the name of the volume is known. Another resource
// group's disk of the same name must stay.
func TestTheDiskOfALostVolumeIsNotMistakenForAnotherOfItsName(t *testing.T) {
	const other, own = "/subscriptions/s/resourceGroups/another/providers/Microsoft.Compute/disks/pvc-0", compute + "disks/pvc-0"
	cloud := fake.New(fake.Options{})
	vm := provisioner.Instance{ID: lostVM, Size: "Standard_M128s"}
	for i, id := range []string{other, own} {
		cloud.AddDisk(provisioner.Disk{ID: id, MaxShares: 3})
		vm.DataDisks = append(vm.DataDisks, provisioner.Attachment{DiskID: id, LUN: int32(i)})
	}
	cloud.AddVM(vm)
	volume := apiv1.VolumeName("s", "g", "pvc-0")
	for name, job := range map[string]runner.Func{
		"detach": newDiskWork(cloud).detach(volume, "", lostVM, ""),
		"fence":  newDiskWork(cloud).fence(volume, "", lostVM, ""),
	} {
		if truth, err := job(t.Context(), func(provisioner.Operation) {}); err != nil || truth.Attached {
			t.Errorf("%s: %+v, %v; want the disk detached", name, truth, err)
		}
		if left := cloud.State().Instances[0].DataDisks; len(left) != 1 || left[0].DiskID != other {
			t.Errorf("after %s the VM has %+v, want %s alone", name, left, other)
		}
	}
}

func TestWhatAFenceFindsOut(t *testing.T) {
	for name, test := range map[string]struct {
		prepare func(cloud *fake.Cloud)
		diskID  string
		want    operation.Truth
	}{
		"a VM that is gone": {func(c *fake.Cloud) { c.RemoveVM(lostVM) }, compute + "disks/pvc-0",
			operation.Truth{VMGone: true}},
		"a VM that is stopped": {func(c *fake.Cloud) { c.SetPower(lostVM, provisioner.PowerStopped) },
			compute + "disks/pvc-0", operation.Truth{VMDown: true}},
		"a VM that is deallocated": {func(c *fake.Cloud) { c.SetPower(lostVM, provisioner.PowerDeallocated) },
			compute + "disks/pvc-0", operation.Truth{VMDown: true}},
		"a disk that is not there":   {func(*fake.Cloud) {}, compute + "disks/pvc-9", operation.Truth{}},
		"a VM that runs":             {func(*fake.Cloud) {}, compute + "disks/pvc-0", operation.Truth{}},
		"a disk whose ID is missing": {func(*fake.Cloud) {}, "", operation.Truth{}},
	} {
		t.Run(name, func(t *testing.T) {
			withLostVM(t, 1, func(t *testing.T, cloud *fake.Cloud, _ []string) {
				test.prepare(cloud)
				got, err := newDiskWork(cloud).fence(apiv1.VolumeName("s", "g", "pvc-0"), test.diskID, lostVM, "")(t.Context(),
					func(provisioner.Operation) {})
				if err != nil || got != test.want {
					t.Errorf("%+v, %v", got, err)
				}
				for _, vm := range cloud.State().Instances {
					if cut := len(vm.DataDisks) == 0; cut != (name != "a disk that is not there") {
						t.Errorf("cut off: %v", cut)
					}
				}
			})
		})
	}
}

// Azure has completed the operation, which proves the detach: forty detaches in one call must not
// cost further reads.
func TestADetachThatAzureHasCompletedNeedsNoFurtherRead(t *testing.T) {
	withLostVM(t, 1, func(t *testing.T, cloud *fake.Cloud, disks []string) {
		truth, err := newDiskWork(cloud).detach("pvc-0", disks[0], lostVM, "")(t.Context(), func(provisioner.Operation) {})
		if err != nil || truth.Attached {
			t.Errorf("got %+v, %v, want the disk detached", truth, err)
		}
		if n := cloud.CallCount(fake.AttachmentsList) + cloud.CallCount(fake.InstancesGet); n != 0 {
			t.Errorf("got %d reads of the VM, want none", n)
		}
	})
}

// withLostGoalStateVM is withLostVM with a platform whose VMs list what they are to have.
func withLostGoalStateVM(t *testing.T, test func(t *testing.T, cloud *fake.Cloud, disk string)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		cloud := fake.New(fake.Options{GoalState: true, Latency: fake.Latency{ForceDetach: 8 * time.Second}})
		disk := compute + "disks/pvc-0"
		cloud.AddDisk(provisioner.Disk{ID: disk, MaxShares: 3})
		cloud.AddVM(provisioner.Instance{
			ID:        lostVM,
			Size:      "Standard_M128s",
			DataDisks: []provisioner.Attachment{{DiskID: disk}},
		})
		test(t, cloud, disk)
	})
}

// A VM that did not list the disk was taken for the proof, while the forced detach of the last
// leader was in flight.
func TestTheNextLeaderWaitsForAForcedDetachThatTheVMDoesNotShow(t *testing.T) {
	for name, diskKnown := range map[string]bool{"of a disk that is known": true, "of a disk whose AzVolume is lost": false} {
		t.Run(name, func(t *testing.T) {
			withLostGoalStateVM(t, func(t *testing.T, cloud *fake.Cloud, disk string) {
				began := time.Now()
				op, err := cloud.Attachments().ForceDetach(t.Context(), lostVM, disk)
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Second)
				if !diskKnown {
					disk = ""
				}
				job := newDiskWork(cloud.Reopen()).fence(apiv1.VolumeName("s", "g", "pvc-0"), disk, lostVM, op.Token())
				truth, err := job(t.Context(), func(provisioner.Operation) {})
				if took := time.Since(began); err != nil || truth.Attached || took < 8*time.Second {
					t.Errorf("got %+v, %v after %v, want the disk detached after the 8s of the forced detach", truth, err, took)
				}
			})
		})
	}
}

func TestADetachThatFailedIsNoProofWhateverTheVMLists(t *testing.T) {
	for name, job := range map[string]func(work diskWork, disk string) runner.Func{
		"a forced detach":         func(w diskWork, disk string) runner.Func { return w.fence("pvc-0", disk, lostVM, "") },
		"a forced detach by disk": func(w diskWork, disk string) runner.Func { return w.fenceByDisk(disk, "", all) },
		"a forced detach by name": func(w diskWork, _ string) runner.Func {
			return w.fence(apiv1.VolumeName("s", "g", "pvc-0"), "", lostVM, "")
		},
		"a detach": func(w diskWork, disk string) runner.Func { return w.detach("pvc-0", disk, lostVM, "") },
		"a detach found by name": func(w diskWork, _ string) runner.Func {
			return w.detach(apiv1.VolumeName("s", "g", "pvc-0"), "", lostVM, "")
		},
	} {
		t.Run(name, func(t *testing.T) {
			withLostGoalStateVM(t, func(t *testing.T, cloud *fake.Cloud, disk string) {
				failure := fake.Fault{OperationErr: provisioner.Errorf(provisioner.Unavailable, "the host does not answer")}
				for _, failure.Method = range []fake.Method{fake.AttachmentsForceDetach, fake.AttachmentsDetach} {
					cloud.Inject(failure)
				}
				for try := range 2 { // the VM does not list the disk in the second one
					truth, err := job(newDiskWork(cloud), disk)(t.Context(), func(provisioner.Operation) {})
					if err == nil {
						t.Errorf("try %d: got %+v without an error; want one, because the disk is attached", try, truth)
					}
				}
				if d, err := cloud.Disks().Get(t.Context(), disk); err != nil || len(d.AttachedTo) != 1 {
					t.Fatalf("got the disk %+v, %v; want it at the VM", d, err)
				}
			})
		})
	}
}

func all(_ context.Context, attachedTo []string) ([]string, error) { return attachedTo, nil }

func TestTheFenceOfAVMThatIsDown(t *testing.T) {
	for name, test := range map[string]struct {
		power    provisioner.PowerState
		want     operation.Truth
		attached bool
		fails    bool
	}{
		"stopped":     {power: provisioner.PowerStopped, want: operation.Truth{VMDown: true}},
		"deallocated": {power: provisioner.PowerDeallocated, want: operation.Truth{VMDown: true}},
		"hibernated: Azure does not detach its disks": {power: provisioner.PowerHibernated, fails: true, attached: true},
		"running": {power: provisioner.PowerRunning},
	} {
		t.Run(name, func(t *testing.T) {
			withLostVM(t, 1, func(t *testing.T, cloud *fake.Cloud, disks []string) {
				cloud.SetPower(lostVM, test.power)
				got, err := newDiskWork(cloud).fence("pvc-0", disks[0], lostVM, "")(t.Context(), func(provisioner.Operation) {})
				if got != test.want || (err != nil) != test.fails {
					t.Errorf("got %+v, %v; want %+v and an error: %v", got, err, test.want, test.fails)
				}
				if attached := len(cloud.State().Instances[0].DataDisks) == 1; attached != test.attached {
					t.Errorf("got the disk attached: %v, want %v", attached, test.attached)
				}
			})
		})
	}
}
