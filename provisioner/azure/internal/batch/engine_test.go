package batch

import (
	"errors"
	"testing"

	"github.com/go-logr/logr"

	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/azure/internal/operation"
	"github.com/azuredisk-csi/azuredisk/provisioner/azure/internal/pacing"
)

// A caller that a refusal woke used to take it for an acceptance, if the refusal came while the
// caller was being woken.
func TestACallerWokenByARefusalDoesNotTakeItForAnAcceptance(t *testing.T) {
	e := newTestEngine(t, nil)
	full := provisioner.Errorf(provisioner.InsufficientCapacity, "no slot is free")
	for range 20_000 {
		r := newRequest(operation.Attach, provisioner.AttachRequest{VMID: "vm", DiskID: "disk"})
		seen := make(chan error)
		go func() {
			<-r.answered
			seen <- e.refusal(r)
		}()
		e.finish(full, r)
		if err := <-seen; !errors.Is(err, provisioner.InsufficientCapacity) {
			t.Fatalf("the caller got %v, want InsufficientCapacity", err)
		}
	}
}

// The operation failed before the caller woke.
func TestAnAcceptedRequestThatHasFailedWasAccepted(t *testing.T) {
	e, r := newTestEngine(t, nil), newRequest(operation.Attach, provisioner.AttachRequest{VMID: "vm", DiskID: "disk"})
	e.accept(r, "token")
	e.finish(provisioner.Errorf(provisioner.Conflict, "it failed"), r)
	if err := e.refusal(r); err != nil {
		t.Errorf("got %v, want no refusal", err)
	}
}

func TestARequestEndsOnce(t *testing.T) {
	r, first := newRequest(operation.Attach, provisioner.AttachRequest{}), errors.New("the first end")
	r.finish(first)
	r.finish(nil)
	r.accept("token")
	if err := r.Wait(t.Context()); !errors.Is(err, first) || r.Token() != "" {
		t.Errorf("got error %v and token %q, want the first end", err, r.Token())
	}
}

func newTestEngine(t *testing.T, p Platform) *Engine {
	t.Helper()
	return New(t.Context(), Options{
		Platform: p,
		Clock:    pacing.NewClock(nil, nil),
		Logger:   logr.Discard(),
	})
}
