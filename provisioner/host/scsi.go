package host

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// The SCSI controllers of Azure, by the device_id of their VMBus device. They are
// what Azure's own udev rules tell the disks apart by: the operating system's disk and
// the resource disk hang on others than data disks do.
const (
	genericControllerSuffix = "-1e82-4818-a1c3-63d806ec15bb"
	firstController         = "f8b3781a"
)

// lastBootHost: without a device_id, and without links to compare with, hosts
// up to this number are left alone; Azure puts the disks that it boots from there.
const lastBootHost = 3

// scsiDisk returns the device node of the Azure data disk at the LUN by sysfs
// alone, for machines without Azure's udev rules. Where two devices could be
// meant it returns none: a wrong disk is worse than a late one.
func (d devices) scsiDisk(lun int32) (string, bool) {
	entries, err := os.ReadDir(filepath.Join(d.options.SysRoot, "bus/scsi/devices"))
	if err != nil {
		return "", false
	}
	reserved, known := d.reservedNames()
	var found []string
	for _, entry := range entries {
		host, number, ok := parseAddress(entry.Name())
		if !ok || number != int(lun) {
			continue
		}
		dir := filepath.Join(d.options.SysRoot, "bus/scsi/devices", entry.Name())
		if !isAzureDisk(dir) || !isDataController(dir, host, known) {
			continue
		}
		if name, ok := blockName(dir); ok && !reserved[name] {
			found = append(found, name)
		}
	}
	if len(found) != 1 {
		return "", false
	}
	return filepath.Join(d.options.DevRoot, found[0]), true
}

// reservedNames returns the devices, without partitions, that Azure's links call
// something else than a data disk, and whether there are such links at all.
func (d devices) reservedNames() (names map[string]bool, known bool) {
	names = map[string]bool{}
	for _, pattern := range []string{"*", "scsi0/*"} {
		links, _ := filepath.Glob(filepath.Join(d.options.Links, pattern)) // the pattern is a constant
		for _, link := range links {
			target, err := os.Readlink(link)
			if err != nil {
				continue
			}
			names[filepath.Base(target)] = true
			known = true
		}
	}
	return names, known
}

func parseAddress(name string) (host, lun int, ok bool) {
	parts := strings.Split(name, ":")
	if len(parts) != 4 {
		return 0, 0, false
	}
	host, err := strconv.Atoi(parts[0])
	if err != nil {
		return 0, 0, false
	}
	lun, err = strconv.Atoi(parts[3])
	return host, lun, err == nil
}

func isAzureDisk(dir string) bool {
	return strings.EqualFold(attribute(dir, "vendor"), "Msft") && strings.EqualFold(attribute(dir, "model"), "Virtual Disk")
}

// isDataController looks for the device_id of the VMBus device above.
func isDataController(dir string, host int, known bool) bool {
	resolved, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return false
	}
	for up := resolved; len(up) > 1; up = filepath.Dir(up) {
		id := strings.ToLower(strings.Trim(attribute(up, "device_id"), "{}"))
		if id == "" {
			continue
		}
		return strings.HasSuffix(id, genericControllerSuffix) && !strings.HasPrefix(id, firstController)
	}
	return known || host > lastBootHost
}

func blockName(dir string) (string, bool) {
	entries, err := os.ReadDir(filepath.Join(dir, "block"))
	if err != nil || len(entries) != 1 {
		return "", false
	}
	return entries[0].Name(), true
}

func attribute(dir, name string) string {
	raw, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(raw))
}

// rescanControllers makes every SCSI host, and every NVMe controller of remote disks, look for new
// devices. One that cannot be rescanned is not worth an error: the disk may come by itself, or not
// at all.
func (d devices) rescanControllers() {
	files, _ := filepath.Glob(filepath.Join(d.options.SysRoot, "class/scsi_host/host*/scan")) // the pattern is a constant
	for _, file := range files {
		_ = writeAttribute(file, "- - -")
	}
	controllers, _ := filepath.Glob(filepath.Join(d.options.SysRoot, "class/nvme/nvme*")) // the pattern is a constant
	for _, dir := range controllers {
		if strings.EqualFold(attribute(dir, "model"), remoteNVMeModel) {
			_ = writeAttribute(filepath.Join(dir, "rescan_controller"), "1")
		}
	}
}

// writeAttribute never makes a file, which sysfs would not allow anyway.
func writeAttribute(path, value string) error {
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = file.WriteString(value)
	return err
}
