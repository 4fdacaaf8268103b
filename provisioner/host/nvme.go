package host

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// The NVMe controllers of Azure's remote disks, and how a namespace of theirs tells the LUN:
// namespace 1 is the operating system's disk, and a data disk has its LUN plus 2. Local disks have
// controllers of another model. Source: the rules and doc/disk-identification.md of
// github.com/Azure/azure-vm-utils.
const (
	remoteNVMeModel = "MSFT NVMe Accelerator v1.0"
	namespaceOfLUN0 = 2
)

// nvmeDisk returns the device node of the Azure data disk at the LUN by sysfs alone, for machines
// without Azure's udev rules. Where two devices could be meant it returns none: a wrong disk is
// worse than a late one.
func (d devices) nvmeDisk(lun int32) (string, bool) {
	var found []string
	blocks, _ := filepath.Glob(filepath.Join(d.options.SysRoot, "class/block/nvme*")) // the pattern is a constant
	for _, dir := range blocks {
		if _, err := os.Stat(filepath.Join(dir, "partition")); err == nil {
			continue
		}
		// With multipath each path to a namespace is a hidden device, for which there is no device
		// node.
		if attribute(dir, "hidden") == "1" || !strings.EqualFold(attribute(dir, "device/model"), remoteNVMeModel) {
			continue
		}
		if namespace, err := strconv.ParseInt(attribute(dir, "nsid"), 10, 64); err == nil && namespace == int64(lun)+
			namespaceOfLUN0 {
			found = append(found, filepath.Base(dir))
		}
	}
	if len(found) != 1 {
		return "", false
	}
	return filepath.Join(d.options.DevRoot, found[0]), true
}
