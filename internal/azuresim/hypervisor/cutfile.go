package hypervisor

import (
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/utils/clock"

	"github.com/azuredisk-csi/azuredisk/internal/azuresim/reservations"
)

// cutFile is one attachment as the FUSE file system serves it: a way to the backing file of a disk
// that can be cut once and for all.
//
// Each operation holds mu for reading from before it looks at the bar until the backing file has
// answered. cut raises the bar and then takes mu for writing; so when cut returns, every operation
// that saw no bar has reached the backing file in full, and no later one will. That is the whole
// fence: there is no moment at which a write can slip past it.
type cutFile struct {
	node   uint64 // FUSE inode number; never used twice while the process lives
	name   string // name in the FUSE file system
	vm     string // whose attachment it is: the initiator of reservations
	faults *atomic.Pointer[Faults]
	clock  clock.Clock
	disk   *disk

	barred  atomic.Bool
	barOnce sync.Once
	bar     chan struct{} // closed when barred, to free operations that a fault holds back

	mu      sync.RWMutex
	backing *os.File

	fenced exclusion
}

// disk is what the attachments of one backing file share.
type disk struct {
	// freeze is held for reading by every operation on the disk, and for writing while the disk is
	// copied, so that a copy is one moment's content. It is taken before cutFile.mu: an operation
	// that waits for a copy to end must not keep a cut waiting.
	freeze sync.RWMutex
	// commands is held during a command about reservations.
	commands sync.Mutex
	// reserved is the state of the reservations, for operations. nil: none.
	reserved atomic.Pointer[reservations.State]
}

// access runs op on the backing file. It returns EIO if the file is cut, and EBADE if another VM
// has reserved the disk. op's error is returned as an errno.
func (c *cutFile) access(write bool, op func(*os.File) error) error {
	if write {
		c.fenced.inFlight.Add(1)
		defer c.fenced.inFlight.Add(-1)
	}
	aborts := c.fenced.aborts.Load() // before the look at the reservation: see exclusion
	if !c.disk.allows(c.vm, write) {
		return unix.EBADE
	}
	if err := c.suffer(write); err != nil {
		return err
	}
	if write {
		c.linger()
	}
	c.disk.freeze.RLock()
	defer c.disk.freeze.RUnlock()
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.barred.Load() {
		return unix.EIO
	}
	if write && c.fenced.aborts.Load() != aborts && !c.disk.allows(c.vm, write) {
		return unix.EBADE
	}
	return op(c.backing)
}

// suffer holds an operation back as the VM's faults ask, at most until the file is cut. It runs
// outside the locks, since a fault that could keep a cut waiting would take away the fence.
func (c *cutFile) suffer(write bool) error {
	faults := c.faults.Load()
	if faults == nil {
		return nil
	}
	delay := time.Duration(faults.ReadDelayMillis) * time.Millisecond
	if write {
		if faults.HangWrites {
			select {
			case <-c.bar:
				return unix.EIO
			case <-faults.lifted:
			}
		}
		delay = time.Duration(faults.WriteDelayMillis) * time.Millisecond
	}
	if delay <= 0 {
		return nil
	}
	timer := c.clock.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-c.bar:
		return unix.EIO
	case <-timer.C():
		return nil
	}
}

// raiseBar makes every operation that starts from now on fail. It does not wait for those in
// flight; cut does.
func (c *cutFile) raiseBar() {
	c.barOnce.Do(func() {
		c.barred.Store(true)
		close(c.bar)
	})
}

// cut bars the file and returns when the last operation in flight has reached the backing file. It
// may be repeated.
func (c *cutFile) cut() {
	c.raiseBar()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.backing != nil {
		// Every write was given to the kernel already, so nothing can fail here that a caller was
		// promised.
		_ = c.backing.Close()
		c.backing = nil
	}
}
