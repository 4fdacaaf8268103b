package azure_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	azarm "github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7"
	"k8s.io/utils/clock"

	"github.com/azuredisk-csi/azuredisk/azuresim/simtest"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/admin"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/arm"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/audit"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/auth"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/compute"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/dataplane"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/faults"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/latency"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/operations"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/store"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/throttle"
	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/azure"
)

// lab is azuresim and a client of it in virtual time, with Azure's latencies and quotas: no
// sockets, so that a minute takes as long as the work in it. It lives inside a bubble of
// testing/synctest.
type lab struct {
	*testing.T
	sim    *compute.Cloud
	faults *faults.Set
	calls  *audit.Log
	arm    http.Handler
	cloud  *azure.Cloud
	serial int
	header http.Header // added to every answer
}

const labEndpoint = "http://azure.lab"

// calm is Azure without the operations that take unusually long.
func calm() *latency.Profile {
	p := latency.Realistic()
	for step, r := range p.Steps {
		r.TailChance = 0
		p.Steps[step] = r
	}
	return p
}

// inLab runs a test in a lab.
func inLab(t *testing.T, profile *latency.Profile, seed int64, test func(l *lab)) {
	t.Helper()
	inVirtualTime(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		l := newLab(t, profile, seed)
		ended := make(chan error, 1)
		ready := make(chan struct{})
		go func() { ended <- l.sim.Run(ctx, func() { close(ready) }) }()
		<-ready
		l.cloud = l.open(ctx)
		test(l)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func newLab(t *testing.T, profile *latency.Profile, seed int64) *lab {
	t.Helper()
	dir := simtest.Directory(t)
	db, err := store.Open(filepath.Join(dir, "azuresim.db"), time.Second, append(compute.Tables, operations.Tables...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	c, silent := clock.RealClock{}, slog.New(slog.NewTextHandler(io.Discard, nil))
	sampler := latency.NewSampler(profile, rand.New(rand.NewSource(seed)))
	l := &lab{
		T:      t,
		faults: faults.New(c),
		calls:  &audit.Log{},
	}
	l.sim = compute.New(compute.Options{
		Store:         db,
		Clock:         c,
		Log:           silent,
		Plane:         &dataplane.None{},
		Latency:       sampler,
		Subscriptions: []string{subscription},
		Intercept:     arm.OperationFaults(l.faults),
		Notify:        (&admin.Events{}).Send,
	})
	if _, err := l.sim.PutGroup(compute.Group{
		Subscription: subscription,
		Name:         group,
		Location:     "eastus",
	}); err != nil {
		t.Fatal(err)
	}
	key, err := auth.LoadKey(filepath.Join(dir, "token.key"))
	if err != nil {
		t.Fatal(err)
	}
	l.arm = arm.New(arm.Options{
		Cloud:     l.sim,
		Clock:     c,
		Log:       silent,
		Latency:   sampler,
		Faults:    l.faults,
		Audit:     l.calls,
		Authority: auth.New(key, c),
		Limiter:   throttle.New(c),
		PageSize:  100,
	})
	return l
}

// Do implements policy.Transporter.
func (l *lab) Do(req *http.Request) (*http.Response, error) {
	in := req.Clone(req.Context())
	if in.Body == nil {
		in.Body = http.NoBody
	}
	rec := httptest.NewRecorder()
	if dropped(func() { l.arm.ServeHTTP(rec, in) }) {
		return nil, io.ErrUnexpectedEOF
	}
	if err := req.Context().Err(); err != nil {
		return nil, err
	}
	resp := rec.Result()
	maps.Copy(resp.Header, l.header)
	resp.Request = req
	return resp, nil
}

// dropped reports whether the handler closed the connection.
func dropped(handle func()) (aborted bool) {
	defer func() {
		e := recover()
		if err, ok := e.(error); ok && errors.Is(err, http.ErrAbortHandler) {
			aborted = true
		} else if e != nil {
			panic(e)
		}
	}()
	handle()
	return false
}

// GetToken implements azcore.TokenCredential.
func (l *lab) GetToken(context.Context, policy.TokenRequestOptions) (azcore.AccessToken, error) {
	return azcore.AccessToken{Token: "any", ExpiresOn: time.Now().Add(24 * time.Hour)}, nil
}

func labCloud() cloud.Configuration {
	return cloud.Configuration{Services: map[cloud.ServiceName]cloud.ServiceConfiguration{
		cloud.ResourceManager: {Endpoint: labEndpoint, Audience: "https://management.azure.com"},
	}}
}

// open makes a client, as a process that has just started.
func (l *lab) open(ctx context.Context) *azure.Cloud {
	l.Helper()
	c, err := azure.New(ctx, azure.Options{
		Credential:     l,
		SubscriptionID: subscription,
		Transport:      checked(l.T, l.Do),
		Cloud:          labCloud(),
		UserAgent:      "azuredisk",
	})
	if err != nil {
		l.Fatal(err)
	}
	return c
}

// newVM makes a VM that runs.
func (l *lab) newVM() string {
	l.Helper()
	factory, err := armcompute.NewClientFactory(subscription, l, &azarm.ClientOptions{
		DisableRPRegistration: true, ClientOptions: policy.ClientOptions{
			Cloud:                           labCloud(),
			Transport:                       l,
			InsecureAllowCredentialWithHTTP: true,
			Telemetry:                       policy.TelemetryOptions{ApplicationID: "suite"},
		},
	})
	if err != nil {
		l.Fatal(err)
	}
	l.serial++
	name := fmt.Sprintf("vm-%d", l.serial)
	p, err := factory.NewVirtualMachinesClient().BeginCreateOrUpdate(l.Context(), group, name, armcompute.VirtualMachine{
		Location: to.Ptr("eastus"),
		Properties: &armcompute.VirtualMachineProperties{
			HardwareProfile: &armcompute.HardwareProfile{VMSize: to.Ptr(armcompute.VirtualMachineSizeTypes("Standard_M64s"))},
			OSProfile:       &armcompute.OSProfile{ComputerName: &name},
			StorageProfile: &armcompute.StorageProfile{OSDisk: &armcompute.OSDisk{CreateOption: to.Ptr(
				armcompute.DiskCreateOptionTypesFromImage)}},
		},
	}, nil)
	if err != nil {
		l.Fatal(err)
	}
	vm, err := p.PollUntilDone(l.Context(), nil)
	if err != nil {
		l.Fatal(err)
	}
	return *vm.ID
}

// newDisks makes disks for up to three VMs each.
func (l *lab) newDisks(n int) []string {
	l.Helper()
	ids := make([]string, n)
	for i := range ids {
		l.serial++
		ids[i] = fmt.Sprintf("/subscriptions/%s/resourceGroups/%s/providers/Microsoft.Compute/disks/disk-%d", subscription, group,
			l.serial)
		l.must(l.cloud.Disks().Create(l.Context(), provisioner.DiskSpec{
			ID:           ids[i],
			Location:     "eastus",
			SizeBytes:    16 << 30,
			MaxShares:    3,
			DiskSettings: provisioner.DiskSettings{SKUName: "Premium_LRS"},
		}))
	}
	return ids
}

func (l *lab) must(op provisioner.Operation, err error) {
	l.Helper()
	if err == nil {
		err = op.Wait(l.Context())
	}
	if err != nil {
		l.Fatal(err)
	}
}

func (l *lab) attach(vm, disk string) (provisioner.Operation, error) {
	return l.cloud.Attachments().Attach(l.Context(), provisioner.AttachRequest{
		VMID:        vm,
		DiskID:      disk,
		CachingMode: "None",
		Shared:      true,
	})
}

// since returns the driver's calls from a time on.
func (l *lab) since(t time.Time) []audit.Record {
	var calls []audit.Record
	for _, r := range l.calls.Since(func(audit.Record) bool { return true }).Records {
		if !r.Time.Before(t.UTC()) && strings.Contains(r.UserAgent, "azuredisk") {
			calls = append(calls, r)
		}
	}
	return calls
}
