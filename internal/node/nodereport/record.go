package nodereport

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/azuredisk-csi/azuredisk/internal/volumehandle"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// Record is the node's record of a staged volume on its own disk. After a restart neither the
// report nor the mounts show all of it.
type Record struct {
	VolumeName string `json:"volumeName"`
	VolumeID   string `json:"volumeID"`
	// Epoch under which the volume was staged.
	Epoch int64 `json:"epoch"`
	// BootID of the kernel at the time of the staging.
	BootID      string `json:"bootID"`
	StagingPath string `json:"stagingPath"`
	// OtherPaths are the volume's further staging paths. The kubelet derives the path from the text
	// of the handle, and for raw block volumes from the name of the PersistentVolume, so that two
	// PersistentVolumes of one disk can have two.
	OtherPaths []string `json:"otherPaths,omitempty"`
	// Device is the path at the time of the staging; it may name another device later.
	Device string `json:"device"`
	LUN    int32  `json:"lun"`
	// Partition of the disk that is the volume; 0 for the whole disk.
	Partition int `json:"partition,omitempty"`
	// Sequence of the device, as in provisioner.Device; 0 if it is not known, as in the records of
	// earlier versions.
	Sequence uint64 `json:"sequence,omitempty"`
	// SizeBytes of the device.
	SizeBytes int64 `json:"sizeBytes"`
	// Block says that the volume is staged as a raw block device: nothing is mounted.
	Block bool `json:"block,omitempty"`
	// ReadOnly says that the filesystem is mounted, or the raw block device staged, read-only.
	ReadOnly bool `json:"readOnly,omitempty"`
	// ReservationKey with which this node holds the reservation of the disk, as in StagedVolume; ""
	// for none.
	ReservationKey string `json:"reservationKey,omitempty"`
	// Unfenced says that this reservation keeps no fenced node from writing
	// (plan/fencing.Reserved). It is false if that is not known, as in records of earlier
	// versions.
	Unfenced bool `json:"unfenced,omitempty"`
	// SELinuxLabel that the filesystem was mounted with, "" for none; nil in the records of earlier
	// versions.
	SELinuxLabel *string `json:"seLinuxLabel,omitempty"`
	// Formatting is set while a filesystem is being made: the device was blank, and its content is
	// what this node has written under this epoch.
	Formatting *provisioner.Filesystem `json:"formatting,omitempty"`
}

// Used returns the device of the record, which is writable on this node as long as there is a record
// of this boot.
func (r Record) Used() provisioner.Device {
	return provisioner.Device{Path: r.Device, SizeBytes: r.SizeBytes, Sequence: r.Sequence}
}

// Paths returns all staging paths of the volume.
func (r Record) Paths() []string { return append([]string{r.StagingPath}, r.OtherPaths...) }

// StagedAt reports whether a path is one of them.
func (r Record) StagedAt(path string) bool { return slices.Contains(r.Paths(), path) }

// Beside returns the staging paths of the volume that differ from a path.
func (r Record) Beside(path string) []string {
	return slices.DeleteFunc(r.Paths(), func(p string) bool { return p == path })
}

const recordSuffix = ".json"

// Records is a directory of Records, one file for each volume. Writes are atomic
// and durable when they return. Calls for one volume must not overlap.
type Records struct {
	// Dir is created by the first write.
	Dir string
	// Fails returns the error of an access, in tests; nil for none.
	Fails func(access string) error
}

func (r Records) access(name string) error {
	if r.Fails == nil {
		return nil
	}
	return r.Fails(name)
}

// Get returns the record of a volume. If there is none, or it cannot be read, the record is empty, and has no boot ID.
func (r Records) Get(volume string) (record Record, found bool, err error) {
	return read[Record](r, r.path(volume))
}

func read[T any](r Records, path string) (content T, found bool, err error) {
	var none T
	if err := r.access("read a record"); err != nil {
		return none, false, err
	}
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return none, false, nil
	}
	if err != nil {
		return none, false, fmt.Errorf("read record of volume: %w", err)
	}
	if err := json.Unmarshal(raw, &content); err != nil {
		return none, false, fmt.Errorf("parse record %s: %w", path, err)
	}
	return content, true, nil
}

// ErrOtherDisk is the cause of a refusal if a request for one disk found the record or the AzVolume
// of another. Both are found by a name that is a hash of the disk's resource ID: two disks may have
// the same hash, and a user may have created the AzVolume manually. The request must neither use
// nor remove what it found.
var ErrOtherDisk = errors.New("the name belongs to another disk")

// Of returns the record of a disk, as Get does. Errors: ErrOtherDisk if the record is another disk's.
func (r Records) Of(disk volumehandle.Handle) (record Record, found bool, err error) {
	record, found, err = r.Get(disk.VolumeName())
	if err != nil || !found {
		return Record{}, false, err
	}
	if is, err := volumehandle.Parse(record.VolumeID); err != nil || !is.Same(disk) {
		return Record{}, false, provisioner.Errorf(provisioner.FailedPrecondition,
			"refusing to use disk %s as volume %s: the volume is staged on this node from disk %s at %s: %w",
			disk, record.VolumeName, record.VolumeID, record.StagingPath, ErrOtherDisk)
	}
	return record, true, nil
}

// List returns all records.
func (r Records) List() (map[string]Record, error) {
	if err := r.access("list records"); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(r.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list records of volumes: %w", err)
	}
	records := map[string]Record{}
	for _, entry := range entries {
		volume, isRecord := strings.CutSuffix(entry.Name(), recordSuffix)
		if !isRecord {
			continue
		}
		record, found, err := r.Get(volume)
		if err != nil {
			return nil, err
		}
		if found {
			records[volume] = record
		}
	}
	return records, nil
}

// Put writes a record, which replaces the earlier one.
func (r Records) Put(record Record) error { return r.put(r.path(record.VolumeName), record) }

func (r Records) put(path string, record any) error {
	if err := r.access("write a record"); err != nil {
		return err
	}
	raw, err := json.Marshal(record)
	if err != nil {
		return fmt.Errorf("encode record of volume: %w", err)
	}
	if err := os.MkdirAll(r.Dir, 0o700); err != nil {
		return fmt.Errorf("make directory of records: %w", err)
	}
	if err := writeDurably(path+".new", raw); err != nil {
		return fmt.Errorf("write record of volume: %w", err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("put record of volume in place: %w", err)
	}
	return r.syncDir()
}

// Delete removes a record. It succeeds if there is none.
func (r Records) Delete(volume string) error { return r.remove(r.path(volume)) }

func (r Records) remove(path string) error {
	if err := r.access("remove a record"); err != nil {
		return err
	}
	err := os.Remove(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove record of volume: %w", err)
	}
	return r.syncDir()
}

// path is safe: the name of an AzVolume has neither slashes nor a leading dot.
func (r Records) path(volume string) string { return filepath.Join(r.Dir, volume+recordSuffix) }

func (r Records) syncDir() error {
	dir, err := os.Open(r.Dir)
	if err != nil {
		return fmt.Errorf("open directory of records: %w", err)
	}
	defer dir.Close()
	if err := dir.Sync(); err != nil {
		return fmt.Errorf("sync directory of records: %w", err)
	}
	return nil
}

func writeDurably(path string, content []byte) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	return errors.Join(err, file.Sync(), file.Close())
}
