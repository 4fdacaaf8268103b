package hypervisor_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// benchDisk is an attached disk of 1 GiB.
func benchDisk(b *testing.B) (device string) {
	b.Helper()
	requireMachine(b, "mkfs.ext4")
	dir := stateDir(b)
	_, c := startHypervisor(b, dir)
	must(b, c.CreateDisk(b.Context(), "d1", 1<<30, ""))
	must(b, c.Attach(b.Context(), "vm1", 0, "d1"))
	return realDevice(b, dir, "vm1", 0)
}

// BenchmarkSequentialDirect moves 1 MiB blocks, one at a time, with O_DIRECT; and, to compare, through a loop device over a plain file.
func BenchmarkSequentialDirect(b *testing.B) {
	for name, open := range map[string]func(*testing.B) string{
		"hypervisor": benchDisk,
		"plain loop": func(b *testing.B) string {
			image := filepath.Join(b.TempDir(), "plain.img")
			must(b, os.WriteFile(image, nil, 0o600))
			must(b, os.Truncate(image, 1<<30))
			device := run(b, "losetup", "--find", "--show", "--direct-io=on", image)
			device = device[:len(device)-1]
			b.Cleanup(func() { run(b, "losetup", "--detach", device) })
			return device
		},
	} {
		for direction, move := range map[string]func(*os.File, []byte, int64) (int, error){"write": (*os.File).WriteAt, "read": (*os.File).ReadAt} {
			b.Run(name+"/"+direction, func(b *testing.B) {
				file, err := os.OpenFile(open(b), os.O_RDWR|unix.O_DIRECT, 0)
				must(b, err)
				defer file.Close()
				block := alignedBlock(b, mib)
				for n := range 256 { // so that a read meets data
					_, err := file.WriteAt(block, int64(n)*mib)
					must(b, err)
				}
				must(b, file.Sync())
				b.SetBytes(mib)
				n := int64(0)
				for b.Loop() {
					if _, err := move(file, block, n%256*mib); err != nil {
						b.Fatal(err)
					}
					n++
				}
			})
		}
	}
}

// BenchmarkSyncedAppend appends 4 KiB and calls fsync, on ext4 on the device, as a database's log does.
func BenchmarkSyncedAppend(b *testing.B) {
	device := benchDisk(b)
	run(b, "mkfs.ext4", "-q", device)
	file, err := os.Create(filepath.Join(mount(b, device, "ext4"), "log"))
	must(b, err)
	defer file.Close()
	block := make([]byte, 4096)
	var latencies []time.Duration
	for b.Loop() {
		begin := time.Now()
		_, err := file.Write(block)
		if err = errors.Join(err, file.Sync()); err != nil {
			b.Fatal(err)
		}
		latencies = append(latencies, time.Since(begin))
	}
	slices.Sort(latencies)
	b.ReportMetric(latencies[len(latencies)/2].Seconds()*1e3, "ms-p50")
	b.ReportMetric(latencies[len(latencies)*99/100].Seconds()*1e3, "ms-p99")
}

// BenchmarkAttachDetach is one disk to one VM and back, over the socket.
func BenchmarkAttachDetach(b *testing.B) {
	requireMachine(b)
	dir := stateDir(b)
	_, c := startHypervisor(b, dir)
	must(b, c.CreateDisk(b.Context(), "d1", 16*mib, ""))
	for b.Loop() {
		if err := errors.Join(c.Attach(b.Context(), "vm1", 0, "d1"), c.Detach(b.Context(), "vm1", 0, "d1")); err != nil {
			b.Fatal(err)
		}
	}
}
