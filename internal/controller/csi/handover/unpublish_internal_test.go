package handover

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cluster"
	"github.com/azuredisk-csi/azuredisk/internal/controller/csi/adoption"
	"github.com/azuredisk-csi/azuredisk/internal/controller/csi/call"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/fakeapi"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/objects"
	"github.com/azuredisk-csi/azuredisk/internal/volumehandle"
	"github.com/azuredisk-csi/azuredisk/provisioner"
	cloudfake "github.com/azuredisk-csi/azuredisk/provisioner/fake"
)

// volumeOf returns the AzVolume of a disk, and its handle.
func volumeOf(t *testing.T, primary *apiv1.Ownership) (*apiv1.AzVolume, volumehandle.Handle) {
	t.Helper()
	handle, err := volumehandle.Parse("/subscriptions/s/resourceGroups/rg/providers/Microsoft.Compute/disks/vol")
	if err != nil {
		t.Fatal(err)
	}
	return &apiv1.AzVolume{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: handle.VolumeName()},
		Spec: apiv1.AzVolumeSpec{
			Access: apiv1.AccessSingleNode,
			Disk:   apiv1.DiskParameters{Name: "vol", ResourceGroup: "rg", SubscriptionID: "s", MaxShares: 2},
		},
		Status: apiv1.AzVolumeStatus{Primary: primary},
	}, handle
}

func attachmentOf(v *apiv1.AzVolume, node string, epoch int64) *apiv1.AzVolumeAttachment {
	return &apiv1.AzVolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:  "ns",
			Name:       apiv1.AttachmentName(v.Name, node),
			Finalizers: []string{apiv1.FinalizerAttachment},
		},
		Spec: apiv1.AzVolumeAttachmentSpec{
			VolumeName: v.Name,
			NodeName:   node,
			Role:       apiv1.RolePrimary,
			Epoch:      epoch,
		},
	}
}

func storeOf(t *testing.T, objects ...client.Object) client.WithWatch {
	t.Helper()
	return fakeapi.With(objects...).
		WithIndex(&corev1.PersistentVolume{}, cluster.PersistentVolumeVolume, func(o client.Object) []string {
			handle, _ := volumehandle.Parse(o.(*corev1.PersistentVolume).Spec.CSI.VolumeHandle)
			return []string{handle.VolumeName()}
		}).
		WithIndex(&corev1.Node{}, cluster.NodeVM, cluster.NodeVMKeys).WithIndex(&apiv1.AzDriverNode{}, cluster.NodeVM,
		cluster.NodeVMKeys).
		WithIndex(&apiv1.AzVolumeAttachment{}, "spec.volumeName",
			func(o client.Object) []string { return []string{o.(*apiv1.AzVolumeAttachment).Spec.VolumeName} }).Build()
}

func publisherOf(t *testing.T, api client.Client, disks provisioner.Disks) *Publisher {
	t.Helper()
	stored := &cluster.Records{Client: api, Reader: api, Watch: cluster.NewWatch(), Namespace: "ns"}
	s, err := New(&adoption.Adopter{Records: stored, Disks: disks}, nil, clocktesting.NewFakePassiveClock(time.Unix(0, 0)), nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A publish acquires ownership after the unpublish has read the AzVolume. A proof under the new
// epoch would refuse the volume to the node that holds it.
func TestUnpublishReleasesTheOwnershipOfItsAttachment(t *testing.T) {
	t.Parallel()
	v, handle := volumeOf(t, &apiv1.Ownership{NodeName: "a", Epoch: 2, State: apiv1.OwnershipHeld})
	a := attachmentOf(v, "a", 2)
	base := storeOf(t, v, a)
	reads, stop := 0, errors.New("the test ends here")
	api := interceptor.NewClient(base, interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey,
		o client.Object, options ...client.GetOption) error {
		if _, report := o.(*apiv1.AzDriverNode); report {
			return stop
		}
		err := c.Get(ctx, key, o, options...)
		if read, ok := o.(*apiv1.AzVolume); ok {
			if reads++; reads == 1 {
				read.Status.Primary = nil
			}
		}
		return err
	}})
	s := publisherOf(t, api, nil)
	if err := s.unpublish(t.Context(), handle, "a"); !errors.Is(err, stop) {
		t.Fatalf("got error %v, want that of the read of the report", err)
	}
	if err := base.Get(t.Context(), client.ObjectKeyFromObject(v), v); err != nil {
		t.Fatal(err)
	}
	if o := v.Status.Primary; o == nil || o.State != apiv1.OwnershipReleasing || o.Epoch != 2 {
		t.Errorf("got ownership %+v, want epoch 2 to be Releasing before the report is read", o)
	}
}

// A multi-node volume has no ownership: after the deletion of its attachment the node may not stage
// it any more, so that a report that is read after it is a proof.
func TestLaw3TheReportIsReadAfterTheDeletionOfTheAttachment(t *testing.T) {
	t.Parallel()
	v, handle := volumeOf(t, nil)
	v.Spec.Access = apiv1.AccessMultiNode
	a := attachmentOf(v, "a", ownership.MultiNodeEpoch)
	base := storeOf(t, v, a)
	reads := 0
	api := interceptor.NewClient(base, interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey,
		o client.Object, options ...client.GetOption) error {
		if _, report := o.(*apiv1.AzDriverNode); report {
			reads++
			if err := c.Get(ctx, client.ObjectKeyFromObject(a), a); err != nil || a.DeletionTimestamp == nil {
				t.Errorf("got attachment %+v, error %v when the report is read; want it to be deleted", a, err)
			}
		}
		return c.Get(ctx, key, o, options...)
	}})
	ctx, cancel := context.WithDeadline(t.Context(), time.Time{})
	defer cancel()
	if err := publisherOf(t, api, nil).unpublish(ctx, handle, "a"); status.Code(err) != codes.Aborted || reads == 0 {
		t.Errorf("got error %v after %d reads of the report, want Aborted after at least one", err, reads)
	}
}

// The AzVolume has lost its ownership, so that only the attachment says that the node may use the
// volume. No later step removes an attachment that an unpublish leaves.
func TestUnpublishReadsTheAttachmentAtTheAPIServer(t *testing.T) {
	t.Parallel()
	notFound := apierrors.NewNotFound(apiv1.GroupVersion.WithResource("azvolumeattachments").GroupResource(), "")
	for name, cached := range map[string]func(*apiv1.AzVolumeAttachment) error{
		"the cache has no attachment": func(*apiv1.AzVolumeAttachment) error { return notFound },
		"the cache has the replica from before the publish": func(a *apiv1.AzVolumeAttachment) error {
			a.Spec.Role, a.Spec.Epoch = apiv1.RoleReplica, 1
			a.Status.Proof = &apiv1.ReleaseProof{Type: apiv1.ProofUnstaged, Epoch: 1}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v, handle := volumeOf(t, nil)
			api := storeOf(t, v, attachmentOf(v, "a", 2))
			s := publisherOf(t, api, nil)
			s.Client = interceptor.NewClient(api,
				interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object,
					options ...client.GetOption) error {
					err := c.Get(ctx, key, o, options...)
					if a, ok := o.(*apiv1.AzVolumeAttachment); ok && err == nil {
						return cached(a)
					}
					return err
				}})
			if err := s.unpublish(t.Context(), handle, "a"); status.Code(err) != codes.Aborted {
				t.Errorf("got %v, want Aborted until there is a proof that the node released the volume", err)
			}
		})
	}
}

// The attachment and the AzDriverNode were lost while Azure attached the disk: Azure listed the
// disk at no VM, and the driver recorded that as the proof. If Azure listed the node's VM, or if
// the attachment was edited, there was never a proof.
func TestUnpublishRestoresTheAttachmentFromWhichTheProofComes(t *testing.T) {
	t.Parallel()
	replica := func(v *apiv1.AzVolume) *apiv1.AzVolumeAttachment {
		a := attachmentOf(v, "a", 1)
		a.Spec.Role = apiv1.RoleReplica
		return a
	}
	for name, there := range map[string]func(v *apiv1.AzVolume) *apiv1.AzVolumeAttachment{
		"the attachment was deleted":        nil,
		"the attachment was made a replica": replica,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v, handle := volumeOf(t, &apiv1.Ownership{NodeName: "a", Epoch: 2, State: apiv1.OwnershipHeld})
			objects := []client.Object{v}
			if there != nil {
				objects = append(objects, there(v))
			}
			api := storeOf(t, objects...)
			cloud := cloudfake.New(cloudfake.Options{})
			cloud.AddDisk(provisioner.Disk{ID: handle.String(), MaxShares: 2})
			s := publisherOf(t, api, cloud.Disks())
			unpublish := func() error {
				ctx, cancel := context.WithDeadline(t.Context(), time.Time{})
				defer cancel()
				return s.unpublish(ctx, handle, "a")
			}
			if err := unpublish(); status.Code(err) != codes.Aborted {
				t.Fatalf("got %v, want Aborted until the attachment has a proof", err)
			}
			a := &apiv1.AzVolumeAttachment{ObjectMeta: metav1.ObjectMeta{
				Namespace: "ns",
				Name:      apiv1.AttachmentName(v.Name, "a"),
			}}
			if err := api.Get(t.Context(), client.ObjectKeyFromObject(a), a); err != nil {
				t.Fatal(err)
			}
			if want := (apiv1.AzVolumeAttachmentSpec{
				VolumeName: v.Name,
				NodeName:   "a",
				Role:       apiv1.RolePrimary,
				Epoch:      2,
			}); a.Spec != want || len(a.Finalizers) != 1 {
				t.Errorf("got attachment %+v with finalizers %v, want %+v with the driver's", a.Spec, a.Finalizers, want)
			}
			a.Status.Proof = &apiv1.ReleaseProof{Type: apiv1.ProofDetached, Epoch: 2}
			if err := api.Status().Update(t.Context(), a); err != nil {
				t.Fatal(err)
			}
			if err := unpublish(); err != nil {
				t.Fatal(err)
			}
			if err := api.Get(t.Context(), client.ObjectKeyFromObject(v), v); err != nil {
				t.Fatal(err)
			}
			if o, r := v.Status.Primary, v.Status.LastRelease; o.State != apiv1.OwnershipReleased || r == nil ||
				r.Proof.Type != apiv1.ProofDetached {
				t.Errorf("got ownership %+v and release %+v, want Released by the attachment's proof", o, r)
			}
		})
	}
}

// The attachment is the only record of a multi-node volume at a node. It was lost while the node
// staged the volume, and the unpublish succeeded: an attachment that was re-created later was never
// deleted.
func TestUnpublishWithALostAttachmentWaitsForTheNode(t *testing.T) {
	t.Parallel()
	const vm = "/subscriptions/s/resourceGroups/rg/providers/Microsoft.Compute/virtualMachines/a"
	for name, test := range map[string]struct {
		attached, reported bool
		want               codes.Code
	}{
		"the node reports the volume":               {attached: true, reported: true, want: codes.Aborted},
		"the node does not report the volume":       {attached: true},
		"Azure does not have the disk there, law 7": {reported: true},
		"neither is the case":                       {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { // the call waits for the proof until its deadline
				v, handle := volumeOf(t, nil)
				v.Spec.Access = apiv1.AccessMultiNode
				d := objects.Report("a")
				if test.reported {
					d = objects.Report("a", v.Name)
				}
				d.Namespace, d.Spec.VMID = "ns", vm
				api := storeOf(t, v, d, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}})
				cloud := cloudfake.New(cloudfake.Options{})
				cloud.AddDisk(provisioner.Disk{ID: handle.String(), MaxShares: 2})
				cloud.AddVM(provisioner.Instance{ID: vm})
				if test.attached {
					if _, err := cloud.Attachments().Attach(t.Context(), provisioner.AttachRequest{
						VMID:   vm,
						DiskID: handle.String(),
						Shared: true,
					}); err != nil {
						t.Fatal(err)
					}
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if err := publisherOf(t, api, cloud.Disks()).unpublish(ctx, handle, "a"); status.Code(err) != test.want {
					t.Fatalf("got error %v, want code %s", err, test.want)
				}
				a := &apiv1.AzVolumeAttachment{}
				err := api.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: apiv1.AttachmentName(v.Name, "a")}, a)
				if there := test.want == codes.Aborted; (err == nil) != there || there &&
					(a.DeletionTimestamp == nil || a.Spec.Role != apiv1.RolePrimary || a.Spec.Epoch != 1) {
					t.Errorf("got attachment %+v, error %v; want a primary that is being deleted: %t", a, err, there)
				}
			})
		})
	}
}

// A caller that ends before Azure has accepted learns what the request waits for.
func TestAPublishThatWaitsSaysWhatFor(t *testing.T) {
	t.Parallel()
	const quota = "Azure's quota for updates of VM a is used up; the request waits since 10:00:00 UTC, until about 10:00:15 UTC"
	for name, test := range map[string]struct {
		state     apiv1.AttachmentState
		condition string
		want      string
	}{
		"the controller has not begun": {"", "", "the controller has not yet reconciled the attachment"},
		"a slot is not free":           {apiv1.AttachmentPending, "a replica is deleted", "Reason: a replica is deleted"},
		"the quota is used up":         {apiv1.AttachmentAttaching, quota, "Reason: " + quota},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v, _ := volumeOf(t, &apiv1.Ownership{NodeName: "a", Epoch: 2, State: apiv1.OwnershipHeld})
			a := attachmentOf(v, "a", 2)
			a.Status.State = test.state
			if test.condition != "" {
				a.Status.Conditions = []metav1.Condition{{
					Type:    "Attached",
					Status:  metav1.ConditionFalse,
					Reason:  "Reason",
					Message: test.condition,
				}}
			}
			ended, cancel := context.WithDeadline(t.Context(), time.Unix(0, 0))
			defer cancel()
			err := publisherOf(t, storeOf(t, v, a), nil).awaitAccepted(ended, a)
			if status.Code(err) != codes.Aborted || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want Aborted with %q", err, test.want)
			}
		})
	}
}

// The publish to the fenced node acquired the ownership and was killed before it deleted the
// attachment that is pre-empted. Its epoch is not raised: with another epoch it would not say any
// more that only a reservation keeps the node from writing, and the reservation would end.
func TestAnUnpublishKeepsTheProofOfAPreemptedNode(t *testing.T) {
	t.Parallel()
	for name, reported := range map[string]bool{
		"the node reports the volume of the former epoch": true,
		"the node has unmounted the volume":               false,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v, handle := volumeOf(t, &apiv1.Ownership{NodeName: "a", Epoch: 7, State: apiv1.OwnershipHeld})
			a := attachmentOf(v, "a", 5)
			a.Status = apiv1.AzVolumeAttachmentStatus{
				State: apiv1.AttachmentDetaching,
				Proof: &apiv1.ReleaseProof{Type: apiv1.ProofPreempted, Epoch: 5},
			}
			scanned := metav1.NewMicroTime(time.Unix(1, 0))
			d := &apiv1.AzDriverNode{
				ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a"},
				Status:     apiv1.AzDriverNodeStatus{MountsScannedTime: &scanned},
			}
			if reported {
				d.Status.StagedVolumes = []apiv1.StagedVolume{{VolumeName: v.Name, Epoch: 5, Phase: apiv1.PhaseStaged}}
			}
			api := storeOf(t, v, a, d)
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			err := publisherOf(t, api, nil).unpublish(ctx, handle, "a")
			if (err != nil) != reported {
				t.Errorf("got %v, want an error as long as there is no proof: %t", err, reported)
			}
			if err := api.Get(t.Context(), client.ObjectKeyFromObject(a), a); err != nil {
				t.Fatal(err)
			}
			if a.DeletionTimestamp == nil || !ownership.Preempted(a) || a.Spec.Epoch != 5 {
				t.Errorf("got epoch %d, proof %+v, deleted %v; want it deleted, and otherwise unchanged", a.Spec.Epoch,
					a.Status.Proof, a.DeletionTimestamp)
			}
		})
	}
}

// The unpublish of one spelling released the volume that a pod of the other one was about to stage,
// and Kubernetes did not publish it again.
func TestAVolumeStaysWithItsNodeForAnotherSpellingOfItsHandle(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // a call that waits in vain ends at once
		v, handle := volumeOf(t, &apiv1.Ownership{NodeName: "a", Epoch: 1, State: apiv1.OwnershipHeld})
		id, other := handle.String(), strings.ToLower(handle.String())
		needs := &storagev1.VolumeAttachment{
			// sha256 of handle, driver and node, as Kubernetes names it.
			ObjectMeta: metav1.ObjectMeta{
				Name:       "csi-73554204ec6b212e8ea348be7cbb243a58b9d81aeda1554a476d13d6bc25edb3",
				Finalizers: []string{"external-attacher/disk-csi-azure-com"},
			},
		}
		report := &apiv1.AzDriverNode{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a"},
			Status:     apiv1.AzDriverNodeStatus{MountsScannedTime: &metav1.MicroTime{Time: time.Unix(1, 0)}},
		}
		there := []client.Object{v, attachmentOf(v, "a", 1), report, needs}
		for name, spelled := range map[string]string{"one": id, "two": other} {
			pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}}
			pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: "disk.csi.azure.com", VolumeHandle: spelled}
			there = append(there, pv)
		}
		api := storeOf(t, there...)
		s := publisherOf(t, api, cloudfake.New(cloudfake.Options{}).Disks())
		s.ByVolumeAttachments, s.Calls = true, call.New(s.clock, time.Minute)
		unpublish := func() {
			t.Helper()
			_, err := s.ControllerUnpublishVolume(t.Context(), &csi.ControllerUnpublishVolumeRequest{VolumeId: id, NodeId: "a"})
			if err == nil {
				err = api.Get(t.Context(), client.ObjectKeyFromObject(v), v)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if unpublish(); v.Status.Primary.State != apiv1.OwnershipHeld {
			t.Errorf("a VolumeAttachment of another spelling is there: got ownership %s, want Held", v.Status.Primary.State)
		}
		if err := api.Delete(t.Context(), needs); err != nil {
			t.Fatal(err)
		}
		if unpublish(); v.Status.Primary.State != apiv1.OwnershipReleased {
			t.Errorf("the VolumeAttachment is being deleted: got ownership %s, want Released", v.Status.Primary.State)
		}
	})
}
