// Package objects builds the custom resources that tests of decisions start from.
package objects

import (
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
)

// Now is the time of all tests that use this package.
var Now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// Ago returns the time d before Now.
func Ago(d time.Duration) *metav1.Time {
	t := metav1.NewTime(Now.Add(-d))
	return &t
}

// Claim returns a reference to a claim that is written as namespace/name.
func Claim(text string) *apiv1.ClaimReference {
	namespace, name, _ := strings.Cut(text, "/")
	return &apiv1.ClaimReference{Namespace: namespace, Name: name}
}

// NewVolume returns a created single-node AzVolume "vol" with one wanted replica, after the
// changes.
func NewVolume(change ...func(*apiv1.AzVolume)) *apiv1.AzVolume {
	v := &apiv1.AzVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name:              "vol",
			Generation:        1,
			CreationTimestamp: *Ago(time.Hour),
			Finalizers:        []string{apiv1.FinalizerVolume},
		},
		Spec: apiv1.AzVolumeSpec{
			Origin:               apiv1.OriginProvisioned,
			Access:               apiv1.AccessSingleNode,
			CapacityBytes:        1 << 30,
			MaxMountReplicaCount: 1,
			Disk: apiv1.DiskParameters{
				SubscriptionID: "00000000-0000-0000-0000-000000000001",
				ResourceGroup:  "g",
				Name:           "vol",
				Location:       "eastus",
				Zone:           "1",
				MaxShares:      3,
				CachingMode:    "None",
				DiskSettings:   apiv1.DiskSettings{SKUName: "Premium_LRS"},
			},
		},
		Status: apiv1.AzVolumeStatus{
			State:              apiv1.VolumeCreated,
			DiskID:             "/disk",
			SizeBytes:          1 << 30,
			ObservedGeneration: 1,
		},
	}
	v.Status.Applied = &apiv1.AppliedSettings{Generation: 1, DiskSettings: *v.Spec.Disk.DiskSettings.DeepCopy()}
	for _, c := range change {
		c(v)
	}
	if v.Generation == 1 && v.Status.Applied != nil {
		v.Status.Applied.DiskSettings = *v.Spec.Disk.DiskSettings.DeepCopy()
	}
	return v
}

// Owned gives a volume an ownership of the node, the epoch and the state.
func Owned(node string, epoch int64, state apiv1.OwnershipState) func(*apiv1.AzVolume) {
	return func(v *apiv1.AzVolume) {
		c := &apiv1.Ownership{
			NodeName:           node,
			Epoch:              epoch,
			State:              state,
			LastTransitionTime: Ago(time.Minute),
		}
		if state == apiv1.OwnershipReleased {
			c.NodeName = ""
			v.Status.LastReleasedTime = Ago(time.Minute)
		}
		v.Status.Primary = c
	}
}

// NewAttachment returns the attachment of "vol" to a node.
func NewAttachment(node string, role apiv1.Role, epoch int64, state apiv1.AttachmentState) *apiv1.AzVolumeAttachment {
	a := &apiv1.AzVolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{
			Name:              "vol-" + node,
			Generation:        1,
			CreationTimestamp: *Ago(time.Hour),
		},
		Spec: apiv1.AzVolumeAttachmentSpec{
			VolumeName: "vol",
			NodeName:   node,
			Role:       role,
			Epoch:      epoch,
		},
		Status: apiv1.AzVolumeAttachmentStatus{State: state, ObservedGeneration: 1},
	}
	if state != "" && state != apiv1.AttachmentPending {
		a.Status.VMID = "/vm/" + node
	}
	return a
}

// Deleted says that the deletion of an attachment was asked for a second ago.
func Deleted(a *apiv1.AzVolumeAttachment) *apiv1.AzVolumeAttachment {
	a.DeletionTimestamp = Ago(time.Second)
	return a
}

// Proved gives an attachment a proof of release for its epoch.
func Proved(a *apiv1.AzVolumeAttachment, kind apiv1.ProofType) *apiv1.AzVolumeAttachment {
	a.Status.Proof = &apiv1.ReleaseProof{Type: kind, Epoch: a.Spec.Epoch}
	return a
}

// Report returns the AzDriverNode of a node that reports the volumes as Staged.
func Report(node string, volumes ...string) *apiv1.AzDriverNode {
	d := &apiv1.AzDriverNode{ObjectMeta: metav1.ObjectMeta{Name: node}, Spec: apiv1.AzDriverNodeSpec{VMID: "/vm/" + node}}
	d.Status.MountsScannedTime = &metav1.MicroTime{Time: Now}
	for _, v := range volumes {
		d.Status.StagedVolumes = append(d.Status.StagedVolumes, apiv1.StagedVolume{VolumeName: v, Phase: apiv1.PhaseStaged})
	}
	return d
}

// Staged returns a report that names one volume as Staged.
func Staged(scan *metav1.MicroTime, volume string) *apiv1.AzDriverNode {
	return &apiv1.AzDriverNode{Status: apiv1.AzDriverNodeStatus{
		MountsScannedTime: scan, StagedVolumes: []apiv1.StagedVolume{{VolumeName: volume, Epoch: 1, Phase: apiv1.PhaseStaged}},
	}}
}

// NeverOwned takes the ownership record from a volume.
func NeverOwned(v *apiv1.AzVolume) { v.Status.Primary = nil }

// Attachments returns its arguments as a list.
func Attachments(a ...*apiv1.AzVolumeAttachment) []*apiv1.AzVolumeAttachment { return a }
