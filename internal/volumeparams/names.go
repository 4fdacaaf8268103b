package volumeparams

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

const maxDiskNameLength = 80

// Tag keys that the driver puts on the disks that it creates, besides those of the StorageClass.
const (
	TagCreatedBy      = "k8s-azure-created-by"
	TagClaimName      = "kubernetes.io-created-for-pvc-name"
	TagClaimNamespace = "kubernetes.io-created-for-pvc-namespace"
	TagVolumeName     = "kubernetes.io-created-for-pv-name"
	createdBy         = "kubernetes-azure-dd"
)

// NameDisk returns the name of the disk for the volume name that the caller
// gave. Azure takes 1 to 80 letters, digits, "_", "-" and ".", and a letter or
// digit first; a name that is not like that is mended and gets a
// hash of the original appended, so that different names stay different.
func (p *Parameters) NameDisk(volumeName string) string {
	name := volumeName
	if p.DiskName != "" {
		name = p.fill(p.DiskName)
	}
	if validDiskName(name) {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	suffix := "-" + hex.EncodeToString(sum[:])[:12]
	mended := strings.Map(func(r rune) rune {
		if isAlphanumeric(r) || strings.ContainsRune("_-.", r) {
			return r
		}
		return '-'
	}, name)
	mended = strings.TrimLeft(mended, "_-.")
	if len(mended) > maxDiskNameLength-len(suffix) {
		mended = mended[:maxDiskNameLength-len(suffix)]
	}
	if mended == "" {
		mended = "disk"
	}
	return mended + suffix
}

func validDiskName(name string) bool {
	if name == "" || len(name) > maxDiskNameLength {
		return false
	}
	for i, r := range name {
		switch {
		case isAlphanumeric(r):
		case r == '_' && i > 0:
		case (r == '-' || r == '.') && i > 0 && i < len(name)-1:
		default:
			return false
		}
	}
	return true
}

func isAlphanumeric(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
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
	p.Tags = map[string]string{TagCreatedBy: createdBy}
	for tag, value := range map[string]string{TagClaimName: p.ClaimName, TagClaimNamespace: p.ClaimNamespace, TagVolumeName: p.VolumeName} {
		if value != "" {
			p.Tags[tag] = value
		}
	}
	var faults []string
	for _, pair := range strings.Split(p.tags, p.tagDelimiter) {
		if strings.TrimSpace(pair) == "" {
			continue
		}
		name, value, ok := strings.Cut(pair, "=")
		name = strings.TrimSpace(name)
		if !ok || name == "" || len(name) > 512 || len(value) > 256 || strings.ContainsAny(name, `<>%&?\/`) {
			faults = append(faults, fault("tags", pair, `key=value with 1 to 512 characters other than <>%&?\/ in the key and up to 256 in the value`))
			continue
		}
		p.Tags[name] = p.fill(strings.TrimSpace(value))
	}
	return faults
}
