package simulation

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"k8s.io/apimachinery/pkg/api/equality"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/disk"
)

const gib = 1 << 30

// change requests a larger disk, other parameters, or both, as csi-resizer does.
func (w *world) change(p *process, v *volumeModel, timeout time.Duration) {
	n := w.random.IntN(3)
	if n != 0 {
		v.grown++
		size := int64(volumeSize + v.grown*gib)
		w.begin(p.owner, fmt.Sprintf("Expand %s to %d GiB", v.name, size/gib), timeout, func(ctx context.Context) error {
			_, err := p.csi.ControllerExpandVolume(ctx, &csi.ControllerExpandVolumeRequest{
				VolumeId:      diskOf(v.name),
				CapacityRange: &csi.CapacityRange{RequiredBytes: size},
			})
			return err
		})
	}
	if n != 1 {
		v.classes++
		class := pick(w.random, []map[string]string{
			{"tags": fmt.Sprintf("class=%d", v.classes)}, {"tier": "P10"}, {
				"tier": "P15",
				"tags": "tier=high",
			}, {"networkAccessPolicy": "AllowAll"},
			{"skuName": "StandardSSD_LRS"}, {"skuName": "Premium_LRS"}, // at rest only
		})
		w.begin(p.owner, fmt.Sprintf("Modify %s by %v", v.name, class), timeout, func(ctx context.Context) error {
			_, err := p.csi.ControllerModifyVolume(ctx, &csi.ControllerModifyVolumeRequest{
				VolumeId:          diskOf(v.name),
				MutableParameters: class,
			})
			return err
		})
	}
}

// sizeOf is the size of a disk.
func (p *platform) sizeOf(disk string) int64 {
	for _, d := range p.state().Disks {
		if strings.EqualFold(d.ID, disk) {
			return d.SizeBytes
		}
	}
	return volumeSize // the disk was deleted, and its size is not known any more
}

// sizeChanged holds that no volume is ever recorded smaller than it was.
func (w *world) sizeChanged(before, after *apiv1.AzVolume) {
	if after.UID == before.UID && after.Status.SizeBytes < before.Status.SizeBytes {
		w.broken("%s shrank from %d to %d bytes", after.Name, before.Status.SizeBytes, after.Status.SizeBytes)
	}
}

// sizes holds that no disk ever shrinks.
func (w *world) sizes() {
	for _, d := range w.azure.state().Disks {
		if w.largest[d.UniqueID] > d.SizeBytes {
			w.broken("disk %s shrank from %d to %d bytes", lastOf(d.ID), w.largest[d.UniqueID], d.SizeBytes)
		}
		w.largest[d.UniqueID] = d.SizeBytes
	}
}

// mayWait reports whether a change of a volume waits until the volume is released next, as it should: Azure
// does not make it while a node has the shared disk.
func (w *world) mayWait(v *apiv1.AzVolume) bool {
	_, pending := disk.Pending(v)
	waits, _ := disk.Waits(v, w.attachments(v.Name), w.now())
	return pending && waits
}

// tamperChanges shows a volume with a change at rest as released.
func (w *world) tamperChanges(v *apiv1.AzVolume) {
	state := map[Mutant]apiv1.OwnershipState{
		ChangedInUse: apiv1.OwnershipHeld, ChangedBeforeProof: apiv1.OwnershipReleasing,
	}[w.options.Mutant]
	if p := v.Status.Primary; state != "" && p != nil && p.State == state && disk.ChangesAlone(v) {
		p.NodeName, p.State = "", apiv1.OwnershipReleased
	}
}

// asAsked names a disk that differs from its volume, or a volume whose change is not applied yet.
func (w *world) asAsked() string {
	for _, v := range w.volumes {
		object := w.volume(v.name)
		switch {
		case v.edited:
			continue
		case object == nil || object.Status.Applied == nil || object.Status.State != apiv1.VolumeCreated:
			return v.name + " is not there, or not at rest"
		case w.mayWait(object):
			continue
		case object.Spec.CapacityBytes > object.Status.SizeBytes:
			return v.name + " waits to grow"
		case !equality.Semantic.DeepEqual(object.Spec.Disk.DiskSettings, object.Status.Applied.DiskSettings):
			return v.name + " waits to be modified"
		}
		for _, d := range w.azure.state().Disks {
			if volumeOf(d.ID) != v.name {
				continue
			}
			is := object.Status.Applied
			if d.SizeBytes != object.Status.SizeBytes || d.SKUName != is.SKUName || is.Tier != "" && d.Tier != is.Tier {
				return fmt.Sprintf("%s: Azure has %d bytes, %s, tier %q", v.name, d.SizeBytes, d.SKUName, d.Tier)
			}
			for name, value := range is.Tags {
				if d.Tags[name] != value {
					return fmt.Sprintf("%s: tag %s is %q at Azure", v.name, name, d.Tags[name])
				}
			}
		}
	}
	return ""
}
