package compute

import (
	"context"
	"slices"
	"testing"

	"github.com/azuredisk-csi/azuredisk/internal/azuresim/dataplane"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/operations"
)

// forgetful records at which disks a VM has lost its reservations.
type forgetful struct {
	*dataplane.None
	lost []string
}

func (f *forgetful) LoseReservations(_ context.Context, vm, uid string) error {
	f.lost = append(f.lost, vm+" "+uid)
	return nil
}

func TestAVMLosesItsReservationsAtADetachAndADeallocation(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		kind string
		want []string
	}{
		"a detach":       {opVMDisks, []string{"v1 forgets-and-goes"}},
		"a deallocation": {opVMDeallocate, []string{"v1 forgets-and-goes", "v1 forgets"}},
		"a power-off":    {opVMPowerOff, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			plane := &forgetful{None: &dataplane.None{}}
			c := &Cloud{Options: Options{
				Plane:             plane,
				LosesReservations: func(uid string) bool { return uid != "keeps-and-goes" },
			}}
			vm := &VM{
				PlaneKey: "v1",
				Power:    PowerDeallocated,
				Disks: []DataDisk{
					{
						UID:       "forgets-and-goes",
						Operation: "op",
						State:     DiskDetaching,
					}, {UID: "keeps-and-goes", Operation: "op", State: DiskDetaching}, {UID: "forgets"},
				},
			}
			if err := c.applyVM(t.Context(), &operations.Operation{ID: "op", Kind: test.kind}, vm); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(plane.lost, test.want) {
				t.Errorf("got lost reservations %v, want %v", plane.lost, test.want)
			}
		})
	}
}
