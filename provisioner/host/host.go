package host

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/utils/clock"
	utilexec "k8s.io/utils/exec"

	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/host/reservation"
)

const defaultRescanInterval = 2 * time.Second

// Options of a Host; the zero value is the real machine.
type Options struct {
	// DevRoot is where the device nodes are: /dev.
	DevRoot string
	// Links is the directory of udev's links with the LUNs: /dev/disk/azure.
	Links string
	// SysRoot is where sysfs is mounted: /sys.
	SysRoot string
	// MountInfo is the list of mounts: /proc/self/mountinfo.
	MountInfo string
	// Exec runs commands.
	Exec utilexec.Interface
	// Clock paces the rescans while a device is awaited.
	Clock clock.WithTicker
	// RescanInterval is how often the SCSI hosts are rescanned, and the links looked at
	// again, while a device is awaited and no event comes: 2 s.
	RescanInterval time.Duration
	// MaxFormatsAndChecks is how many filesystems are made or checked in full at once; 0 for any
	// number. Each takes memory, which grows with the disk.
	MaxFormatsAndChecks int
	// NVMeReservations lets Reservations use the reservations of NVMe namespaces.
	NVMeReservations bool
}

// Host implements provisioner.Host.
type Host struct {
	options Options
	works   works
	// slots holds a value for each format and full check that runs; nil for no limit.
	slots chan struct{}
}

var _ provisioner.Host = (*Host)(nil)

// New returns the Host of this machine.
func New(options Options) *Host {
	defaults := map[*string]string{
		&options.DevRoot:   "/dev",
		&options.SysRoot:   "/sys",
		&options.MountInfo: "/proc/self/mountinfo",
	}
	for field, value := range defaults {
		if *field == "" {
			*field = value
		}
	}
	if options.Links == "" {
		options.Links = filepath.Join(options.DevRoot, "disk/azure")
	}
	if options.Exec == nil {
		options.Exec = utilexec.New()
	}
	if options.Clock == nil {
		options.Clock = clock.RealClock{}
	}
	if options.RescanInterval == 0 {
		options.RescanInterval = defaultRescanInterval
	}
	h := &Host{options: options}
	if options.MaxFormatsAndChecks > 0 {
		h.slots = make(chan struct{}, options.MaxFormatsAndChecks)
	}
	return h
}

// Devices implements provisioner.Host.
func (h *Host) Devices() provisioner.Devices { return devices{h} }

// Tuner implements provisioner.Host.
func (h *Host) Tuner() provisioner.Tuner { return tuner{devices{h}} }

// Filesystems implements provisioner.Host.
func (h *Host) Filesystems() provisioner.Filesystems { return filesystems{h} }

// Mounts implements provisioner.Host.
func (h *Host) Mounts() provisioner.Mounts { return mounts{h} }

// Reservations implements provisioner.Host.
func (h *Host) Reservations() provisioner.Reservations {
	return reservation.Reservations{NVMe: h.options.NVMeReservations}
}

// result is how a command ended.
type result struct {
	code   int
	output string
}

// run runs a command to its end, or kills it when ctx ends. An exit code is not
// an error here; a command that cannot be started, or was killed, is.
func (h *Host) run(ctx context.Context, command string, args ...string) (result, error) {
	raw, err := h.options.Exec.CommandContext(ctx, command, args...).CombinedOutput()
	output := strings.TrimSpace(string(raw))
	if ctxErr := ctx.Err(); err != nil && ctxErr != nil {
		return result{output: output}, fmt.Errorf("run %s: %w", command, ctxErr)
	}
	if exit, ok := errors.AsType[utilexec.ExitError](err); ok && exit.Exited() {
		return result{code: exit.ExitStatus(), output: output}, nil
	}
	if err != nil {
		return result{output: output}, provisioner.Errorf(provisioner.Unavailable, "run %s: %w", command, err)
	}
	return result{output: output}, nil
}

// runOK is run for commands that have one good exit code, 0.
func (h *Host) runOK(ctx context.Context, command string, args ...string) error {
	ended, err := h.run(ctx, command, args...)
	if err != nil {
		return err
	}
	if ended.code != 0 {
		return provisioner.Errorf(provisioner.Unavailable, "%s %s: exit code %d: %s",
			command, strings.Join(args, " "), ended.code, ended.output)
	}
	return nil
}

// bounded returns when read has ended, or with the context's error when ctx ends first. It is for
// reads only: a read from a device that does not answer cannot be stopped, and is left behind.
func bounded[T any](ctx context.Context, read func() (T, error)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	answers := make(chan answer, 1)
	go func() {
		value, err := read()
		answers <- answer{value, err}
	}()
	select {
	case a := <-answers:
		return a.value, a.err
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	}
}
