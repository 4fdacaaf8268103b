package host

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// statFields is how many fields of the kernel's file stat are used. Newer kernels have more.
const statFields = 10

// sectorBytes is the unit of the file stat, whatever the device's own sectors are.
const sectorBytes = 512

// Counters returns the kernel's counters of a device. They are read from sysfs, without a request to
// the device, so that a device that hangs does not delay the caller. Errors: NotFound when the
// device is gone.
func (h *Host) Counters(device string) (provisioner.DeviceCounters, error) {
	raw, err := os.ReadFile(filepath.Join(h.options.SysRoot, "class/block", filepath.Base(device), "stat"))
	if err != nil {
		return provisioner.DeviceCounters{}, provisioner.Errorf(provisioner.NotFound, "read the counters of %s: %w", device, err)
	}
	found, err := parseStat(string(raw))
	if err != nil {
		return provisioner.DeviceCounters{}, fmt.Errorf("read the counters of %s: %w", device, err)
	}
	return found, nil
}

// parseStat reads the file stat of a block device.
// Source: https://docs.kernel.org/block/stat.html
func parseStat(text string) (provisioner.DeviceCounters, error) {
	fields := strings.Fields(text)
	if len(fields) < statFields {
		return provisioner.DeviceCounters{}, fmt.Errorf("got %q, want at least %d numbers", text, statFields)
	}
	var n [statFields]uint64
	for i := range n {
		var err error
		if n[i], err = strconv.ParseUint(fields[i], 10, 64); err != nil {
			return provisioner.DeviceCounters{}, fmt.Errorf("got %q, want numbers: %w", text, err)
		}
	}
	milliseconds := func(n uint64) time.Duration { return time.Duration(n) * time.Millisecond }
	return provisioner.DeviceCounters{
		Reads:        n[0],
		ReadBytes:    n[2] * sectorBytes,
		ReadTime:     milliseconds(n[3]),
		Writes:       n[4],
		WrittenBytes: n[6] * sectorBytes,
		WriteTime:    milliseconds(n[7]),
		BusyTime:     milliseconds(n[9]),
	}, nil
}
