package hypervisor

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/utils/clock"

	"github.com/azuredisk-csi/azuredisk/internal/azuresim/reservations"
)

// lockWait is how long New waits for a state directory that is in use, and lockPoll how often it
// looks.
const (
	lockWait = 3 * time.Second
	lockPoll = 10 * time.Millisecond
)

// record is what the hypervisor must know after a crash. Disks are not in it: a disk is its backing
// file.
type record struct {
	// ID names this state directory in the names of the files under its loop devices.
	ID  string               `json:"id"`
	VMs map[string]*vmRecord `json:"vms"`
	// Shared are the disks that have reservations, and Reservations their state where it is not
	// blank. Both by disk UID.
	Shared       map[string]bool               `json:"shared,omitempty"`
	Reservations map[string]reservations.State `json:"reservations,omitempty"`
}

type vmRecord struct {
	Off bool `json:"off,omitempty"`
	// Disks are the attachments: disk UID by LUN. They stay while the VM is off.
	Disks map[int]string `json:"disks,omitempty"`
}

// store keeps a record in a file. A change is durable when update returns; concurrent updates share
// a write.
type store struct {
	path string

	mu      sync.Mutex // guards record and version
	record  record
	version uint64

	writing sync.Mutex // held while the file is written; guards written
	written uint64
}

// stateFile keeps the record, in the state directory.
const stateFile = "attachments.json"

// LoopPrefix returns how the names of the files under all loop devices of a state directory begin,
// as /sys/block/loop*/loop/backing_file has them: behind a slash. It only reads, and may be called
// while a hypervisor runs there, or after it was killed. It is an error that matches fs.ErrNotExist
// if none ever did.
func LoopPrefix(stateDir string) (string, error) {
	data, err := os.ReadFile(filepath.Join(stateDir, stateFile))
	if err != nil {
		return "", fmt.Errorf("read state: %w", err)
	}
	var r record
	if err := parseRecord(data, &r); err != nil {
		return "", fmt.Errorf("parse state in %s: %w", stateDir, err)
	}
	return loopPrefix(r.ID), nil
}

func loopPrefix(id string) string { return "azuresim-" + id + "-" }

func parseRecord(data []byte, r *record) error {
	if err := json.Unmarshal(data, r); err != nil {
		return err
	}
	if len(r.ID) != 16 {
		return errors.New("no ID")
	}
	return nil
}

// openStore reads the record, or makes a new one.
func openStore(path string) (*store, error) {
	s := &store{path: path}
	data, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		id := make([]byte, 8)
		if _, err := rand.Read(id); err != nil {
			return nil, fmt.Errorf("make state ID: %w", err)
		}
		s.record = record{ID: hex.EncodeToString(id)}
	case err != nil:
		return nil, fmt.Errorf("read state: %w", err)
	default:
		if err := parseRecord(data, &s.record); err != nil {
			return nil, fmt.Errorf("parse state %s: %w", path, err)
		}
	}
	if s.record.VMs == nil {
		s.record.VMs = map[string]*vmRecord{}
	}
	if s.record.Shared == nil {
		s.record.Shared = map[string]bool{}
	}
	if s.record.Reservations == nil {
		s.record.Reservations = map[string]reservations.State{}
	}
	return s, s.update(func(*record) {})
}

// view runs look on the record. look must not keep or change what it is given.
func (s *store) view(look func(*record)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	look(&s.record)
}

// update changes the record and returns when the change is durable. After an error the change may
// or may not survive a crash; it applies until then.
func (s *store) update(change func(*record)) error {
	s.mu.Lock()
	change(&s.record)
	s.version++
	mine := s.version
	s.mu.Unlock()

	s.writing.Lock()
	defer s.writing.Unlock()
	if s.written >= mine {
		return nil
	}
	s.mu.Lock()
	data, err := json.MarshalIndent(s.record, "", " ")
	version := s.version
	s.mu.Unlock()
	if err != nil {
		return fmt.Errorf("encode state: %w", err)
	}
	if err := replaceFile(s.path, data); err != nil {
		return fmt.Errorf("write state: %w", err)
	}
	s.written = version
	return nil
}

// vm returns the VM's record, made if needed.
func (r *record) vm(name string) *vmRecord {
	vm, ok := r.VMs[name]
	if !ok {
		vm = &vmRecord{}
		r.VMs[name] = vm
	}
	if vm.Disks == nil {
		vm.Disks = map[int]string{}
	}
	return vm
}

// replaceFile writes data to path so that a crash leaves the old content or the new, and the new
// one is durable on return.
func replaceFile(path string, data []byte) error {
	file, err := os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return err
	}
	if err := os.Rename(path+".new", path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

// syncDir makes the entries of a directory durable.
func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// lockDir takes the state directory for this process, so that two hypervisors cannot serve the same
// disks. A process that was just killed may need a moment to release it.
func lockDir(ctx context.Context, c clock.Clock, path string) (*os.File, error) {
	file, err := os.OpenFile(filepath.Join(path, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open lock: %w", err)
	}
	for waited := time.Duration(0); ; waited += lockPoll {
		err = unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return file, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, errors.Join(fmt.Errorf("lock state directory: %w", err), file.Close())
		}
		if waited >= lockWait {
			return nil, errors.Join(fmt.Errorf("%w: state directory %s is in use by another hypervisor", ErrConflict, path),
				file.Close())
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), file.Close())
		case <-c.After(lockPoll):
		}
	}
}
