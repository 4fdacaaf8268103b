package handover

import (
	"errors"
	"sync"
	"time"

	"github.com/azuredisk-csi/azuredisk/internal/plan/operation"
	"github.com/azuredisk-csi/azuredisk/internal/volumehandle"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

const (
	// absentPause is the time from a publish of a disk that does not exist to the next read of the
	// disk. A user who may create pods can name any number of such disks, and each call reads.
	absentPause = time.Minute
	// mostAbsent limits the memory. The disks beyond it are read by each call.
	mostAbsent = 10_000
)

// absent has the disks that a publish did not find. A new process reads each once more; nothing
// else depends on it. The zero value is empty. It is safe for concurrent use.
type absent struct {
	mu    sync.Mutex
	disks map[string]absentDisk
}

type absentDisk struct {
	at  time.Time
	err error
}

// find returns the error of the last publish of the disk if that did not find it, within
// absentPause.
func (a *absent) find(handle volumehandle.Handle, now time.Time) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	disk := a.disks[handle.VolumeName()]
	if operation.Remaining(absentPause, disk.at, now) == 0 {
		return nil
	}
	return disk.err
}

// note remembers the error of a publish if it says that the disk does not exist.
func (a *absent) note(handle volumehandle.Handle, err error, now time.Time) {
	if !errors.Is(err, provisioner.NotFound) {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.disks) >= mostAbsent {
		for name, disk := range a.disks {
			if operation.Remaining(absentPause, disk.at, now) == 0 {
				delete(a.disks, name)
			}
		}
	}
	if len(a.disks) >= mostAbsent {
		return
	}
	if a.disks == nil {
		a.disks = map[string]absentDisk{}
	}
	a.disks[handle.VolumeName()] = absentDisk{at: now, err: err}
}
