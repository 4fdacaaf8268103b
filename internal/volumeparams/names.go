package volumeparams

import (
	"fmt"
	"strings"

	"github.com/azuredisk-csi/azuredisk/internal/paramtable"
)

// Tag keys that the driver puts on the disks that it creates, besides those of the StorageClass.
const (
	TagCreatedBy      = "k8s-azure-created-by"
	TagClaimName      = "kubernetes.io-created-for-pvc-name"
	TagClaimNamespace = "kubernetes.io-created-for-pvc-namespace"
	TagVolumeName     = "kubernetes.io-created-for-pv-name"
	createdBy         = "kubernetes-azure-dd"
	// TagWriteAccelerator is where the V1 driver keeps that a disk is to be attached with the write accelerator.
	TagWriteAccelerator = "writeacceleratorenabled"
)

// maxTags is what Azure allows on a resource, less the one with which the driver marks its disks.
const maxTags = 50 - 1

// NameDisk returns the name of the disk for the volume name that the caller
// gave, mended where Azure would refuse it.
func (p *Parameters) NameDisk(volumeName string) string {
	if p.DiskName != "" {
		volumeName = p.fill(p.DiskName)
	}
	return paramtable.ResourceName(volumeName, "disk")
}

// fill replaces the templates that V1 knows.
func (p *Parameters) fill(s string) string {
	return strings.NewReplacer(
		"${pvc.metadata.name}", p.ClaimName,
		"${pvc.metadata.namespace}", p.ClaimNamespace,
		"${pv.metadata.name}", p.VolumeName,
	).Replace(s)
}

// parseTags fills Tags and returns the faults.
func (p *Parameters) parseTags() []string {
	p.Tags = p.ownTags()
	faults := paramtable.Tags(p.Tags, p.tags, p.tagDelimiter, p.fill)
	if p.WriteAcceleratorEnabled {
		p.Tags[TagWriteAccelerator] = "true"
	}
	p.WriteAcceleratorEnabled = WriteAccelerator(p.Tags)
	if len(p.Tags) > maxTags {
		faults = append(faults, fmt.Sprintf("parameter tags: the disk would have %d tags; allowed: %d besides the driver's own", len(p.Tags)+1, maxTags-len(p.ownTags())))
	}
	return faults
}

// ownTags are the tags that the driver puts on the disk.
func (p *Parameters) ownTags() map[string]string {
	tags := map[string]string{TagCreatedBy: createdBy}
	for tag, value := range map[string]string{TagClaimName: p.ClaimName, TagClaimNamespace: p.ClaimNamespace, TagVolumeName: p.VolumeName} {
		if value != "" {
			tags[tag] = value
		}
	}
	return tags
}

// WriteAccelerator says whether the tags of a disk ask for the write accelerator. Azure compares their names without regard to case.
func WriteAccelerator(tags map[string]string) bool {
	for name, value := range tags {
		if strings.EqualFold(name, TagWriteAccelerator) && strings.EqualFold(value, "true") {
			return true
		}
	}
	return false
}
