//go:build vm

package vm

import (
	"testing"
	"time"

	"github.com/azuredisk-csi/azuredisk/provisioner/conformance/reservations"
	"github.com/azuredisk-csi/azuredisk/provisioner/host/hosttest"
	"github.com/azuredisk-csi/azuredisk/provisioner/host/reservation"
	"github.com/azuredisk-csi/azuredisk/test/vm/kernel"
)

func TestReservationsOfLinuxsTarget(t *testing.T) {
	const size = 16 * hosttest.MiB
	plain := plug(t, dataHost, 41, other, size).device(t)
	nodes := kernel.Login(t, "reservations", 3)
	lun := 0
	var last *kernel.SharedDisk
	hosts := func(t *testing.T) (hosts []reservations.Host) {
		for _, device := range last.Devices(t) {
			hosts = append(hosts, reservations.Host{Reservations: reservation.Reservations{}, Device: device})
		}
		return hosts
	}
	reservations.Run(t, reservations.Harness{
		NewDisk: func(t *testing.T) []reservations.Host {
			lun++
			last = kernel.NewSharedDisk(t, nodes, size, lun)
			t.Cleanup(func() { last.Destroy(t) })
			return hosts(t)
		},
		Restart: func(t *testing.T) []reservations.Host {
			last.LosePower(t)
			return hosts(t)
		},
		Detach: func(t *testing.T) { last.Detach(t, 0) },
		Unsupported: func(*testing.T) reservations.Host {
			return reservations.Host{Reservations: reservation.Reservations{}, Device: plain}
		},
		Limit: 7 * time.Minute,
	})
}
