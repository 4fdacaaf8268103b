package azure_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7"

	"github.com/azuredisk-csi/azuredisk/azuresim/simtest"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/auth"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/contract"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/server"
	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/azure"
	"github.com/azuredisk-csi/azuredisk/provisioner/azure/credential"
	"github.com/azuredisk-csi/azuredisk/provisioner/conformance"
)

const (
	subscription = "00000000-0000-0000-0000-000000000001"
	group        = "default"
)

// simulator is a whole azuresim in this process, with a client of its own to make VMs with.
type simulator struct {
	simtest.Simulator
	vms        *armcompute.VirtualMachinesClient
	sets       *armcompute.VirtualMachineScaleSetsClient
	instances  *armcompute.VirtualMachineScaleSetVMsClient
	usages     *armcompute.UsageClient
	encryption *armcompute.DiskEncryptionSetsClient
	accesses   *armcompute.DiskAccessesClient
	serial     atomic.Int64
	// updates is the kind of the operations by which the driver changes the disks of VMs.
	updates string
}

// inVirtualTime runs a test in a bubble of testing/synctest, whose clock jumps to the next timer when
// all the test's goroutines wait. A goroutine that waits for a socket stops the clock.
func inVirtualTime(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	if _, err := contract.Describe(); err != nil { // reads files, which a bubble cannot wait for
		t.Fatal(err)
	}
	synctest.Test(t, test)
}

// startSimulator runs azuresim with quotas, with tokens that must be its own, and with roles: the
// driver may do what its role definition says and nothing else, so that each test proves that the
// role is enough.
func startSimulator(t *testing.T, change ...func(*server.Options)) *simulator {
	t.Helper()
	return prepared(t, simtest.StartInMemory(t, append(change, secured)...))
}

// secured are the options of a simulator with quotas and tokens.
func secured(o *server.Options) {
	o.Throttle, o.Auth, o.Clients = "on", "on", []string{"driver=secret", "suite=secret"}
}

// prepared assigns the roles in a simulator that runs.
func prepared(t *testing.T, running simtest.Simulator) *simulator {
	t.Helper()
	s := &simulator{Simulator: running, updates: "vm.disks"}
	s.assign(t, "suite", auth.Role{Actions: []string{"*"}})
	s.assign(t, "driver", driverRoles("")...)
	credentials := s.credentials(t, "suite", "secret")
	factory, err := armcompute.NewClientFactory(subscription, credentials, &arm.ClientOptions{
		DisableRPRegistration: true,
		ClientOptions: policy.ClientOptions{
			Cloud:                           credentials.Cloud(),
			Transport:                       s.HTTP,
			InsecureAllowCredentialWithHTTP: true,
			Telemetry:                       policy.TelemetryOptions{ApplicationID: "suite"},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	s.usages = factory.NewUsageClient()
	s.encryption = factory.NewDiskEncryptionSetsClient()
	s.accesses = factory.NewDiskAccessesClient()
	s.vms = factory.NewVirtualMachinesClient()
	s.sets = factory.NewVirtualMachineScaleSetsClient()
	s.instances = factory.NewVirtualMachineScaleSetVMsClient()
	return s
}

// assign gives a client roles, instead of those that it has.
func (s *simulator) assign(t *testing.T, client string, roles ...auth.Role) {
	t.Helper()
	s.call(t, "PUT", "/admin/roles/"+client, roles, nil)
}

// driverRoles are the driver's roles, assigned as narrowly as they can be: in its resource group,
// and in the subscription what is of the subscription. The action without is left out.
func driverRoles(without string) []auth.Role {
	groups := "/subscriptions/" + subscription + "/resourceGroups/"
	here := auth.Role{Scopes: []string{groups + group, groups + "no-such-group"}} // the other one is the suite's
	above := auth.Role{Scopes: []string{"/subscriptions/" + subscription}}
	for _, p := range azure.Permissions() {
		role := &here
		if p.Subscription {
			role = &above
		}
		if p.Action != without {
			role.Actions = append(role.Actions, p.Action)
		}
	}
	return []auth.Role{here, above}
}

// listRoles are the driver's roles where attachDetachDataDisks is not enabled.
func listRoles() []auth.Role {
	roles := driverRoles("")
	for _, p := range azure.ListPermissions() {
		roles[0].Actions = append(roles[0].Actions, p.Action)
	}
	return roles
}

// credentials are those of a client of the simulator.
func (s *simulator) credentials(t *testing.T, client, secret string) *credential.Credentials {
	t.Helper()
	file := fmt.Sprintf(`{"tenantId": "t", "subscriptionId": %q, "resourceGroup": %q, "location": "East US",
		"resourceManagerEndpoint": %q, "aadClientId": %q, "aadClientSecret": %q}`, subscription, group, s.URL, client, secret)
	c, err := credential.Open(t.Context(), credential.Options{
		Source: credential.Source{Read: func(context.Context) ([]byte, error) { return []byte(file), nil }},
		Dial:   s.Dial,
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// options are those of a driver's client of the simulator.
func (s *simulator) options(t *testing.T) azure.Options {
	t.Helper()
	c := s.credentials(t, "driver", "secret")
	return azure.Options{
		Credential:     c,
		Cloud:          c.Cloud(),
		SubscriptionID: subscription,
		UserAgent:      "azuredisk",
		Transport:      checked(t, s.HTTP.Do),
	}
}

// checked is a transport that holds the driver's requests, and the simulator's answers, to Azure's
// own description of them.
func checked(t *testing.T, send func(*http.Request) (*http.Response, error)) policy.Transporter {
	t.Helper()
	description, err := contract.Describe()
	if err != nil {
		t.Fatal(err)
	}
	return &contract.Transport{
		Send:        send,
		Description: description,
		Report: func(fault string) {
			if t.Context().Err() == nil { // later calls are of what the test has left behind
				t.Error(fault)
			}
		},
	}
}

// open makes a driver's client of the simulator that lives until close.
func (s *simulator) open(t *testing.T) (cloud *azure.Cloud, closeIt func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cloud, err := azure.New(ctx, s.options(t))
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	return cloud, cancel
}

// openWith makes a client that lives as long as the test.
func (s *simulator) openWith(t *testing.T, options azure.Options) *azure.Cloud {
	t.Helper()
	cloud, err := azure.New(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	return cloud
}

func (s *simulator) call(t *testing.T, method, path string, in, out any) {
	t.Helper()
	if status := s.Admin(t, method, path, in, out); status >= 300 {
		t.Fatalf("%s %s: %d", method, path, status)
	}
}

// fault puts a rule in force until remove is called, which may be more than once and from any
// goroutine.
func (s *simulator) fault(t *testing.T, rule map[string]any) (remove func()) {
	t.Helper()
	var added struct{ ID string }
	s.call(t, "POST", "/admin/faults", rule, &added)
	// It is gone if it has struck as often as it may.
	return sync.OnceFunc(func() { s.Admin(t, "DELETE", "/admin/faults/"+added.ID, nil, nil) })
}

// requests are the calls that the simulator has seen from the driver since a sequence number.
func (s *simulator) requests(t *testing.T, since uint64) (calls []seenCall, last uint64) {
	t.Helper()
	var log struct {
		Last    uint64
		Records []seenCall
	}
	s.call(t, "GET", fmt.Sprintf("/admin/requests?since=%d", since), nil, &log)
	for _, c := range log.Records {
		if strings.Contains(c.UserAgent, "azuredisk") {
			calls = append(calls, c)
		}
	}
	return calls, log.Last
}

type seenCall struct {
	Method, Path, API, Name, Code, UserAgent string
	Status                                   int
}

func count(calls []seenCall, which func(seenCall) bool) int {
	n := 0
	for _, c := range calls {
		if which(c) {
			n++
		}
	}
	return n
}

func vmUpdates(calls []seenCall) int {
	return count(calls, func(c seenCall) bool { return strings.HasSuffix(c.API, ".AttachDetachDataDisks") })
}

func (s *simulator) newVM(t *testing.T, size, zone string) string {
	t.Helper()
	return s.putVM(t, size, zone, nil)
}

// putVM makes a VM, in a flexible scale set if that is given.
func (s *simulator) putVM(t *testing.T, size, zone string, set *string) string {
	t.Helper()
	name := fmt.Sprintf("vm-%d", s.serial.Add(1))
	vm := armcompute.VirtualMachine{
		Location: to.Ptr("eastus"),
		Properties: &armcompute.VirtualMachineProperties{
			HardwareProfile: &armcompute.HardwareProfile{VMSize: to.Ptr(armcompute.VirtualMachineSizeTypes(size))},
			OSProfile:       &armcompute.OSProfile{ComputerName: &name},
			StorageProfile: &armcompute.StorageProfile{OSDisk: &armcompute.OSDisk{CreateOption: to.Ptr(
				armcompute.DiskCreateOptionTypesFromImage)}},
		},
	}
	if zone != "" {
		vm.Zones = []*string{&zone}
	}
	if set != nil {
		vm.Properties.VirtualMachineScaleSet = &armcompute.SubResource{ID: set}
	}
	p, err := s.vms.BeginCreateOrUpdate(t.Context(), group, name, vm, nil)
	return *finish(t, p, err).ID
}

func (s *simulator) newScaleSetVM(t *testing.T, size, zone string) string {
	t.Helper()
	name := fmt.Sprintf("set-%d", s.serial.Add(1))
	set := armcompute.VirtualMachineScaleSet{
		Location: to.Ptr("eastus"),
		SKU:      &armcompute.SKU{Name: &size, Capacity: to.Ptr[int64](1)},
		Properties: &armcompute.VirtualMachineScaleSetProperties{
			OrchestrationMode: to.Ptr(armcompute.OrchestrationModeUniform),
			VirtualMachineProfile: &armcompute.VirtualMachineScaleSetVMProfile{
				OSProfile: &armcompute.VirtualMachineScaleSetOSProfile{ComputerNamePrefix: &name},
			},
		},
	}
	if zone != "" {
		set.Zones = []*string{&zone}
	}
	p, err := s.sets.BeginCreateOrUpdate(t.Context(), group, name, set, nil)
	return *finish(t, p, err).ID + "/virtualMachines/0"
}

func finish[T any](t *testing.T, p *runtime.Poller[T], err error) T {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	out, err := p.PollUntilDone(t.Context(), &runtime.PollUntilDoneOptions{Frequency: 2 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func (s *simulator) newFlexibleVM(t *testing.T, size, zone string) string {
	t.Helper()
	name := fmt.Sprintf("flex-%d", s.serial.Add(1))
	p, err := s.sets.BeginCreateOrUpdate(t.Context(), group, name, armcompute.VirtualMachineScaleSet{
		Location: to.Ptr("eastus"),
		SKU:      &armcompute.SKU{Name: &size, Capacity: to.Ptr[int64](0)},
		Properties: &armcompute.VirtualMachineScaleSetProperties{
			OrchestrationMode: to.Ptr(armcompute.OrchestrationModeFlexible), PlatformFaultDomainCount: to.Ptr[int32](1),
		},
	}, nil)
	return s.putVM(t, size, zone, finish(t, p, err).ID)
}

func nameOf(id string) string { return id[strings.LastIndex(id, "/")+1:] }

// setOf returns the uniform scale set that an instance is of; "" for a VM.
func setOf(id string) string {
	if before, _, ok := strings.Cut(id, "/virtualMachines/"); ok && strings.Contains(before, "/virtualMachineScaleSets/") {
		return nameOf(before)
	}
	return ""
}

// newLinked makes the disk encryption set or disk access of that ID.
func (s *simulator) newLinked(t *testing.T, id string) {
	t.Helper()
	var err error
	if strings.Contains(id, "/diskAccesses/") {
		_, err = s.accesses.BeginCreateOrUpdate(t.Context(), group, nameOf(id), armcompute.DiskAccess{Location: to.Ptr("eastus")},
			nil)
	} else {
		_, err = s.encryption.BeginCreateOrUpdate(t.Context(), group, nameOf(id),
			armcompute.DiskEncryptionSet{Location: to.Ptr("eastus")}, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (s *simulator) deleteVM(t *testing.T, id string) {
	t.Helper()
	if set := setOf(id); set != "" {
		p, err := s.instances.BeginDelete(t.Context(), group, set, nameOf(id), nil)
		finish(t, p, err)
		return
	}
	p, err := s.vms.BeginDelete(t.Context(), group, nameOf(id), nil)
	finish(t, p, err)
}

func (s *simulator) setPower(t *testing.T, id string, power provisioner.PowerState) {
	t.Helper()
	if set := setOf(id); set != "" {
		s.setInstancePower(t, set, nameOf(id), power)
		return
	}
	switch power {
	case provisioner.PowerStopped:
		p, err := s.vms.BeginPowerOff(t.Context(), group, nameOf(id), nil)
		finish(t, p, err)
	case provisioner.PowerDeallocated:
		p, err := s.vms.BeginDeallocate(t.Context(), group, nameOf(id), nil)
		finish(t, p, err)
	default:
		p, err := s.vms.BeginStart(t.Context(), group, nameOf(id), nil)
		finish(t, p, err)
	}
}

func (s *simulator) setInstancePower(t *testing.T, set, instance string, power provisioner.PowerState) {
	t.Helper()
	switch power {
	case provisioner.PowerStopped:
		p, err := s.instances.BeginPowerOff(t.Context(), group, set, instance, nil)
		finish(t, p, err)
	case provisioner.PowerDeallocated:
		p, err := s.instances.BeginDeallocate(t.Context(), group, set, instance, nil)
		finish(t, p, err)
	default:
		p, err := s.instances.BeginStart(t.Context(), group, set, instance, nil)
		finish(t, p, err)
	}
}

// quotaCounters are the counters of the SKUs that the tests limit.
var quotaCounters = map[string]string{
	"StandardSSD_ZRS": "StandardSSDZRSDiskCount",
	"Premium_LRS":     "PremiumDiskCount",
	"UltraSSD_LRS":    "UltraSSDDiskSizeInGB",
}

// quota allows n more of a SKU than there are.
func (s *simulator) quota(t *testing.T, sku string, n int64) (release func()) {
	t.Helper()
	used := int64(0)
	for pager := s.usages.NewListPager("eastus", nil); pager.More(); {
		page, err := pager.NextPage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, u := range page.Value {
			if *u.Name.Value == quotaCounters[sku] {
				used = int64(*u.CurrentValue)
			}
		}
	}
	s.call(t, "PUT", "/admin/quotas/"+quotaCounters[sku], map[string]any{"limit": used + n}, nil)
	return func() { s.call(t, "PUT", "/admin/quotas/"+quotaCounters[sku], map[string]any{"limit": nil}, nil) }
}

func (s *simulator) harness(t *testing.T) conformance.Harness {
	cloud, closeIt := s.open(t)
	t.Cleanup(closeIt)
	return conformance.Harness{
		Cloud: cloud,
		Reopen: func() provisioner.Cloud {
			other, closeIt := s.open(t)
			t.Cleanup(closeIt)
			return other
		},
		Scope:         provisioner.Scope{SubscriptionID: subscription, ResourceGroup: group},
		Location:      "eastus",
		OtherLocation: "westus2",
		SmallSize:     "Standard_D2s_v3",
		SmallSlots:    4,
		LargeSize:     "Standard_D16s_v5",
		NewVM:         s.newVM,
		NewScaleSetVM: s.newScaleSetVM,
		NewFlexibleVM: s.newFlexibleVM,
		NewLinked:     s.newLinked,
		DeleteVM:      s.deleteVM,
		SetPower:      s.setPower,
		Slow: func(t *testing.T, operation conformance.Operation) func() {
			kinds := map[conformance.Operation]string{
				conformance.CreateDisk: "disk.create", conformance.CreateSnapshot: "snapshot.create",
				conformance.Attach: s.updates, conformance.Detach: s.updates,
			}
			return s.fault(t, map[string]any{"stage": "operation", "operation": kinds[operation], "delay": "900ms", "times": 1})
		},
		Refuse: func(t *testing.T, kind provisioner.Kind) func() {
			return s.fault(t, map[string]map[string]any{
				"Unauthorized": {"status": 403, "code": "AuthorizationFailed"},
				"RateLimited":  {"status": 429, "code": "TooManyRequests", "retryAfter": "1s"},
				"Unavailable":  {"status": 503, "code": "ServerBusy"},
			}[string(kind)])
		},
		SetQuota: func(t *testing.T, sku string, n int64) func() {
			return s.quota(t, sku, n)
		},
		PollInterval: 50 * time.Millisecond,
	}
}
