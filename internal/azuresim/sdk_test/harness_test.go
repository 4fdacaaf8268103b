// Package sdk_test holds azuresim to what a stock Azure SDK client expects of Azure: every test
// talks to a whole simulator over HTTP, and the simulator must be consistent and idle after each.
package sdk_test

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7"

	"github.com/azuredisk-csi/azuredisk/azuresim/simtest"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/server"
)

const (
	subscription = simtest.Subscription
	group        = "default"
)

// simulator is a running azuresim and stock clients of it.
type simulator struct {
	t          *testing.T
	url, admin string
	factory    *armcompute.ClientFactory
	disks      *armcompute.DisksClient
	snapshots  *armcompute.SnapshotsClient
	vms        *armcompute.VirtualMachinesClient
	sets       *armcompute.VirtualMachineScaleSetsClient
	instances  *armcompute.VirtualMachineScaleSetVMsClient
}

// start runs a simulator in this process until the test ends.
func start(t *testing.T, change ...func(*server.Options)) *simulator {
	t.Helper()
	running := simtest.Start(t, change...)
	s := &simulator{
		t:     t,
		url:   running.URL,
		admin: running.AdminURL,
	}
	s.connect(nil)
	t.Cleanup(s.settle)
	return s
}

func clientOptions(url string, transport policy.Transporter) *arm.ClientOptions {
	o := simtest.Simulator{URL: url}.ClientOptions()
	o.Transport = transport
	return o
}

// connect makes the clients; a transport of nil is the SDK's.
func (s *simulator) connect(transport policy.Transporter) {
	f, err := armcompute.NewClientFactory(subscription, simtest.Simulator{}.Credential(), clientOptions(s.url, transport))
	if err != nil {
		s.t.Fatal(err)
	}
	s.factory, s.disks, s.snapshots, s.vms = f, f.NewDisksClient(), f.NewSnapshotsClient(), f.NewVirtualMachinesClient()
	s.sets, s.instances = f.NewVirtualMachineScaleSetsClient(), f.NewVirtualMachineScaleSetVMsClient()
}

// settle waits until nothing is under way and checks that the model is consistent.
func (s *simulator) settle() {
	s.t.Helper()
	s.eventually("the simulator is idle", func() bool {
		var out struct {
			Idle  bool   `json:"idle"`
			Error string `json:"error"`
		}
		s.adminCall("GET", "/admin/check", nil, &out)
		if out.Error != "" {
			s.t.Fatalf("the simulator is not consistent: %s", out.Error)
		}
		return out.Idle
	})
}

// eventually waits for a condition.
func (s *simulator) eventually(what string, condition func() bool) {
	s.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !condition(); {
		if time.Now().After(deadline) {
			s.t.Fatalf("waited in vain until %s", what)
		}
		<-time.After(2 * time.Millisecond)
	}
}

func (s *simulator) adminCall(method, path string, in, out any) int {
	s.t.Helper()
	return simtest.Simulator{AdminURL: s.admin}.Admin(s.t, method, path, in, out)
}

func decodeBody(t *testing.T, resp *http.Response, out any) {
	t.Helper()
	if err := json.NewDecoder(resp.Body).Decode(out); err != nil {
		t.Fatalf("%s: %v", resp.Request.URL, err)
	}
}

// unixTransport reaches a server on a unix socket, without regard to the URL's host. It keeps no
// connection, so that a restart of the server goes unnoticed.
func unixTransport(socket string) *http.Transport {
	return &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}
}

func (s *simulator) fault(rule map[string]any) {
	s.t.Helper()
	if status := s.adminCall("POST", "/admin/faults", rule, nil); status != 200 {
		s.t.Fatalf("fault refused: %d, want %d", status, 200)
	}
}

// finish waits for an operation.
func finish[T any](t *testing.T, p *runtime.Poller[T], err error) T {
	t.Helper()
	if err != nil {
		t.Fatalf("call refused: %v", err)
	}
	out, err := p.PollUntilDone(t.Context(), &runtime.PollUntilDoneOptions{Frequency: time.Millisecond})
	if err != nil {
		t.Fatalf("operation failed: %v", err)
	}
	return out
}

// failure waits for the error that a call or its operation ends with.
func failure[T any](t *testing.T, p *runtime.Poller[T], err error) *azcore.ResponseError {
	t.Helper()
	if err == nil {
		_, err = p.PollUntilDone(t.Context(), &runtime.PollUntilDoneOptions{Frequency: time.Millisecond})
	}
	return responseError(t, err)
}

func responseError(t *testing.T, err error) *azcore.ResponseError {
	t.Helper()
	var re *azcore.ResponseError
	if !errors.As(err, &re) {
		t.Fatalf("want a response error, got %v", err)
	}
	return re
}

func expectCode(t *testing.T, re *azcore.ResponseError, status int, code string) {
	t.Helper()
	if re.StatusCode != status || re.ErrorCode != code {
		t.Errorf("got %d %s, want %d %s: %v", re.StatusCode, re.ErrorCode, status, code, re)
	}
}

func diskParams(change ...func(*armcompute.Disk)) armcompute.Disk {
	d := armcompute.Disk{
		Location: to.Ptr("eastus"),
		SKU:      &armcompute.DiskSKU{Name: to.Ptr(armcompute.DiskStorageAccountTypesPremiumLRS)},
		Properties: &armcompute.DiskProperties{
			CreationData: &armcompute.CreationData{CreateOption: to.Ptr(armcompute.DiskCreateOptionEmpty)},
			DiskSizeGB:   to.Ptr[int32](16),
		},
	}
	for _, c := range change {
		c(&d)
	}
	return d
}

func zone(z string) func(*armcompute.Disk) {
	return func(d *armcompute.Disk) { d.Zones = []*string{&z} }
}

func shares(n int32) func(*armcompute.Disk) {
	return func(d *armcompute.Disk) { d.Properties.MaxShares = &n }
}

func sku(name armcompute.DiskStorageAccountTypes) func(*armcompute.Disk) {
	return func(d *armcompute.Disk) { d.SKU.Name = &name }
}

func sizeGB(n int32) func(*armcompute.Disk) {
	return func(d *armcompute.Disk) { d.Properties.DiskSizeGB = &n }
}

func (s *simulator) disk(name string, change ...func(*armcompute.Disk)) armcompute.Disk {
	s.t.Helper()
	p, err := s.disks.BeginCreateOrUpdate(s.t.Context(), group, name, diskParams(change...), nil)
	return finish(s.t, p, err).Disk
}

func (s *simulator) getDisk(name string) armcompute.Disk {
	s.t.Helper()
	d, err := s.disks.Get(s.t.Context(), group, name, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	return d.Disk
}

func vmParams(size string, change ...func(*armcompute.VirtualMachine)) armcompute.VirtualMachine {
	vm := armcompute.VirtualMachine{
		Location: to.Ptr("eastus"),
		Properties: &armcompute.VirtualMachineProperties{
			HardwareProfile: &armcompute.HardwareProfile{VMSize: to.Ptr(armcompute.VirtualMachineSizeTypes(size))},
			OSProfile:       &armcompute.OSProfile{ComputerName: to.Ptr("host")},
			StorageProfile: &armcompute.StorageProfile{OSDisk: &armcompute.OSDisk{
				Name:         to.Ptr("os"),
				CreateOption: to.Ptr(armcompute.DiskCreateOptionTypesFromImage),
			}},
		},
	}
	for _, c := range change {
		c(&vm)
	}
	return vm
}

func vmZone(z string) func(*armcompute.VirtualMachine) {
	return func(vm *armcompute.VirtualMachine) { vm.Zones = []*string{&z} }
}

func (s *simulator) vm(name, size string, change ...func(*armcompute.VirtualMachine)) armcompute.VirtualMachine {
	s.t.Helper()
	p, err := s.vms.BeginCreateOrUpdate(s.t.Context(), group, name, vmParams(size, change...), nil)
	return finish(s.t, p, err).VirtualMachine
}

func (s *simulator) getVM(name string) armcompute.VirtualMachine {
	s.t.Helper()
	vm, err := s.vms.Get(s.t.Context(), group, name,
		&armcompute.VirtualMachinesClientGetOptions{Expand: to.Ptr(armcompute.InstanceViewTypesInstanceView)})
	if err != nil {
		s.t.Fatal(err)
	}
	return vm.VirtualMachine
}

func diskID(name string) string {
	return "/subscriptions/" + subscription + "/resourceGroups/" + group + "/providers/Microsoft.Compute/disks/" + name
}

// linked makes a disk encryption set or disk access, and returns its ID.
func (s *simulator) linked(kind, name string) string {
	s.t.Helper()
	id := strings.Replace(diskID(name), "/disks/", "/"+kind+"/", 1)
	if status := s.raw("PUT", id+"?api-version=2025-01-02", `{"location": "eastus"}`).StatusCode; status != 202 {
		s.t.Fatalf("PUT of %s: got %d, want 202", id, status)
	}
	return id
}

func attachments(names ...string) armcompute.AttachDetachDataDisksRequest {
	var r armcompute.AttachDetachDataDisksRequest
	for _, n := range names {
		r.DataDisksToAttach = append(r.DataDisksToAttach, &armcompute.DataDisksToAttach{DiskID: to.Ptr(diskID(n))})
	}
	return r
}

func detachments(names ...string) armcompute.AttachDetachDataDisksRequest {
	var r armcompute.AttachDetachDataDisksRequest
	for _, n := range names {
		r.DataDisksToDetach = append(r.DataDisksToDetach, &armcompute.DataDisksToDetach{DiskID: to.Ptr(diskID(n))})
	}
	return r
}

// begin sends attachDetachDataDisks.
func (s *simulator) begin(
	vm string,
	r armcompute.AttachDetachDataDisksRequest,
) (*runtime.Poller[armcompute.VirtualMachinesClientAttachDetachDataDisksResponse], error) {
	return s.vms.BeginAttachDetachDataDisks(s.t.Context(), group, vm, r, nil)
}

func (s *simulator) attach(vm string, disks ...string) armcompute.StorageProfile {
	s.t.Helper()
	p, err := s.begin(vm, attachments(disks...))
	return finish(s.t, p, err).StorageProfile
}

func (s *simulator) detach(vm string, disks ...string) armcompute.StorageProfile {
	s.t.Helper()
	p, err := s.begin(vm, detachments(disks...))
	return finish(s.t, p, err).StorageProfile
}
