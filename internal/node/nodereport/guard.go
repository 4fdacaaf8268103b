package nodereport

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Guard is the node's record, on its own disk, of the reservation of a volume that it does not use.
// It has taken the reservation over from a lost node, or keeps it after it has unstaged the volume,
// because a fenced node still has the disk.
type Guard struct {
	VolumeName string `json:"volumeName"`
	// Key is the fence-only key with which this node is registered, as in
	// StagedVolume.ReservationKey.
	Key string `json:"key"`
	// Victim is the lost node's key, which was registered at the same time; "" if no node is being
	// fenced.
	Victim string `json:"victim,omitempty"`
}

const guardSuffix = ".guard"

// Guard returns the record of the reservation of a volume.
func (r Records) Guard(volume string) (guard Guard, found bool, err error) {
	return read[Guard](r, r.guardPath(volume))
}

// Guards returns the volumes with a Guard.
func (r Records) Guards() (volumes []string, err error) {
	if err := r.access("list guards"); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(r.Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list records of reservations: %w", err)
	}
	for _, entry := range entries {
		if volume, is := strings.CutSuffix(entry.Name(), guardSuffix); is {
			volumes = append(volumes, volume)
		}
	}
	return volumes, nil
}

// PutGuard stores a Guard, which replaces the earlier one.
func (r Records) PutGuard(guard Guard) error { return r.put(r.guardPath(guard.VolumeName), guard) }

// DeleteGuard removes the Guard of a volume. It succeeds if there is none.
func (r Records) DeleteGuard(volume string) error { return r.remove(r.guardPath(volume)) }

func (r Records) guardPath(volume string) string { return filepath.Join(r.Dir, volume+guardSuffix) }
