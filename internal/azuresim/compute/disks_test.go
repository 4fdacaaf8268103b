package compute

import (
	"errors"
	"testing"

	"github.com/azuredisk-csi/azuredisk/internal/azuresim/armerror"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/store"
)

// TestAFailedDiskThatAVMAsksForIsNotReplaced: the list of a VM still has the disk that the VM's own
// update could not create, until that update ends.
func TestAFailedDiskThatAVMAsksForIsNotReplaced(t *testing.T) {
	w := newWorld(t, 1)
	w.start()
	defer w.stop()
	location, sku, gb := "westus", "Premium_LRS", int64(4)
	w.putGroup()
	id := testID(KindDisk, "d")
	if err := w.db.Update(func(tx *store.Tx) error {
		return diskTable.Put(tx, id.Key(), &Disk{
			ID:           id,
			UID:          "first",
			Location:     location,
			Provisioning: Failed,
			Claims:       []Claim{{VM: testID(KindVM, "v").String()}},
		})
	}); err != nil {
		t.Fatal(err)
	}
	_, err := w.cloud.PutDisk(id, DiskInput{
		Location: &location,
		SKU:      &sku,
		SizeGB:   &gb,
		Source:   &SourceInput{Option: "Empty"},
	})
	if refusal, ok := errors.AsType[*armerror.Error](err); !ok || refusal.Code != "OperationNotAllowed" {
		t.Errorf("got %v, want OperationNotAllowed", err)
	}
}
