package snapshots_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/azuredisk-csi/azuredisk/internal/testkit/controlplane"
	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/fake"
)

var otherRegion = map[string]string{"location": "westus2", "tags": "a=b"}

// The V1 driver kept all steps in the memory of one call.
func TestCopyToAnotherRegionGoesOnAfterARestartAtEachStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := controlplane.WithPendingCopies(t)
		disk := p.AddDisk("fast", ultra)
		restart := func() {
			p.Stop()
			p.Start()
		}
		first := mustTake(p, t, "snap", disk, otherRegion)
		if first.GetReadyToUse() || first.GetSnapshotId() != controlplane.SnapshotID("snap") || names(p) != "local_snap" {
			t.Fatalf("while the local one is filled: %s; there is %s", first, names(p))
		}
		restart()
		if again := mustTake(p, t, "snap", disk, otherRegion); again.GetReadyToUse() || names(p) != "local_snap" {
			t.Fatalf("asked again: %s; there is %s", again, names(p))
		}
		p.Cloud.FinishCopies()
		restart()
		if again := mustTake(p, t, "snap", disk, otherRegion); again.GetReadyToUse() || names(p) != "local_snap snap" {
			t.Fatalf("while it is copied: %s; there is %s", again, names(p))
		}
		spec, _ := p.Cloud.SnapshotSpec(controlplane.SnapshotID("snap"))
		if spec.Location != "westus2" || spec.SourceID != controlplane.SnapshotID("local_snap") || !spec.Incremental ||
			spec.Tags["a"] != "b" {
			t.Errorf("the copy was made with %+v", spec)
		}
		restart()
		if again := mustTake(p, t, "snap", disk, otherRegion); again.GetReadyToUse() || names(p) != "local_snap snap" {
			t.Fatalf("asked again: %s; there is %s", again, names(p))
		}
		p.Cloud.FinishCopies()
		restart()
		for range 2 {
			last := mustTake(p, t, "snap", disk, otherRegion)
			if !last.GetReadyToUse() || names(p) != "snap" {
				t.Fatalf("when it is complete: %s; there is %s", last, names(p))
			}
			if !last.GetCreationTime().AsTime().Equal(first.GetCreationTime().AsTime()) || last.GetSourceVolumeId() != disk ||
				last.GetSizeBytes() != 10<<30 {
				t.Errorf("the answers differ:\n%s\n%s", first, last)
			}
		}
	})
}

// A process that is killed at any call of Azure's, before or after it had an effect, leaves only
// what the next call finds.
func TestCopyToAnotherRegionLosesNothingWhereverItIsCutOff(t *testing.T) {
	gone := provisioner.Errorf(provisioner.Unavailable, "killed")
	for _, method := range []fake.Method{fake.SnapshotsCreate, fake.SnapshotsGet, fake.SnapshotsDelete} {
		for _, id := range []string{controlplane.SnapshotID("snap"), controlplane.SnapshotID("local_snap")} {
			for name, fault := range map[string]fake.Fault{
				"before":           {Method: method, ID: id, Times: 1, Err: gone},
				"in its operation": {Method: method, ID: id, Times: 1, OperationErr: gone},
			} {
				t.Run(fmt.Sprintf("%s %s of %s", name, method, id[len(controlplane.SnapshotID("")):]), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						p := controlplane.NewInMemory(t, controlplane.Options{
							Quiet:   true,
							Latency: fake.Latency{BackgroundCopy: time.Millisecond},
						})
						disk := p.AddDisk("disk", nil)
						p.Cloud.Inject(fault)
						p.Eventually("the copy", func() string {
							taken, err := p.TakeSnapshot("snap", disk, otherRegion)
							switch {
							case err != nil:
								p.Stop()
								p.Start()
								return err.Error()
							case !taken.GetReadyToUse():
								return "not ready"
							}
							return ""
						})
						if left := names(p); left != "snap" {
							t.Errorf("there is %s", left)
						}
					})
				})
			}
		}
	}
}

func TestDeleteSnapshotDeletesTheLocalSnapshotOfItsCopy(t *testing.T) {
	for name, steps := range map[string]int{"before the copy has begun": 0, "while it is copied": 1, "when it is complete": 2} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := controlplane.WithPendingCopies(t)
				disk := p.AddDisk("fast", ultra)
				mustTake(p, t, "snap", disk, otherRegion)
				for range steps {
					p.Cloud.FinishCopies()
					mustTake(p, t, "snap", disk, otherRegion)
				}
				p.Cloud.FailNext(fake.SnapshotsDelete, 1, provisioner.Errorf(provisioner.Unavailable, "killed"))
				expectCode(t, drop(p, t, controlplane.SnapshotID("snap")), codes.Unavailable)
				p.Stop()
				p.Start()
				must(t, drop(p, t, controlplane.SnapshotID("snap")))
				if left := names(p); left != "" {
					t.Errorf("there is %s", left)
				}
			})
		})
	}
}

func TestDeleteSnapshotKeepsASnapshotNamedLikeALocalOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := controlplane.WithPendingCopies(t)
		disk := p.AddDisk("disk", nil)
		mustTake(p, t, "local_snap", disk, nil)
		_, err := p.TakeSnapshot("snap", disk, otherRegion)
		expectCode(t, err, codes.AlreadyExists, "local_snap")
		must(t, drop(p, t, controlplane.SnapshotID("snap")))
		if left := names(p); left != "local_snap" {
			t.Errorf("there is %s", left)
		}
	})
}

func TestCopyOfAnotherDiskAlreadyExists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := controlplane.WithPendingCopies(t)
		disk, other := p.AddDisk("disk", nil), p.AddDisk("other", nil)
		mustTake(p, t, "snap", disk, otherRegion)
		_, err := p.TakeSnapshot("snap", other, otherRegion)
		expectCode(t, err, codes.AlreadyExists)
		p.Cloud.FinishCopies()
		if taken := mustTake(p, t, "snap", disk, otherRegion); !taken.GetReadyToUse() {
			t.Errorf("%s", taken)
		}
		_, err = p.TakeSnapshot("snap", other, otherRegion) // now that nothing but a tag tells the source
		expectCode(t, err, codes.AlreadyExists)
	})
}

func TestCopyThatFailedStartsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := controlplane.WithPendingCopies(t)
		disk := p.AddDisk("disk", nil)
		mustTake(p, t, "snap", disk, otherRegion)
		p.Cloud.FailCopy(controlplane.SnapshotID("snap"), "CopySourceNotFound: the wires are down")
		_, err := p.TakeSnapshot("snap", disk, otherRegion)
		expectCode(t, err, codes.Unavailable, "the wires are down")
		if again := mustTake(p, t, "snap", disk, otherRegion); again.GetReadyToUse() || names(p) != "local_snap snap" {
			t.Errorf("%s; there is %s", again, names(p))
		}
		p.Cloud.FinishCopies()
		if again := mustTake(p, t, "snap", disk, otherRegion); !again.GetReadyToUse() || names(p) != "snap" {
			t.Errorf("%s; there is %s", again, names(p))
		}
	})
}

func TestCopyIsFinishedAlthoughItsDiskHasGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := controlplane.WithPendingCopies(t)
		disk := p.AddDisk("fast", ultra)
		mustTake(p, t, "snap", disk, otherRegion)
		op, err := p.Cloud.Disks().Delete(t.Context(), disk)
		must(t, err)
		must(t, op.Wait(t.Context()))
		for range 2 {
			p.Cloud.FinishCopies()
			mustTake(p, t, "snap", disk, otherRegion)
		}
		if taken := mustTake(p, t, "snap", disk, otherRegion); !taken.GetReadyToUse() || names(p) != "snap" {
			t.Errorf("%s; there is %s", taken, names(p))
		}
		_, err = p.TakeSnapshot("never", disk, otherRegion)
		expectCode(t, err, codes.NotFound)
	})
}
