package hypervisor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	imageSuffix     = ".img"
	unfinishedImage = ".new-" // prefix of an image that is being made; no disk UID begins with a dot
)

func (h *Hypervisor) disksDir() string { return filepath.Join(h.dir, "disks") }

func (h *Hypervisor) image(uid string) string {
	return filepath.Join(h.disksDir(), uid+imageSuffix)
}

// CreateDisk makes the backing file of a disk; it is durable on return. source is "" for a blank
// disk, or the UID of a disk whose content at one moment is copied; its writers wait for that. An
// existing disk is left as it is. Errors: ErrInvalid (size, names, source bigger than the disk),
// ErrNotFound (source), ErrNoSpace.
func (h *Hypervisor) CreateDisk(ctx context.Context, uid string, sizeBytes int64, source string) error {
	if err := checkDisk(uid); err != nil {
		return err
	}
	if sizeBytes <= 0 || sizeBytes%sectorSize != 0 {
		return fmt.Errorf("%w: disk size %d is not a positive multiple of %d bytes", ErrInvalid, sizeBytes, sectorSize)
	}
	defer h.diskOps.lock(uid)()
	if _, err := os.Stat(h.image(uid)); err == nil {
		return nil
	}
	if err := h.makeImage(ctx, uid, sizeBytes, source); err != nil {
		return fmt.Errorf("create disk %s: %w", uid, spaceError(err))
	}
	return nil
}

// makeImage writes the image under another name first, so that an image that has its name is
// complete.
func (h *Hypervisor) makeImage(ctx context.Context, uid string, sizeBytes int64, source string) error {
	temporary := filepath.Join(h.disksDir(), unfinishedImage+uid)
	file, err := os.OpenFile(temporary, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	if source != "" {
		err = h.copyDisk(ctx, file, sizeBytes, source)
	}
	if err == nil {
		err = file.Truncate(sizeBytes)
	}
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return errors.Join(err, os.Remove(temporary))
	}
	if err := os.Rename(temporary, h.image(uid)); err != nil {
		return err
	}
	return syncDir(h.disksDir())
}

// copyDisk copies the source's content into file while the source's writers wait.
func (h *Hypervisor) copyDisk(ctx context.Context, file *os.File, sizeBytes int64, source string) error {
	if err := checkDisk(source); err != nil {
		return err
	}
	from, err := os.Open(h.image(source))
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: source disk %s", ErrNotFound, source)
	}
	if err != nil {
		return err
	}
	defer from.Close()
	shared := h.shared(source)
	shared.freeze.Lock()
	defer shared.freeze.Unlock()
	info, err := from.Stat()
	if err != nil {
		return err
	}
	if info.Size() > sizeBytes {
		return fmt.Errorf("%w: source disk %s has %d bytes, more than the %d asked for", ErrInvalid, source, info.Size(),
			sizeBytes)
	}
	return copySparse(ctx, file, from, info.Size())
}

// ResizeDisk grows the disk and lets the devices of its attachments show it; the size is durable on
// return. A disk that is as big or bigger stays. Errors: ErrInvalid, ErrNotFound, ErrNoSpace.
func (h *Hypervisor) ResizeDisk(_ context.Context, uid string, sizeBytes int64) error {
	if err := checkDisk(uid); err != nil {
		return err
	}
	if sizeBytes <= 0 || sizeBytes%sectorSize != 0 {
		return fmt.Errorf("%w: disk size %d is not a positive multiple of %d bytes", ErrInvalid, sizeBytes, sectorSize)
	}
	defer h.diskOps.lock(uid)()
	if err := h.growImage(uid, sizeBytes); err != nil {
		return fmt.Errorf("resize disk %s: %w", uid, spaceError(err))
	}
	var errs []error
	for _, a := range h.liveOf(uid) {
		_, err := h.agent.call(loopRequest{
			Op:     "resize",
			File:   a.file.name,
			Device: a.device,
		})
		if err != nil && !a.file.barred.Load() {
			errs = append(errs, fmt.Errorf("resize device of %s: %w", a.file.name, err))
		}
	}
	return errors.Join(errs...)
}

func (h *Hypervisor) growImage(uid string, sizeBytes int64) error {
	file, err := os.OpenFile(h.image(uid), os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return ErrNotFound
	}
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil || info.Size() >= sizeBytes {
		return err
	}
	if err := file.Truncate(sizeBytes); err != nil {
		return err
	}
	return file.Sync()
}

// DeleteDisk removes the backing file. A disk that is not there is success. ErrConflict if it is
// attached.
func (h *Hypervisor) DeleteDisk(_ context.Context, uid string) error {
	if err := checkDisk(uid); err != nil {
		return err
	}
	defer h.diskOps.lock(uid)()
	var users []string
	h.store.view(func(r *record) {
		for name, vm := range r.VMs {
			for lun, attached := range vm.Disks {
				if attached == uid {
					users = append(users, fmt.Sprintf("%s LUN %d", name, lun))
				}
			}
		}
	})
	if len(users) > 0 {
		return fmt.Errorf("%w: disk %s is attached to %s", ErrConflict, uid, strings.Join(users, ", "))
	}
	if err := os.Remove(h.image(uid)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("delete disk %s: %w", uid, err)
	}
	if err := h.forgetReservations(uid); err != nil {
		return err
	}
	h.forgetShared(uid)
	if err := syncDir(h.disksDir()); err != nil {
		return fmt.Errorf("delete disk %s: %w", uid, err)
	}
	return nil
}

// ListDisks returns the UIDs of all disks, sorted.
func (h *Hypervisor) ListDisks(context.Context) ([]string, error) {
	entries, err := os.ReadDir(h.disksDir())
	if err != nil {
		return nil, fmt.Errorf("list disks: %w", err)
	}
	uids := []string{}
	for _, entry := range entries {
		if uid, ok := strings.CutSuffix(entry.Name(), imageSuffix); ok && !strings.HasPrefix(uid, ".") {
			uids = append(uids, uid)
		}
	}
	return uids, nil
}

// removeUnfinishedImages removes what a crash during CreateDisk left.
func (h *Hypervisor) removeUnfinishedImages() error {
	stale, err := filepath.Glob(filepath.Join(h.disksDir(), unfinishedImage+"*"))
	if err != nil {
		return fmt.Errorf("list unfinished disks: %w", err)
	}
	for _, path := range stale {
		if err := os.Remove(path); err != nil {
			return fmt.Errorf("remove unfinished disk: %w", err)
		}
	}
	return nil
}

// spaceError adds the kind ErrNoSpace to what the file system says when it is full.
func spaceError(err error) error {
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) || errors.Is(err, unix.EFBIG) {
		return fmt.Errorf("%w: %w", ErrNoSpace, err)
	}
	return err
}
