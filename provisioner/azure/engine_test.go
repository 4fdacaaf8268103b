package azure

import (
	"errors"
	"testing"

	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// A refusal that came while the caller was being woken used to look like an acceptance.
func TestNoOneWhoIsWokenByARefusalTakesItForAnAcceptance(t *testing.T) {
	e := newEngine(&Cloud{})
	full := provisioner.Errorf(provisioner.InsufficientCapacity, "no slot is free")
	for range 20_000 {
		r := newRequest(verbAttach, provisioner.AttachRequest{VMID: "vm", DiskID: "disk"})
		seen := make(chan error)
		go func() {
			<-r.answered
			seen <- r.refusal()
		}()
		e.finish(r, full)
		if err := <-seen; !errors.Is(err, provisioner.InsufficientCapacity) {
			t.Fatalf("the caller saw %v", err)
		}
	}
}
