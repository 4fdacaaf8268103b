package csi

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/go-logr/logr"

	"github.com/azuredisk-csi/azuredisk/internal/node/nodereport"
	"github.com/azuredisk-csi/azuredisk/internal/plan/problem"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// ReviewInterval is how often to call ReviewProblems, which reads a directory, the list of mounts and the
// kernel's cache.
const ReviewInterval = 10 * time.Second

// ReviewProblems looks at the filesystems that are mounted on this node for writing, and has the report say
// which of them take no writes. Nothing else tells users of it.
func (s *Server) ReviewProblems(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	defer s.options.Report.ReviewProblems()
	records, _ := s.options.Records.List() // each call that needs them fails with the error
	mounts, err := s.options.Host.Mounts().List(ctx)
	if err != nil {
		logr.FromContextOrDiscard(ctx).Error(err, "cannot look at the filesystems of volumes")
		return
	}
	for name, record := range records {
		if record.Block || record.ReadOnly || record.BootID != s.options.BootID {
			continue
		}
		reason, message := "", ""
		if i := slices.IndexFunc(mounts, func(m provisioner.MountPoint) bool {
			return m.Source == record.Device && record.StagedAt(m.Target)
		}); i >= 0 {
			seen := filesystemAt(mounts[i])
			if !seen.Sealed {
				if seen.Frozen, err = s.options.Host.Filesystems().Frozen(ctx, record.Device, seen.Type); err != nil {
					continue // a device that fails says nothing about a freeze
				}
			}
			reason, message = problem.OfFilesystem(seen)
		}
		s.options.Report.Saw(name, problem.Mounted, reason, message)
	}
}

func filesystemAt(mount provisioner.MountPoint) problem.Filesystem {
	return problem.Filesystem{Type: mount.FSType, Device: mount.Source, Path: mount.Target, Sealed: mount.Sealed}
}

// note has the report say how a call for a volume has ended, if it has failed for long and users are to
// know.
func (s *Server) note(volume string, source problem.Source, unmounts bool, err error) {
	reason, ok := problem.OfCall(unmounts, err)
	if !ok || errors.Is(err, nodereport.ErrOtherDisk) { // then the volume is another one
		return
	}
	message := ""
	if reason != "" {
		message = err.Error()
	}
	s.options.Report.Saw(volume, source, reason, message)
}

// noteReading has the report say what the last read from a volume's device has shown.
func (s *Server) noteReading(record nodereport.Record, path string, faults []*csi.VolumeHealth_VolumeHealthEntry) {
	source := problem.Reading(path)
	for _, fault := range faults {
		if r := fault.GetReason(); r == reasonDeviceGone || r == reasonReadFailed {
			s.options.Report.Saw(record.VolumeName, source, r, fault.GetMessage())
			return
		}
	}
	s.options.Report.Saw(record.VolumeName, source, "", "")
}
