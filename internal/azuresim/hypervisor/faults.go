package hypervisor

import (
	"context"
	"fmt"
	"sync/atomic"
)

// Faults are misbehaviours of one VM's storage. They are not recorded: a restart of the hypervisor
// lifts them.
type Faults struct {
	// ReadDelayMillis and WriteDelayMillis hold back each read, and each write, flush and discard.
	ReadDelayMillis  int64 `json:"readDelayMillis,omitempty"`
	WriteDelayMillis int64 `json:"writeDelayMillis,omitempty"`
	// HangWrites holds writes, flushes and discards back until the fault is lifted or the
	// attachment is cut; those that were cut never reach the disk.
	HangWrites bool `json:"hangWrites,omitempty"`

	lifted chan struct{} // closed when other faults take the place of these
}

// SetFaults replaces the VM's faults; the zero Faults lift them, and let held-back writes continue.
func (h *Hypervisor) SetFaults(_ context.Context, vm string, faults Faults) error {
	if err := checkVM(vm); err != nil {
		return err
	}
	if faults.ReadDelayMillis < 0 || faults.WriteDelayMillis < 0 {
		return fmt.Errorf("%w: delays must not be negative", ErrInvalid)
	}
	faults.lifted = make(chan struct{})
	if previous := h.faultsOf(vm).Swap(&faults); previous != nil {
		close(previous.lifted)
	}
	return nil
}

// faultsOf is where the VM's faults are, now and later.
func (h *Hypervisor) faultsOf(vm string) *atomic.Pointer[Faults] {
	h.mu.Lock()
	defer h.mu.Unlock()
	faults, ok := h.faults[vm]
	if !ok {
		faults = &atomic.Pointer[Faults]{}
		h.faults[vm] = faults
	}
	return faults
}

func (h *Hypervisor) forgetFaults(vm string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.faults, vm)
}
