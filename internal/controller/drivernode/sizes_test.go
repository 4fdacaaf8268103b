package drivernode_test

import (
	"testing"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
)

func TestAResizedVMGetsTheRoomOfItsNewSize(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.attach(disk("theirs"))
	w.reconcile()
	d := &apiv1.AzDriverNode{}
	w.must(w.api.Get(t.Context(), w.request().NamespacedName, d))
	d.Spec.VMSize = "Standard_D8s_v5"
	w.must(w.api.Update(t.Context(), d))
	if got, _ := w.reconcile(); got != (apiv1.NodeCapacity{
		MaxDataDisks: 16,
		VMSize:       "Standard_D8s_v5",
		ForeignDisks: 1,

		UncachedIOPS:           6400,
		UncachedBytesPerSecond: 145_000_000,
	}) {
		t.Errorf("got %+v", got)
	}
	d.Spec.VMSize = "Standard_Unheard_of"
	w.must(w.api.Get(t.Context(), w.request().NamespacedName, d))
	d.Spec.VMSize = "Standard_Unheard_of"
	w.must(w.api.Update(t.Context(), d))
	// The node takes its fallback less what is foreign; it need not wait for more.
	want := apiv1.NodeCapacity{VMSize: "Standard_Unheard_of", ForeignDisks: 1}
	if got, _ := w.reconcile(); got != want {
		t.Errorf("of a size that Azure does not list: %+v", got)
	}
	before := w.revision()
	if got, _ := w.reconcile(); got != want || w.revision() != before {
		t.Errorf("once more: %+v, and wrote %t", got, w.revision() != before)
	}
}

func TestWhichDisksTheVMCannotHave(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		size, zone     string
		premium, ultra bool
	}{
		"a size for all disks":                            {size, "2", false, false},
		"a size without Premium and Ultra disks":          {"Standard_A2_v2", "2", true, true},
		"Ultra disks only in zones":                       {size, "", false, true},
		"of a size that Azure does not list, nothing":     {"Standard_Unheard_of", "2", false, false},
		"no Ultra disks in a zone that does not have any": {size, "9", false, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			d := &apiv1.AzDriverNode{}
			w.must(w.api.Get(t.Context(), w.request().NamespacedName, d))
			d.Spec.VMSize, d.Spec.Zone = test.size, test.zone
			w.must(w.api.Update(t.Context(), d))
			if got, _ := w.reconcile(); got.LacksPremium != test.premium || got.LacksUltra != test.ultra ||
				got.VMSize != test.size {
				t.Errorf("got %+v", got)
			}
		})
	}
}
