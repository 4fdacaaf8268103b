// Package chaos kills the driver's processes at random while volumes are created,
// used, moved, changed and deleted, and checks that every volume ends in its desired
// state, that what was written is there after each move, and that nothing is left over.
package chaos

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/azuredisk-csi/azuredisk/test/stack"
)

var (
	seed       = flag.Uint64("seed", 0, "seed of the run; 0 takes one from the clock. A failing run prints its seed")
	operations = flag.Int64("operations", 200, "creates, moves, changes and deletes to do at least")
)

const (
	gib         = 1 << 30
	actors      = 6
	movesAtMost = 4
	// changesAtMost are requested of a disk while it moves.
	changesAtMost = 6
)

// storm is one run: actors that use volumes, and a killer.
type storm struct {
	stack *stack.Stack
	done  atomic.Int64
	// step carries a signal for each finished operation to the killer.
	step chan struct{}
}

func TestEveryVolumeSurvivesRandomKillsOfEveryProcess(t *testing.T) {
	if *seed == 0 {
		*seed = uint64(time.Now().UnixNano())
	}
	t.Logf("seed %d (repeat with: go test ./test/chaos -seed %d)", *seed, *seed)
	s := &storm{stack: stack.Start(t, stack.Options{Nodes: 3, Controllers: 2, Extender: true}), step: make(chan struct{}, 1024)}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()

	killerCtx, stopKiller := context.WithCancel(ctx)
	var killer sync.WaitGroup
	killer.Go(func() {
		if err := s.kill(killerCtx, rand.New(rand.NewPCG(*seed, 0))); err != nil {
			t.Errorf("seed %d: start again after a kill: %v", *seed, err)
			cancel()
		}
	})

	group, groupCtx := errgroup.WithContext(ctx)
	for actor := range actors {
		group.Go(func() error {
			return s.act(groupCtx, actor, rand.New(rand.NewPCG(*seed, uint64(actor)+1)))
		})
	}
	err := group.Wait()
	stopKiller()
	killer.Wait()
	if err != nil {
		t.Fatalf("seed %d: %v", *seed, err)
	}
	s.stack.EnsureRunning(t)
	s.stack.AssertNothingLeft(t)
	kills := s.stack.Restarts()
	t.Logf("METRIC chaos operations=%d kills=%d seed=%d", s.done.Load(), kills, *seed)
	if kills == 0 {
		t.Error("no process was killed: the test showed nothing")
	}
}

// act creates a volume, moves it a few times, deletes it, and starts again until enough was done.
func (s *storm) act(ctx context.Context, actor int, random *rand.Rand) error {
	for round := 0; s.done.Load() < *operations; round++ {
		name := fmt.Sprintf("pvc-chaos-%d-%d", actor, round)
		if err := s.life(ctx, name, random); err != nil {
			return fmt.Errorf("volume %s: %w", name, err)
		}
	}
	return nil
}

func (s *storm) life(ctx context.Context, name string, random *rand.Rand) error {
	volume, err := s.stack.CreateVolume(ctx, name, gib, parameters(random))
	if err != nil {
		return err
	}
	s.finished()
	moved, changed := make(chan struct{}), make(chan error, 1)
	changing := rand.New(rand.NewPCG(random.Uint64(), 0))
	go func() { changed <- s.change(ctx, volume.VolumeId, changing, moved) }()
	err = s.move(ctx, name, volume, random)
	close(moved)
	if err := errors.Join(err, <-changed); err != nil {
		return err
	}
	if err := s.settle(ctx, name, volume.VolumeId); err != nil {
		return err
	}
	s.finished()
	if err := s.stack.DeleteVolume(ctx, volume.VolumeId); err != nil {
		return err
	}
	s.finished()
	return nil
}

// move uses a volume on some nodes, one after the other.
func (s *storm) move(ctx context.Context, name string, volume *csi.Volume, random *rand.Rand) error {
	var written []byte
	for move := range 1 + random.IntN(movesAtMost) {
		node := s.stack.Nodes[random.IntN(len(s.stack.Nodes))]
		record := fmt.Appendf(nil, "%s move %d on %s\n", name, move, node.Name)
		if err := s.useOnce(ctx, volume, node, written, record); err != nil {
			return fmt.Errorf("move %d to %s: %w", move, node.Name, err)
		}
		written = append(written, record...)
		s.finished()
	}
	return nil
}

// change requests a few changes of a disk, one after the other, while the volume moves. Azure may
// refuse them, because the volume is in use.
func (s *storm) change(ctx context.Context, id string, random *rand.Rand, moved <-chan struct{}) error {
	for n := range changesAtMost {
		select {
		case <-moved:
			return nil
		default:
		}
		var err error
		switch random.IntN(4) {
		case 0:
			err = s.stack.Expand(ctx, id, int64(2+n)*gib)
		case 1:
			err = s.stack.Modify(ctx, id, map[string]string{"skuName": "StandardSSD_LRS"})
		case 2:
			err = s.stack.Modify(ctx, id, map[string]string{"skuName": "Premium_LRS"})
		default:
			err = s.stack.Modify(ctx, id, map[string]string{"tags": fmt.Sprintf("turn=%d", n)})
		}
		if err != nil && status.Code(err) != codes.FailedPrecondition {
			return fmt.Errorf("change %d: %w", n, err)
		}
		s.finished()
	}
	return nil
}

// settle changes a disk that no node uses, and takes and deletes a snapshot of it. All of it must
// succeed now.
func (s *storm) settle(ctx context.Context, name, id string) error {
	const size = 100 * gib
	if err := errors.Join(
		s.stack.Modify(ctx, id, map[string]string{"skuName": "StandardSSD_LRS", "tags": "last=1"}),
		s.stack.Expand(ctx, id, size),
		s.stack.Snapshot(ctx, "snapshot-"+name, id),
	); err != nil {
		return err
	}
	disk, err := s.stack.Disk(ctx, id)
	if err == nil && (disk.SKU.Name != "StandardSSD_LRS" || disk.Tags["last"] != "1" || disk.Properties.SizeGB != size/gib) {
		err = fmt.Errorf("got disk %+v, want 100 GiB of StandardSSD_LRS with the tag last=1", disk)
	}
	return err
}

// useOnce brings the volume to a node, checks what was written before, appends a record and
// releases the volume.
func (s *storm) useOnce(ctx context.Context, volume *csi.Volume, node *stack.Node, before, record []byte) error {
	dir, err := s.stack.Use(ctx, volume, node)
	if err != nil {
		return err
	}
	path := filepath.Join(dir, "records")
	found, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("read back: %w", err)
	}
	if !bytes.Equal(found, before) {
		return fmt.Errorf("acknowledged records are not there: found %q, want %q", found, before)
	}
	if err := appendDurably(path, record); err != nil {
		return err
	}
	return s.stack.Release(ctx, volume, node)
}

func appendDurably(path string, record []byte) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("open for append: %w", err)
	}
	_, err = file.Write(record)
	return errors.Join(err, file.Sync(), file.Close())
}

func parameters(random *rand.Rand) map[string]string {
	choices := []map[string]string{
		{"skuName": "Premium_LRS"},
		{"skuName": "Premium_LRS", "maxShares": "2", "maxMountReplicaCount": "1"},
		{"skuName": "Premium_LRS", "maxShares": "3", "maxMountReplicaCount": "2", "fsType": "xfs"},
	}
	return choices[random.IntN(len(choices))]
}

func (s *storm) finished() {
	s.done.Add(1)
	select {
	case s.step <- struct{}{}:
	default: // the killer is busy; it needs no exact count
	}
}

// kill kills a process after every few operations and starts it again.
func (s *storm) kill(ctx context.Context, random *rand.Rand) error {
	processes := s.stack.Killable()
	for {
		for range 1 + random.IntN(6) {
			select {
			case <-ctx.Done():
				return nil
			case <-s.step:
			}
		}
		victim := processes[random.IntN(len(processes))]
		victim.Kill()
		if err := victim.Start(ctx); err != nil && ctx.Err() == nil {
			return err
		}
	}
}
