//go:build vm

package vm

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/azuredisk-csi/azuredisk/internal/testkit/expect"
	"github.com/azuredisk-csi/azuredisk/provisioner/host/hosttest"
	"github.com/azuredisk-csi/azuredisk/test/vm/kernel"
)

// patience is how long the emulated machine may take for anything.
const patience = 30 * time.Second

// qemu is QEMU's monitor.
type qemu struct {
	port    *os.File
	answers *bufio.Reader
}

// monitor is connected once: the first command that it takes negotiates its features.
var monitor *qemu

type arguments map[string]any

// command sends a command of QMP and waits for its answer.
func command(t *testing.T, name string, args arguments) {
	t.Helper()
	if monitor == nil {
		ports, err := filepath.Glob("/dev/vport*")
		if err != nil || len(ports) != 1 {
			t.Fatalf("the machine has the ports %q, want the one of QEMU's monitor", ports)
		}
		port, err := os.OpenFile(ports[0], os.O_RDWR, 0)
		expect.Must(t, err)
		monitor = &qemu{port, bufio.NewReader(port)}
		command(t, "qmp_capabilities", nil)
	}
	request := arguments{"execute": name}
	if args != nil {
		request["arguments"] = args
	}
	text, err := json.Marshal(request)
	expect.Must(t, err)
	_, err = monitor.port.Write(text)
	expect.Must(t, err)
	for {
		line, err := monitor.answers.ReadBytes('\n')
		expect.Must(t, err)
		var answer struct {
			Return json.RawMessage
			Error  *struct{ Desc string }
		}
		expect.Must(t, json.Unmarshal(line, &answer))
		switch {
		case answer.Error != nil:
			t.Fatalf("QEMU refuses %s: %s", text, answer.Error.Desc)
		case answer.Return != nil:
			return
		}
		// It is the greeting or an event.
	}
}

// images is the number of disk images that the machine has: see hack/vm-test.sh.
const images = 24

// used is how many of them are in use, or were.
var used int

// image is an image of a disk that the machine was started with. It is blank, and gets the size.
func image(t *testing.T, size int64) string {
	t.Helper()
	if used == images {
		t.Fatal("all disk images of the machine are in use or were; raise their number here and in hack/vm-test.sh")
	}
	name := fmt.Sprintf("disk%d", used)
	used++
	resize(t, name, size)
	return name
}

func resize(t *testing.T, image string, size int64) {
	t.Helper()
	command(t, "block_resize", arguments{"node-name": image, "size": size})
}

// disk is a SCSI disk of the machine.
type disk struct {
	image string
	lun   int32
	// address is that of the kernel, as in 4:0:0:7.
	address string
}

// Controllers of the machine: see hack/vm-test.sh.
const (
	bootHost = 0 // among those that the driver leaves alone; it has LUN 0 only
	dataHost = 4
)

// azure and other are what disks say of themselves.
var (
	azure = [2]string{"Msft", "Virtual Disk"}
	other = [2]string{"QEMU", "Disk"}
)

// plug attaches a disk to a controller at the LUN, until the end of the test.
func plug(t *testing.T, host int, lun int32, identity [2]string, size int64) *disk {
	t.Helper()
	d := &disk{
		image:   image(t, size),
		lun:     lun,
		address: fmt.Sprintf("%d:0:0:%d", host, lun),
	}
	command(t, "device_add", arguments{
		"driver":   "scsi-hd",
		"id":       d.id(),
		"drive":    d.image,
		"bus":      fmt.Sprintf("scsi%d.0", host),
		"lun":      lun,
		"scsi-id":  0,
		"vendor":   identity[0],
		"product":  identity[1],
		"serial":   d.image,
		"share-rw": true,
	})
	t.Cleanup(func() {
		if d.image != "" {
			d.unplug(t)
		}
	})
	return d
}

func (d *disk) id() string { return "of-" + d.image }

// unplug detaches the disk without asking the kernel.
func (d *disk) unplug(t *testing.T) {
	t.Helper()
	command(t, "device_del", arguments{"id": d.id()})
	d.image = ""
}

// device waits until the kernel has the disk, and returns its device node.
func (d *disk) device(t *testing.T) string { return kernel.SCSIDevice(t, d.address) }

// gone reports whether the kernel has removed the disk.
func (d *disk) gone() bool {
	_, err := os.Stat("/sys/bus/scsi/devices/" + d.address)
	return err != nil
}

// udevRules makes udev follow the rules until the end of the test, and removes the links that it
// made by them.
func udevRules(t *testing.T, rules ...string) {
	t.Helper()
	const file = "/run/udev/rules.d/99-test.rules"
	expect.Must(t, os.MkdirAll(filepath.Dir(file), 0o755))
	expect.Must(t, os.WriteFile(file, []byte(strings.Join(rules, "\n")+"\n"), 0o600))
	hosttest.Run(t, "udevadm", "control", "--reload")
	t.Cleanup(func() {
		expect.Must(t, os.Remove(file))
		hosttest.Run(t, "udevadm", "control", "--reload")
	})
}

// linkByLUN is a rule that makes the link of azure-vm-utils for the SCSI disk.
func linkByLUN(address string, lun int32) string {
	return fmt.Sprintf(`SUBSYSTEM=="block", SUBSYSTEMS=="scsi", KERNELS==%q, SYMLINK+="disk/azure/data/by-lun/%d"`, address, lun)
}
