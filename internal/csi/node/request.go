package node

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/volumehandle"
	"github.com/azuredisk-csi/azuredisk/internal/volumeparams"
)

// fsTypeKey is a key of the volume context, in upper or lower case. Its value overrides the capability's type, as in
// the V1 driver.
const fsTypeKey = "fstype"

// partitionKey is a key of the volume context, in upper or lower case. Its value is the partition that is the volume.
const partitionKey = "partition"

// usage is how a caller wants to use a volume.
type usage struct {
	disk   volumehandle.Handle
	volume string // name of the disk's AzVolume
	block  bool
	// fsType is the requested type of filesystem; "" if the request names none.
	fsType string
	flags  []string
	// multiNode says that several nodes may use the volume at the same time.
	multiNode bool
	readOnly  bool
	// sealed says that the volume was published to the node read-only: nothing on the node may write to it.
	sealed bool
	// exclusive says that the volume may have only one target path.
	exclusive bool
	// partition of the disk that is the volume; 0 for the whole disk.
	partition int
	tuning    volumeparams.Tuning
}

// readUsage returns the disk with every error, unless the volume ID is not a disk's.
func readUsage(volumeID string, capability *csi.VolumeCapability, volumeContext map[string]string) (usage, error) {
	var u usage
	var idErr error
	u.disk, idErr = parseID(volumeID)
	u.volume = u.disk.VolumeName()
	if capability == nil {
		return u, invalid("the volume capability is missing")
	}
	if err := u.readMode(capability.GetAccessMode().GetMode()); err != nil {
		return u, err
	}
	switch access := capability.GetAccessType().(type) {
	case *csi.VolumeCapability_Block:
		u.block = true
	case *csi.VolumeCapability_Mount:
		u.fsType, u.flags = strings.ToLower(access.Mount.GetFsType()), access.Mount.GetMountFlags()
	default:
		return u, invalid("the volume capability has neither mount nor block: one of them is required")
	}
	for key, value := range volumeContext {
		if strings.EqualFold(key, fsTypeKey) && value != "" {
			u.fsType = strings.ToLower(value)
		}
	}
	if !u.block && u.fsType != "" && !slices.Contains(fsTypes(), u.fsType) {
		return u, invalid("filesystem type (fsType) %q is not supported: must be one of %s", u.fsType, strings.Join(fsTypes(), ", "))
	}
	if !u.block && u.multiNode {
		return u, invalid("a volume that several nodes use must be a raw block volume (volumeMode: Block): " +
			"no supported filesystem can be mounted on two nodes at the same time")
	}
	if err := u.readAttributes(volumeContext); err != nil {
		return u, err
	}
	return u, idErr
}

// readAttributes reads the keys of the volume context that concern the device.
func (u *usage) readAttributes(volumeContext map[string]string) (err error) {
	for key, value := range volumeContext {
		if strings.EqualFold(key, partitionKey) {
			if u.partition, err = volumeparams.ParsePartition(value); err != nil {
				return err
			}
		}
	}
	u.tuning, err = volumeparams.ParseTuning(volumeContext)
	return err
}

func (u *usage) readMode(mode csi.VolumeCapability_AccessMode_Mode) error {
	switch mode {
	case csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER, csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER:
	case csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER:
		u.exclusive = true
	case csi.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY:
		u.readOnly = true
	case csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY:
		u.multiNode, u.readOnly = true, true
	case csi.VolumeCapability_AccessMode_MULTI_NODE_SINGLE_WRITER, csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER:
		u.multiNode = true
	default:
		return invalid("the volume capability has access mode %v, which is not supported", mode)
	}
	return nil
}

// checkPath refuses a path that is not clean and absolute, because mounts are found by comparing paths.
func checkPath(name, path string) error {
	switch {
	case path == "":
		return invalid("%s is missing", name)
	case !filepath.IsAbs(path) || filepath.Clean(path) != path:
		return invalid("%s %q: must be an absolute path without \".\", \"..\" or double slashes", name, path)
	}
	return nil
}

// wanted is the type of filesystem that the caller or the volume's parameters request; "" if they request none.
func (u usage) wanted(volume *apiv1.AzVolume) string {
	if u.fsType != "" {
		return u.fsType
	}
	return volume.Spec.Disk.FSType
}

// mountOptions are the caller's flags and those that the filesystem needs. Two disks that were created from one
// snapshot have the same UUID; xfs mounts both on one node only with the option nouuid.
func (u usage) mountOptions(fsType string) []string {
	var options []string
	for _, flag := range u.flags {
		if flag != "" && !slices.Contains(options, flag) {
			options = append(options, flag)
		}
	}
	if u.sealed && !slices.Contains(options, "ro") {
		options = append(options, "ro")
	}
	if fsType == "xfs" && !slices.Contains(options, "nouuid") {
		options = append(options, "nouuid")
	}
	return options
}

// label is the SELinux label of all files on the volume. The kubelet passes it as a mount option; "" for none.
func (u usage) label() string {
	for _, flag := range u.flags {
		if label, found := strings.CutPrefix(flag, "context="); found {
			return strings.Trim(label, `"`)
		}
	}
	return ""
}
