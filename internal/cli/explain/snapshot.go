package explain

import (
	"cmp"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
)

// snapshot explains a VolumeSnapshot.
func (f Facts) snapshot() Finding {
	s := f.Snapshot
	seen := Evidence{Object: f.Subject.String(), Says: "readyToUse: false"}
	switch {
	case s == nil:
		return find(apiv1.ReasonNotReadable, "Snapshots are not readable with these rights.")
	case s.Ready:
		return find(apiv1.ReasonHealthy, "The snapshot is complete.").seen(Evidence{Object: f.Subject.String(),
			Says: "readyToUse: true"})
	case s.ClassMissing:
		return find(apiv1.ReasonSnapshotClassMissing, "There is no VolumeSnapshotClass %s.", cmp.Or(s.Class,
			"for the snapshot")).seen(seen)
	case s.Driver != "" && s.Driver != f.DriverName:
		return find(apiv1.ReasonOtherDriver, "VolumeSnapshotClass %s belongs to driver %s.", s.Class, s.Driver)
	case s.SourceMissing:
		return find(apiv1.ReasonSnapshotSourceMissing, "There is no claim %s that the snapshot could be taken from.",
			s.SourceClaim).
			seen(seen)
	case s.Error != "":
		return find(apiv1.ReasonSnapshotFailed, "The snapshot could not be taken. The driver tries again.").quoting(s.Error).
			seen(Evidence{Object: f.Subject.String(), Says: "status.error", Since: &s.ErrorTime})
	}
	if finding, ok := f.driver(sidecarSnapshotter); ok {
		return finding
	}
	return find(apiv1.ReasonSnapshotNotReady, "The snapshot is being taken. It was created at %s.", f.clock(s.Created)).seen(seen)
}
