package host_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/host"
	"github.com/azuredisk-csi/azuredisk/provisioner/host/hosttest"
)

func TestCountersOfARealDevice(t *testing.T) {
	disk := hosttest.NewDisk(t, 16*hosttest.MiB)
	h := host.New(host.Options{})
	counters := func() provisioner.DeviceCounters {
		t.Helper()
		got, err := h.Counters(disk.Device)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	before := counters()
	hosttest.Run(t, "dd", "if=/dev/zero", "of="+disk.Device, "bs=1M", "count=4", "oflag=direct")
	hosttest.Run(t, "dd", "if="+disk.Device, "of=/dev/null", "bs=1M", "count=2", "iflag=direct")
	after := counters()
	if got := after.WrittenBytes - before.WrittenBytes; got != 4*hosttest.MiB {
		t.Errorf("got %d bytes written, want 4 MiB", got)
	}
	// Others, such as udev, read from the device, too.
	if got := after.ReadBytes - before.ReadBytes; got < 2*hosttest.MiB {
		t.Errorf("got %d bytes read, want at least 2 MiB", got)
	}
	if after.Writes <= before.Writes || after.Reads <= before.Reads {
		t.Errorf("got %+v after %+v, want more reads and writes", after, before)
	}
	if _, err := h.Counters("/dev/no-such-device"); !errors.Is(err, provisioner.NotFound) {
		t.Errorf("of a device that is gone: got %v, want NotFound", err)
	}
}

func TestCountersAreReadFromTheKernelsFile(t *testing.T) {
	for name, test := range map[string]struct {
		text string
		want provisioner.DeviceCounters // nothing: it is refused
	}{
		"of a current kernel": {
			"     446      17    25488     131     6012     811   104912    22417        2     8133    22551  9 0 4096 2 3 4\n",
			provisioner.DeviceCounters{
				Reads: 446, ReadBytes: 25488 * 512, ReadTime: 131 * time.Millisecond,
				Writes: 6012, WrittenBytes: 104912 * 512, WriteTime: 22417 * time.Millisecond,
				BusyTime: 8133 * time.Millisecond,
			},
		},
		"too short":   {"1 2 3\n", provisioner.DeviceCounters{}},
		"not numbers": {"a b c d e f g h i j\n", provisioner.DeviceCounters{}},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			dir := filepath.Join(root, "class/block/sdc")
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "stat"), []byte(test.text), 0o644); err != nil {
				t.Fatal(err)
			}
			got, err := host.New(host.Options{SysRoot: root}).Counters("/dev/sdc")
			if got != test.want || (err != nil) != (test.want == provisioner.DeviceCounters{}) {
				t.Errorf("got %+v, %v, want %+v", got, err, test.want)
			}
		})
	}
}
