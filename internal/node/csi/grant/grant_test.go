package grant_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/node/csi/grant"
	"github.com/azuredisk-csi/azuredisk/internal/node/nodereport"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/expect"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/faulty"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/nodebench"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

var (
	disk  = nodebench.Handle(nodebench.VolumeID)
	other = nodebench.Disk("/subscriptions/s/resourceGroups/another/providers/Microsoft.Compute/disks/pvc-1")
)

func primary(v *apiv1.AzVolume) *apiv1.Ownership { return v.Status.Primary }

// A call fails if any of its reads does.
func TestAReadThatFailsIsTheResultOfItsCall(t *testing.T) {
	t.Parallel()
	for name, call := range map[string]func(context.Context, *nodebench.Bench) error{
		"Read":  func(ctx context.Context, b *nodebench.Bench) error { _, _, err := b.Reader.Read(ctx, disk); return err },
		"Look":  func(ctx context.Context, b *nodebench.Bench) error { _, _, err := b.Look(ctx, disk); return err },
		"Await": func(ctx context.Context, b *nodebench.Bench) error { _, _, err := b.Await(ctx, disk); return err },
		"Await of a disk that is being attached": func(ctx context.Context, b *nodebench.Bench) error {
			return attachedLater(ctx, b, func() error { _, _, err := b.Await(ctx, disk); return err })
		},
		"Look before the publish": func(ctx context.Context, b *nodebench.Bench) error {
			b.AwaitPublish = true
			return attachedLater(ctx, b, func() error { _, _, err := b.Look(ctx, disk); return err })
		},
		"Attachment": func(ctx context.Context, b *nodebench.Bench) error {
			_, err := b.Attachment(ctx, nodebench.Volume, nodebench.NodeName)
			return err
		},
		"Lasting": func(ctx context.Context, b *nodebench.Bench) error {
			_, _, err := b.Lasting(ctx, b.Record())
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				faulty.EachAccess(t, func(t *testing.T) (*faulty.Faults, func() error) {
					b := nodebench.New(t)
					return b.Faults, func() error { return call(t.Context(), b) }
				})
			})
		})
	}
}

// attachedLater makes a call during which the node becomes the primary and the disk is attached.
func attachedLater(ctx context.Context, b *nodebench.Bench, call func() error) error {
	a := &apiv1.AzVolumeAttachment{}
	key := client.ObjectKey{Namespace: nodebench.Namespace, Name: apiv1.AttachmentName(nodebench.Volume, nodebench.NodeName)}
	set := func(role apiv1.Role, state apiv1.AttachmentState) error {
		err := b.Direct.Get(ctx, key, a)
		if !b.AwaitPublish {
			role = apiv1.RolePrimary
		}
		a.Spec.Role = role
		status := a.DeepCopy()
		err = errors.Join(err, b.Direct.Update(ctx, a))
		status.ResourceVersion, status.Status.State = a.ResourceVersion, state
		return errors.Join(err, b.Direct.Status().Update(ctx, status))
	}
	if err := set(apiv1.RoleReplica, apiv1.AttachmentAttaching); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- call() }()
	time.Sleep(time.Second)
	return errors.Join(set(apiv1.RolePrimary, apiv1.AttachmentAttached), <-ended)
}

func TestWhatIsReadOfAVolume(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		edit       nodebench.Edit
		gone       bool
		attachment bool
		fails      error
		not        error
	}{
		"a volume that is published to this node": {attachment: true},
		"a volume that is published to no node":   {edit: func(_ *apiv1.AzVolume, a *apiv1.AzVolumeAttachment) { a.Name = "x" }},
		"a volume that does not exist":            {gone: true, fails: provisioner.NotFound, not: nodereport.ErrOtherDisk},
		"a volume whose name belongs to another disk": {edit: func(v *apiv1.AzVolume,
			_ *apiv1.AzVolumeAttachment) {
			v.Spec.Disk = other
		}, fails: nodereport.ErrOtherDisk, not: provisioner.NotFound},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := nodebench.New(t)
			if test.edit != nil {
				b = nodebench.New(t, test.edit)
			}
			if test.gone {
				v, _ := b.Objects(t)
				expect.Must(t, b.Direct.Delete(t.Context(), v))
			}
			v, a, err := b.Reader.Read(t.Context(), disk)
			if !errors.Is(err, test.fails) || test.not != nil && errors.Is(err, test.not) || (v != nil) != (test.fails == nil) ||
				(a != nil) != test.attachment {
				t.Errorf("got volume %t, attachment %t, %v; want volume %t, attachment %t, error %v", v != nil, a != nil, err,
					test.fails == nil, test.attachment, test.fails)
			}
		})
	}
}

// A node promises frequent heartbeats while it uses a volume with replicas, or one that it has not
// read.
func TestTheReportKnowsTheVolumesThatWereRead(t *testing.T) {
	t.Parallel()
	for replicas, want := range map[int32]int32{0: 60, 1: 1} {
		b := nodebench.New(t, func(v *apiv1.AzVolume, _ *apiv1.AzVolumeAttachment) { v.Spec.MaxMountReplicaCount = replicas })
		_, _, err := b.Reader.Read(t.Context(), disk)
		expect.Must(t, err)
		b.Staged(t)
		node := &apiv1.AzDriverNode{}
		expect.Must(t, b.Direct.Get(t.Context(), client.ObjectKey{Namespace: nodebench.Namespace, Name: nodebench.NodeName},
			node))
		if got := node.Status.HeartbeatPeriodSeconds; got != want {
			t.Errorf("%d replicas: the node promises a heartbeat every %d s, want %d", replicas, got, want)
		}
	}
}

func TestHowLongARecordIsValid(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		record func(*nodereport.Record)
		change nodebench.Edit
		report func(context.Context, *nodereport.Reporter) error
		gone   bool
		why    string
		fails  error
	}{
		"as staged": {},
		"the epoch is over": {change: func(v *apiv1.AzVolume, _ *apiv1.AzVolumeAttachment) { primary(v).Epoch = 2 },
			why: "epoch 1, which is over"},
		"the volume is gone": {gone: true, why: "does not exist"},
		"the volume is another disk's": {change: func(v *apiv1.AzVolume, _ *apiv1.AzVolumeAttachment) { v.Spec.Disk = other },
			fails: nodereport.ErrOtherDisk},
		"the record has no disk": {record: func(r *nodereport.Record) { r.VolumeID = "none" }, fails: provisioner.NotFound},
		"the report has no entry": {report: func(ctx context.Context, r *nodereport.Reporter) error {
			return r.Forget(ctx, nodebench.Volume)
		}, why: "the report does not name it"},
		"the report says that it is being staged": {report: func(ctx context.Context, r *nodereport.Reporter) error {
			return r.Restage(ctx, nodebench.Volume)
		}, why: "the report does not name it"},
		"the report has another epoch": {report: func(ctx context.Context, r *nodereport.Reporter) error {
			return r.Confirm(ctx, apiv1.StagedVolume{VolumeName: nodebench.Volume, Epoch: 9})
		}, why: "the report does not name it"},
		"the report names another volume": {report: func(ctx context.Context, r *nodereport.Reporter) error {
			return errors.Join(r.Forget(ctx, nodebench.Volume),
				r.Announce(ctx, "another", 1, "/s"), r.Confirm(ctx, apiv1.StagedVolume{VolumeName: "another", Epoch: 1}))
		}, why: "the report does not name it"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := nodebench.New(t)
			record := b.Staged(t)
			if test.record != nil {
				test.record(&record)
			}
			if test.change != nil {
				b.Change(t, test.change)
			}
			if test.report != nil {
				expect.Must(t, test.report(t.Context(), b.Report))
			}
			if test.gone {
				v, _ := b.Objects(t)
				expect.Must(t, b.Direct.Delete(t.Context(), v))
			}
			attachment, why, err := b.Lasting(t.Context(), record)
			if !errors.Is(err, test.fails) || (why == "") != (test.why == "") || !strings.Contains(why, test.why) ||
				(attachment != nil) != (test.why == "" && test.fails == nil) {
				t.Errorf("got attachment %t, %q, %v; want %q, %v", attachment != nil, why, err, test.why, test.fails)
			}
		})
	}
}

func TestAWatchThatEndsIsBegunAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := nodebench.New(t, func(_ *apiv1.AzVolume, a *apiv1.AzVolumeAttachment) { a.Status.State = apiv1.AttachmentAttaching })
		watches := 0
		b.Client = interceptor.NewClient(b.Client, interceptor.Funcs{
			Watch: func(ctx context.Context, c client.WithWatch, list client.ObjectList,
				opts ...client.ListOption) (watch.Interface,
				error) {
				w, err := c.Watch(ctx, list, opts...)
				if watches++; watches == 1 && err == nil {
					w.Stop()
				}
				return w, err
			},
		})
		go func() {
			time.Sleep(time.Second)
			b.Change(t, func(_ *apiv1.AzVolume, a *apiv1.AzVolumeAttachment) { a.Status.State = apiv1.AttachmentAttached })
		}()
		began := time.Now()
		if _, _, err := b.Await(t.Context(), disk); err != nil || watches != 2 || time.Since(began) != time.Second {
			t.Errorf("got %v after %d watches and %s, want success after 2 watches and a second", err, watches, time.Since(began))
		}
	})
}

func TestWhetherARecordIsValidIsNotKnownWhileTheReportIsWritten(t *testing.T) {
	t.Parallel()
	b := nodebench.New(t)
	record := b.Staged(t)
	b.WhileReporting(t, func() {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, why, err := b.Lasting(ctx, record); !errors.Is(err, context.Canceled) {
			t.Errorf("got %q, %v, want Canceled", why, err)
		}
	})
}

// slowly makes the n-th read of the AzVolume end when the caller has stopped waiting; it ends with the error of
// the caller's context if it is cut off.
func slowly(b *nodebench.Bench, n int, cutOff bool) {
	reads := 0
	b.Client = interceptor.NewClient(b.Client, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object,
			opts ...client.GetOption) error {
			if _, is := o.(*apiv1.AzVolume); is {
				if reads++; reads == n {
					<-ctx.Done()
					if cutOff {
						return ctx.Err()
					}
				}
			}
			return c.Get(ctx, key, o, opts...)
		},
	})
}

func TestAwaitEndsWhenTheNodeMayStageOrNeverWill(t *testing.T) {
	t.Parallel()
	attaching := func(_ *apiv1.AzVolume, a *apiv1.AzVolumeAttachment) {
		a.Status.State, a.Status.Error = apiv1.AttachmentAttaching, &apiv1.Error{Message: "no slot"}
	}
	for name, test := range map[string]struct {
		edit, change nodebench.Edit
		fails        error
		says         string
		waits        time.Duration
		slow         int // the read that ends when the time is up
	}{
		"it may stage": {edit: func(*apiv1.AzVolume, *apiv1.AzVolumeAttachment) {}},
		"it is refused": {edit: func(v *apiv1.AzVolume, _ *apiv1.AzVolumeAttachment) { primary(v).NodeName = "node-a" },
			fails: provisioner.FailedPrecondition, says: "node node-a is the primary"},
		"the disk is attached during the wait": {edit: attaching, waits: time.Second,
			change: func(_ *apiv1.AzVolume, a *apiv1.AzVolumeAttachment) { a.Status.State = apiv1.AttachmentAttached }},
		"the ownership, which is not watched, is lost": {edit: attaching, waits: grant.RereadInterval,
			change: func(v *apiv1.AzVolume, a *apiv1.AzVolumeAttachment) { primary(v).NodeName = "node-a" },
			fails:  provisioner.FailedPrecondition, says: "node node-a is the primary"},
		"it is refused by a read that ends when the time is up": {edit: attaching, slow: 2, waits: time.Minute,
			change: func(v *apiv1.AzVolume, a *apiv1.AzVolumeAttachment) { primary(v).NodeName = "node-a" },
			fails:  provisioner.FailedPrecondition, says: "node node-a is the primary"},
		"the disk is never attached": {edit: attaching, waits: time.Minute, fails: context.DeadlineExceeded, says: "no slot"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := nodebench.New(t, test.edit)
				slowly(b, test.slow, false)
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				if test.change != nil {
					go func() {
						time.Sleep(time.Second)
						b.Change(t, test.change)
					}()
				}
				began := time.Now()
				volume, decision, err := b.Await(ctx, disk)
				if !errors.Is(err, test.fails) || err != nil && !strings.Contains(err.Error(), test.says) ||
					(volume != nil) != (test.fails == nil) ||
					(decision.Outcome == ownership.StageAllowed) != (test.fails == nil) {
					t.Errorf("got volume %t, %+v, %v; want error %v with %q", volume != nil, decision, err, test.fails, test.says)
				}
				if waited := time.Since(began); waited < test.waits || waited > test.waits+time.Second {
					t.Errorf("it waited %s, want %s", waited, test.waits)
				}
			})
		})
	}
}

// Without VolumeAttachments NodeStageVolume arrives before the publish.
func TestLookWaitsForThePublish(t *testing.T) {
	t.Parallel()
	elsewhere := func(v *apiv1.AzVolume, a *apiv1.AzVolumeAttachment) {
		v.Status.Primary = &apiv1.Ownership{NodeName: "node-a", Epoch: 4, State: apiv1.OwnershipReleasing,
			Cause: apiv1.CauseNodeLost}
		a.Spec.Role, a.Spec.Epoch = apiv1.RoleReplica, 0
	}
	for name, test := range map[string]struct {
		edit, change nodebench.Edit
		// gone: there is no AzVolume until change.
		gone, noWait, deleted bool
		// slow is the read that ends when the wait does, and is cut off by that.
		slow   int
		cutOff bool
		// holder: there is an attachment of the node that has the volume; unread: reads of it fail.
		holder, unread bool
		fails          error
		says           string
		waits          time.Duration
	}{
		"the volume is published": {edit: func(*apiv1.AzVolume, *apiv1.AzVolumeAttachment) {}},
		"the volume is published, and the disk is being attached": {
			edit: func(_ *apiv1.AzVolume, a *apiv1.AzVolumeAttachment) { a.Status.State = apiv1.AttachmentAttaching }},
		"the kubelet waits itself, and the volume is not published": {edit: elsewhere, noWait: true},
		"the kubelet waits itself, and there is no volume":          {gone: true, noWait: true, fails: provisioner.NotFound},
		"the volume is another disk's": {edit: func(v *apiv1.AzVolume, _ *apiv1.AzVolumeAttachment) { v.Spec.Disk = other },
			fails: nodereport.ErrOtherDisk},
		"it is published during the wait": {edit: elsewhere, waits: time.Second,
			change: func(v *apiv1.AzVolume, a *apiv1.AzVolumeAttachment) {
				v.Status.Primary = &apiv1.Ownership{NodeName: nodebench.NodeName, Epoch: 5, State: apiv1.OwnershipHeld}
				a.Spec.Role, a.Spec.Epoch = apiv1.RolePrimary, 5
			}},
		"it becomes another disk's during the wait": {edit: elsewhere, waits: grant.RereadInterval,
			fails:  nodereport.ErrOtherDisk,
			change: func(v *apiv1.AzVolume, _ *apiv1.AzVolumeAttachment) { v.Spec.Disk = other }},
		"another node has it, and what the controller does about it is known": {edit: elsewhere, holder: true, waits: time.Minute,
			fails: provisioner.FailedPrecondition, says: "503 Service Unavailable"},
		"another node has it": {edit: elsewhere, waits: time.Minute, fails: provisioner.FailedPrecondition,
			says: "held by node node-a (epoch 4), which was lost"},
		"another node has it, and its attachment cannot be read": {edit: elsewhere, unread: true, waits: time.Minute,
			fails: provisioner.FailedPrecondition, says: "holds a replica of volume"},
		"another node had it": {waits: time.Minute, fails: provisioner.FailedPrecondition, says: "has no primary",
			edit: func(v *apiv1.AzVolume, _ *apiv1.AzVolumeAttachment) {
				primary(v).NodeName, primary(v).State = "node-a", apiv1.OwnershipReleased
			}},
		"the last read is cut off": {edit: elsewhere, holder: true, slow: 3, cutOff: true, waits: time.Minute,
			fails: provisioner.FailedPrecondition, says: "503 Service Unavailable"},
		"the last read ends after the wait, and shows it published": {edit: elsewhere, slow: 3, waits: time.Minute,
			change: func(v *apiv1.AzVolume, a *apiv1.AzVolumeAttachment) {
				v.Status.Primary = &apiv1.Ownership{NodeName: nodebench.NodeName, Epoch: 5, State: apiv1.OwnershipHeld}
				a.Spec.Role, a.Spec.Epoch = apiv1.RolePrimary, 5
			}},
		"a third node gets it during the wait": {edit: elsewhere, waits: time.Minute, fails: provisioner.FailedPrecondition,
			change: func(v *apiv1.AzVolume, _ *apiv1.AzVolumeAttachment) { primary(v).NodeName = "node-c" },
			says:   "held by node node-c"},
		"the volume is deleted during the wait": {edit: elsewhere, deleted: true, waits: time.Minute,
			fails: provisioner.FailedPrecondition, says: "does not exist"},
		"this node has it, and is releasing it": {waits: time.Minute, fails: provisioner.FailedPrecondition,
			edit: func(v *apiv1.AzVolume, _ *apiv1.AzVolumeAttachment) { primary(v).State = apiv1.OwnershipReleasing },
			says: "node node-b no longer holds volume"},
		"no node has it": {waits: time.Minute, fails: provisioner.FailedPrecondition,
			edit: func(v *apiv1.AzVolume, _ *apiv1.AzVolumeAttachment) { v.Status.Primary = nil }, says: "has no primary"},
		"no node has it any more": {waits: time.Minute, fails: provisioner.FailedPrecondition, says: "has no primary",
			edit: func(v *apiv1.AzVolume, _ *apiv1.AzVolumeAttachment) {
				v.Status.Primary = &apiv1.Ownership{Epoch: 4, State: apiv1.OwnershipReleased}
			}},
		"there is no volume": {gone: true, waits: time.Minute, fails: provisioner.FailedPrecondition,
			says: "AzVolume " + nodebench.Volume + " does not exist"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := nodebench.New(t, test.edit)
				b.AwaitPublish = !test.noWait
				slowly(b, test.slow, test.cutOff)
				v, _ := b.Objects(t)
				if test.gone {
					expect.Must(t, b.Direct.Delete(t.Context(), v))
				}
				if test.deleted {
					go func() {
						time.Sleep(time.Second)
						expect.Must(t, b.Direct.Delete(t.Context(), v))
					}()
				}
				if test.unread {
					unreadable(b)
				}
				if test.holder {
					expect.Must(t, b.Direct.Create(t.Context(), holder()))
				}
				if test.change != nil {
					go func() {
						time.Sleep(time.Second)
						b.Change(t, test.change)
					}()
				}
				began := time.Now()
				volume, _, err := b.Look(t.Context(), disk)
				if !errors.Is(err, test.fails) || err != nil && !strings.Contains(err.Error(), test.says) ||
					test.fails == nil && volume == nil {
					t.Errorf("got volume %t, %v; want error %v with %q", volume != nil, err, test.fails, test.says)
				}
				if waited := time.Since(began); waited < test.waits || waited > test.waits+time.Second {
					t.Errorf("it waited %s, want %s", waited, test.waits)
				}
			})
		})
	}
}

// unreadable makes reads of the attachment of the node that has the volume fail.
func unreadable(b *nodebench.Bench) {
	b.Client = interceptor.NewClient(b.Client, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object,
			opts ...client.GetOption) error {
			if key.Name == apiv1.AttachmentName(nodebench.Volume, "node-a") {
				return errors.New("the API server is away")
			}
			return c.Get(ctx, key, o, opts...)
		},
	})
}

// holder is the attachment of the node that has the volume, which is being detached by force.
func holder() *apiv1.AzVolumeAttachment {
	return &apiv1.AzVolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Namespace: nodebench.Namespace, Name: apiv1.AttachmentName(nodebench.Volume, "node-a")},
		Spec: apiv1.AzVolumeAttachmentSpec{
			VolumeName: nodebench.Volume, NodeName: "node-a", Role: apiv1.RolePrimary, Epoch: 4,
		},
		Status: apiv1.AzVolumeAttachmentStatus{Error: &apiv1.Error{Reason: "Unavailable", Message: "503 Service Unavailable"}},
	}
}
