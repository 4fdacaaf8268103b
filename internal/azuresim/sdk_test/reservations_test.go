package sdk_test

import (
	"encoding/binary"
	"fmt"
	"net/http"
	"path/filepath"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7"

	"github.com/azuredisk-csi/azuredisk/internal/azuresim/hypervisor"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/reservations"
)

// register registers a key for a VM, and returns what the disk answers.
func (r *rig) register(vm string, lun int, key uint64) reservations.Status {
	r.t.Helper()
	device, err := filepath.EvalSymlinks(r.device(vm, lun))
	if err != nil {
		r.t.Fatal(err)
	}
	list := make([]byte, 24)
	binary.BigEndian.PutUint64(list[8:], key)
	client := hypervisor.NewClient(filepath.Join(r.dir, "hypervisor.sock"))
	answer, err := client.Execute(r.t.Context(), device,
		[]byte{reservations.OpOut, reservations.RegisterAndIgnore, 0, 0, 0, 0, 0, 0, 24, 0}, list)
	if err != nil {
		r.t.Fatal(err)
	}
	return answer.Status
}

func TestSharedDisksHaveReservationsAndTheAdminAPIShowsThem(t *testing.T) {
	r := startRig(t)
	r.disk("single")
	r.disk("shared", func(d *armcompute.Disk) { d.Properties.MaxShares = to.Ptr[int32](2) })
	r.vm("n1", "Standard_D4s_v5")
	r.vm("n2", "Standard_D4s_v5")
	r.attach("n1", "single")
	r.attach("n1", "shared")
	r.attach("n2", "shared")
	if got := r.register("n1", 0, 1); got != reservations.CheckCondition {
		t.Errorf("register with a disk that is not shared: got status %#x, want %#x", got, reservations.CheckCondition)
	}
	for vm, lun := range map[string]int{"n1": 1, "n2": 0} {
		if got := r.register(vm, lun, 0xAB); got != reservations.Good {
			t.Errorf("register %s with a shared disk: got status %#x, want %#x", vm, got, reservations.Good)
		}
	}
	r.front.kill()
	r.front.start()
	r.detach("n2", "shared")
	var listed []struct {
		Disk          string
		Type          string
		Registrations []struct{ VM, Key string }
	}
	admin := &http.Client{Transport: unixTransport(filepath.Join(r.dir, "admin.sock"))}
	answer, err := admin.Get("http://admin/admin/reservations")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	decodeBody(t, answer, &listed)
	if len(listed) != 1 || listed[0].Disk != "shared" || listed[0].Type != "" || len(listed[0].Registrations) != 2 {
		t.Fatalf("the admin API lists %+v, want two registrations with the disk shared", listed)
	}
	for _, registration := range listed[0].Registrations {
		if got, want := registration.Key, fmt.Sprintf("0x%016x", 0xAB); got != want {
			t.Errorf("the key of %s is %s, want %s", registration.VM, got, want)
		}
	}
}
