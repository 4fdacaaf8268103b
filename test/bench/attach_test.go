// Package bench measures the driver's cloud side against the simulator with Azure's latencies and
// quotas:
//
//	go test ./test/bench -run '^$' -bench . -benchtime 1x
//
// The numbers come from the simulator's own log of requests.
package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/azuredisk-csi/azuredisk/azuresim/simtest"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/server"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/expect"
	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/azure"
	"github.com/azuredisk-csi/azuredisk/provisioner/azure/credential"
)

const (
	subscription = "00000000-0000-0000-0000-000000000001"
	group        = "default"
	volumes      = 40 // published at once
	maxUpdates   = 4
	provider     = "/subscriptions/" + subscription + "/resourceGroups/" + group + "/providers/Microsoft.Compute/"
)

// BenchmarkAttach40VolumesToOneVM attaches 40 disks to one VM at once, and detaches them at once.
func BenchmarkAttach40VolumesToOneVM(b *testing.B) {
	sim := start(b, "realistic")
	cloud := sim.open(b)
	for i := range b.N {
		vm := sim.makeVM(b, fmt.Sprintf("vm-%d", i))
		ids := makeDisks(b, cloud, i)
		sim.forget(b)
		attach := measure(b, func(n int) (provisioner.Operation, error) {
			return cloud.Attachments().Attach(b.Context(), provisioner.AttachRequest{
				VMID:        vm,
				DiskID:      ids[n],
				CachingMode: "None",
			})
		})
		attachCalls := sim.calls(b)
		attachCalls.check(b, "attach")
		if list, err := cloud.Attachments().List(b.Context(), vm); err != nil || len(list) != volumes {
			b.Fatalf("%d disks attached, %v", len(list), err)
		}
		sim.forget(b)
		detach := measure(b, func(n int) (provisioner.Operation, error) {
			return cloud.Attachments().Detach(b.Context(), vm, ids[n])
		})
		detachCalls := sim.calls(b)
		detachCalls.check(b, "detach")
		b.ReportMetric(attach.Seconds(), "attach-s")
		b.ReportMetric(detach.Seconds(), "detach-s")
		b.ReportMetric(float64(attachCalls.updates), "attach-vm-updates")
		b.ReportMetric(float64(detachCalls.updates), "detach-vm-updates")
		b.ReportMetric(float64(attachCalls.throttled+detachCalls.throttled), "429s")
		fmt.Printf("attach %d volumes: %d VM updates, %d polls, %d calls in all, %d answered 429, %.1f s\n",
			volumes, attachCalls.updates, attachCalls.polls, attachCalls.all, attachCalls.throttled, attach.Seconds())
		fmt.Printf("detach %d volumes: %d VM updates, %d polls, %d calls in all, %d answered 429, %.1f s\n",
			volumes, detachCalls.updates, detachCalls.polls, detachCalls.all, detachCalls.throttled, detach.Seconds())
	}
}

// BenchmarkAttachSharedDiskTo3VMs attaches one shared disk to three VMs at once, which Azure only
// takes one after the other.
func BenchmarkAttachSharedDiskTo3VMs(b *testing.B) {
	sim := start(b, "realistic")
	cloud := sim.open(b)
	for i := range b.N {
		var vms []string
		for n := range 3 {
			vms = append(vms, sim.makeVM(b, fmt.Sprintf("vm-%d-%d", i, n)))
		}
		id := fmt.Sprintf("%sdisks/shared-%d", provider, i)
		must(b, outcome(b, func() (provisioner.Operation, error) {
			return cloud.Disks().Create(b.Context(), provisioner.DiskSpec{
				ID:           id,
				Location:     "eastus",
				Zone:         "1",
				SizeBytes:    256 << 30,
				MaxShares:    3,
				DiskSettings: provisioner.DiskSettings{SKUName: "Premium_LRS"},
			})
		}))
		sim.forget(b)
		began := time.Now()
		var all sync.WaitGroup
		for _, vm := range vms {
			all.Go(func() {
				must(b, outcome(b, func() (provisioner.Operation, error) {
					return cloud.Attachments().Attach(b.Context(), provisioner.AttachRequest{
						VMID:        vm,
						DiskID:      id,
						CachingMode: "None",
						Shared:      true,
					})
				}))
			})
		}
		all.Wait()
		took, calls := time.Since(began), sim.calls(b)
		if calls.throttled+calls.refused > 0 {
			b.Errorf("%d calls were answered 429, %d refused otherwise", calls.throttled, calls.refused)
		}
		b.ReportMetric(took.Seconds(), "attach-s")
		b.ReportMetric(float64(calls.updates), "vm-updates")
		fmt.Printf("attach a shared disk to 3 VMs: %d VM updates, %d polls, %d refused, %.1f s\n", calls.updates, calls.polls,
			calls.refused, took.Seconds())
	}
}

// BenchmarkManyUpdatesOfOneVM makes more updates of a VM, one after the other, than its quota
// allows at once.
func BenchmarkManyUpdatesOfOneVM(b *testing.B) {
	const updates = 16 // the quota is 12 at once and 4 a minute
	sim := start(b, "fast")
	cloud := sim.open(b)
	for i := range b.N {
		vm, ids := sim.makeVM(b, fmt.Sprintf("vm-%d", i)), makeDisks(b, cloud, i)
		sim.forget(b)
		began := time.Now()
		for n := range updates {
			must(b, outcome(b, func() (provisioner.Operation, error) {
				if n%2 == 0 {
					return cloud.Attachments().Attach(b.Context(), provisioner.AttachRequest{
						VMID:        vm,
						DiskID:      ids[n],
						CachingMode: "None",
					})
				}
				return cloud.Attachments().Detach(b.Context(), vm, ids[n-1])
			}))
		}
		took, calls := time.Since(began), sim.calls(b)
		if calls.throttled > 0 || calls.updates != updates {
			b.Errorf("%d updates, %d calls answered 429", calls.updates, calls.throttled)
		}
		b.ReportMetric(took.Seconds(), "s")
		fmt.Printf("%d updates of one VM in a row: %d calls in all, %d answered 429, %.1f s\n", updates, calls.all,
			calls.throttled, took.Seconds())
	}
}

func must(b *testing.B, err error) {
	b.Helper()
	if err != nil {
		b.Error(err)
	}
}

func outcome(b *testing.B, call func() (provisioner.Operation, error)) error {
	op, err := call()
	if err != nil {
		return err
	}
	return op.Wait(b.Context())
}

// measure makes a call for every volume at once and returns how long it took until the last had
// ended.
func measure(b *testing.B, call func(n int) (provisioner.Operation, error)) time.Duration {
	b.Helper()
	began := time.Now()
	var all sync.WaitGroup
	for n := range volumes {
		all.Go(func() { must(b, outcome(b, func() (provisioner.Operation, error) { return call(n) })) })
	}
	all.Wait()
	return time.Since(began)
}

func makeDisks(b *testing.B, cloud *azure.Cloud, round int) []string {
	b.Helper()
	ids := make([]string, volumes)
	var all sync.WaitGroup
	for n := range ids {
		ids[n] = fmt.Sprintf("%sdisks/disk-%d-%d", provider, round, n)
		all.Go(func() {
			must(b, outcome(b, func() (provisioner.Operation, error) {
				return cloud.Disks().Create(b.Context(), provisioner.DiskSpec{
					ID:           ids[n],
					Location:     "eastus",
					Zone:         "1",
					SizeBytes:    8 << 30,
					MaxShares:    1,
					DiskSettings: provisioner.DiskSettings{SKUName: "Premium_LRS"},
				})
			}))
		})
	}
	all.Wait()
	return ids
}

// simulator is azuresim in this process with Azure's quotas.
type simulator struct{ url, admin string }

func start(b *testing.B, latency string) *simulator {
	b.Helper()
	running := simtest.Start(b, func(o *server.Options) { o.Latency, o.Throttle = latency, "on" })
	return &simulator{url: running.URL, admin: running.AdminURL}
}

func (s *simulator) open(b *testing.B) *azure.Cloud {
	b.Helper()
	file := fmt.Sprintf(`{"tenantId": "t", "subscriptionId": %q, "resourceGroup": %q, "location": "eastus",
		"resourceManagerEndpoint": %q, "aadClientId": "bench", "aadClientSecret": "any"}`, subscription, group, s.url)
	credentials, err := credential.Open(b.Context(),
		credential.Options{Source: credential.Source{Read: func(context.Context) ([]byte, error) { return []byte(file), nil }}})
	expect.Must(b, err)
	ctx, cancel := context.WithCancel(context.Background())
	b.Cleanup(cancel)
	cloud, err := azure.New(ctx, azure.Options{
		Credential:     credentials,
		Cloud:          credentials.Cloud(),
		SubscriptionID: subscription,
	})
	expect.Must(b, err)
	return cloud
}

func (s *simulator) send(b *testing.B, method, url string, body any) (out []byte) {
	b.Helper()
	raw, err := json.Marshal(body)
	expect.Must(b, err)
	req, err := http.NewRequestWithContext(b.Context(), method, url, bytes.NewReader(raw))
	expect.Must(b, err)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	expect.Must(b, err)
	defer func() { _ = resp.Body.Close() }()
	if out, err = io.ReadAll(resp.Body); err != nil || resp.StatusCode >= 300 {
		b.Fatalf("%s %s: %s %s, %v", method, url, resp.Status, out, err)
	}
	return out
}

// makeVM makes a VM with 64 slots in zone 1 and waits until it is there.
func (s *simulator) makeVM(b *testing.B, name string) string {
	b.Helper()
	id := provider + "virtualMachines/" + name
	s.send(b, "PUT", s.url+id+"?api-version=2025-04-01", map[string]any{
		"location": "eastus", "zones": []string{"1"},
		"properties": map[string]any{
			"hardwareProfile": map[string]any{"vmSize": "Standard_M64s"}, "osProfile": map[string]any{"computerName": name},
			"storageProfile": map[string]any{"osDisk": map[string]any{"createOption": "FromImage"}},
		},
	})
	ticker := time.NewTicker(3 * time.Second) // its quota is 12 reads a minute after the first 36
	defer ticker.Stop()
	for {
		var vm struct {
			Properties struct{ ProvisioningState string }
		}
		expect.Must(b, json.Unmarshal(s.send(b, "GET", s.url+id+"?api-version=2025-04-01", nil), &vm))
		if vm.Properties.ProvisioningState == "Succeeded" {
			return id
		}
		select {
		case <-ticker.C:
		case <-b.Context().Done():
			b.Fatal("the VM did not come")
		}
	}
}

func (s *simulator) forget(b *testing.B) { s.send(b, "DELETE", s.admin+"/admin/requests", nil) }

// calls is what the simulator has seen since it last forgot.
type calls struct {
	all, updates, polls, throttled, refused int
	firstUpdate                             time.Time
	byAPI                                   map[string]int
}

func (s *simulator) calls(b *testing.B) calls {
	b.Helper()
	var log struct {
		Records []struct {
			API, Path string
			Status    int
			Time      time.Time
		}
	}
	expect.Must(b, json.Unmarshal(s.send(b, "GET", s.admin+"/admin/requests", nil), &log))
	c := calls{all: len(log.Records), byAPI: map[string]int{}}
	for _, r := range log.Records {
		c.byAPI[r.API]++
		switch {
		case strings.HasSuffix(r.API, ".AttachDetachDataDisks"):
			if c.updates++; c.updates == 1 {
				c.firstUpdate = r.Time
			}
		case strings.Contains(r.Path, "/operations/"):
			c.polls++
		}
		switch {
		case r.Status == http.StatusTooManyRequests:
			c.throttled++
		case r.Status >= 400:
			c.refused++
		}
	}
	return c
}

// check holds the calls against what the driver promises.
func (c calls) check(b *testing.B, what string) {
	b.Helper()
	if c.updates > maxUpdates || c.throttled > 0 {
		b.Errorf("%s: %d VM updates (at most %d), %d calls answered 429 (none)", what, c.updates, maxUpdates, c.throttled)
	}
}
