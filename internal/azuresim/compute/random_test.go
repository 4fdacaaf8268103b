package compute

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"k8s.io/utils/clock"

	"github.com/azuredisk-csi/azuredisk/internal/azuresim/armerror"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/dataplane"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/latency"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/operations"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/store"
)

const testSubscription = "s"

func testID(kind, name string) ID {
	return ID{Subscription: testSubscription, Group: "g", Kind: kind, Name: name}
}

var errFlaky = errors.New("the data plane is flaky")

// flaky is a data plane that fails now and then.
type flaky struct {
	*dataplane.None
	mu     sync.Mutex
	random *rand.Rand
	calm   bool
}

func (f *flaky) fail() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.calm && f.random.Intn(10) == 0 {
		return errFlaky
	}
	return nil
}

func (f *flaky) Attach(ctx context.Context, vm string, lun int, uid string) error {
	return errors.Join(f.None.Attach(ctx, vm, lun, uid), f.fail())
}

func (f *flaky) Detach(ctx context.Context, vm string, lun int, uid string) error {
	return errors.Join(f.fail(), f.None.Detach(ctx, vm, lun, uid))
}

// world is a cloud on a store that outlives it.
type world struct {
	t     *testing.T
	db    *store.Store
	plane *flaky
	fault func() *armerror.Error // for operations
	cloud *Cloud
	stop  func()
}

func (w *world) start() {
	w.t.Helper()
	profile := latency.Fast()
	w.cloud = New(Options{
		Store:         w.db,
		Clock:         clock.RealClock{},
		Log:           slog.New(slog.DiscardHandler),
		Plane:         w.plane,
		Latency:       latency.NewSampler(profile, rand.New(rand.NewSource(1))),
		Subscriptions: []string{testSubscription},
		Intercept:     func(*operations.Operation) (time.Duration, *armerror.Error) { return 0, w.fault() },
	})
	ctx, cancel := context.WithCancel(context.Background())
	done, ready := make(chan struct{}), make(chan struct{})
	w.plane.mu.Lock()
	w.plane.calm = true // until the start is over
	w.plane.mu.Unlock()
	go func() {
		defer close(done)
		if err := w.cloud.Run(ctx, func() { close(ready) }); err != nil {
			w.t.Error(err)
		}
	}()
	<-ready
	w.plane.mu.Lock()
	w.plane.calm = false
	w.plane.mu.Unlock()
	w.stop = func() {
		cancel()
		<-done
	}
}

// newWorld returns a world without faults that has not started.
func newWorld(t *testing.T, seed int64) *world {
	t.Helper()
	db, err := store.Open(filepath.Join(t.TempDir(), "db"), time.Second, append(Tables, operations.Tables...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return &world{
		t:     t,
		db:    db,
		plane: &flaky{None: &dataplane.None{}, random: rand.New(rand.NewSource(seed))},
		fault: func() *armerror.Error { return nil },
	}
}

// putGroup makes the resource group of testID.
func (w *world) putGroup() {
	w.t.Helper()
	if _, err := w.cloud.PutGroup(Group{Subscription: testSubscription, Name: "g", Location: "westus"}); err != nil {
		w.t.Fatal(err)
	}
}

// step does one random thing; that it is refused is fine, that it breaks something is not.
func (w *world) step(r *rand.Rand) error {
	disk := func() ID { return testID(KindDisk, fmt.Sprintf("d%d", r.Intn(8))) }
	vm := testID(KindVM, fmt.Sprintf("v%d", r.Intn(3)))
	location, sku, size, shares, gb := "westus", "Premium_LRS", "Standard_D2s_v5", 1+r.Intn(3), int64(4<<r.Intn(3))
	switch r.Intn(12) {
	case 0, 1:
		_, err := w.cloud.PutDisk(disk(), DiskInput{
			Location:  &location,
			SKU:       &sku,
			SizeGB:    &gb,
			MaxShares: &shares,
			Source:    &SourceInput{Option: "Empty"},
		})
		return err
	case 2:
		_, err := w.cloud.DeleteDisk(disk())
		return err
	case 3:
		_, err := w.cloud.PutVM(vm, VMInput{Location: &location, Size: &size})
		return err
	case 4:
		if r.Intn(4) > 0 {
			return nil
		}
		_, err := w.cloud.DeleteVM(vm)
		return err
	case 5, 6, 7:
		_, err := w.cloud.AttachDetach(vm, []AttachInput{{DiskID: disk().String()}}, nil)
		return err
	case 8:
		_, err := w.cloud.AttachDetach(vm, nil, []DetachInput{{DiskID: disk().String(), Force: r.Intn(3) == 0}})
		return err
	case 9:
		lun := r.Intn(3)
		list := []DataDiskInput{{CreateOption: "Attach", AttachInput: AttachInput{DiskID: disk().String(), LUN: &lun}}}
		if r.Intn(3) == 0 {
			list = []DataDiskInput{{CreateOption: "Empty", Name: disk().Name, SizeGB: &gb, AttachInput: AttachInput{LUN: &lun}}}
		}
		_, err := w.cloud.PatchVM(vm, VMInput{Disks: list[:r.Intn(2)], DisksGiven: true})
		return err
	case 10:
		_, err := w.cloud.SetPower(vm, []string{PowerOpStart, PowerOpOff, PowerOpDeallocate, PowerOpRestart}[r.Intn(4)])
		return err
	default:
		if r.Intn(2) == 0 {
			return w.cloud.CutPower(context.Background(), vm.Name, r.Intn(2) == 0)
		}
		return w.cloud.RestorePower(context.Background(), vm.Name)
	}
}

func TestNothingBreaksTheModel(t *testing.T) {
	const rounds, workers, steps = 6, 4, 60
	seed := time.Now().UnixNano()
	t.Logf("seed %d", seed)
	w := newWorld(t, seed)
	var mu sync.Mutex
	faults := rand.New(rand.NewSource(seed + 1))
	w.fault = func() *armerror.Error {
		mu.Lock()
		defer mu.Unlock()
		if faults.Intn(15) == 0 {
			return armerror.New(500, "InternalExecutionError", "A fault.")
		}
		return nil
	}
	w.start()
	w.putGroup()
	for round := range rounds {
		var running sync.WaitGroup
		for worker := range workers {
			r := rand.New(rand.NewSource(seed + int64(100*round+worker)))
			running.Go(func() { w.work(r, steps) })
		}
		running.Wait()
		w.stop() // operations are in flight; they must continue
		w.start()
	}
	w.awaitQuiet()
	w.stop()
}

func (w *world) work(r *rand.Rand, steps int) {
	for range steps {
		var refusal *armerror.Error
		if err := w.step(r); err != nil && !errors.As(err, &refusal) && !errors.Is(err, errFlaky) {
			w.t.Errorf("a step failed: %v", err)
		}
		if err := w.cloud.Check(); err != nil {
			w.t.Errorf("the model is broken: %v", err)
			return
		}
	}
}

// awaitQuiet waits until nothing is under way; then model and data plane must agree.
func (w *world) awaitQuiet() {
	w.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; {
		if err := w.cloud.Check(); err != nil {
			w.t.Error(err)
		}
		quiet, err := w.cloud.CheckPlane(w.t.Context())
		if err != nil {
			w.t.Error(err)
		}
		if quiet {
			return
		}
		if time.Now().After(deadline) {
			w.t.Fatal("operations do not end")
		}
		<-time.After(5 * time.Millisecond)
	}
}
