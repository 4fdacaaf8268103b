package scale

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/azuredisk-csi/azuredisk/internal/azuresim/auth"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/compute"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/operations"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/store"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/loopback"
)

// simulator is Azure with the VMs and disks of the cluster.
type simulator struct{ url, admin string }

// startAzure writes the VMs and disks into a simulator's store, and starts it with Azure's quotas.
func startAzure(t testing.TB, nodes int) *simulator {
	t.Helper()
	dir := t.TempDir()
	db, err := store.Open(filepath.Join(dir, "azuresim.db"), time.Second,
		slices.Concat(compute.Tables, operations.Tables, auth.Tables)...)
	must(t, err)
	must(t, db.Update(func(tx *store.Tx) error {
		for node := range nodes {
			if err := putVM(tx, node, nodes); err != nil {
				return err
			}
		}
		return nil
	}))
	must(t, db.Close())
	listen, admin := loopback.Address(t), loopback.Address(t)
	p := start(t, 0, 0, "azuresim", "azuresim", "serve", "--listen", listen,
		"--admin-listen", admin, "--state-dir", dir, "--latency",
		"realistic",
		"--subscription", subscription, "--resource-group", resourceGroup, "--location", location)
	s := &simulator{url: "http://" + listen, admin: "http://" + admin}
	p.await(t, "azuresim is ready", pollEvery, time.Minute, func() bool {
		response, err := http.Get(s.admin + "/admin/healthz")
		if err != nil {
			return false
		}
		response.Body.Close()
		return response.StatusCode < 300
	})
	must(t, s.send(http.MethodGet, "/admin/check", nil))
	return s
}

// putVM writes the VM of a node with its disks, and its own disks.
func putVM(tx *store.Tx, node, nodes int) error {
	id := func(node int) compute.ID {
		return compute.ID{
			Subscription: subscription,
			Group:        resourceGroup,
			Kind:         compute.KindVM,
			Name:         nodeName(node),
		}
	}
	vm := &compute.VM{
		ID:           id(node),
		PlaneKey:     nodeName(node),
		Name:         nodeName(node),
		VMID:         uid("vm", node),
		Location:     location,
		Zones:        []string{zone},
		Size:         vmSize,
		Created:      time.Now().UTC(),
		Provisioning: compute.Succeeded,
		Power:        compute.PowerRunning,
		Revision:     1,
	}
	diskID := func(v int) compute.ID {
		return compute.ID{
			Subscription: subscription,
			Group:        resourceGroup,
			Kind:         compute.KindDisk,
			Name:         diskName(v),
		}
	}
	for distance := range replicas + 1 {
		for _, v := range volumesOf((node - distance + nodes) % nodes) {
			vm.Disks = append(vm.Disks, compute.DataDisk{
				LUN:     int(lun(v, distance)),
				Disk:    diskID(v),
				UID:     uid("disk", v),
				SKU:     "Premium_LRS",
				Caching: "None",
				State:   compute.DiskAttached,
			})
		}
	}
	for _, v := range volumesOf(node) {
		d := &compute.Disk{
			ID:       diskID(v),
			UID:      uid("disk", v),
			Location: location,
			Zones:    []string{zone},
			Source:   compute.Source{Option: "Empty"},
			Spec: compute.DiskSpec{
				SKU:       "Premium_LRS",
				SizeGB:    diskGiB,
				MaxShares: replicas + 1,
				IOPS:      240,
				MBps:      50,
			},
			Created:      time.Now().UTC(),
			OwnerChanged: time.Now().UTC(),
			Provisioning: compute.Succeeded,
		}
		for distance := range replicas + 1 {
			d.Claims = append(d.Claims, compute.Claim{
				VM:       id((node + distance) % nodes).String(),
				LUN:      int(lun(v, distance)),
				Attached: true,
			})
		}
		if err := (store.Table[compute.Disk]{Name: "disks"}).Put(tx, d.ID.Key(), d); err != nil {
			return err
		}
	}
	key := vm.ID.Key()
	if err := (store.Table[string]{Name: "planeKeys"}).Put(tx, vm.PlaneKey, &key); err != nil {
		return err
	}
	return (store.Table[compute.VM]{Name: "vms"}).Put(tx, key, vm)
}

func (s *simulator) send(method, path string, into any) error {
	request, err := http.NewRequest(method, s.admin+path, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode >= 300 {
		return fmt.Errorf("%s %s: %s", method, path, response.Status)
	}
	if into == nil {
		return nil
	}
	return json.NewDecoder(response.Body).Decode(into)
}
