package hypervisor

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"

	"k8s.io/utils/clock"

	"github.com/azuredisk-csi/azuredisk/internal/azuresim/dataplane"
)

// Options say where a hypervisor keeps its state and with what it works.
type Options struct {
	// StateDir holds the backing files, the record of attachments and the VMs' device directories.
	// It is made if missing. One hypervisor at a time can have it.
	StateDir string
	// Clock times delays that faults ask for. Nil is the real one.
	Clock clock.Clock
	// Logger receives what an operator should know. Nil is slog's default.
	Logger *slog.Logger
}

// Hypervisor is the data plane: disks as files, attachments as block devices. See the package
// comment for what it promises. All methods may be called at once.
type Hypervisor struct {
	dir    string
	clock  clock.Clock
	logger *slog.Logger
	lock   *os.File
	store  *store
	fs     *fuseFS
	fuse   *fuseMount
	agent  *agent
	boot   string // part of the names of this process's FUSE files
	serial atomic.Uint64

	vmOps   keyLock // one operation per VM at a time; taken before diskOps
	diskOps keyLock // one operation per disk at a time

	mu     sync.Mutex // guards the maps below
	live   map[slot]*attachment
	disks  map[string]*disk
	faults map[string]*atomic.Pointer[Faults]
}

var _ dataplane.DataPlane = (*Hypervisor)(nil)

type slot struct {
	vm  string
	lun int
}

// attachment is one that has a device: its VM is on.
type attachment struct {
	uid    string
	file   *cutFile
	device string
}

// New starts a hypervisor: it clears what an earlier process left in this state directory's name,
// and in no other's, and gives each recorded attachment of a VM that is on a fresh device. Close
// must be called in the end. Errors: ErrUnsupported (no root, FUSE or loop devices), ErrConflict
// (directory in use).
func New(ctx context.Context, o Options) (*Hypervisor, error) {
	if err := CheckMachine(); err != nil {
		return nil, err
	}
	dir, err := filepath.Abs(o.StateDir)
	if err != nil {
		return nil, fmt.Errorf("resolve state directory: %w", err)
	}
	h := &Hypervisor{
		dir:    dir,
		clock:  o.Clock,
		logger: o.Logger,
		fs:     newFuseFS(),
		live:   map[slot]*attachment{},
		disks:  map[string]*disk{},
		faults: map[string]*atomic.Pointer[Faults]{},
	}
	if h.clock == nil {
		h.clock = clock.RealClock{}
	}
	if h.logger == nil {
		h.logger = slog.Default()
	}
	if err := h.start(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("start hypervisor: %w", err), h.Close())
	}
	return h, nil
}

func (h *Hypervisor) start(ctx context.Context) error {
	for _, dir := range []string{h.disksDir(), filepath.Join(h.dir, "vms")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("make state directory: %w", err)
		}
	}
	var err error
	if h.lock, err = lockDir(ctx, h.clock, h.dir); err != nil {
		return err
	}
	if h.store, err = openStore(filepath.Join(h.dir, stateFile)); err != nil {
		return err
	}
	if err := h.sweep(ctx); err != nil {
		return err
	}
	h.boot = strconv.FormatInt(h.clock.Now().UnixMilli(), 36)
	if h.fuse, err = mountFuse(h.fs, log.New(logWriter{h.logger}, "", 0)); err != nil {
		return err
	}
	h.agent = &agent{inherited: []*os.File{h.fuse.root, h.lock}}
	return h.restore(ctx)
}

// sweep clears what a killed process left: loop devices, device links, unfinished images. A FUSE
// mount is not among it (see fuseMount).
func (h *Hypervisor) sweep(ctx context.Context) error {
	stale, err := sweepLoops(h.namePrefix())
	if err != nil {
		return err
	}
	if stale > 0 {
		h.logger.InfoContext(ctx, "cleared stale loop devices", "count", stale)
	}
	vms, err := os.ReadDir(filepath.Join(h.dir, "vms"))
	if err != nil {
		return fmt.Errorf("list VM directories: %w", err)
	}
	for _, vm := range vms {
		if err := newDevDir(h.dir, vm.Name()).hideAll(); err != nil {
			return err
		}
	}
	return h.removeUnfinishedImages()
}

// restore gives every VM that is on its devices again, under the LUNs it had. An attachment that
// cannot be made does not keep the others from their devices; List shows it without one, and Attach
// repeats it.
func (h *Hypervisor) restore(ctx context.Context) error {
	on := map[string]map[int]string{}
	h.store.view(func(r *record) {
		for name, vm := range r.VMs {
			on[name] = map[int]string{}
			for lun, uid := range vm.Disks {
				if !vm.Off {
					on[name][lun] = uid
				}
			}
		}
	})
	for vm, disks := range on {
		if err := newDevDir(h.dir, vm).make(); err != nil {
			return err
		}
		for lun, uid := range disks {
			if err := h.connect(slot{vm, lun}, uid); err != nil {
				h.logger.ErrorContext(ctx, "cannot restore attachment", "vm", vm, "lun", lun, "disk", uid, "error", err)
			}
		}
	}
	return nil
}

// Close cuts every attachment, clears every loop device and ends the FUSE file system. The record
// stays, so that the next New brings the same attachments back. A device that is still mounted
// answers EIO and is removed with its last user.
func (h *Hypervisor) Close() error {
	var errs []error
	if h.fuse != nil {
		h.mu.Lock()
		slots := make([]slot, 0, len(h.live))
		for s, a := range h.live {
			a.file.raiseBar()
			slots = append(slots, s)
		}
		h.mu.Unlock()
		for _, s := range slots {
			errs = append(errs, h.disconnect(s))
		}
		h.agent.close()
		errs = append(errs, h.fuse.close())
		h.fuse = nil
	}
	if h.lock != nil {
		errs = append(errs, h.lock.Close())
		h.lock = nil
	}
	return errors.Join(errs...)
}

// namePrefix begins the names of the files under all loop devices of this state directory.
func (h *Hypervisor) namePrefix() string {
	var id string
	h.store.view(func(r *record) { id = r.ID })
	return loopPrefix(id)
}

// shared returns what the attachments of a disk have in common.
func (h *Hypervisor) shared(uid string) *disk {
	h.mu.Lock()
	defer h.mu.Unlock()
	d, ok := h.disks[uid]
	if !ok {
		d = &disk{}
		h.store.view(func(r *record) {
			if state, ok := r.Reservations[uid]; ok {
				d.reserved.Store(&state)
			}
		})
		h.disks[uid] = d
	}
	return d
}

func (h *Hypervisor) forgetShared(uid string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.disks, uid)
}

// liveOf returns the attachments of a disk that have a device.
func (h *Hypervisor) liveOf(uid string) []*attachment {
	h.mu.Lock()
	defer h.mu.Unlock()
	var found []*attachment
	for _, a := range h.live {
		if a.uid == uid {
			found = append(found, a)
		}
	}
	return found
}

// CheckMachine says what this machine lacks to run a hypervisor, as an ErrUnsupported, or returns
// nil.
func CheckMachine() error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("%w: it must run as root", ErrUnsupported)
	}
	for _, device := range []string{"/dev/fuse", "/dev/loop-control"} {
		if _, err := os.Stat(device); err != nil {
			return fmt.Errorf("%w: %s is missing: %w", ErrUnsupported, device, err)
		}
	}
	return nil
}

// logWriter hands lines of the FUSE library to slog.
type logWriter struct{ logger *slog.Logger }

func (w logWriter) Write(line []byte) (int, error) {
	w.logger.Warn("fuse library", "message", string(line))
	return len(line), nil
}
