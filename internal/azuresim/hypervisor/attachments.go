package hypervisor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"

	"github.com/azuredisk-csi/azuredisk/internal/azuresim/dataplane"
)

// EnsureVM makes the VM known and its device directory present. A new VM is on. Attach, PowerOff
// and PowerOn do the same.
func (h *Hypervisor) EnsureVM(_ context.Context, vm string) error {
	if err := checkVM(vm); err != nil {
		return err
	}
	defer h.vmOps.lock(vm)()
	return h.ensureVM(vm)
}

func (h *Hypervisor) ensureVM(vm string) error {
	if err := newDevDir(h.dir, vm).make(); err != nil {
		return err
	}
	known := false
	h.store.view(func(r *record) { known = r.VMs[vm] != nil })
	if known {
		return nil
	}
	return h.store.update(func(r *record) { r.vm(vm) })
}

// RemoveVM cuts the VM's attachments and forgets the VM and its device directory. A VM that is not
// known is success.
func (h *Hypervisor) RemoveVM(_ context.Context, vm string) error {
	if err := checkVM(vm); err != nil {
		return err
	}
	defer h.vmOps.lock(vm)()
	if err := h.disconnectVM(vm); err != nil {
		return err
	}
	if err := h.store.update(func(r *record) { delete(r.VMs, vm) }); err != nil {
		return err
	}
	if err := h.forgetInitiator(vm); err != nil {
		return err
	}
	h.forgetFaults(vm)
	return newDevDir(h.dir, vm).remove()
}

// Attach shows a disk to a VM at a LUN. On return the attachment is durable and, if the VM is on,
// its device is in the VM's device directory. Errors: ErrInvalid, ErrNotFound (disk), ErrConflict
// (the LUN holds another disk, or the disk is at another LUN of the VM), ErrNoSpace.
func (h *Hypervisor) Attach(_ context.Context, vm string, lun int, uid string) error {
	if err := checkSlot(vm, lun, uid); err != nil {
		return err
	}
	defer h.vmOps.lock(vm)()
	defer h.diskOps.lock(uid)()
	if err := h.ensureVM(vm); err != nil {
		return err
	}
	if _, err := os.Stat(h.image(uid)); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: disk %s", ErrNotFound, uid)
	} else if err != nil {
		return fmt.Errorf("attach disk: %w", err)
	}
	at, off, err := h.lookAt(vm, lun, uid)
	if err != nil {
		return err
	}
	// The record is written before the names in the device directory, so that a device that a VM
	// has seen is restored after a crash.
	if !at {
		if err := h.store.update(func(r *record) { r.vm(vm).Disks[lun] = uid }); err != nil {
			return err
		}
	}
	if off {
		return nil
	}
	return h.connect(slot{vm, lun}, uid)
}

// lookAt reports whether the disk is recorded at that LUN, and whether the VM is off.
func (h *Hypervisor) lookAt(vm string, lun int, uid string) (at, off bool, err error) {
	h.store.view(func(r *record) {
		v := r.vm(vm)
		off = v.Off
		for l, attached := range v.Disks {
			switch {
			case l == lun && attached == uid:
				at = true
			case l == lun:
				err = fmt.Errorf("%w: LUN %d of %s holds disk %s", ErrConflict, lun, vm, attached)
			case attached == uid:
				err = fmt.Errorf("%w: disk %s is at LUN %d of %s", ErrConflict, uid, l, vm)
			}
		}
	})
	return at, off, err
}

// Detach cuts an attachment: on return none of the VM's I/O reaches the disk any more, and the
// detach is durable. An attachment that is not there, or whose LUN holds another disk, is success.
func (h *Hypervisor) Detach(_ context.Context, vm string, lun int, uid string) error {
	if err := checkSlot(vm, lun, uid); err != nil {
		return err
	}
	defer h.vmOps.lock(vm)()
	found := false
	h.store.view(func(r *record) { found = r.VMs[vm] != nil && r.VMs[vm].Disks[lun] == uid })
	if !found {
		return nil
	}
	if err := h.disconnect(slot{vm, lun}); err != nil {
		return err
	}
	return h.store.update(func(r *record) { delete(r.vm(vm).Disks, lun) })
}

// PowerOff cuts all attachments of the VM at one moment. They stay recorded, without devices.
func (h *Hypervisor) PowerOff(_ context.Context, vm string) error {
	if err := checkVM(vm); err != nil {
		return err
	}
	defer h.vmOps.lock(vm)()
	if err := h.disconnectVM(vm); err != nil {
		return err
	}
	if err := h.ensureVM(vm); err != nil {
		return err
	}
	return h.store.update(func(r *record) { r.vm(vm).Off = true })
}

// PowerOn gives every recorded attachment of the VM a fresh device. A VM that is on is success.
func (h *Hypervisor) PowerOn(_ context.Context, vm string) error {
	if err := checkVM(vm); err != nil {
		return err
	}
	defer h.vmOps.lock(vm)()
	if err := h.ensureVM(vm); err != nil {
		return err
	}
	disks, off := map[int]string{}, false
	h.store.view(func(r *record) {
		off = r.vm(vm).Off
		maps.Copy(disks, r.vm(vm).Disks)
	})
	if off {
		if err := h.store.update(func(r *record) { r.vm(vm).Off = false }); err != nil {
			return err
		}
	}
	for lun, uid := range disks {
		if err := h.connect(slot{vm, lun}, uid); err != nil {
			return err
		}
	}
	return nil
}

// List returns the recorded attachments by VM and LUN. Device is "" where the VM is off.
func (h *Hypervisor) List(context.Context) ([]dataplane.Attachment, error) {
	list := []dataplane.Attachment{}
	h.store.view(func(r *record) {
		for name, vm := range r.VMs {
			for lun, uid := range vm.Disks {
				list = append(list, dataplane.Attachment{
					VM:      name,
					LUN:     lun,
					DiskUID: uid,
				})
			}
		}
	})
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range list {
		if a := h.live[slot{list[i].VM, list[i].LUN}]; a != nil {
			list[i].Device = a.device
		}
	}
	slices.SortFunc(list, func(a, b dataplane.Attachment) int {
		return cmp.Or(cmp.Compare(a.VM, b.VM), cmp.Compare(a.LUN, b.LUN))
	})
	return list, nil
}

// connect makes the device of an attachment and shows it, unless that is done already.
func (h *Hypervisor) connect(s slot, uid string) error {
	h.mu.Lock()
	a := h.live[s]
	h.mu.Unlock()
	if a == nil {
		var err error
		if a, err = h.makeDevice(s, uid); err != nil {
			return fmt.Errorf("attach %s to %s: %w", uid, s.vm, err)
		}
		h.mu.Lock()
		h.live[s] = a
		h.mu.Unlock()
	}
	return newDevDir(h.dir, s.vm).show(s.lun, a.device)
}

func (h *Hypervisor) makeDevice(s slot, uid string) (*attachment, error) {
	backing, err := os.OpenFile(h.image(uid), os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	file := &cutFile{
		name:    fmt.Sprintf("%s%s-%d.%s.lun%d", h.namePrefix(), h.boot, h.serial.Add(1), s.vm, s.lun),
		vm:      s.vm,
		clock:   h.clock,
		faults:  h.faultsOf(s.vm),
		disk:    h.shared(uid),
		bar:     make(chan struct{}),
		backing: backing,
	}
	h.fs.add(file)
	device, err := h.agent.call(loopRequest{Op: "bind", File: file.name})
	if err != nil {
		file.cut()
		h.fs.remove(file)
		return nil, err
	}
	return &attachment{
		uid:    uid,
		file:   file,
		device: device,
	}, nil
}

// disconnect cuts an attachment and removes its device. The cut comes first: if a later step fails,
// the VM is fenced nevertheless.
func (h *Hypervisor) disconnect(s slot) error {
	h.mu.Lock()
	a := h.live[s]
	h.mu.Unlock()
	if a == nil {
		return nil
	}
	a.file.cut()
	if err := newDevDir(h.dir, s.vm).hide(s.lun); err != nil {
		return err
	}
	if _, err := h.agent.call(loopRequest{
		Op:     "clear",
		File:   a.file.name,
		Device: a.device,
	}); err != nil {
		return err
	}
	h.fs.remove(a.file)
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.live, s)
	return nil
}

// disconnectVM raises the bar of all the VM's files before it waits for any, so that the VM loses
// all its disks at one moment.
func (h *Hypervisor) disconnectVM(vm string) error {
	h.mu.Lock()
	var slots []slot
	for s, a := range h.live {
		if s.vm == vm {
			a.file.raiseBar()
			slots = append(slots, s)
		}
	}
	h.mu.Unlock()
	var errs []error
	for _, s := range slots {
		errs = append(errs, h.disconnect(s))
	}
	return errors.Join(errs...)
}
