package hypervisor

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
	"k8s.io/utils/clock"
)

func newTestFile(t *testing.T) *cutFile {
	t.Helper()
	backing, err := os.Create(filepath.Join(t.TempDir(), "backing"))
	if err != nil {
		t.Fatal(err)
	}
	return &cutFile{
		faults:  &atomic.Pointer[Faults]{},
		clock:   clock.RealClock{},
		disk:    &disk{},
		bar:     make(chan struct{}),
		backing: backing,
	}
}

func TestCutReturnsOnlyAfterTheOperationsInFlight(t *testing.T) {
	file := newTestFile(t)
	inside, proceed, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		err := file.access(true, func(backing *os.File) error {
			close(inside)
			<-proceed
			_, err := backing.WriteString("in flight")
			return err
		})
		if err != nil {
			t.Errorf("operation in flight: %v", err)
		}
	}()
	<-inside
	file.raiseBar()
	if err := file.access(true, func(*os.File) error { return nil }); !errors.Is(err, unix.EIO) {
		t.Errorf("operation that starts behind the bar: %v, want EIO", err)
	}
	cut := make(chan struct{})
	go func() {
		defer close(cut)
		file.cut()
	}()
	for file.mu.TryRLock() { // until the cut waits for the lock that the operation holds
		file.mu.RUnlock()
		select {
		case <-cut:
			t.Fatal("the cut returned while an operation was in flight")
		default:
			runtime.Gosched()
		}
	}
	close(proceed)
	<-cut
	<-ended
}

func TestCutDoesNotWaitForACopyOfTheDisk(t *testing.T) {
	file := newTestFile(t)
	file.disk.freeze.Lock() // a copy runs
	var group sync.WaitGroup
	group.Go(func() {
		err := file.access(true, func(*os.File) error { return nil })
		if !errors.Is(err, unix.EIO) {
			t.Errorf("write that waited for the copy while the file was cut: %v, want EIO", err)
		}
	})
	file.cut()
	file.disk.freeze.Unlock()
	group.Wait()
}
