package ownership_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/objects"
)

func TestWhenAzureIsAskedWhoHasADisk(t *testing.T) {
	t.Parallel()
	confirmed := func(v *apiv1.AzVolume) { v.Status.ConfirmedUID = v.UID }
	releasedFor := func(d time.Duration) func(*apiv1.AzVolume) {
		return func(v *apiv1.AzVolume) { at := metav1.NewTime(objects.Now.Add(-d)); v.Status.LastReleasedTime = &at }
	}
	reserved := func(v *apiv1.AzVolume) { v.Status.Fencing = apiv1.FencingPreemption }
	several := func(v *apiv1.AzVolume) { v.Spec.Access = apiv1.AccessMultiNode }
	forOne := func(v *apiv1.AzVolume) { v.Spec.Disk.MaxShares = 1 }
	proved := func(kind apiv1.ProofType) func(*apiv1.AzVolume) {
		return func(v *apiv1.AzVolume) {
			objects.Owned("", 3, apiv1.OwnershipReleased)(v)
			v.Status.LastRelease = &apiv1.ReleaseRecord{Proof: apiv1.ReleaseProof{Type: kind, Epoch: 3}}
		}
	}
	here := objects.Attachments(objects.NewAttachment("a", apiv1.RoleReplica, 1, apiv1.AttachmentAttached))
	for name, test := range map[string]struct {
		edits       []func(*apiv1.AzVolume)
		attachments []*apiv1.AzVolumeAttachment
		want        ownership.Custody
	}{
		"nothing confirms that this cluster uses it": {nil, here, ownership.CustodyUnknown},
		"the confirmation is another object's":       {[]func(*apiv1.AzVolume){func(v *apiv1.AzVolume) { v.Status.ConfirmedUID = "former" }}, here, ownership.CustodyUnknown},
		"created for this object, and never used":    {[]func(*apiv1.AzVolume){confirmed}, nil, ownership.CustodyOurs},
		"a planned move to a replica": {[]func(*apiv1.AzVolume){confirmed, releasedFor(time.Second)},
			here, ownership.CustodyOurs},
		"a planned move without replicas": {[]func(*apiv1.AzVolume){confirmed, releasedFor(time.Minute)},
			nil, ownership.CustodyOurs},
		"not used for an hour, and a replica has it": {[]func(*apiv1.AzVolume){confirmed, releasedFor(time.Hour)}, here,
			ownership.CustodyOurs},
		"attached nowhere for an hour": {[]func(*apiv1.AzVolume){confirmed, releasedFor(time.Hour)}, nil,
			ownership.CustodyUnknown},
		"attached nowhere for longer than any planned move": {[]func(*apiv1.AzVolume){confirmed,
			releasedFor(5 * time.Minute)}, nil, ownership.CustodyUnknown},
		"attached nowhere for an hour, and reserved when used": {[]func(*apiv1.AzVolume){confirmed, releasedFor(time.Hour),
			reserved}, nil, ownership.CustodyOurs},
		"attached nowhere for an hour, for one VM only": {[]func(*apiv1.AzVolume){confirmed, releasedFor(time.Hour), forOne}, nil,
			ownership.CustodyOurs},
		"released a minute ago, as the node reports": {[]func(*apiv1.AzVolume){confirmed, proved(apiv1.ProofUnstaged)}, nil,
			ownership.CustodyOurs},
		"taken from the node by the node of a replica": {[]func(*apiv1.AzVolume){confirmed, proved(apiv1.ProofPreempted)}, here,
			ownership.CustodyOurs},
		"released a minute ago, proved by Azure": {[]func(*apiv1.AzVolume){confirmed, proved(apiv1.ProofDetached)}, nil,
			ownership.CustodyUnknown},
		"the same, and a replica is recorded": {[]func(*apiv1.AzVolume){confirmed, proved(apiv1.ProofDetached)}, here,
			ownership.CustodyUnknown},
		"the VM was down, and the disk will be reserved": {[]func(*apiv1.AzVolume){confirmed, proved(apiv1.ProofVMDown),
			reserved}, nil, ownership.CustodyUnknown},
		"released, proved by Azure, for one VM": {[]func(*apiv1.AzVolume){confirmed, proved(apiv1.ProofDetached), forOne}, nil,
			ownership.CustodyOurs},
		"released, proved by Azure, and acquired since": {[]func(*apiv1.AzVolume){confirmed, proved(apiv1.ProofDetached),
			objects.Owned("a", 4, apiv1.OwnershipHeld)}, here, ownership.CustodyOurs},
		"for several nodes, and one of them has it": {[]func(*apiv1.AzVolume){confirmed, several}, here, ownership.CustodyOurs},
		"for several nodes, and none of them has it": {[]func(*apiv1.AzVolume){confirmed, several}, nil,
			ownership.CustodyUnknown},
	} {
		v := objects.NewVolume(func(v *apiv1.AzVolume) { v.UID, v.Spec.Disk.MaxShares = "present", 2 })
		for _, edit := range test.edits {
			edit(v)
		}
		if got := ownership.CustodyOf(v, test.attachments, objects.Now); got != test.want {
			t.Errorf("%s: got %s, want %s", name, got, test.want)
		}
	}
}

func TestOnlyTheAttachOfADiskForOneVMIsTheAnswerByItself(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		shares    int32
		confirmed string
		want      bool
	}{
		"a shared disk":                          {2, "present", true},
		"a shared disk, and nothing confirms it": {2, "", true},
		"a disk for one VM":                      {1, "present", false},
		"a disk for one VM, and the confirmation is another object's": {1, "former", true},
	} {
		v := objects.NewVolume(func(v *apiv1.AzVolume) {
			v.UID, v.Spec.Disk.MaxShares, v.Status.ConfirmedUID = "present", test.shares, types.UID(test.confirmed)
		})
		if got := ownership.AskAfterAttach(v); got != test.want {
			t.Errorf("%s: got %t, want %t", name, got, test.want)
		}
	}
	if ownership.CustodyConfirmed(objects.NewVolume()) {
		t.Error("an AzVolume that no API server has given a UID: got that it is confirmed, want not")
	}
}

func TestOtherClusterVM(t *testing.T) {
	t.Parallel()
	recorded := objects.NewAttachment("deleted", apiv1.RolePrimary, 1, apiv1.AttachmentAttached)
	recorded.UID, recorded.Status.VMID, recorded.Status.UID = "present", "/vm/former", "present"
	copied := recorded.DeepCopy()
	copied.Status.UID = "former"
	failed := errors.New("the cache is not there")
	isNode := func(vm string) (bool, error) {
		if vm == "/vm/fails" {
			return true, failed // counts for nothing beside the error
		}
		return strings.HasPrefix(vm, "/vm/node"), nil
	}
	for name, test := range map[string]struct {
		attachedTo  []string
		attachments []*apiv1.AzVolumeAttachment
		want        string
		err         error
	}{
		"no VM":                 {nil, nil, "", nil},
		"nodes":                 {[]string{"/vm/node-a", "/vm/node-b"}, nil, "", nil},
		"a node and another VM": {[]string{"/vm/node-a", "/vm/production"}, nil, "/vm/production", nil},
		"two others; both clusters name the same one": {[]string{"/vm/production", "/VM/drill"}, nil, "/VM/drill", nil},
		"the VM of a node that was deleted":           {[]string{"/VM/Former"}, objects.Attachments(recorded), "", nil},
		"a VM that no attachment names":               {[]string{"/vm/drill"}, objects.Attachments(recorded), "/vm/drill", nil},
		"a VM that a restored status names":           {[]string{"/vm/former"}, objects.Attachments(copied), "/vm/former", nil},
		"a VM for which the cache gives an error":     {[]string{"/vm/fails"}, nil, "/vm/fails", failed},
	} {
		if got, err := ownership.OtherClusterVM(test.attachedTo, test.attachments, isNode); got != test.want ||
			!errors.Is(err, test.err) {
			t.Errorf("%s: got %q, %v; want %q, %v", name, got, err, test.want, test.err)
		}
	}
	created := &apiv1.AzVolumeAttachment{ObjectMeta: metav1.ObjectMeta{UID: "present"}}
	if ownership.Copied(created) {
		t.Error("an attachment that was created and has no status yet: got that its status is a copy, want not")
	}
}
