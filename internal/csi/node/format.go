package node

import (
	"slices"

	"github.com/google/uuid"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

const defaultFSType = "ext4"

func fsTypes() []string { return []string{"ext4", "xfs", "ext3", "ext2", "btrfs"} }

// formatAction is what becomes of the content of a device before it is mounted.
type formatAction string

const (
	// keepContent: it carries the filesystem that it should.
	keepContent formatAction = "Keep"
	// makeNew: it is blank and gets a filesystem.
	makeNew formatAction = "Make"
	// makeAgain: it carries what this node left when a Make was cut short, and is cleared before a filesystem is made.
	makeAgain formatAction = "MakeAgain"
	// renew: it carries a copy of another volume's filesystem, with that one's UUID, and gets the UUID that copyUUID names.
	renew formatAction = "Renew"
)

// formatInput is what the decision follows from.
type formatInput struct {
	// volume as it was read at the API server.
	volume *apiv1.AzVolume
	// wanted type of filesystem; "" for whatever is there.
	wanted string
	// found on the device.
	found provisioner.Filesystem
	blank bool
	// mounted says that the device is mounted on this node.
	mounted bool
	// cutShort is the filesystem that this node was making under this same epoch, if it was killed then.
	cutShort *provisioner.Filesystem
}

// planFormat holds law 4: a device is formatted only if it reads blank, no filesystem is recorded, and the volume
// has no source. One exception: what this node itself left behind, under the claim that it still holds, on a device
// that had read blank.
func planFormat(in formatInput) (formatAction, error) {
	recorded := in.volume.Status.Filesystem
	switch {
	case recorded != nil && in.blank:
		return "", refuse("the device is blank, and volume %s is recorded to carry %s with UUID %s: this is not its disk, or its content is lost",
			in.volume.Name, recorded.Type, recorded.UUID)
	case recorded != nil && (in.found != provisioner.Filesystem{Type: recorded.Type, UUID: recorded.UUID}):
		return "", refuse("the device carries %s, and volume %s is recorded to carry %s with UUID %s: it is not mounted",
			describeContent(in.found), in.volume.Name, recorded.Type, recorded.UUID)
	case recorded == nil && in.cutShort != nil && in.volume.Spec.Source == nil && !in.blank:
		return makeAgain, nil
	case in.blank && in.volume.Spec.Source != nil:
		return "", refuse("the device is blank, and volume %s was made from %s: it is not formatted. The source carries no filesystem, as one that was never mounted; "+
			"use the copy as a raw block volume, or a new volume in its place", in.volume.Name, describeSource(in.volume.Spec.Source))
	case in.blank:
		return makeNew, nil
	case !slices.Contains(fsTypes(), in.found.Type):
		return "", refuse("the device is not blank and carries %s: it is neither formatted nor mounted", describeContent(in.found))
	case in.wanted != "" && in.found.Type != in.wanted:
		return "", refuse("the device carries %s, and %s was asked for: it is not mounted", describeContent(in.found), in.wanted)
	case recorded == nil && in.volume.Spec.Source != nil && !in.mounted && in.found.UUID != copyUUID(in.volume):
		return renew, nil
	default:
		return keepContent, nil
	}
}

// copyNamespace is the namespace of the UUIDs of copies.
var copyNamespace = uuid.MustParse("6f1f0b86-8d4e-4b43-9a55-2f6d1f0c3a71")

// copyUUID is the UUID of the filesystem of a volume that was made from a source. It follows from the volume, so that
// every node that stages it before the filesystem is recorded, and every call after a kill, comes to the same one: what
// is recorded late, from the report of an earlier stage, is still what the device carries.
func copyUUID(volume *apiv1.AzVolume) string {
	return uuid.NewSHA1(copyNamespace, []byte(volume.UID)).String()
}

func describeSource(source *apiv1.VolumeSource) string { return source.DiskURI + source.SnapshotURI }

func describeContent(found provisioner.Filesystem) string {
	if found.Type == "" {
		return "no filesystem that can be recognised"
	}
	return found.Type + " with UUID " + found.UUID
}

func refuse(format string, args ...any) error {
	return provisioner.Errorf(provisioner.FailedPrecondition, format, args...)
}

func invalid(format string, args ...any) error {
	return provisioner.Errorf(provisioner.InvalidArgument, format, args...)
}
