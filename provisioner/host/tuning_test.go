package host_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/host"
	"github.com/azuredisk-csi/azuredisk/provisioner/host/hosttest"
)

func TestSettingsOfARealDevice(t *testing.T) {
	disk := hosttest.NewDisk(t, 64*hosttest.MiB)
	tuner := host.New(host.Options{}).Tuner()
	setting := func(path string) string {
		raw, err := os.ReadFile(filepath.Join("/sys/class/block", filepath.Base(disk.Device), path))
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(raw))
	}
	before := map[string]string{}
	for _, path := range []string{"queue/read_ahead_kb", "queue/max_sectors_kb"} {
		before[path] = setting(path)
	}
	t.Cleanup(func() { // the loop device is there for the next who wants one
		err := tuner.Tune(context.Background(), disk.Device, []provisioner.DeviceSetting{
			{Path: "queue/scheduler", Value: "none"}, {Path: "queue/max_sectors_kb", Value: before["queue/max_sectors_kb"]},
			{Path: "queue/read_ahead_kb", Value: before["queue/read_ahead_kb"]},
		})
		if err != nil {
			t.Error(err)
		}
	})
	for range 2 {
		err := tuner.Tune(t.Context(), disk.Device, []provisioner.DeviceSetting{
			{
				Path:  "queue/scheduler",
				Value: "mq-deadline",
			}, {Path: "queue/max_sectors_kb", Value: "99999999", Ceiling: "queue/max_hw_sectors_kb"},
			{Path: "device/queue_depth", Value: "32", Optional: true},
			{Path: "queue/read_ahead_kb", Value: "8"}, {Path: "bdi/read_ahead_kb", Value: "16"},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if !strings.Contains(setting("queue/scheduler"), "[mq-deadline]") || setting("queue/read_ahead_kb") != "16" {
		t.Errorf("scheduler %s, read-ahead %s", setting("queue/scheduler"), setting("queue/read_ahead_kb"))
	}
	if got, most := setting("queue/max_sectors_kb"), setting("queue/max_hw_sectors_kb"); got != most {
		t.Errorf("max_sectors_kb is %s, the device takes %s", got, most)
	}
	other := "loop0"
	if filepath.Base(disk.Device) == other {
		other = "loop1"
	}
	for name, test := range map[string]provisioner.DeviceSetting{
		"a value that the kernel refuses": {Path: "queue/scheduler", Value: "fastest"},
		"a number that is none":           {Path: "queue/read_ahead_kb", Value: "much"},
		"less than the device takes":      {Path: "queue/max_sectors_kb", Value: "1"},
		"a setting that there is not":     {Path: "queue/no_such_setting", Value: "1"},
		"a setting of no disk of this bus": {
			Path: "device/queue_depth", Value: "32",
		},
		"a setting that is read only": {Path: "queue/max_hw_sectors_kb", Value: "4"},
		"a directory":                 {Path: "queue", Value: "1"},
		"a path that leads out":       {Path: "../" + filepath.Base(disk.Device) + "/queue/read_ahead_kb", Value: "8"},
		"a link that leads out":       {Path: "subsystem/" + other + "/queue/read_ahead_kb", Value: "8"},
	} {
		err := tuner.Tune(t.Context(), disk.Device, []provisioner.DeviceSetting{test})
		if !errors.Is(err, provisioner.InvalidArgument) || !strings.Contains(err.Error(), test.Path) {
			t.Errorf("%s: %v, want InvalidArgument that names %s", name, err, test.Path)
		}
	}
	if err := tuner.Tune(t.Context(), "/dev/not-there", []provisioner.DeviceSetting{{
		Path:  "queue/scheduler",
		Value: "none",
	}}); !errors.Is(err, provisioner.Unavailable) {
		t.Errorf("a device that is not there: %v", err)
	}
}

// TestSettingsOfASCSIDisk has the layout of sysfs for a disk of Azure: the links of the disk lead
// to its SCSI device, and from there to the driver of all of them.
func TestSettingsOfASCSIDisk(t *testing.T) {
	sys := t.TempDir()
	device := filepath.Join(sys, "devices/vmbus/host0/target0:0:0/0:0:0:3")
	for path, content := range map[string]string{
		filepath.Join(device, "queue_depth"):                      "64",
		filepath.Join(device, "block/sdc/queue/scheduler"):        "none",
		filepath.Join(device, "block/sdc/sdc1/partition"):         "1",
		filepath.Join(device, "block/sdc/sdc15/partition"):        "15",
		filepath.Join(sys, "bus/scsi/drivers/sd/unbind"):          "",
		filepath.Join(sys, "devices/virtual/bdi/8:32/min_ratio"):  "0",
		filepath.Join(sys, "devices/vmbus/host0/scsi_host/state"): "running",
	} {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	symlink(t, filepath.Join(device, "block/sdc"), filepath.Join(sys, "class/block/sdc"))
	symlink(t, device, filepath.Join(device, "block/sdc/device"))
	symlink(t, filepath.Join(sys, "devices/virtual/bdi/8:32"), filepath.Join(device, "block/sdc/bdi"))
	symlink(t, filepath.Join(sys, "bus/scsi/drivers/sd"), filepath.Join(device, "driver"))
	tuner := host.New(host.Options{SysRoot: sys}).Tuner()
	err := tuner.Tune(t.Context(), "/dev/sdc", []provisioner.DeviceSetting{
		{
			Path:  "device/queue_depth",
			Value: "32",
		}, {Path: "queue/scheduler", Value: "mq-deadline"}, {Path: "bdi/min_ratio", Value: "1"},
	})
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"queue_depth":               "32",
		"block/sdc/queue/scheduler": "mq-deadline",
		"block/sdc/bdi/min_ratio":   "1",
	} {
		if raw, err := os.ReadFile(filepath.Join(device, path)); err != nil || !strings.HasPrefix(string(raw), want) {
			t.Errorf("%s holds %q, %v", path, raw, err)
		}
	}
	err = tuner.Tune(t.Context(), "/dev/sdc", []provisioner.DeviceSetting{{Path: "device/driver/unbind", Value: "0:0:0:3"}})
	if !errors.Is(err, provisioner.InvalidArgument) {
		t.Errorf("the driver of all disks: %v", err)
	}
	if raw, _ := os.ReadFile(filepath.Join(sys, "bus/scsi/drivers/sd/unbind")); len(raw) > 0 {
		t.Errorf("the driver was written to: %q", raw)
	}
}

func TestPartitionsOfARealDevice(t *testing.T) {
	disk := hosttest.NewDisk(t, 64*hosttest.MiB)
	tuner := host.New(host.Options{}).Tuner()
	if _, err := tuner.Partition(t.Context(), disk.Device, 1); !errors.Is(err, provisioner.FailedPrecondition) {
		t.Fatalf("a disk without partitions: %v, want FailedPrecondition", err)
	}
	disk.Partition(t, 16*hosttest.MiB, 32*hosttest.MiB)
	for number, size := range map[int]int64{1: 16 * hosttest.MiB, 2: 32 * hosttest.MiB} {
		part, err := tuner.Partition(t.Context(), disk.Device, number)
		if want := fmt.Sprintf("%sp%d", disk.Device, number); err != nil || part.Path != want || part.SizeBytes != size {
			t.Errorf("partition %d: %+v, %v; want %s of %d bytes", number, part, err, want, size)
		}
	}
	if _, err := tuner.Partition(t.Context(), disk.Device, 3); !errors.Is(err, provisioner.FailedPrecondition) {
		t.Errorf("a partition that there is not: %v, want FailedPrecondition", err)
	}
	if _, err := tuner.Partition(t.Context(), "/dev/not-there", 1); !errors.Is(err, provisioner.Unavailable) {
		t.Errorf("a device that is not there: %v, want Unavailable", err)
	}
}
