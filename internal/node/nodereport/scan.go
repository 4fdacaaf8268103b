package nodereport

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
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
	// held are the volumes whose device something on this node holds, although it is not mounted in
	// this namespace.
	held map[string]bool
	// published are the volumes that are mounted for a pod.
	published map[string]bool
	// unrecorded are the missing records, of volumes that the V1 driver has staged.
	unrecorded []Record
}

// addUnrecorded adds the missing record of a staging mount. A volume can have several staging
// mounts.
func (f *findings) addUnrecorded(staged Record) {
	i := slices.IndexFunc(f.unrecorded, func(r Record) bool { return r.VolumeName == staged.VolumeName })
	switch {
	case i < 0:
		f.unrecorded = append(f.unrecorded, staged)
	case !f.unrecorded[i].StagedAt(staged.StagingPath):
		f.unrecorded[i].OtherPaths = append(f.unrecorded[i].OtherPaths, staged.StagingPath)
	}
}

// compare returns the entries that the report must have, and the records that are obsolete. An
// entry is removed only if nothing on the node uses its volume; in doubt it remains, and the
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
		if !exists || entry.Epoch < record.Epoch { // the record is written after the announcement, so such an entry is outdated
			entry = rebuilt(name, record, found)
		}
		if entry.Epoch == record.Epoch { // the record is written before the entry gets the key
			entry.ReservationKey = record.ReservationKey
		}
		entry.Published = found.published[name]
		entries = append(entries, entry)
	}
	return entries, obsolete
}

func inUse(name string, record Record, recorded bool, found findings) bool {
	if _, mounted := found.mounted[name]; mounted {
		return true
	}
	if !recorded {
		// The process was killed after the announcement and before the first effect, or a reboot
		// has unmounted the volume.
		return false
	}
	// After a reboot a raw block device is not in use any more, but an interrupted format must
	// still be cleared.
	return record.Formatting != nil || record.BootID == found.bootID && (record.Block || found.held[name])
}

// rebuilt returns the entry of a volume that is in use and not in the report.
func rebuilt(name string, record Record, found findings) apiv1.StagedVolume {
	entry := apiv1.StagedVolume{
		VolumeName:  name,
		Epoch:       record.Epoch,
		Phase:       apiv1.PhaseStaged,
		Device:      record.Device,
		SizeBytes:   record.SizeBytes,
		StagingPath: record.StagingPath,
	}
	if record.Formatting != nil {
		entry.Phase = apiv1.PhaseStaging
	}
	if mount, mounted := found.mounted[name]; mounted {
		entry.Device, entry.StagingPath = mount.Source, mount.Target
	}
	return entry
}

// CheckKubeletDir reports a kubelet's directory that is a link. The kernel lists mounts by paths without links, so a
// Scanner would not find what is staged below it.
func CheckKubeletDir(dir string) error {
	resolved, err := filepath.EvalSymlinks(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil // a directory that is still to be made is no link
	case err != nil:
		return fmt.Errorf("kubelet-dir: %w", err)
	case resolved != filepath.Clean(dir):
		return fmt.Errorf("kubelet-dir: %q is a link to %q: "+
			"set node.kubeletDir (--kubelet-dir) and the --root-dir of the kubelet to %[2]q", dir, resolved)
	}
	return nil
}

// Scanner finds the volumes that are staged on this node.
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
	found := findings{
		bootID:  s.BootID,
		records: records,
		mounted: map[string]provisioner.MountPoint{},
		held:    map[string]bool{},
	}
	for _, mount := range mounts {
		staged, isStaged, err := s.volumeAt(mount, records)
		if err != nil {
			return findings{}, err
		}
		if !isStaged {
			continue
		}
		mount.Target = staged.StagingPath
		if _, recorded := records[staged.VolumeName]; !recorded {
			found.addUnrecorded(staged)
		}
		found.mounted[staged.VolumeName] = mount
	}
	for name, record := range records {
		held, err := s.held(ctx, name, record, found)
		if err != nil {
			return findings{}, err
		}
		found.held[name] = held
	}
	found.published = publishedAmong(mounts, found)
	return found, nil
}

// publishedAmong returns the volumes whose device is mounted at another path than those where the
// volume is staged.
func publishedAmong(mounts []provisioner.MountPoint, found findings) map[string]bool {
	published := map[string]bool{}
	add := func(name, device string, stagedAt func(path string) bool) {
		published[name] = published[name] || device != "" && slices.ContainsFunc(mounts, func(m provisioner.MountPoint) bool {
			return m.Source == device && !stagedAt(m.Target)
		})
	}
	for name, record := range found.records {
		if record.BootID == found.bootID {
			add(name, record.Device, record.StagedAt)
		}
	}
	for _, record := range found.unrecorded {
		add(record.VolumeName, record.Device, record.StagedAt)
	}
	return published
}

// volumeAt returns a record of the volume that is in use at a mount point, if any, with the fields
// that the mount shows. The kubelet stores the volume's handle in a file next to the staging path,
// and next to the volume's own path for a raw block volume, whose device is only mounted for each
// pod. If the volume of a staging mount cannot be identified, that is an error, because the report
// would not be complete.
func (s Scanner) volumeAt(mount provisioner.MountPoint, records map[string]Record) (Record, bool, error) {
	for _, record := range records {
		if record.StagedAt(mount.Target) {
			return record, true, nil
		}
	}
	plugins := filepath.Join(s.KubeletDir, "plugins/kubernetes.io/csi")
	blocks := filepath.Join(plugins, "volumeDevices")
	dir := filepath.Dir(mount.Target)
	staged := Record{
		BootID:      s.BootID,
		Device:      mount.Source,
		StagingPath: mount.Target,
		ReadOnly:    mount.ReadOnly,
	}
	switch filepath.Dir(dir) {
	case filepath.Join(plugins, s.DriverName):
		if filepath.Base(mount.Target) != "globalmount" {
			return Record{}, false, nil
		}
	case filepath.Join(blocks, "publish"):
		staged.Block, staged.StagingPath = true, filepath.Join(blocks, "staging", filepath.Base(dir))
		dir = filepath.Join(blocks, filepath.Base(dir), "data")
	default:
		return Record{}, false, nil
	}
	path := filepath.Join(dir, "vol_data.json")
	raw, err := os.ReadFile(path)
	if staged.Block && errors.Is(err, fs.ErrNotExist) {
		return Record{}, false, nil // the kubelet does not use the volume any more, which may be another driver's
	}
	if err != nil {
		return Record{}, false, fmt.Errorf("identify the volume that is staged at %s: %w", mount.Target, err)
	}
	var data struct {
		VolumeHandle string `json:"volumeHandle"`
		DriverName   string `json:"driverName"`
	}
	if err := json.Unmarshal(raw, &data); err != nil {
		return Record{}, false, fmt.Errorf("parse %s: %w", path, err)
	}
	if staged.Block && data.DriverName != s.DriverName {
		return Record{}, false, nil
	}
	handle, err := volumehandle.Parse(data.VolumeHandle)
	if err != nil {
		return Record{}, false, fmt.Errorf("read %s: %w", path, err)
	}
	staged.VolumeName, staged.VolumeID = handle.VolumeName(), data.VolumeHandle
	return staged, true, nil
}

// held reports whether the device of a record is in use although nothing is mounted at its staging
// path: by a command of a process that was killed, or by a mount in another container. It
// write-protects a device that is not in use, because a report without the volume proves that this
// node does not write to it. A device that cannot be protected counts as in use.
func (s Scanner) held(ctx context.Context, name string, record Record, found findings) (bool, error) {
	if record.BootID != s.BootID || record.Device == "" || record.Block {
		return false, nil
	}
	for other, mount := range found.mounted {
		if other == name || mount.Source == record.Device {
			// The device is mounted, or its path names another volume's device now.
			return false, nil
		}
	}
	// The order is that of a release: what is written until the device is protected is flushed.
	err := s.Devices.Flush(ctx, record.Device)
	if err == nil {
		if err = s.Devices.SetReadOnly(ctx, record.Used(), true); err == nil {
			err = s.Devices.Flush(ctx, record.Device)
		} else if !errors.Is(err, provisioner.NotFound) && ctx.Err() == nil {
			return true, nil
		}
	}
	switch {
	case errors.Is(err, provisioner.Conflict):
		return true, nil
	case ctx.Err() != nil:
		return false, fmt.Errorf("check whether the device of volume %s is in use: %w", name, err)
	default:
		// A device that fails cannot be written through this kernel.
		return false, nil
	}
}
