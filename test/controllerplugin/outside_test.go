package controllerplugin

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/rpc/status"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/controlplane"
	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/fake"
)

// changeOutside changes a detached disk as a client of Azure does that is not the driver.
func changeOutside(t *testing.T, p *controlplane.ControlPlane, name string, change func(*provisioner.Disk)) {
	t.Helper()
	d, err := p.Cloud.Disks().Get(t.Context(), p.DiskID(name))
	must(t, err)
	change(&d)
	p.Cloud.AddDisk(d)
}

// changed returns what the condition of a volume says about its disk; "" if the disk is as
// recorded.
func changed(v *apiv1.AzVolume) string {
	if c := meta.FindStatusCondition(v.Status.Conditions, apiv1.VolumeConditionDiskAsRecorded); c != nil &&
		c.Status == metav1.ConditionFalse {
		return c.Message
	}
	return ""
}

// The volume could not be used again: the driver trusted its record, and each try acquired the
// ownership under a new epoch.
func TestADiskThatWasChangedOutsideTheDriverIsAttachedInOneCall(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*provisioner.Disk)
		says   string
	}{
		"converted": {func(d *provisioner.Disk) { d.SKUName = "PremiumV2_LRS" },
			"the SKU is PremiumV2_LRS, recorded as StandardSSD_LRS"},
		"shared": {func(d *provisioner.Disk) { d.MaxShares = 2 }, "maxShares is 2, recorded as 1"},
		"grown":  {func(d *provisioner.Disk) { d.SizeBytes = 4096 << 30 }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := controlplane.NewInMemory(t, controlplane.Options{})
				p.AddNode("ou-a", "1", size)
				handle := p.Create(name, map[string]string{"cachingMode": "ReadOnly"})
				must(t, p.Publish(t.Context(), handle, "ou-a"))
				must(t, p.Unpublish(t.Context(), handle, "ou-a"))
				changeOutside(t, p, name, test.change)
				reads := p.Cloud.CallCount(fake.DisksGet)
				must(t, p.Publish(t.Context(), handle, "ou-a"))
				want := 1
				if name == "shared" {
					want = 2 // the second is the question which VMs have it
				}
				if got := p.Cloud.CallCount(fake.DisksGet) - reads; got < 1 || got > want {
					t.Errorf("got %d reads of the disk, want %d", got, want)
				}
				p.Eventually("attached", attachedTo(p, name, "ou-a"))
				if as, _ := p.Cloud.AttachedAs(controlplane.VMID("ou-a"), handle); as.CachingMode != "None" {
					t.Errorf("got host caching %s, want None", as.CachingMode)
				}
				v := p.Volume(name)
				if v.Status.Primary.Epoch != 2 || v.Spec.Disk.CachingMode != "ReadOnly" {
					t.Errorf("got epoch %d and a record of caching %s, want 2, ReadOnly", v.Status.Primary.Epoch,
						v.Spec.Disk.CachingMode)
				}
				if got := changed(v); test.says == "" && got != "" || !strings.HasSuffix(got, test.says) {
					t.Errorf("got condition %q, want one that says %q", got, test.says)
				}
			})
		})
	}
}

// refusals returns how often Azure refused to attach a disk, and how often it may have done so
// since a test began: an attach is repeated after a second and more.
func refusals(p *controlplane.ControlPlane, handle string, began time.Time) (n, most int) {
	for _, call := range p.Cloud.Calls() {
		if call.Method == fake.AttachmentsAttach && call.DiskID == handle && call.Err != nil {
			n++
		}
	}
	return n, 2 + int(time.Since(began)/time.Second)
}

// Kubernetes repeats a publish that failed. Each repetition released the ownership, acquired it
// again, and asked Azure again.
func TestARepeatedPublishOfADiskThatAzureRefusesAcquiresNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := controlplane.NewInMemory(t, controlplane.Options{})
		for _, n := range []string{"re-a", "re-b"} {
			p.AddNode(n, "1", size)
		}
		handle := p.Create("vol", nil)
		changeOutside(t, p, "vol", func(d *provisioner.Disk) { d.Zone = "2" })
		began := time.Now()
		for range 20 {
			expectCode(t, p.Publish(t.Context(), handle, "re-a"), codes.InvalidArgument)
		}
		if got, most := refusals(p, handle, began); got > most {
			t.Errorf("20 calls made Azure refuse %d times, want at most %d", got, most)
		}
		v := p.Volume("vol")
		if v.Status.Primary.Epoch != 1 || !strings.HasSuffix(changed(v), "the zone is 2, recorded as 1") {
			t.Errorf("got epoch %d and condition %q, want 1 and the zone", v.Status.Primary.Epoch, changed(v))
		}
		changeOutside(t, p, "vol", func(d *provisioner.Disk) { d.Zone = "1" })
		must(t, p.Unpublish(t.Context(), handle, "re-a"))
		must(t, p.Publish(t.Context(), handle, "re-b"))
	})
}

// Each repetition acquired the ownership and released it again, as on a full node, although no
// other node can have the disk either.
func TestARepeatedPublishAcquiresNothingIfNoShareIsFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := controlplane.NewInMemory(t, controlplane.Options{})
		p.AddNode("rs-a", "1", size)
		handle := p.Create("vol", nil)
		changeOutside(t, p, "vol", func(d *provisioner.Disk) { d.MaxShares = 2 })
		for _, vm := range []string{"rs-x", "rs-y"} {
			p.Cloud.AddVM(provisioner.Instance{
				ID:       controlplane.VMID(vm),
				Size:     size,
				Location: region,
				Zone:     "1",
			})
			hang(t, p, "vol", vm)
		}
		for range 5 {
			expectCode(t, p.Publish(t.Context(), handle, "rs-a"), codes.ResourceExhausted)
		}
		unhang(t, p, "vol", "rs-x")
		unhang(t, p, "vol", "rs-y") // which is no node of the cluster, and may be using the disk
		p.Eventually("attached", attachedTo(p, "vol", "rs-a"))
		if epoch := p.Volume("vol").Status.Primary.Epoch; epoch != 1 {
			t.Errorf("got epoch %d, want 1", epoch)
		}
	})
}

// A disk that a VM of the cluster has without the knowledge of Kubernetes kept its pod waiting for
// the next look at that VM, for up to five minutes.
func TestADanglingDiskIsMovedByOneDetachAndOneAttach(t *testing.T) {
	for name, test := range map[string]struct {
		prepare func(*testing.T, *controlplane.ControlPlane)
		moves   bool
	}{
		"a node that does not use it": {func(*testing.T, *controlplane.ControlPlane) {}, true},
		"a VM that is no node": {func(t *testing.T, p *controlplane.ControlPlane) {
			unhang(t, p, "vol", "hd-a")
			hang(t, p, "vol",
				"other")
		}, false},
		"a node whose report proves nothing": {func(_ *testing.T, p *controlplane.ControlPlane) {
			p.Report("hd-a", func(s *apiv1.AzDriverNodeStatus) { s.MountsScannedTime = nil })
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := controlplane.NewInMemory(t, controlplane.Options{
					Latency: fake.Latency{Attach: 300 * time.Millisecond, Detach: 300 * time.Millisecond},
				})
				p.Cloud.AddVM(provisioner.Instance{
					ID:       controlplane.VMID("other"),
					Size:     size,
					Location: region,
					Zone:     "1",
				})
				for _, n := range []string{"hd-a", "hd-b"} {
					p.AddNode(n, "1", size)
				}
				handle := p.Create("vol", nil)
				detaches := func() (n int) {
					for _, call := range p.Cloud.Calls() {
						if call.Method == fake.AttachmentsDetach && call.DiskID == handle {
							n++
						}
					}
					return n
				}
				hang(t, p, "vol", "hd-a")
				test.prepare(t, p)
				before, began := detaches(), time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				for status.Code(p.Publish(ctx, handle, "hd-b")) == codes.FailedPrecondition && test.moves {
					time.Sleep(10 * time.Millisecond)
				}
				if !test.moves {
					if got := p.AttachedTo("vol"); detaches() != before || len(got) != 1 || got[0] == "hd-b" {
						t.Errorf("got %d detaches, and the disk at %v; want it to stay", detaches()-before, got)
					}
					return
				}
				p.Eventually("attached where the pod is", func() string {
					if a := p.Attachment("vol", "hd-b"); a == nil || a.Status.State != apiv1.AttachmentAttached {
						return fmt.Sprintf("%+v", a)
					}
					return ""
				})
				if got, most := refusals(p, handle, began); got > most || detaches() != 1 {
					t.Errorf("Azure refused %d attaches and detached %d times; want at most %d, 1", got, detaches(), most)
				}
				if epoch := p.Volume("vol").Status.Primary.Epoch; epoch != 1 {
					t.Errorf("got epoch %d, want 1", epoch)
				}
			})
		})
	}
}

// A person detaches a disk. The next disk must not get its LUN, at which the node would look for the
// first one.
func TestADiskGetsNoLUNAtWhichAnotherIsRecorded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := controlplane.NewInMemory(t, controlplane.Options{})
		p.AddNode("lu-a", "1", "Standard_D4s_v5")
		first, second := p.Create("first", nil), p.Create("second", nil)
		must(t, p.Publish(t.Context(), first, "lu-a"))
		attached := func(volume string) *int32 {
			var lun *int32
			p.Eventually(volume+" is attached", func() string {
				a := p.Attachment(volume, "lu-a")
				if a == nil || a.Status.State != apiv1.AttachmentAttached || a.Status.LUN == nil {
					return fmt.Sprintf("%+v", a)
				}
				lun = a.Status.LUN
				return ""
			})
			return lun
		}
		before := *attached("first")
		unhang(t, p, "first", "lu-a")
		must(t, p.Publish(t.Context(), second, "lu-a"))
		if lun := *attached("second"); lun == before {
			t.Errorf("got LUN %d for the second disk, at which the first is recorded", lun)
		}
	})
}

// hang attaches a disk to a VM outside the driver, and unhang detaches it.
func hang(t *testing.T, p *controlplane.ControlPlane, disk, vm string) {
	t.Helper()
	op, err := p.Cloud.Attachments().Attach(t.Context(), provisioner.AttachRequest{
		VMID:        controlplane.VMID(vm),
		DiskID:      p.DiskID(disk),
		CachingMode: "None",
	})
	must(t, err)
	must(t, op.Wait(t.Context()))
}

func unhang(t *testing.T, p *controlplane.ControlPlane, disk, vm string) {
	t.Helper()
	op, err := p.Cloud.Attachments().Detach(t.Context(), controlplane.VMID(vm), p.DiskID(disk))
	must(t, err)
	must(t, op.Wait(t.Context()))
}
