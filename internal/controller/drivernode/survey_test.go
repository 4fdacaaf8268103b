package drivernode_test

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/controller/drivernode"
	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/fake"
)

// more adds nodes with their VMs, and returns their names and that of the first.
func (w *world) more(suffixes string) []string {
	w.t.Helper()
	names := []string{w.node}
	for _, suffix := range suffixes {
		name := fmt.Sprintf("%s-%c", w.node, suffix)
		vm := provider + "virtualMachines/" + name
		w.cloud.AddVM(provisioner.Instance{ID: vm, Size: size})
		w.make(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
		w.make(&apiv1.AzDriverNode{
			ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name},
			Spec:       apiv1.AzDriverNodeSpec{VMID: vm, VMSize: size, Location: "eastus", Zone: "1"},
		})
		names = append(names, name)
	}
	return names
}

// round reconciles nodes, and returns how often Azure was asked for a list of VMs and for one VM.
func (w *world) round(names []string) (lists, reads int) {
	w.t.Helper()
	lists, reads = w.cloud.CallCount(fake.AttachmentsListMany), w.cloud.CallCount(fake.AttachmentsList)
	for _, name := range names {
		_, err := w.r.Reconcile(w.t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{
			Namespace: w.namespace,
			Name:      name,
		}})
		w.must(err)
		d := &apiv1.AzDriverNode{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name}}
		w.must(w.api.Get(w.t.Context(), client.ObjectKeyFromObject(d), d))
	}
	return w.cloud.CallCount(fake.AttachmentsListMany) - lists, w.cloud.CallCount(fake.AttachmentsList) - reads
}

// listing is a cloud whose lists of VMs a test changes.
type listing struct {
	*fake.Cloud
	change func(map[string][]provisioner.Attachment) error
}

type listingAttachments struct {
	provisioner.Attachments
	change func(map[string][]provisioner.Attachment) error
}

func (l listing) Attachments() provisioner.Attachments {
	return listingAttachments{l.Cloud.Attachments(), l.change}
}

func (l listingAttachments) ListMany(ctx context.Context, vmIDs []string) (map[string][]provisioner.Attachment, error) {
	found, err := l.Attachments.ListMany(ctx, vmIDs)
	if err == nil {
		err = l.change(found)
	}
	return found, err
}

// lists makes a reconciler for which lists of VMs are changed.
func (w *world) lists(change func(map[string][]provisioner.Attachment) error) {
	w.r = drivernode.New(drivernode.Options{
		Client:  w.cached,
		Reader:  w.api,
		Cloud:   listing{w.cloud, change},
		Clock:   w.clock,
		Workers: 1,
	})
}

func TestTheDisksOfManyVMsComeFromOneList(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	names := w.more("abc")
	w.attach(disk("theirs"))
	w.volume("ours")
	w.attach(disk("ours"))
	w.attachment("ours", apiv1.AttachmentAttached)
	if lists, reads := w.round(names); lists != 1 || reads != 0 {
		t.Errorf("first: got %d lists and %d reads of one VM, want 1 and 0", lists, reads)
	}
	if got := w.capacity(); got != room(1) {
		t.Errorf("got %+v, want %+v", got, room(1))
	}
	w.clock.Step(4*time.Minute + 30*time.Second)
	late := w.more("d")[1:]
	if lists, reads := w.round(append(late, names...)); lists != 1 || reads != 0 {
		t.Errorf("a new node, when the others are due within a minute: got %d lists and %d reads, want 1 and 0", lists, reads)
	}
	w.clock.Step(30 * time.Second)
	if lists, reads := w.round(append(late, names...)); lists != 0 || reads != 0 {
		t.Errorf("when the first look is 5 minutes old: got %d lists and %d reads, want none: all were in the second list", lists,
			reads)
	}
}

// A list may lag behind, so what it says must not lead to a write.
func TestLaw3AListChangesNoAttachment(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		prepare func(*world)
		change  func(w *world, found map[string][]provisioner.Attachment) error
		made    bool
		reads   int
	}{
		"a disk that was detached since": {
			prepare: func(w *world) { w.volume("vol"); w.scan() },
			change: func(w *world, found map[string][]provisioner.Attachment) error {
				found[strings.ToLower(w.vm())] = []provisioner.Attachment{{DiskID: disk("vol")}}
				return nil
			}, reads: 1,
		},
		"a disk without an attachment": {prepare: func(w *world) { w.volume("vol"); w.scan(); w.attach(disk("vol")) },
			change: func(*world, map[string][]provisioner.Attachment) error { return nil }, made: true, reads: 1},
		"a VM that the list does not have": {
			prepare: func(w *world) { w.volume("vol"); w.scan(); w.attach(disk("vol")) },
			change: func(w *world, found map[string][]provisioner.Attachment) error {
				delete(found, strings.ToLower(w.vm()))
				return nil
			}, made: true, reads: 1,
		},
		"a list that fails": {
			prepare: func(*world) {},
			change: func(_ *world, found map[string][]provisioner.Attachment) error {
				maps.DeleteFunc(found, func(string, []provisioner.Attachment) bool { return true })
				return provisioner.Errorf(provisioner.Unauthorized, "this identity may read single VMs")
			}, reads: 3,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			names := w.more("ab")
			test.prepare(w)
			w.lists(func(found map[string][]provisioner.Attachment) error { return test.change(w, found) })
			if lists, reads := w.round(names); lists != 1 || reads != test.reads {
				t.Errorf("got %d lists and %d reads of one VM, want 1 and %d", lists, reads, test.reads)
			}
			if a := w.has("vol"); (a != nil) != test.made {
				t.Errorf("got attachment %+v, want one: %t", a, test.made)
			}
		})
	}
}

func TestAnAttachedDiskThatAListDoesNotHaveIsReadAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	names := w.more("ab")
	w.volume("vol")
	w.attach(disk("vol"))
	w.scan()
	w.attachedAt("vol", 0, apiv1.AzVolumeAttachmentSpec{Role: apiv1.RoleReplica})
	before := w.has("vol")
	w.lists(func(found map[string][]provisioner.Attachment) error {
		found[strings.ToLower(w.vm())] = nil
		return nil
	})
	if lists, reads := w.round(names); lists != 1 || reads != 1 {
		t.Errorf("got %d lists and %d reads of one VM, want 1 and 1", lists, reads)
	}
	if got := w.has("vol"); got.Status.State != apiv1.AttachmentAttached || got.ResourceVersion != before.ResourceVersion {
		t.Errorf("got %+v, want it unchanged: Azure has the disk", got.Status)
	}
}

func TestAnAttachmentWithoutRoomDoesNotWaitForAList(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	names := w.more("ab")
	w.turnAway(w.attachment("late", apiv1.AttachmentPending))
	if lists, reads := w.round(names[:1]); lists != 0 || reads != 1 {
		t.Errorf("got %d lists and %d reads of one VM, want 0 and 1", lists, reads)
	}
}
