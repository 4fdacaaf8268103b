// Package kernel gives tests devices that the kernel of the virtual machine of `make vm-test`
// makes: SCSI disks, and disks of its own SCSI target that several initiators have, as several VMs
// have a shared disk. Every call ends the test if it does not succeed.
package kernel

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/azuredisk-csi/azuredisk/internal/testkit/expect"
)

// SCSIDevice waits until the kernel has the disk of a SCSI address, as in 4:0:0:7, and returns its
// device node.
func SCSIDevice(t *testing.T, address string) string {
	t.Helper()
	var found string
	expect.Eventually(t, "the SCSI disk "+address, func() bool {
		blocks, _ := filepath.Glob("/sys/bus/scsi/devices/" + address + "/block/*") // the pattern is good
		if len(blocks) == 1 {
			found = "/dev/" + filepath.Base(blocks[0])
			// The kernel shows a disk before it can be opened.
			file, err := os.Open(found)
			return err == nil && file.Close() == nil
		}
		return false
	})
	return found
}

// Write writes to an attribute or file of the kernel.
func Write(t *testing.T, file, value string) {
	t.Helper()
	expect.Must(t, os.WriteFile(file, []byte(value), 0o600))
}

// Attribute reads an attribute of a device; "" if it has none.
func Attribute(dir, name string) string {
	text, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}
