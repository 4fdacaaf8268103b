//go:build vm

package vm

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/azuredisk-csi/azuredisk/provisioner/conformance/reservations"
	"github.com/azuredisk-csi/azuredisk/provisioner/host/hosttest"
	"github.com/azuredisk-csi/azuredisk/provisioner/host/reservation"
)

// TestReservationsOfLinuxsTarget runs the suite on Linux's own SCSI target. Its initiators come over iSCSI: in Linux 6.1, a PREEMPT AND ABORT of an
// initiator of tcm_loop waits for itself forever. Its backing store is memory: over a slower disk, a PREEMPT AND ABORT under load sometimes waits for a
// command of the other node that has ended.
func TestReservationsOfLinuxsTarget(t *testing.T) {
	const size = 16 * hosttest.MiB
	plain := plug(t, dataHost, 41, other, size).device(t)
	nodes := login(t)
	lun := 0
	var last *target
	reservations.Run(t, reservations.Harness{
		NewDisk: func(t *testing.T) []reservations.Host {
			lun++
			last = newTarget(t, nodes, size, lun)
			t.Cleanup(func() { last.destroy(t) })
			return last.hosts(t)
		},
		Restart: func(t *testing.T) []reservations.Host {
			last.destroy(t)
			last.create(t)
			last.restore(t)
			last.export(t)
			return last.hosts(t)
		},
		Detach: func(t *testing.T) { last.hide(t, nodes[0]) },
		Unsupported: func(*testing.T) reservations.Host {
			return reservations.Host{Reservations: reservation.Reservations{}, Device: plain}
		},
		Limit: 7 * time.Minute,
	})
}

const targetRoot = "/sys/kernel/config/target"

// node is an initiator in this machine, with a target that only it is connected to.
type node struct {
	port string // the folder of the target's portal group
	host string // the SCSI host of the initiator, as in host7
}

// login makes three initiators. They are connected until the machine ends.
func login(t *testing.T) []node {
	t.Helper()
	nodes := make([]node, 3)
	for i := range nodes {
		name := fmt.Sprintf("iqn.2026-01.test:target%d", i)
		port := filepath.Join(targetRoot, "iscsi", name, "tpgt_1")
		must(t, os.MkdirAll(port, 0o755))
		// Any initiator may log in and write.
		for attribute, value := range map[string]string{"authentication": "0", "generate_node_acls": "1", "cache_dynamic_acls": "1", "demo_mode_write_protect": "0"} {
			write(t, filepath.Join(port, "attrib", attribute), value)
		}
		must(t, os.Mkdir(filepath.Join(port, "np/127.0.0.1:3260"), 0o755))
		write(t, filepath.Join(port, "enable"), "1")
		hosttest.Run(t, "iscsistart", "-i", fmt.Sprintf("iqn.2026-01.test:node%d", i), "-t", name, "-g", "1", "-a", "127.0.0.1", "-p", "3260")
		nodes[i] = node{port, initiatorOf(t, name)}
	}
	return nodes
}

// initiatorOf returns the SCSI host that is connected to the target.
func initiatorOf(t *testing.T, target string) string {
	t.Helper()
	names, err := filepath.Glob("/sys/class/iscsi_host/host*/device/session*/iscsi_session/session*/targetname")
	must(t, err)
	for _, name := range names {
		if attribute(filepath.Dir(name), "targetname") == target {
			return strings.Split(name, "/")[4]
		}
	}
	t.Fatalf("no initiator is connected to %s; the kernel has %q", target, names)
	return ""
}

// target is a disk of Linux's target that all nodes have at the same LUN.
type target struct {
	nodes   []node
	size    int64
	lun     int
	backing string // its folder below targetRoot
	quiet   func() // ends what talk began
}

func newTarget(t *testing.T, nodes []node, size int64, lun int) *target {
	t.Helper()
	tg := &target{nodes: nodes, size: size, lun: lun, quiet: func() {}}
	tg.backing = filepath.Join(targetRoot, "core/rd_mcp_0", fmt.Sprintf("disk%d", lun))
	tg.create(t)
	tg.export(t)
	return tg
}

// create makes the backing store.
func (tg *target) create(t *testing.T) {
	t.Helper()
	must(t, os.MkdirAll(tg.backing, 0o755))
	write(t, filepath.Join(tg.backing, "control"), fmt.Sprintf("rd_pages=%d", tg.size/4096))
	write(t, filepath.Join(tg.backing, "wwn/vpd_unit_serial"), filepath.Base(tg.backing))
	write(t, filepath.Join(tg.backing, "enable"), "1")
}

// export shows the backing store to the nodes.
func (tg *target) export(t *testing.T) {
	t.Helper()
	for _, n := range tg.nodes {
		must(t, os.Mkdir(filepath.Dir(tg.link(n)), 0o755))
		must(t, os.Symlink(tg.backing, tg.link(n)))
		write(t, filepath.Join("/sys/class/scsi_host", n.host, "scan"), fmt.Sprintf("0 0 %d", tg.lun))
	}
}

func (tg *target) link(n node) string {
	return filepath.Join(n.port, fmt.Sprintf("lun/lun_%d", tg.lun), filepath.Base(tg.backing))
}

func (tg *target) address(n node) string {
	return fmt.Sprintf("%s:0:0:%d", strings.TrimPrefix(n.host, "host"), tg.lun)
}

// talk has each node send a command now and then. A PREEMPT AND ABORT over iSCSI waits until the node that is pre-empted has acknowledged the end of its
// commands, which it does with what it sends next.
func (tg *target) talk(hosts []reservations.Host) {
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	for _, host := range hosts {
		group.Go(func() {
			tick := time.NewTicker(20 * time.Millisecond)
			defer tick.Stop()
			for ctx.Err() == nil {
				_, _ = host.Read(ctx, host.Device)
				<-tick.C
			}
		})
	}
	tg.quiet = func() {
		cancel()
		group.Wait()
	}
}

// hosts waits until the kernel has the disk of each node.
func (tg *target) hosts(t *testing.T) (hosts []reservations.Host) {
	t.Helper()
	for _, n := range tg.nodes {
		hosts = append(hosts, reservations.Host{Reservations: reservation.Reservations{}, Device: scsiDevice(t, tg.address(n))})
	}
	tg.talk(hosts)
	return hosts
}

// hide detaches the disk from a node, if it is attached.
func (tg *target) hide(t *testing.T, n node) {
	t.Helper()
	if _, err := os.Lstat(tg.link(n)); err != nil {
		return
	}
	write(t, filepath.Join("/sys/bus/scsi/devices", tg.address(n), "delete"), "1")
	must(t, os.Remove(tg.link(n)))
	must(t, os.Remove(filepath.Dir(tg.link(n))))
}

// destroy removes the target as a loss of power does. What survives is the content of the disk, and what the target has written down of its reservations.
func (tg *target) destroy(t *testing.T) {
	t.Helper()
	tg.quiet()
	for _, n := range tg.nodes {
		tg.hide(t, n)
	}
	must(t, os.Remove(tg.backing))
}

// restore gives the target what it has written down of its reservations, as the target's tools do after a start.
func (tg *target) restore(t *testing.T) {
	t.Helper()
	written, err := os.ReadFile(filepath.Join("/var/target/pr", "aptpl_"+filepath.Base(tg.backing)))
	must(t, err)
	for entry := range strings.SplitSeq(string(written), "PR_REG_START:") {
		// Beside its fields an entry has lines with its number.
		var fields []string
		for line := range strings.Lines(entry) {
			if strings.Contains(line, "=") {
				fields = append(fields, strings.TrimSpace(line))
			}
		}
		if len(fields) > 0 {
			write(t, filepath.Join(tg.backing, "pr/res_aptpl_metadata"), strings.Join(fields, ","))
		}
	}
}
