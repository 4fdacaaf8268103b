package controllerplugin

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/azuredisk-csi/azuredisk/internal/testkit/controlplane"
	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/fake"
)

// attachedAs waits until a disk is attached to a node with a caching mode.
func attachedAs(t *testing.T, p *controlplane.ControlPlane, handle, node, mode string) {
	t.Helper()
	p.Eventually("attached", func() string {
		request, ok := p.Cloud.AttachedAs(controlplane.VMID(node), handle)
		if !ok || request.CachingMode != mode {
			return fmt.Sprintf("attached as %+v, want %s", request, mode)
		}
		return ""
	})
}

// Azure changes the caching of an attached disk by a detach and an attach, under a filesystem that
// is mounted. So the class counts from the next attach on, also against the attribute of the
// PersistentVolume, which cannot be changed.
func TestAClassChangesTheCachingFromTheNextAttachOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := controlplane.NewInMemory(t, controlplane.Options{Quiet: true})
		p.AddNode("ca-a", "1", size)
		p.AddNode("ca-b", "1", size)
		handle := p.Create("vol", map[string]string{"skuName": "Premium_LRS", "cachingMode": "ReadOnly"})
		attributes := map[string]string{"cachingMode": "ReadOnly"}
		must(t, p.PublishWith(t.Context(), handle, "ca-a", controlplane.Mounted(), attributes))
		attachedAs(t, p, handle, "ca-a", "ReadOnly")

		must(t, modify(t.Context(), p, handle, map[string]string{"cachingMode": "None"}))
		must(t, p.PublishWith(t.Context(), handle, "ca-a", controlplane.Mounted(), attributes))
		attachedAs(t, p, handle, "ca-a", "ReadOnly")
		if n := p.Cloud.CallCount(fake.DisksUpdate); n != 0 {
			t.Errorf("got %d changes of the disk, want none", n)
		}

		must(t, p.Unpublish(t.Context(), handle, "ca-a"))
		must(t, p.PublishWith(t.Context(), handle, "ca-b", controlplane.Mounted(), attributes))
		attachedAs(t, p, handle, "ca-b", "None")
	})
}

// A class that Azure refuses leaves nothing behind, also of what Azure is not asked for.
func TestARefusedClassDoesNotChangeTheCaching(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := controlplane.NewInMemory(t, controlplane.Options{Quiet: true})
		handle := p.Create("vol", single)
		p.Cloud.FailNext(fake.DisksUpdate, 2, provisioner.Errorf(provisioner.InvalidArgument, "no"))
		expectCode(t, modify(t.Context(), p, handle, map[string]string{"cachingMode": "None", "tags": "a=b"}),
			codes.InvalidArgument)
		if mode := p.Volume("vol").Spec.Disk.ModifiedCachingMode; mode != "" {
			t.Errorf("got the caching mode %q, want none", mode)
		}
	})
}

// The IOPS of a disk with iopsPerGB grow with the disk, in the same call to Azure. IOPS that were
// raised at Azure otherwise stay.
func TestIOPSGrowWithTheDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := controlplane.NewInMemory(t, controlplane.Options{Quiet: true})
		iops := func(name string) int64 { return *diskAt(t, p, name).DiskIOPSReadWrite }
		handle := p.Create("per-gib", map[string]string{"skuName": "PremiumV2_LRS", "iopsPerGB": "500"})
		if got := iops("per-gib"); got != 5000 {
			t.Errorf("created: got %d IOPS, want 5000", got)
		}
		calls := p.Cloud.CallCount(fake.DisksUpdate)
		_, err := expand(t.Context(), p, handle, 20*gib)
		must(t, err)
		asIs(t, p, "per-gib")
		if got, n := iops("per-gib"), p.Cloud.CallCount(fake.DisksUpdate)-calls; got != 10000 || n != 1 {
			t.Errorf("grown: got %d IOPS by %d calls, want 10000 by 1", got, n)
		}
		raised := int64(12000) // in a variable of its own: readers of the disk share the former one
		changeOutside(t, p, "per-gib", func(d *provisioner.Disk) { d.DiskIOPSReadWrite = &raised })
		_, err = expand(t.Context(), p, handle, 22*gib)
		must(t, err)
		asIs(t, p, "per-gib")
		if got := iops("per-gib"); got != 12000 {
			t.Errorf("grown after others raised the IOPS: got %d, want 12000", got)
		}

		fixed := p.Create("fixed", map[string]string{"skuName": "UltraSSD_LRS", "diskIOPSReadWrite": "500"})
		_, err = expand(t.Context(), p, fixed, 600*gib)
		must(t, err)
		asIs(t, p, "fixed")
		if got := iops("fixed"); got != 500 {
			t.Errorf("an Ultra disk with IOPS in its class: got %d, want 500", got)
		}
	})
}

func TestTagsOfLabelsAreThoseOfTheCreation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := controlplane.NewInMemory(t, controlplane.Options{Quiet: true})
		claim := &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: p.Namespace,
				Name:      "data",
				Labels:    map[string]string{"team": "db"},
			},
			Spec: corev1.PersistentVolumeClaimSpec{
				AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{
					corev1.ResourceStorage: resource.MustParse("10Gi"),
				}},
				StorageClassName: new(string),
			},
		}
		must(t, p.Client.Create(t.Context(), claim))
		parameters := map[string]string{
			"skuName": "Premium_LRS", "tags": "fixed=1,team=${pvc.labels.team},stage=${namespace.labels.stage}",
			"csi.storage.k8s.io/pvc/name": "data", "csi.storage.k8s.io/pvc/namespace": p.Namespace,
		}
		p.Create("vol", parameters)
		claim.Labels["team"] = "shop"
		must(t, p.Client.Update(t.Context(), claim))
		p.Create("vol", parameters) // a repeated call, after the label has changed
		tags := p.Cloud.State().Disks[0].Tags
		if _, staged := tags["stage"]; tags["fixed"] != "1" || tags["team"] != "db" || staged {
			t.Errorf("got the tags %v, want fixed=1 and team=db: the namespace has no label", tags)
		}
	})
}

func TestTagsWithALabelNeedTheClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := controlplane.NewInMemory(t, controlplane.Options{Quiet: true})
		request := controlplane.CreateRequest("vol", map[string]string{"tags": "team=${pvc.labels.team}"})
		_, err := p.CSI.CreateVolume(t.Context(), request)
		expectCode(t, err, codes.InvalidArgument)
		if !strings.Contains(err.Error(), "--extra-create-metadata") {
			t.Errorf("got %v, want the name of the flag that is missing", err)
		}
		request.Parameters["csi.storage.k8s.io/pvc/name"] = "none"
		request.Parameters["csi.storage.k8s.io/pvc/namespace"] = p.Namespace
		_, err = p.CSI.CreateVolume(t.Context(), request)
		expectCode(t, err, codes.Unavailable)
	})
}
