package failover_test

import (
	"fmt"
	"testing"
	"testing/synctest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/nodehealth"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/controlplane"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// v1Volume is a disk that V1 has attached to the node, with PersistentVolume and
// PersistentVolumeClaim, and, if it is adopted, an AzVolume as an expansion creates it.
func (l *lab) v1Volume(name, node string, adopted bool) {
	l.Helper()
	id := l.DiskID(name)
	l.Cloud.AddDisk(provisioner.Disk{
		ID:           id,
		Location:     controlplane.Location,
		Zone:         "1",
		SizeBytes:    10 << 30,
		MaxShares:    1,
		Ready:        true,
		DiskSettings: provisioner.DiskSettings{SKUName: "Premium_LRS"},
	})
	op, err := l.Cloud.Attachments().Attach(l.Context(), provisioner.AttachRequest{
		VMID:        controlplane.VMID(node),
		DiskID:      id,
		CachingMode: "None",
	})
	l.must(err)
	l.must(op.Wait(l.Context()))
	l.claim(name, id)
	if !adopted {
		return
	}
	l.must(l.Client.Create(l.Context(), &apiv1.AzVolume{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:  l.Namespace,
			Name:       l.VolumeName(name),
			Finalizers: []string{apiv1.FinalizerAttachment},
		},
		Spec: apiv1.AzVolumeSpec{
			Origin:        apiv1.OriginAdopted,
			Access:        apiv1.AccessSingleNode,
			CapacityBytes: 10 << 30,
			Disk: apiv1.DiskParameters{
				SubscriptionID: controlplane.Subscription,
				ResourceGroup:  l.Group,
				Name:           name,
				Location:       controlplane.Location,
				Zone:           "1",
				MaxShares:      1,
				CachingMode:    "None",
				DiskSettings:   apiv1.DiskSettings{SKUName: "Premium_LRS"},
			},
		},
	}))
	l.Eventually("adopted", func() string {
		if v := l.Volume(name); v.Status.State != apiv1.VolumeCreated {
			return fmt.Sprintf("%+v", v.Status)
		}
		return ""
	})
}

// Their pods were deleted by force at once, without a fence, while they ran and wrote.
func TestPodsWithVolumesThatV1PublishedStayOnALostNode(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, 0)
		const a = "v1-a"
		l.AddNode(a, "1", size)
		l.v1Volume("plain", a, false)
		l.v1Volume("expanded", a, true)
		handle := l.Create("fresh", replicated)
		l.claim("fresh", handle)
		for _, name := range []string{"plain", "expanded", "fresh"} {
			l.pod(name, a, []string{name})
		}
		there := func() string { return fmt.Sprint(l.podThere("plain"), l.podThere("expanded"), l.podThere("fresh")) }
		await := func(what, want string) {
			l.Eventually(what, func() string {
				if got := there(); got != want {
					return got
				}
				return ""
			})
		}
		l.monitor.set(a, nodehealth.Lost)
		await("only a pod whose volume was never used is gone", "true true false")
		l.expectMetrics(map[string]float64{"azuredisk_failover_held_back_total ForeignVolume": 2})
		if got := there(); got != "true true false" {
			t.Fatal(got)
		}
		l.Cloud.SetPower(controlplane.VMID(a), provisioner.PowerDeallocated)
		l.monitor.set(a, nodehealth.Down)
		await("nothing runs on a VM that is down", "false false false")
	})
}
