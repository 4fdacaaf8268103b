package nodereport

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/volumehandle"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// findings is what a scan of the node found.
type findings struct {
	bootID  string
	records map[string]Record
	// mounted are the staging mounts, by volume.
	mounted map[string]provisioner.MountPoint
	// held are the volumes whose device something on this node holds, though it is not mounted here.
	held map[string]bool
}

// compare returns the entries that the report has to have, and the records that speak of
// nothing any more. An entry goes only if nothing on the node uses its volume; in doubt it stays, and the
// kubelet's next call for the volume decides.
func compare(report []apiv1.StagedVolume, found findings) (entries []apiv1.StagedVolume, obsolete []string) {
	reported := map[string]apiv1.StagedVolume{}
	names := map[string]bool{}
	for _, entry := range report {
		reported[entry.VolumeName] = entry
		names[entry.VolumeName] = true
	}
	for name := range found.records {
		names[name] = true
	}
	for name := range found.mounted {
		names[name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		record, recorded := found.records[name]
		if !inUse(name, record, recorded, found) {
			if recorded {
				obsolete = append(obsolete, name)
			}
			continue
		}
		entry, exists := reported[name]
		if !exists || entry.Epoch < record.Epoch { // the record was written after the announcement: such an entry is of an older version
			entry = rebuilt(name, record, found)
		}
		entries = append(entries, entry)
	}
	return entries, obsolete
}

func inUse(name string, record Record, recorded bool, found findings) bool {
	if _, mounted := found.mounted[name]; mounted {
		return true
	}
	if !recorded {
		// Announced, and killed before the first effect; or unmounted by a reboot.
		return false
	}
	// A raw block device that was staged before a reboot is not in use any more, but one
	// that is half formatted has yet to be cleared.
	return record.Formatting != nil || record.BootID == found.bootID && (record.Block || found.held[name])
}

// rebuilt is the entry of a volume that is in use and not in the report.
func rebuilt(name string, record Record, found findings) apiv1.StagedVolume {
	entry := apiv1.StagedVolume{
		VolumeName: name, Epoch: record.Epoch, Phase: apiv1.PhaseStaged, Device: record.Device, SizeBytes: record.SizeBytes, StagingPath: record.StagingPath,
	}
	if record.Formatting != nil {
		entry.Phase = apiv1.PhaseStaging
	}
	if mount, mounted := found.mounted[name]; mounted {
		entry.Device, entry.StagingPath = mount.Source, mount.Target
	}
	return entry
}

// Scanner looks at what is staged on this node.
type Scanner struct {
	// KubeletDir as in "/var/lib/kubelet".
	KubeletDir string
	// DriverName names the kubelet's directory of staging paths.
	DriverName string
	// BootID of the running kernel.
	BootID  string
	Records Records
	Mounts  provisioner.Mounts
	Devices provisioner.Devices
}

func (s Scanner) scan(ctx context.Context) (findings, error) {
	records, err := s.Records.List()
	if err != nil {
		return findings{}, err
	}
	mounts, err := s.Mounts.List(ctx)
	if err != nil {
		return findings{}, fmt.Errorf("list mounts: %w", err)
	}
	found := findings{bootID: s.BootID, records: records, mounted: map[string]provisioner.MountPoint{}, held: map[string]bool{}}
	for _, mount := range mounts {
		name, staged, err := s.volumeAt(mount.Target, records)
		if err != nil {
			return findings{}, err
		}
		if staged {
			found.mounted[name] = mount
		}
	}
	for name, record := range records {
		held, err := s.held(ctx, name, record, found)
		if err != nil {
			return findings{}, err
		}
		found.held[name] = held
	}
	return found, nil
}

// volumeAt returns which volume is staged at a mount point, if any. The kubelet keeps the
// volume's handle in a file beside the staging path. A staging mount that nobody can name is
// an error, because the report could not be complete.
func (s Scanner) volumeAt(target string, records map[string]Record) (volume string, staged bool, err error) {
	for name, record := range records {
		if record.StagingPath == target {
			return name, true, nil
		}
	}
	staging := filepath.Join(s.KubeletDir, "plugins/kubernetes.io/csi", s.DriverName)
	if filepath.Base(target) != "globalmount" || filepath.Dir(filepath.Dir(target)) != staging {
		return "", false, nil
	}
	path := filepath.Join(filepath.Dir(target), "vol_data.json")
	raw, err := os.ReadFile(path)
	if err != nil {
		return "", false, fmt.Errorf("find out which volume is staged at %s: %w", target, err)
	}
	var data struct {
		VolumeHandle string `json:"volumeHandle"`
	}
	if err := json.Unmarshal(raw, &data); err != nil {
		return "", false, fmt.Errorf("parse %s: %w", path, err)
	}
	handle, err := volumehandle.Parse(data.VolumeHandle)
	if err != nil {
		return "", false, fmt.Errorf("read %s: %w", path, err)
	}
	return handle.VolumeName(), true, nil
}

// held says whether the device of a record is in use though nothing is mounted at
// its staging path: by a command of a process that was killed, or by a mount that only another container sees.
func (s Scanner) held(ctx context.Context, name string, record Record, found findings) (bool, error) {
	if record.BootID != s.BootID || record.Device == "" || record.Block {
		return false, nil
	}
	for other, mount := range found.mounted {
		if other == name || mount.Source == record.Device {
			// Mounted, or the path means another volume's device by now.
			return false, nil
		}
	}
	err := s.Devices.Flush(ctx, record.Device)
	switch {
	case errors.Is(err, provisioner.Conflict):
		return true, nil
	case ctx.Err() != nil:
		return false, fmt.Errorf("look at device of volume %s: %w", name, err)
	default:
		// A device that fails has nobody who writes to it through this kernel.
		return false, nil
	}
}
