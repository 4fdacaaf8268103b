package v1

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

const maxNameLength = validation.DNS1123SubdomainMaxLength

// VolumeName returns the name of the AzVolume for a disk with the given resource
// name at Azure: the disk's name in lower case. Azure disk names may hold
// underscores, which Kubernetes names may not; such a name gets its odd
// characters replaced and a hash of the whole name appended, so that two disks
// never share an AzVolume.
func VolumeName(diskName string) string {
	lower := strings.ToLower(diskName)
	if len(validation.IsDNS1123Subdomain(lower)) == 0 {
		return lower
	}
	return legalName(lower, 63)
}

// AttachmentName returns the name of the AzVolumeAttachment of a volume and a
// node: both names joined, shortened with a hash where they are too long.
func AttachmentName(volumeName, nodeName string) string {
	name := volumeName + "-" + nodeName
	if len(name) <= maxNameLength {
		return name
	}
	return legalName(name, maxNameLength)
}

func legalName(s string, limit int) string {
	sum := sha256.Sum256([]byte(s))
	suffix := "-" + hex.EncodeToString(sum[:])[:10]
	mapped := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, s)
	mapped = strings.Trim(mapped, "-")
	if len(mapped) > limit-len(suffix) {
		mapped = strings.TrimRight(mapped[:limit-len(suffix)], "-")
	}
	if mapped == "" {
		mapped = "disk"
	}
	return mapped + suffix
}
