package compute

import (
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/azuredisk-csi/azuredisk/azuresim/armerror"
	"github.com/azuredisk-csi/azuredisk/azuresim/dataplane"
	"github.com/azuredisk-csi/azuredisk/azuresim/operations"
	"github.com/azuredisk-csi/azuredisk/azuresim/store"
)

// TestAFailedDiskThatAVMAsksForIsNotReplaced: the list of a VM still has the disk that the VM's own
// update could not create, until that update ends.
func TestAFailedDiskThatAVMAsksForIsNotReplaced(t *testing.T) {
	db, err := store.Open(filepath.Join(t.TempDir(), "db"), time.Second, append(Tables, operations.Tables...)...)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	w := &world{
		t:     t,
		db:    db,
		plane: &flaky{None: &dataplane.None{}, calm: true},
		fault: func() *armerror.Error { return nil },
	}
	w.start()
	defer w.stop()
	location, sku, gb := "westus", "Premium_LRS", int64(4)
	if _, err := w.cloud.PutGroup(Group{
		Subscription: testSubscription,
		Name:         "g",
		Location:     location,
	}); err != nil {
		t.Fatal(err)
	}
	id := testID(KindDisk, "d")
	if err := db.Update(func(tx *store.Tx) error {
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
	_, err = w.cloud.PutDisk(id, DiskInput{
		Location: &location,
		SKU:      &sku,
		SizeGB:   &gb,
		Source:   &SourceInput{Option: "Empty"},
	})
	if refusal, ok := errors.AsType[*armerror.Error](err); !ok || refusal.Code != "OperationNotAllowed" {
		t.Errorf("got %v, want OperationNotAllowed", err)
	}
}
