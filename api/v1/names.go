package v1

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

const maxNameLength = validation.DNS1123SubdomainMaxLength

// maxVolumeName is the length of a label's value, so that tools can label other objects with an
// AzVolume's name.
const maxVolumeName = validation.LabelValueMaxLength

// The labels that the driver sets when it creates an object, to select by. Nothing in the driver reads them.
const (
	// LabelVolumeName is on an AzVolumeAttachment: the name of its AzVolume.
	LabelVolumeName = GroupName + "/volume-name"
	// LabelNodeName is on an AzVolumeAttachment, unless the node's name is longer than a label's value can be.
	LabelNodeName = GroupName + "/node-name"
	// LabelClaimNamespace is on an AzVolume that was made for a claim: the namespace of spec.claimRef.
	LabelClaimNamespace = GroupName + "/claim-namespace"
)

// AttachmentLabels returns the labels of an AzVolumeAttachment.
func AttachmentLabels(volumeName, nodeName string) map[string]string {
	labels := map[string]string{LabelVolumeName: volumeName}
	if len(nodeName) <= validation.LabelValueMaxLength {
		labels[LabelNodeName] = nodeName
	}
	return labels
}

// ClaimLabels returns the labels of an AzVolume that was made for a claim; none for nil.
func ClaimLabels(claim *ClaimReference) map[string]string {
	if claim == nil {
		return nil
	}
	return map[string]string{LabelClaimNamespace: claim.Namespace}
}

// VolumeName returns the name of the AzVolume for a disk at Azure: the disk's name, made legal and
// short enough for Kubernetes, and a hash of the whole resource ID without regard to case. Two
// disks of one name, in two resource groups or subscriptions, have two AzVolumes. It depends on
// nothing but the ID, so all programs of the driver agree on it.
func VolumeName(subscriptionID, resourceGroup, diskName string) string {
	id := strings.ToLower(subscriptionID + "/" + resourceGroup + "/" + diskName)
	return legalName(strings.ToLower(diskName), id, maxVolumeName)
}

// AttachmentName returns the name of the AzVolumeAttachment of a volume and a
// node: both names joined, shortened with a hash where they are too long.
func AttachmentName(volumeName, nodeName string) string {
	name := volumeName + "-" + nodeName
	if len(name) <= maxNameLength {
		return name
	}
	return legalName(name, name, maxNameLength)
}

// legalName returns s with the characters that a Kubernetes name cannot hold replaced, cut to the
// limit, and with a hash of identity at its end.
func legalName(s, identity string, limit int) string {
	sum := sha256.Sum256([]byte(identity))
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
