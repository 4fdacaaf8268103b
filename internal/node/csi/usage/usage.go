// Package usage reads the kubelet's requests: which disk, which path, and how the volume is used.
package usage

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/parameters/mountoptions"
	"github.com/azuredisk-csi/azuredisk/internal/parameters/volumeparams"
	"github.com/azuredisk-csi/azuredisk/internal/volumehandle"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// fsTypeKey is a key of the volume context, in upper or lower case. Its value overrides the
// capability's type, as in the V1 driver.
const fsTypeKey = "fstype"

// partitionKey is a key of the volume context, in upper or lower case. Its value is the partition
// that is the volume.
const partitionKey = "partition"

// Usage is how a caller wants to use a volume.
type Usage struct {
	Disk   volumehandle.Handle
	Volume string // name of the disk's AzVolume
	Block  bool
	// fsType is the requested type of filesystem; "" if the request names none.
	fsType string
	// options of the mount, parsed.
	options []string
	// multiNode says that several nodes may use the volume at the same time.
	multiNode bool
	ReadOnly  bool
	// Sealed says that the volume was published to the node read-only: nothing on the node may
	// write to it.
	Sealed bool
	// OneTarget says that the volume may have only one target path.
	OneTarget bool
	// Partition of the disk that is the volume; 0 for the whole disk.
	Partition int
	Tuning    volumeparams.Tuning
}

// Read returns the disk with every error, unless the volume ID is not a disk's.
func Read(volumeID string, capability *csi.VolumeCapability, volumeContext map[string]string) (Usage, error) {
	var u Usage
	var idErr error
	u.Disk, idErr = ParseID(volumeID)
	u.Volume = u.Disk.VolumeName()
	if capability == nil {
		return u, provisioner.Errorf(provisioner.InvalidArgument, "the volume capability is missing")
	}
	if err := u.readMode(capability.GetAccessMode().GetMode()); err != nil {
		return u, err
	}
	switch access := capability.GetAccessType().(type) {
	case *csi.VolumeCapability_Block:
		u.Block = true
	case *csi.VolumeCapability_Mount:
		u.fsType = strings.ToLower(access.Mount.GetFsType())
		var err error
		if u.options, err = mountoptions.Parse(access.Mount.GetMountFlags()); err != nil {
			return u, provisioner.Errorf(provisioner.InvalidArgument, "%w", err)
		}
	default:
		return u, provisioner.Errorf(provisioner.InvalidArgument,
			"the volume capability has neither mount nor block: one of them is required")
	}
	for key, value := range volumeContext {
		if strings.EqualFold(key, fsTypeKey) && value != "" {
			u.fsType = strings.ToLower(value)
		}
	}
	if !u.Block && u.fsType != "" && !slices.Contains(volumeparams.FSTypes, u.fsType) {
		return u, provisioner.Errorf(provisioner.InvalidArgument,
			"filesystem type (fsType) %q is not supported: must be one of %s", u.fsType, strings.Join(volumeparams.FSTypes, ", "))
	}
	if !u.Block && u.multiNode {
		return u, provisioner.Errorf(provisioner.InvalidArgument,
			"a volume that several nodes use must be a raw block volume (volumeMode: Block): "+
				"no supported filesystem can be mounted on two nodes at the same time")
	}
	if err := u.readAttributes(volumeContext); err != nil {
		return u, err
	}
	return u, idErr
}

// readAttributes reads the keys of the volume context that concern the device.
func (u *Usage) readAttributes(volumeContext map[string]string) (err error) {
	for key, value := range volumeContext {
		if strings.EqualFold(key, partitionKey) {
			if u.Partition, err = volumeparams.ParsePartition(value); err != nil {
				return err
			}
		}
	}
	u.Tuning, err = volumeparams.ParseTuning(volumeContext)
	return err
}

func (u *Usage) readMode(mode csi.VolumeCapability_AccessMode_Mode) error {
	switch mode {
	case csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER, csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER:
	case csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER:
		u.OneTarget = true
	case csi.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY:
		u.ReadOnly = true
	case csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY:
		u.multiNode, u.ReadOnly = true, true
	case csi.VolumeCapability_AccessMode_MULTI_NODE_SINGLE_WRITER, csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER:
		u.multiNode = true
	default:
		return provisioner.Errorf(provisioner.InvalidArgument, "the volume capability has access mode %v, which is not supported",
			mode)
	}
	return nil
}

// CheckPath refuses a path that is not clean and absolute, because mounts are found by comparing
// paths.
func CheckPath(name, path string) error {
	switch {
	case path == "":
		return provisioner.Errorf(provisioner.InvalidArgument, "%s is missing", name)
	case !filepath.IsAbs(path) || filepath.Clean(path) != path:
		return provisioner.Errorf(provisioner.InvalidArgument,
			"%s %q: must be an absolute path without \".\", \"..\" or double slashes", name, path)
	}
	return nil
}

// CheckStagingPath checks the staging path of a volume that is about to be staged. After a loss of its records the
// node finds only what is mounted below the kubelet's directory, and a report without a mount is a proof.
func CheckStagingPath(path, kubeletDir string) error {
	const name = "staging_target_path"
	if err := CheckPath(name, path); err != nil {
		return err
	}
	if !strings.HasPrefix(path, strings.TrimSuffix(filepath.Clean(kubeletDir), "/")+"/") {
		return provisioner.Errorf(provisioner.InvalidArgument,
			"%s %q: must be below %q: set node.kubeletDir (--kubelet-dir) to the --root-dir of the kubelet",
			name, path, kubeletDir)
	}
	return nil
}

// ParseID parses a volume ID. An ID that is not a disk's names a volume that does not exist.
func ParseID(id string) (volumehandle.Handle, error) {
	disk, err := volumehandle.Parse(id)
	if err != nil {
		return volumehandle.Handle{}, provisioner.Errorf(provisioner.NotFound, "%w", err)
	}
	return disk, nil
}

// Wanted is the type of filesystem that the caller or the volume's parameters request; "" if they
// request none.
func (u Usage) Wanted(volume *apiv1.AzVolume) string {
	if u.fsType != "" {
		return u.fsType
	}
	return volume.FilesystemType()
}

// MountOptions are the caller's options and the required ones. Two disks that were created from one
// snapshot have the same UUID; xfs mounts both on one node only with the option nouuid.
func (u Usage) MountOptions(fsType string) []string {
	options := mountoptions.ForMount(u.options)
	if u.Sealed {
		options = mountoptions.WithReadOnly(options)
	}
	if fsType == "xfs" {
		options = mountoptions.WithNoUUID(options)
	}
	return options
}

// MountsReadOnly reports whether the filesystem is mounted read-only.
func (u Usage) MountsReadOnly() bool { return u.Sealed || mountoptions.ReadOnly(u.options) }

// Unchecked reports whether the filesystem is mounted without a check before.
func (u Usage) Unchecked() bool { return mountoptions.Unchecked(u.options) }

// Label is the SELinux label of all files on the volume. The kubelet passes it as a mount option;
// "" for none.
func (u Usage) Label() string { return mountoptions.Label(u.options) }
