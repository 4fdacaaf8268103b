package attachment

import (
	"context"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/controller/work"
	"github.com/azuredisk-csi/azuredisk/internal/plan/attaching"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/expect"
	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/fake"
)

const (
	production = compute + "virtualMachines/production"
	takenDisk  = compute + "disks/pvc-0"
)

// racing calls then when an attach was accepted.
type racing struct {
	*fake.Cloud
	then func()
}

func (m racing) Attachments() provisioner.Attachments {
	return racingAttachments{m.Cloud.Attachments(), m.then}
}

type racingAttachments struct {
	provisioner.Attachments
	then func()
}

func (m racingAttachments) Attach(ctx context.Context, r provisioner.AttachRequest) (provisioner.Operation, error) {
	op, err := m.Attachments.Attach(ctx, r)
	m.then()
	return op, err
}

// newReturned is a cluster that returns after a person has detached a disk from its node, which
// is Ready and has nothing staged. The objects are as they were before.
func newReturned(t *testing.T, cloud *fake.Cloud, then func()) (*deserted, client.ObjectKey) {
	t.Helper()
	d := newDeserted(t)
	cloud.AddDisk(provisioner.Disk{ID: takenDisk, MaxShares: 2})
	cloud.AddVM(provisioner.Instance{ID: lostVM})
	d.Cloud = racing{cloud, then}
	d.disks, d.Jobs, d.Reader = newDiskWork(d.Cloud), work.New(t.Context(), clock.RealClock{}, 1), d.cache
	v := &apiv1.AzVolume{}
	expect.Must(t, d.cache.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: desertedVolume}, v))
	v.UID = "volume"
	expect.Must(t, d.cache.Update(t.Context(), v))
	v.Status.ConfirmedUID = v.UID
	v.Status.Primary = &apiv1.Ownership{NodeName: desertedNode, Epoch: 1, State: apiv1.OwnershipHeld}
	expect.Must(t, d.cache.Status().Update(t.Context(), v))
	report := &apiv1.AzDriverNode{}
	expect.Must(t, d.cache.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: desertedNode}, report))
	scanned := metav1.NowMicro()
	report.Status.MountsScannedTime = &scanned
	expect.Must(t, d.cache.Status().Update(t.Context(), report))
	key := client.ObjectKey{Namespace: "ns", Name: apiv1.AttachmentName(desertedVolume, desertedNode)}
	a := &apiv1.AzVolumeAttachment{}
	expect.Must(t, d.cache.Get(t.Context(), key, a))
	a.UID = "attachment"
	expect.Must(t, d.cache.Update(t.Context(), a))
	a.Status.UID, a.Status.Exclusive = a.UID, true
	a.Status = attaching.StatusToAttachAgain(a, nil, time.Now())
	expect.Must(t, d.cache.Status().Update(t.Context(), a))
	return d, key
}

// until reconciles the attachment until done.
func (d *deserted) until(t *testing.T, what string, key client.ObjectKey, done func(*apiv1.AzVolumeAttachment) bool) {
	t.Helper()
	expect.Eventually(t, what, func() bool {
		_, err := d.Reconcile(t.Context(), reconcile.Request{NamespacedName: key})
		expect.Must(t, err)
		a := &apiv1.AzVolumeAttachment{}
		expect.Must(t, d.cache.Get(t.Context(), key, a))
		if a.Status.State == apiv1.AttachmentAttached {
			t.Fatalf("the attachment is Attached while %s has the disk", production)
		}
		return done(a)
	})
}

func failed(a *apiv1.AzVolumeAttachment) bool {
	return a.Status.State == apiv1.AttachmentFailed && a.Status.Error != nil
}

func TestADiskThatAPersonTookFromTheClusterIsNotAttachedAgain(t *testing.T) {
	t.Parallel()
	cloud := fake.New(fake.Options{})
	d, key := newReturned(t, cloud, func() {})
	cloud.AddVM(provisioner.Instance{ID: production, DataDisks: []provisioner.Attachment{{DiskID: takenDisk}}})
	d.until(t, "the attach is refused", key, failed)
	if n := cloud.CallCount(fake.AttachmentsAttach); n != 0 {
		t.Errorf("the disk of another cluster was attached %d times", n)
	}
	v := &apiv1.AzVolume{}
	expect.Must(t, d.cache.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: desertedVolume}, v))
	if v.Status.ConfirmedUID != "" {
		t.Error("it is still confirmed that this cluster uses the disk")
	}
}

// As long as the disk is attached here, the other cluster finds this cluster's VM at the disk.
func TestADiskThatAnotherClusterAttachesAtOnceIsDetachedHere(t *testing.T) {
	t.Parallel()
	cloud := fake.New(fake.Options{})
	d, key := newReturned(t, cloud, func() {
		cloud.AddVM(provisioner.Instance{ID: production, DataDisks: []provisioner.Attachment{{DiskID: takenDisk}}})
	})
	counted := false
	d.until(t, "the disk is detached here", key, func(a *apiv1.AzVolumeAttachment) bool {
		here, err := cloud.Attachments().List(t.Context(), lostVM)
		expect.Must(t, err)
		used := attaching.Occupied([]*apiv1.AzVolumeAttachment{a}, "") == 1
		if len(here) > 0 && !used && failed(a) {
			t.Error("the disk is attached, and the attachment does not count as one")
		}
		counted = counted || used
		return failed(a) && len(here) == 0 && !used
	})
	if there, err := cloud.Attachments().List(t.Context(), production); err != nil || len(there) != 1 || !counted {
		t.Errorf("the other cluster's VM has %v, %v; counted here: %t", there, err, counted)
	}
}
