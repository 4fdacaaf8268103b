// Package kernel gives tests devices that the kernel of the virtual machine of `make vm-test` makes: SCSI disks, and disks of its own SCSI target that
// several initiators have, as several VMs have a shared disk. Every call fails the test if it does not succeed within Patience.
package kernel

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Patience is how long the emulated machine may take for anything.
const Patience = 30 * time.Second

// Await waits until a condition is true.
func Await(t *testing.T, what string, is func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(Patience)
	for !is() {
		select {
		case <-deadline:
			t.Fatalf("still waiting for %s after %v", what, Patience)
		case <-tick.C:
		}
	}
}

// SCSIDevice waits until the kernel has the disk of a SCSI address, as in 4:0:0:7, and returns its device node.
func SCSIDevice(t *testing.T, address string) string {
	t.Helper()
	var found string
	Await(t, "the SCSI disk "+address, func() bool {
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
	Must(t, os.WriteFile(file, []byte(value), 0o600))
}

// Attribute reads an attribute of a device; "" if it has none.
func Attribute(dir, name string) string {
	text, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// Must fails the test if there is an error.
func Must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
