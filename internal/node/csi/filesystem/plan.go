package filesystem

import (
	"slices"
	"strings"

	"github.com/google/uuid"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/parameters/volumeparams"
	"github.com/azuredisk-csi/azuredisk/internal/plan/refusal"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

const defaultFSType = "ext4"

// formatAction is how the content of a device is changed before it is mounted.
type formatAction string

const (
	// keepContent: the device has the right filesystem.
	keepContent formatAction = "Keep"
	// makeNew: the device is blank and gets a filesystem.
	makeNew formatAction = "Make"
	// makeAgain: the device has the rest of a format that was interrupted on this node. It is
	// cleared and formatted.
	makeAgain formatAction = "MakeAgain"
	// renew: the device has a copy of another volume's filesystem, with the same UUID, and gets the
	// UUID of copyUUID.
	renew formatAction = "Renew"
)

// formatInput is the input of planFormat.
type formatInput struct {
	device string
	// volume as it was read at the API server.
	volume *apiv1.AzVolume
	// wanted type of filesystem; "" for the type that the device has.
	wanted string
	// found on the device.
	found provisioner.Filesystem
	blank bool
	// mounted says that the device is mounted on this node.
	mounted bool
	// interrupted is the filesystem that this node was making under the same epoch when it was
	// killed; nil for none.
	interrupted *provisioner.Filesystem
}

// planFormat enforces law 4: a device is formatted only if it is blank, no filesystem is recorded,
// and the volume has no source. There is one exception: the rest of a format that this node itself
// began on a blank device, under the ownership that it still holds.
func planFormat(in formatInput) (formatAction, error) {
	recorded := in.volume.Status.Filesystem
	switch {
	case recorded != nil && in.blank:
		return "", refusal.Errorf(apiv1.ReasonFilesystemMismatch,
			"refusing to format device %s for volume %s: the device is blank, and the volume is recorded with %s with UUID %s; "+
				"the device is not the volume's disk, or the disk's content is lost", in.device, in.volume.Name, recorded.Type,
			recorded.UUID)
	case recorded != nil && (in.found != provisioner.Filesystem{Type: recorded.Type, UUID: recorded.UUID}):
		return "", refusal.Errorf(apiv1.ReasonFilesystemMismatch,
			"refusing to mount device %s for volume %s: it holds %s, and the volume is recorded with %s with UUID %s",
			in.device, in.volume.Name, describeContent(in.found), recorded.Type, recorded.UUID)
	case recorded == nil && in.interrupted != nil && in.volume.Spec.Source == nil && !in.blank:
		return makeAgain, nil
	case in.blank && in.volume.Spec.Source != nil:
		return "", refusal.Errorf(apiv1.ReasonFilesystemMismatch,
			"refusing to format device %s for volume %s: the volume was created from %s, and the device is blank, so the source "+
				"has no filesystem; use the copy as a raw block volume, or create a volume without a source",
			in.device, in.volume.Name, describeSource(in.volume.Spec.Source))
	case in.blank:
		return makeNew, nil
	case !slices.Contains(volumeparams.FSTypes, in.found.Type):
		return "", refusal.Errorf(apiv1.ReasonFilesystemMismatch,
			"refusing to format or mount device %s for volume %s: it is not blank and holds %s; expected a blank device or one of %s",
			in.device, in.volume.Name, describeContent(in.found), strings.Join(volumeparams.FSTypes, ", "))
	case in.wanted != "" && in.found.Type != in.wanted:
		return "", refusal.Errorf(apiv1.ReasonFilesystemMismatch,
			"refusing to mount device %s for volume %s: it holds %s, and the requested filesystem is %s",
			in.device, in.volume.Name, describeContent(in.found), in.wanted)
	case recorded == nil && in.volume.Spec.Source != nil && !in.mounted && in.found.UUID != copyUUID(in.volume):
		return renew, nil
	default:
		return keepContent, nil
	}
}

// copyNamespace is the namespace of the UUIDs that copyUUID derives.
var copyNamespace = uuid.MustParse("6f1f0b86-8d4e-4b43-9a55-2f6d1f0c3a71")

// copyUUID is the UUID of the filesystem of a volume that was created from a source. It is derived
// from the volume's UID, so that all nodes that stage the volume before its filesystem is recorded,
// and all calls after a kill, use the same one. A record that is written late, from the report of
// an earlier stage, is therefore still right.
func copyUUID(volume *apiv1.AzVolume) string {
	return uuid.NewSHA1(copyNamespace, []byte(volume.UID)).String()
}

func describeSource(source *apiv1.VolumeSource) string { return source.DiskID + source.SnapshotID }

func describeContent(found provisioner.Filesystem) string {
	if found.Type == "" {
		return "no filesystem that is recognised"
	}
	return found.Type + " with UUID " + found.UUID
}
