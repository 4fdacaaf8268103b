package volumeparams

import (
	"fmt"
	"strings"

	"github.com/azuredisk-csi/azuredisk/internal/parameters/paramtable"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// Tag keys that the driver sets on the disks that it creates, in addition to the tags of the
// StorageClass.
const (
	tagCreatedBy      = "k8s-azure-created-by"
	TagClaimName      = "kubernetes.io-created-for-pvc-name"
	TagClaimNamespace = "kubernetes.io-created-for-pvc-namespace"
	TagVolumeName     = "kubernetes.io-created-for-pv-name"
	createdBy         = "kubernetes-azure-dd"
	// tagWriteAccelerator is the tag of the V1 driver for a disk that must be attached with the
	// write accelerator.
	tagWriteAccelerator = "writeacceleratorenabled"
)

// MaxTags is the number of tags that Azure allows on a resource, less the one with which the driver
// marks its disks.
const MaxTags = paramtable.MostTags - 1

// NameDisk returns the name of the disk for the volume name in the request, corrected if Azure
// would refuse it.
func (p *Parameters) NameDisk(volumeName string) string {
	if p.Name != "" {
		volumeName = p.fill(p.Name)
	}
	return paramtable.ResourceName(volumeName, "disk")
}

// fill replaces the V1 driver's templates.
func (p *Parameters) fill(s string) string {
	return strings.NewReplacer(
		"${pvc.metadata.name}", p.ClaimName, "${pvc.name}", p.ClaimName,
		"${pvc.metadata.namespace}", p.ClaimNamespace, "${pvc.namespace}", p.ClaimNamespace,
		"${pv.metadata.name}", p.VolumeName, "${pv.name}", p.VolumeName,
	).Replace(s)
}

// parseTags fills Tags and returns the faults.
func (p *Parameters) parseTags() []string {
	p.Tags = p.ownTags()
	faults := paramtable.Tags(p.Tags, p.tags, p.tagDelimiter, p.fill)
	if p.WriteAcceleratorEnabled {
		provisioner.SetTag(p.Tags, tagWriteAccelerator, "true")
	}
	p.WriteAcceleratorEnabled = WriteAccelerator(p.Tags)
	p.findTemplates()
	if hasTemplate(p.Name) {
		faults = append(faults, paramtable.Fault("diskName", p.Name, "templates of names; labels and annotations can change"))
	}
	if len(p.Tags) > MaxTags {
		faults = append(faults, fmt.Sprintf("parameter tags: the disk would have %d tags; allowed: %d besides the driver's own",
			len(p.Tags)+1, MaxTags-len(p.ownTags())))
	}
	return faults
}

// ownTags are the tags that the driver sets on the disk.
func (p *Parameters) ownTags() map[string]string {
	tags := map[string]string{tagCreatedBy: createdBy}
	for tag, value := range map[string]string{
		TagClaimName:      p.ClaimName,
		TagClaimNamespace: p.ClaimNamespace,
		TagVolumeName:     p.VolumeName,
	} {
		if value != "" {
			tags[tag] = value
		}
	}
	return tags
}

// WriteAccelerator reports whether the tags of a disk request the write accelerator. Azure compares
// their names without regard to case.
func WriteAccelerator(tags map[string]string) bool {
	for name, value := range tags {
		if strings.EqualFold(name, tagWriteAccelerator) && strings.EqualFold(value, "true") {
			return true
		}
	}
	return false
}
