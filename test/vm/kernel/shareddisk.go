package kernel

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/azuredisk-csi/azuredisk/internal/testkit/expect"
	"github.com/azuredisk-csi/azuredisk/provisioner/host/hosttest"
	"github.com/azuredisk-csi/azuredisk/provisioner/host/reservation"
)

const targetRoot = "/sys/kernel/config/target"

// Node is an initiator in this machine, with a target that only it is connected to.
type Node struct {
	port string // the folder of the target's portal group
	host string // the SCSI host of the initiator, as in host7
}

// Login makes initiators. Their names begin with name, which no other test has. They are connected
// until the machine ends.
func Login(t *testing.T, name string, count int) []Node {
	t.Helper()
	nodes := make([]Node, count)
	for i := range nodes {
		name := fmt.Sprintf("iqn.2026-01.test:%s%d", name, i)
		port := filepath.Join(targetRoot, "iscsi", name, "tpgt_1")
		expect.Must(t, os.MkdirAll(port, 0o755))
		// Any initiator may log in and write.
		for attribute, value := range map[string]string{
			"authentication":          "0",
			"generate_node_acls":      "1",
			"cache_dynamic_acls":      "1",
			"demo_mode_write_protect": "0",
		} {
			Write(t, filepath.Join(port, "attrib", attribute), value)
		}
		expect.Must(t, os.Mkdir(filepath.Join(port, "np/127.0.0.1:3260"), 0o755))
		Write(t, filepath.Join(port, "enable"), "1")
		hosttest.Run(t, "iscsistart", "-i", name+"-initiator", "-t", name, "-g", "1", "-a", "127.0.0.1", "-p", "3260")
		nodes[i] = Node{port, initiatorOf(t, name)}
	}
	return nodes
}

// initiatorOf returns the SCSI host that is connected to the target.
func initiatorOf(t *testing.T, target string) string {
	t.Helper()
	names, err := filepath.Glob("/sys/class/iscsi_host/host*/device/session*/iscsi_session/session*/targetname")
	expect.Must(t, err)
	for _, name := range names {
		if Attribute(filepath.Dir(name), "targetname") == target {
			return strings.Split(name, "/")[4]
		}
	}
	t.Fatalf("no initiator is connected to %s; the kernel has %q", target, names)
	return ""
}

// SharedDisk is a disk of Linux's target that all nodes have at the same LUN. Its content is in
// memory: over a slower store, a PREEMPT AND ABORT under load sometimes waits for a command of the
// other node that has ended. Its nodes come over iSCSI: in Linux 6.1, a PREEMPT AND ABORT of an
// initiator of tcm_loop waits for itself forever.
type SharedDisk struct {
	nodes   []Node
	size    int64
	lun     int
	backing string // its folder below targetRoot
	quiet   func() // ends what talk began
}

// NewSharedDisk makes a disk of a size in bytes. The caller calls Destroy.
func NewSharedDisk(t *testing.T, nodes []Node, size int64, lun int) *SharedDisk {
	t.Helper()
	d := &SharedDisk{
		nodes: nodes,
		size:  size,
		lun:   lun,
		quiet: func() {},
	}
	d.backing = filepath.Join(targetRoot, "core/rd_mcp_0", fmt.Sprintf("disk%d", lun))
	d.create(t)
	d.export(t)
	return d
}

// create makes the backing store.
func (d *SharedDisk) create(t *testing.T) {
	t.Helper()
	expect.Must(t, os.MkdirAll(d.backing, 0o755))
	Write(t, filepath.Join(d.backing, "control"), fmt.Sprintf("rd_pages=%d", d.size/4096))
	Write(t, filepath.Join(d.backing, "wwn/vpd_unit_serial"), filepath.Base(d.backing))
	Write(t, filepath.Join(d.backing, "enable"), "1")
}

// export shows the backing store to the nodes.
func (d *SharedDisk) export(t *testing.T) {
	t.Helper()
	for _, n := range d.nodes {
		expect.Must(t, os.Mkdir(filepath.Dir(d.link(n)), 0o755))
		expect.Must(t, os.Symlink(d.backing, d.link(n)))
		Write(t, filepath.Join("/sys/class/scsi_host", n.host, "scan"), fmt.Sprintf("0 0 %d", d.lun))
	}
}

func (d *SharedDisk) link(n Node) string {
	return filepath.Join(n.port, fmt.Sprintf("lun/lun_%d", d.lun), filepath.Base(d.backing))
}

func (d *SharedDisk) address(n Node) string {
	return fmt.Sprintf("%s:0:0:%d", strings.TrimPrefix(n.host, "host"), d.lun)
}

// talk has each node send a command now and then. A PREEMPT AND ABORT over iSCSI waits until the
// node that is pre-empted has acknowledged the end of its commands, which it does with what it
// sends next.
func (d *SharedDisk) talk(devices []string) {
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	for _, device := range devices {
		group.Go(func() {
			tick := time.NewTicker(20 * time.Millisecond)
			defer tick.Stop()
			for ctx.Err() == nil {
				_, _ = reservation.Reservations{}.Read(ctx, device)
				<-tick.C
			}
		})
	}
	d.quiet = func() {
		cancel()
		group.Wait()
	}
}

// Devices waits until the kernel has the disk of each node, and returns the device nodes in the
// order of the nodes.
func (d *SharedDisk) Devices(t *testing.T) (devices []string) {
	t.Helper()
	for _, n := range d.nodes {
		devices = append(devices, SCSIDevice(t, d.address(n)))
	}
	d.talk(devices)
	return devices
}

// Detach takes the disk from a node.
func (d *SharedDisk) Detach(t *testing.T, node int) { d.hide(t, d.nodes[node]) }

// LosePower destroys the disk and makes it again, with what the target has written down of its
// reservations.
func (d *SharedDisk) LosePower(t *testing.T) {
	t.Helper()
	d.Destroy(t)
	d.create(t)
	d.restore(t)
	d.export(t)
}

// hide detaches the disk from a node, if it is attached.
func (d *SharedDisk) hide(t *testing.T, n Node) {
	t.Helper()
	if _, err := os.Lstat(d.link(n)); err != nil {
		return
	}
	Write(t, filepath.Join("/sys/bus/scsi/devices", d.address(n), "delete"), "1")
	expect.Must(t, os.Remove(d.link(n)))
	expect.Must(t, os.Remove(filepath.Dir(d.link(n))))
}

// Destroy removes the disk. What survives is what the target has written down of its reservations.
func (d *SharedDisk) Destroy(t *testing.T) {
	t.Helper()
	d.quiet()
	for _, n := range d.nodes {
		d.hide(t, n)
	}
	expect.Must(t, os.Remove(d.backing))
}

// restore gives the target what it has written down of its reservations, as the target's tools do
// after a start.
func (d *SharedDisk) restore(t *testing.T) {
	t.Helper()
	written, err := os.ReadFile(filepath.Join("/var/target/pr", "aptpl_"+filepath.Base(d.backing)))
	expect.Must(t, err)
	for entry := range strings.SplitSeq(string(written), "PR_REG_START:") {
		// Beside its fields an entry has lines with its number.
		var fields []string
		for line := range strings.Lines(entry) {
			if strings.Contains(line, "=") {
				fields = append(fields, strings.TrimSpace(line))
			}
		}
		if len(fields) > 0 {
			Write(t, filepath.Join(d.backing, "pr/res_aptpl_metadata"), strings.Join(fields, ","))
		}
	}
}
