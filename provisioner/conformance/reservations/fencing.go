package reservations

import (
	"bytes"
	"encoding/binary"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/azuredisk-csi/azuredisk/provisioner"
)

const (
	defaultRounds = 200
	// fencedWriters write at once, each to a block of its own: a deep queue.
	fencedWriters = 32
	// busyWriters of them have written when the pre-emption begins. To wait for the slowest takes
	// half of the time.
	busyWriters = 8
	blockBytes  = 4096
)

// fences has one node write with a deep queue past the page cache, and another one pre-empt it,
// round by round. When the pre-emption has returned, the disk must not change any more. Each round
// begins a later epoch at the node that was pre-empted before.
func (r *run) fences(rounds int) {
	var took []time.Duration
	acknowledged := 0
	for round := range rounds {
		writer, fencer := round%2, (round+1)%2
		held := r.key(int64(2*round+1), writer)
		r.takeForRound(round, writer, held)
		own := r.key(int64(2*round+1), fencer).FenceOnly()
		f := r.hosts[fencer]
		r.ok(f.Register(r.ctx, f.Device, own))
		w := r.startWriters(r.hosts[writer].Device, int64(round+1)<<32)
		w.awaitBusy()
		begin := time.Now() //nolint:forbidigo // a measured figure
		r.ok(f.PreemptAndAbort(r.ctx, f.Device, own, held))
		took = append(took, time.Since(begin)) //nolint:forbidigo // a measured figure
		atReturn := r.readRegion(f.Device)
		acknowledged += r.checkWriters(w, round, atReturn)
		if after := r.readRegion(f.Device); !bytes.Equal(atReturn, after) {
			r.Fatalf("round %d: the disk changed after the pre-emption had returned", round)
		}
	}
	slices.Sort(took)
	r.Logf("%d rounds, %d writes were acknowledged; a pre-emption took %v (median), %v (maximum)",
		rounds, acknowledged, took[len(took)/2], took[len(took)-1])
}

// takeForRound gives a node the reservation. In all rounds but the first it has pre-empted the
// other node and holds it already, so it changes its key.
func (r *run) takeForRound(round, host int, key provisioner.ReservationKey) {
	r.Helper()
	if round == 0 {
		r.take(host, key)
		return
	}
	r.ok(r.hosts[host].Register(r.ctx, r.hosts[host].Device, key))
	r.expect(key, key)
}

// writers write until their writes are refused.
type writers struct {
	group sync.WaitGroup
	busy  chan struct{} // one element for each writer that has written
	// last is the number that each writer was told is on the disk, and count how many there were;
	// valid after group.Wait.
	last  [fencedWriters]int64
	count [fencedWriters]int
	errs  [fencedWriters]error
}

func (r *run) startWriters(device string, base int64) *writers {
	r.Helper()
	w := &writers{busy: make(chan struct{}, fencedWriters)}
	for i := range fencedWriters {
		w.last[i] = base
		file, err := os.OpenFile(device, os.O_WRONLY|unix.O_DIRECT, 0)
		r.ok(err)
		block := r.block(0)
		w.group.Go(func() {
			defer file.Close()
			for number := base + 1; ; number++ {
				stamp(block, number)
				if _, w.errs[i] = file.WriteAt(block, int64(i)*blockBytes); w.errs[i] != nil {
					return
				}
				if w.last[i], w.count[i] = number, w.count[i]+1; w.count[i] == 1 {
					w.busy <- struct{}{}
				}
			}
		})
	}
	return w
}

// awaitBusy returns when many writers have written, and are writing again.
func (w *writers) awaitBusy() {
	for range busyWriters {
		<-w.busy
	}
}

// checkWriters waits until all writes have ended, and compares what the writers were told with the
// disk as it was after the pre-emption. It returns how many writes were acknowledged.
func (r *run) checkWriters(w *writers, round int, disk []byte) int {
	r.Helper()
	w.group.Wait()
	total := 0
	for i := range fencedWriters {
		total += w.count[i]
		if !isFenced(w.errs[i]) {
			r.Fatalf("round %d: the writes of writer %d ended with %v, want EBADE or EIO", round, i, w.errs[i])
		}
		on := int64(binary.LittleEndian.Uint64(disk[i*blockBytes:]))
		// A write that was not acknowledged may be on the disk, if it was there before the
		// pre-emption returned. A block that was not written in this round has a lower number.
		if on != w.last[i] && on != w.last[i]+1 && (w.count[i] > 0 || on > w.last[i]) {
			r.Fatalf("round %d: writer %d was told that write %#x is on the disk; the disk has %#x, want that or the next", round,
				i, w.last[i], on)
		}
	}
	return total
}

// stamp fills a block with a number, so that a torn write is seen.
func stamp(block []byte, number int64) {
	for at := 0; at < len(block); at += 8 {
		binary.LittleEndian.PutUint64(block[at:], uint64(number))
	}
}

// block is memory for direct I/O with a number in it.
func (r *run) block(number int64) []byte {
	r.Helper()
	block, err := alignedMemory(blockBytes)
	r.ok(err)
	r.Cleanup(func() { _ = unix.Munmap(block) })
	stamp(block, number)
	return block
}

func (r *run) readRegion(device string) []byte {
	r.Helper()
	region, err := readDirect(device, 0, fencedWriters*blockBytes)
	r.ok(err)
	return region
}

func alignedMemory(length int) ([]byte, error) {
	return unix.Mmap(-1, 0, length, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
}

func writeDirect(device string, offset int64, block []byte) error {
	file, err := os.OpenFile(device, os.O_WRONLY|unix.O_DIRECT, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = file.WriteAt(block, offset)
	return err
}

func readDirect(device string, offset int64, length int) ([]byte, error) {
	file, err := os.OpenFile(device, os.O_RDONLY|unix.O_DIRECT, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	memory, err := alignedMemory(length)
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Munmap(memory) }()
	if _, err := file.ReadAt(memory, offset); err != nil {
		return nil, err
	}
	return bytes.Clone(memory), nil
}
