package nodereport

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Kept is the node's record, on its own disk, of the reservation of a volume that it does not use.
// It has taken the reservation over from a lost node, or keeps it after it has unstaged the volume,
// because a fenced node still has the disk.
type Kept struct {
	VolumeName string `json:"volumeName"`
	// Key is the fence-only key with which this node is registered, as in
	// StagedVolume.ReservationKey.
	Key string `json:"key"`
	// Victim is the lost node's key, which was registered at the same time; "" if no node is being
	// fenced.
	Victim string `json:"victim,omitempty"`
}

const keptSuffix = ".kept"

// Kept returns the record of the reservation of a volume.
func (r Records) Kept(volume string) (kept Kept, found bool, err error) {
	return read[Kept](r.keptPath(volume))
}

// AllKept returns the volumes with a Kept.
func (r Records) AllKept() (volumes []string, err error) {
	entries, err := os.ReadDir(r.Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list records of reservations: %w", err)
	}
	for _, entry := range entries {
		if volume, is := strings.CutSuffix(entry.Name(), keptSuffix); is {
			volumes = append(volumes, volume)
		}
	}
	return volumes, nil
}

// PutKept stores a Kept, which replaces the earlier one.
func (r Records) PutKept(kept Kept) error { return r.put(r.keptPath(kept.VolumeName), kept) }

// DeleteKept removes the Kept of a volume. It succeeds if there is none.
func (r Records) DeleteKept(volume string) error { return r.remove(r.keptPath(volume)) }

func (r Records) keptPath(volume string) string { return filepath.Join(r.Dir, volume+keptSuffix) }
