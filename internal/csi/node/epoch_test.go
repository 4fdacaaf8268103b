package node

import (
	"errors"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/nodereport"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

func TestLaw2TheEpochOfAStagedVolume(t *testing.T) {
	primary := func(node string, epoch int64, state apiv1.OwnershipState) *apiv1.Ownership {
		return &apiv1.Ownership{NodeName: node, Epoch: epoch, State: state}
	}
	attachment := &apiv1.AzVolumeAttachment{}
	proved := func(epoch int64) *apiv1.AzVolumeAttachment {
		return &apiv1.AzVolumeAttachment{Status: apiv1.AzVolumeAttachmentStatus{Proof: &apiv1.ReleaseProof{Epoch: epoch}}}
	}
	for name, test := range map[string]struct {
		primary    *apiv1.Ownership
		multiNode  bool
		attachment *apiv1.AzVolumeAttachment
		over       bool
	}{
		"held by this node":                            {primary("b", 3, apiv1.OwnershipHeld), false, attachment, false},
		"released by this node, not proved yet":        {primary("b", 3, apiv1.OwnershipReleasing), false, attachment, false},
		"held by this node, the attachment was lost":   {primary("b", 3, apiv1.OwnershipHeld), false, nil, false},
		"held by this node under a later epoch":        {primary("b", 5, apiv1.OwnershipHeld), false, attachment, true},
		"held by another node":                         {primary("a", 4, apiv1.OwnershipHeld), false, nil, true},
		"released":                                     {primary("", 3, apiv1.OwnershipReleased), false, attachment, true},
		"without a primary":                            {nil, false, attachment, true},
		"proved under this epoch":                      {primary("b", 3, apiv1.OwnershipReleasing), false, proved(3), true},
		"proved under an epoch before":                 {primary("b", 3, apiv1.OwnershipHeld), false, proved(2), false},
		"attached to another VM":                       {primary("b", 3, apiv1.OwnershipHeld), false, &apiv1.AzVolumeAttachment{Status: apiv1.AzVolumeAttachmentStatus{VMID: "old"}}, true},
		"of several nodes":                             {nil, true, attachment, false},
		"of several nodes, taken away":                 {nil, true, proved(3), true},
		"of several nodes, without an attachment":      {nil, true, nil, true},
		"of several nodes, being taken away for now":   {nil, true, &apiv1.AzVolumeAttachment{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &metav1.Time{}}}, false},
		"held by this node, detaching without a proof": {primary("b", 3, apiv1.OwnershipHeld), false, &apiv1.AzVolumeAttachment{Status: apiv1.AzVolumeAttachmentStatus{State: apiv1.AttachmentDetaching}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			v := &apiv1.AzVolume{Spec: apiv1.AzVolumeSpec{Access: apiv1.AccessSingleNode}, Status: apiv1.AzVolumeStatus{Primary: test.primary}}
			if test.multiNode {
				v.Spec.Access = apiv1.AccessMultiNode
			}
			if why := epochOver("b", "vm", 3, v, test.attachment); (why != "") != test.over {
				t.Errorf("epochOver = %q, want over: %t", why, test.over)
			}
		})
	}
}

func TestWhichMountAtAStagingPathIsKept(t *testing.T) {
	record := func(change func(*nodereport.Record)) *nodereport.Record {
		r := &nodereport.Record{VolumeName: "v", Epoch: 3, Device: "/dev/sdc", LUN: 1}
		if change != nil {
			change(r)
		}
		return r
	}
	of := func(source string, sealed bool) provisioner.MountPoint {
		return provisioner.MountPoint{Source: source, Target: "/staging", Sealed: sealed}
	}
	dead := provisioner.Errorf(provisioner.NotFound, "gone")
	for name, test := range map[string]struct {
		in   stagingMount
		keep bool
		err  error
	}{
		"the device, in order": {stagingMount{mount: of("/dev/sdc", false), before: record(nil)}, true, nil},
		"the device, and this node has acquired ownership again": {
			stagingMount{mount: of("/dev/sdc", false), before: record(func(r *nodereport.Record) { r.Epoch = 2 })}, true, nil,
		},
		"the device, mounted by V1": {stagingMount{mount: of("/dev/sdc", false)}, true, nil},
		"the device, of an epoch before another node's": {
			stagingMount{mount: of("/dev/sdc", false), before: record(func(r *nodereport.Record) { r.Epoch = 1 })}, false, nil,
		},
		"the device, of an epoch before another node's, with a pod": {
			stagingMount{mount: of("/dev/sdc", false), before: record(func(r *nodereport.Record) { r.Epoch = 1 }), elsewhere: "/pod"}, false, provisioner.Unavailable,
		},
		"the device, which does not answer":                          {stagingMount{mount: of("/dev/sdc", false), before: record(nil), fault: dead}, false, provisioner.Unavailable},
		"the device, whose filesystem has shut down":                 {stagingMount{mount: of("/dev/sdc", true), before: record(nil)}, false, nil},
		"the device, whose filesystem has shut down, with a pod":     {stagingMount{mount: of("/dev/sdc", true), before: record(nil), elsewhere: "/pod"}, false, provisioner.Unavailable},
		"the device, published for reading":                          {stagingMount{record: *record(func(r *nodereport.Record) { r.ReadOnly = true }), mount: of("/dev/sdc", true)}, true, nil},
		"the device, published for reading before, and with writing": {stagingMount{mount: of("/dev/sdc", true), before: record(func(r *nodereport.Record) { r.ReadOnly = true })}, false, nil},
		"the device, published with writing before, and for reading": {
			stagingMount{record: *record(func(r *nodereport.Record) { r.ReadOnly = true }), mount: of("/dev/sdc", false), before: record(nil)}, false, nil,
		},
		"a device that is gone":             {stagingMount{mount: of("/dev/sdb", false), fault: dead}, false, nil},
		"a device that is gone, with a pod": {stagingMount{mount: of("/dev/sdb", true), fault: dead, elsewhere: "/pod"}, false, nil},
		"a device that answers and was the volume's": {
			stagingMount{mount: of("/dev/sdb", false), before: record(func(r *nodereport.Record) { r.Epoch, r.Device = 1, "/dev/sdb" })}, false, nil,
		},
		"a device that answers and was found under another LUN": {
			stagingMount{mount: of("/dev/sdb", false), before: record(func(r *nodereport.Record) { r.Device, r.LUN = "/dev/sdb", 7 })}, false, nil,
		},
		"a device that answers and is unknown": {stagingMount{mount: of("/dev/sdb", false), before: record(nil)}, false, provisioner.FailedPrecondition},
	} {
		t.Run(name, func(t *testing.T) {
			if test.in.record.VolumeName == "" {
				test.in.record = *record(nil)
			}
			keep, err := test.in.keep()
			if keep != test.keep || !errors.Is(err, test.err) {
				t.Errorf("keep = %t, %v, want %t, %v", keep, err, test.keep, test.err)
			}
		})
	}
}
