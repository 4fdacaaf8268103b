package host_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/host"
	"github.com/azuredisk-csi/azuredisk/provisioner/host/hosttest"
)

const (
	bootController = "{f8b3781a-1e82-4818-a1c3-63d806ec15bb}"
	dataController = "{f8b3781b-1e82-4818-a1c3-63d806ec15bb}"
	ideController  = "{00000000-0001-8899-0000-000000000000}"
)

// sysfs is a made-up /sys.
type sysfs struct {
	t    *testing.T
	root string
}

func newSysfs(t *testing.T) *sysfs { return &sysfs{t: t, root: t.TempDir()} }

func (s *sysfs) write(path, value string) string {
	s.t.Helper()
	file := filepath.Join(s.root, path)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		s.t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(value+"\n"), 0o644); err != nil {
		s.t.Fatal(err)
	}
	return file
}

// disk adds a SCSI device as the kernel shows it: the real directory is deep
// below the controller, and bus/scsi/devices holds a link to it.
func (s *sysfs) disk(address, vendor, model, controllerID, block string) {
	s.t.Helper()
	controller := "devices/vmbus/" + address[:1]
	if controllerID != "" {
		s.write(controller+"/device_id", controllerID)
	}
	dir := controller + "/host/target/" + address
	s.write(dir+"/vendor", vendor)
	s.write(dir+"/model", model)
	s.write(dir+"/block/"+block+"/size", "16384")
	symlink(s.t, filepath.Join(s.root, dir), filepath.Join(s.root, "bus/scsi/devices", address))
}

// namespace adds an NVMe namespace as the kernel shows it: its directory has a link to the
// controller, or with multipath to the subsystem, which has a model as well.
func (s *sysfs) namespace(controller, model, block, nsid string) {
	s.t.Helper()
	s.write("devices/"+controller+"/model", model)
	s.write("devices/"+controller+"/"+block+"/nsid", nsid)
	symlink(s.t, filepath.Join(s.root, "devices", controller), filepath.Join(s.root, "devices", controller, block, "device"))
	symlink(s.t, filepath.Join(s.root, "devices", controller, block), filepath.Join(s.root, "class/block", block))
}

func TestSCSIAndNVMeDiscovery(t *testing.T) {
	const remote, local = "MSFT NVMe Accelerator v1.0              ", "Microsoft NVMe Direct Disk v2           "
	const wanted, wantedNVMe = "sdc", "nvme0n4"
	tests := map[string]struct {
		disks func(*sysfs)
		links map[string]string // under disk/azure
		block string            // that is found; "" for none
	}{
		"a data disk of the data controller": {
			disks: func(s *sysfs) {
				s.disk("0:0:0:2", "Msft    ", "Virtual Disk    ", bootController, "sda")
				s.disk("1:0:0:2", "Msft    ", "Virtual Disk    ", dataController, wanted)
			},
			block: wanted,
		},
		"vendor and model in upper case": {
			disks: func(s *sysfs) { s.disk("5:0:0:2", "MSFT", "VIRTUAL DISK", dataController, wanted) }, block: wanted},
		"a disk of another vendor is left alone": {
			disks: func(s *sysfs) { s.disk("5:0:0:2", "QEMU", "Virtual Disk", dataController, wanted) }},
		"another LUN is left alone": {
			disks: func(s *sysfs) { s.disk("5:0:0:3", "Msft", "Virtual Disk", dataController, wanted) }},
		"the boot controller's disk is left alone": {
			disks: func(s *sysfs) { s.disk("0:0:0:2", "Msft", "Virtual Disk", bootController, wanted) }},
		"the resource disk on IDE is left alone": {
			disks: func(s *sysfs) { s.disk("0:0:1:2", "Msft", "Virtual Disk", ideController, wanted) }},
		"without a controller's identity, hosts above the boot hosts": {
			disks: func(s *sysfs) { s.disk("5:0:0:2", "Msft", "Virtual Disk", "", wanted) }, block: wanted},
		"without a controller's identity, the boot hosts are left alone": {
			disks: func(s *sysfs) { s.disk("1:0:0:2", "Msft", "Virtual Disk", "", wanted) }},
		"without a controller's identity, links tell what is no data disk": {
			disks: func(s *sysfs) { s.disk("1:0:0:2", "Msft", "Virtual Disk", "", wanted) },
			links: map[string]string{"root": "../../sda", "resource": "../../sdb"}, block: wanted},
		"a disk that a link calls the root disk is left alone": {
			disks: func(s *sysfs) { s.disk("1:0:0:2", "Msft", "Virtual Disk", "", wanted) },
			links: map[string]string{"root": "../../" + wanted}},
		"a disk with a link below scsi0 is left alone": {
			disks: func(s *sysfs) { s.disk("5:0:0:2", "Msft", "Virtual Disk", "", wanted) },
			links: map[string]string{"scsi0/lun2": "../../../" + wanted}},
		"two disks that could be meant are both left alone": {
			disks: func(s *sysfs) {
				s.disk("5:0:0:2", "Msft", "Virtual Disk", dataController, wanted)
				s.disk("6:0:0:2", "Msft", "Virtual Disk", dataController, "sdd")
			},
		},
		"an NVMe namespace of a remote disk, whose ID is the LUN and 2": {
			disks: func(s *sysfs) {
				s.namespace("nvme0", remote, "nvme0n1", "1") // the disk of the operating system
				s.namespace("nvme0", remote, "nvme0n2", "2")
				s.namespace("nvme0", remote, wantedNVMe, "4")
				s.namespace("nvme1", local, "nvme1n4", "4")
			},
			block: wantedNVMe,
		},
		"an NVMe namespace of a local disk is left alone": {
			disks: func(s *sysfs) { s.namespace("nvme1", local, wantedNVMe, "4") }},
		"another NVMe namespace is left alone": {disks: func(s *sysfs) { s.namespace("nvme0", remote, wantedNVMe, "2") }},
		"the hidden paths to an NVMe namespace are left alone": {
			disks: func(s *sysfs) {
				s.namespace("subsystem0", remote, wantedNVMe, "4")
				s.namespace("nvme0", remote, "nvme0c0n4", "4")
				s.write("devices/nvme0/nvme0c0n4/hidden", "1")
			},
			block: wantedNVMe,
		},
		"a partition of an NVMe namespace is left alone": {
			disks: func(s *sysfs) {
				s.namespace("nvme0", remote, wantedNVMe, "4")
				s.write("devices/nvme0/"+wantedNVMe+"/partition", "1")
			},
		},
		"two NVMe namespaces that could be meant are both left alone": {
			disks: func(s *sysfs) {
				s.namespace("nvme0", remote, wantedNVMe, "4")
				s.namespace("nvme1", remote, "nvme1n4", "4")
			},
		},
	}
	disk := hosttest.NewDisk(t, hosttest.MiB)
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			dev, sys := t.TempDir(), newSysfs(t)
			test.disks(sys)
			for link, target := range test.links {
				symlink(t, target, filepath.Join(dev, "disk/azure", link))
			}
			for _, block := range []string{wanted, wantedNVMe} {
				symlink(t, disk.Device, filepath.Join(dev, block))
			}
			ctx, clock := untilItWaits(t)
			got, err := host.New(host.Options{DevRoot: dev, SysRoot: sys.root, Clock: clock}).Devices().Find(ctx, 2)
			if test.block != "" && (err != nil || got.Path != filepath.Join(dev, test.block)) {
				t.Errorf("Find = %+v, %v, want %s", got, err, test.block)
			}
			if test.block == "" && !errors.Is(err, provisioner.NotFound) {
				t.Errorf("Find = %+v, %v, want NotFound", got, err)
			}
		})
	}
}
