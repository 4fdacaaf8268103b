package reservation

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// Reservations implements provisioner.Reservations for the devices of this machine. The zero value
// is for SCSI disks.
type Reservations struct {
	// NVMe also uses the reservations of NVMe namespaces, whose registrants are Host Identifiers. A
	// namespace is Unsupported if its controller has no Host Identifier, because all machines are
	// one host to it then. Without NVMe each namespace is Unsupported.
	NVMe bool
}

var _ provisioner.Reservations = Reservations{}

// Read implements provisioner.Reservations.
func (r Reservations) Read(ctx context.Context, device string) (provisioner.ReservationState, error) {
	return withDevice(ctx, "read the reservations", device, r.read)
}

// Register implements provisioner.Reservations. SCSI ignores the former key. For the kernel's NVMe
// driver a former key, whatever it is, means that a registration is to be replaced, which a
// namespace may refuse where there is none, and 0 that one is to be made, which it may refuse where
// there is one.
func (r Reservations) Register(ctx context.Context, device string, key provisioner.ReservationKey) error {
	return r.change(ctx, device, command{"register key " + key.String(), 0, keys{key}}, func(fd int) error {
		err := control(fd, iocRegister, &prRegistration{
			oldKey: uint64(key),
			newKey: uint64(key),
			flags:  prIgnoreKey,
		})
		if status := statusError(0); errors.As(err, &status) && status.conflict() {
			err = control(fd, iocRegister, &prRegistration{newKey: uint64(key), flags: prIgnoreKey})
		}
		return err
	})
}

// Unregister implements provisioner.Reservations.
func (r Reservations) Unregister(ctx context.Context, device string, key provisioner.ReservationKey) error {
	err := r.change(ctx, device, command{"unregister key " + key.String(), registered(key), keys{key}}, func(fd int) error {
		if err := nvmeUnregister(fd, key); !errors.Is(err, errOtherBus) {
			return err
		}
		return control(fd, iocRegister, &prRegistration{oldKey: uint64(key)})
	})
	return unlessDone(err, func(s provisioner.ReservationState) bool { return !s.Registered(key) })
}

// Reserve implements provisioner.Reservations.
func (r Reservations) Reserve(ctx context.Context, device string, key provisioner.ReservationKey) error {
	return r.change(ctx, device, command{"reserve with key " + key.String(), registered(key), keys{key}}, func(fd int) error {
		return control(fd, iocReserve, &prReservation{key: uint64(key), kind: uint32(provisioner.WriteExclusive)})
	})
}

// Release implements provisioner.Reservations.
func (r Reservations) Release(ctx context.Context, device string, key provisioner.ReservationKey) error {
	c := command{"release the reservation of key " + key.String(), registered(key), keys{key}}
	err := r.change(ctx, device, c, func(fd int) error {
		return control(fd, iocRelease, &prReservation{key: uint64(key), kind: uint32(provisioner.WriteExclusive)})
	})
	return unlessDone(err, func(s provisioner.ReservationState) bool { return s.Holder != key })
}

// PreemptAndAbort implements provisioner.Reservations.
func (r Reservations) PreemptAndAbort(ctx context.Context, device string, own, victim provisioner.ReservationKey) error {
	c := command{fmt.Sprintf("pre-empt key %s with key %s", victim, own), registered(own), keys{own, victim}}
	return r.change(ctx, device, c, func(fd int) error {
		return control(fd, iocPreemptAbort, &prPreempt{
			oldKey: uint64(own),
			newKey: uint64(victim),
			kind:   uint32(provisioner.WriteExclusive),
		})
	})
}

// Preempt implements provisioner.Reservations.
func (r Reservations) Preempt(ctx context.Context, device string, own, victim provisioner.ReservationKey) error {
	c := command{fmt.Sprintf("pre-empt key %s without an abort with key %s", victim, own), registered(own), keys{own, victim}}
	return r.change(ctx, device, c, func(fd int) error {
		return control(fd, iocPreempt, &prPreempt{
			oldKey: uint64(own),
			newKey: uint64(victim),
			kind:   uint32(provisioner.WriteExclusive),
		})
	})
}

// Aborts implements provisioner.Reservations. Before Linux 6.2 the kernel does not show why a disk
// ended a command with CHECK CONDITION. A node that is registered, and repeats the command after
// unit attentions, gets it for a service action that the disk does not know.
func (r Reservations) Aborts(ctx context.Context, device string, own provisioner.ReservationKey) (bool, error) {
	state, err := r.Read(ctx, device)
	if err != nil {
		return false, err
	}
	err = r.PreemptAndAbort(ctx, device, own, state.Unregistered())
	var conflict *provisioner.ReservationConflict
	var status statusError
	switch {
	case err == nil || errors.As(err, &conflict) && conflict.State.Registered(own):
		return true, nil
	case errors.Is(err, provisioner.Unsupported), errors.As(err, &status) && status.checkCondition():
		return false, nil
	}
	return false, err
}

// Clear implements provisioner.Reservations.
func (r Reservations) Clear(ctx context.Context, device string, key provisioner.ReservationKey) error {
	c := command{"clear the reservations with key " + key.String(), registered(key), keys{key}}
	err := r.change(ctx, device, c, func(fd int) error {
		return control(fd, iocClear, &prClear{key: uint64(key)})
	})
	return unlessDone(err, func(s provisioner.ReservationState) bool { return len(s.Keys) == 0 })
}

// unlessDone makes a conflict a success if the disk is already as it was wanted: a repetition of a
// change that was done.
func unlessDone(err error, done func(provisioner.ReservationState) bool) error {
	var conflict *provisioner.ReservationConflict
	if errors.As(err, &conflict) && done(conflict.State) {
		return nil
	}
	return err
}

type keys []provisioner.ReservationKey

// registered is the key with which a command wants this node to be registered.
type registered provisioner.ReservationKey

// command is a command that changes the reservations of a disk. needs is 0 if it needs no
// registration.
type command struct {
	name  string
	needs registered
	keys  keys
}

// change makes a change, and finds out why a disk refused it. The key 0 has a meaning of its own in
// some commands, which none of the methods has.
func (r Reservations) change(ctx context.Context, device string, c command, do func(fd int) error) error {
	if slices.Contains(c.keys, 0) {
		return provisioner.Errorf(provisioner.InvalidArgument, "%s on %s: a key must not be 0", c.name, device)
	}
	_, err := withDevice(ctx, c.name, device, func(fd int) (struct{}, error) {
		if !r.NVMe && isNVMe(fd) {
			return struct{}{}, errNVMeOff
		}
		err := repeated(func() error { return do(fd) })
		var status statusError
		if !errors.As(err, &status) && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.EIO) {
			return struct{}{}, err
		}
		// The number alone tells a conflict from a failure, but not a failure from a disk without
		// reservations.
		state, readErr := r.read(fd)
		switch {
		case readErr != nil:
			return struct{}{}, errors.Join(err, readErr)
		case isConflict(status, c.needs, state):
			return struct{}{}, &provisioner.ReservationConflict{
				Device:  device,
				Command: c.name,
				State:   state,
			}
		}
		return struct{}{}, fmt.Errorf("%w; the disk has %s", err, state)
	})
	return err
}

// isConflict reports whether the disk refused a command because of its state. Linux's target
// answers some commands of a node that is not registered with CHECK CONDITION, where SPC-4 has
// RESERVATION CONFLICT.
func isConflict(status statusError, needs registered, state provisioner.ReservationState) bool {
	return status.conflict() || status.checkCondition() && needs != 0 && !state.Registered(provisioner.ReservationKey(needs))
}

// repeated repeats a change that the disk answers with CHECK CONDITION, which says that the disk
// did not run it. The reason can be a unit attention: after a pre-emption, the next command of the
// node that was removed gets one, and before Linux 6.9 the kernel did not repeat that command.
func repeated(do func() error) error {
	for range scsiTries - 1 {
		err := do()
		if status := statusError(0); !errors.As(err, &status) || !status.checkCondition() {
			return err
		}
	}
	return do()
}

// withDevice opens the device, calls do, and gives its error a kind. It returns when do has
// returned or ctx has ended: an ioctl cannot be stopped.
func withDevice[T any](ctx context.Context, command, device string, do func(fd int) (T, error)) (T, error) {
	type outcome struct {
		value T
		err   error
	}
	outcomes := make(chan outcome, 1)
	go func() {
		value, err := open(device, do)
		outcomes <- outcome{value, err}
	}()
	select {
	case o := <-outcomes:
		return o.value, kindOf(o.err, command, device)
	case <-ctx.Done():
		var none T
		return none, provisioner.Errorf(provisioner.Unavailable, "%s on %s: no answer in time: %w", command, device, ctx.Err())
	}
}

var errNoDisk = errors.New("not a disk with a medium")

func open[T any](device string, do func(fd int) (T, error)) (T, error) {
	var none T
	file, err := os.OpenFile(device, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return none, err
	}
	defer file.Close()
	fd := int(file.Fd())
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return none, err
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFBLK {
		return none, errNoDisk
	}
	if size, err := unix.Seek(fd, 0, unix.SEEK_END); err != nil || size == 0 {
		return none, errors.Join(errNoDisk, err)
	}
	return do(fd)
}

// kindOf gives an error of a device its kind.
func kindOf(err error, command, device string) error {
	if err == nil {
		return nil
	}
	var conflict *provisioner.ReservationConflict
	switch {
	case errors.As(err, &conflict):
		return &provisioner.Error{
			Kind:    provisioner.Conflict,
			Message: conflict.Error(),
			Err:     conflict,
		}
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENXIO), errors.Is(err, unix.ENODEV), errors.Is(err, errNoDisk):
		return provisioner.Errorf(provisioner.NotFound, "%s on %s: the device is gone: %w", command, device, err)
	case errors.Is(err, errUnsupported), errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENOTTY),
		errors.Is(err, unix.ENOSYS):
		return provisioner.Errorf(provisioner.Unsupported, "%s on %s: the device has no persistent reservations: %w", command,
			device, err)
	case errors.Is(err, unix.EINVAL):
		// The command has a field that the disk does not accept: the type, or that the state
		// survives a loss of power.
		return provisioner.Errorf(provisioner.Unsupported, "%s on %s: the device has no such persistent reservations: %w",
			command, device, err)
	}
	return provisioner.Errorf(provisioner.Unavailable, "%s on %s: %w", command, device, err)
}
