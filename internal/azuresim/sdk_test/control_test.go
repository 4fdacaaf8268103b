package sdk_test

import (
	"bufio"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7"

	"github.com/azuredisk-csi/azuredisk/internal/azuresim/audit"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/latency"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/server"
)

func TestQuotaOfAVMRunsOut(t *testing.T) {
	s := start(t, func(o *server.Options) { o.Throttle = "on" })
	s.vm("node", "Standard_D4s_v5")
	s.vm("other", "Standard_D4s_v5")
	for i := range 12 {
		s.disk("d" + strconv.Itoa(i))
	}
	var refused error
	taken := 0
	for ; refused == nil && taken < 20; taken++ {
		var p any
		if p, refused = s.beginPatch("node"); refused != nil {
			break
		}
		_ = p
	}
	re := responseError(t, refused)
	expectCode(t, re, 429, "OperationNotAllowed")
	if taken < 12 || taken > 13 {
		t.Errorf("%d updates went through, want the burst of 12", taken)
	}
	if after, err := strconv.Atoi(re.RawResponse.Header.Get("Retry-After")); err != nil || after < 1 || after > 15 {
		t.Errorf("Retry-After is %q", re.RawResponse.Header.Get("Retry-After"))
	}
	if !strings.Contains(re.Error(), `"code": "TooManyRequests"`) ||
		!strings.Contains(re.RawResponse.Header.Get("x-ms-ratelimit-remaining-resource"),
			"Microsoft.Compute/UpdateVMResource;0") {
		t.Errorf("refusal is %v, headers %v, want it to contain %q and %q", re, re.RawResponse.Header,
			`"code": "TooManyRequests"`, "Microsoft.Compute/UpdateVMResource;0")
	}
	p, err := s.beginPatch("other")
	finish(t, p, err) // another VM has its own quota
}

func TestFaultsStrikeWhatTheyName(t *testing.T) {
	s := start(t)
	s.vm("node", "Standard_D4s_v5")
	s.vm("other", "Standard_D4s_v5")
	s.disk("a")
	s.fault(map[string]any{
		"method": "POST",
		"kind":   "virtualMachines",
		"name":   "node",
		"action": "attachDetachDataDisks",
		"times":  2,
		"status": 500,
		"code":   "InternalServerError",
	})
	for range 2 {
		_, err := s.begin("node", attachments("a"))
		expectCode(t, responseError(t, err), 500, "InternalServerError")
	}
	s.attach("node", "a")

	s.fault(map[string]any{
		"method":     "GET",
		"kind":       "disks",
		"status":     429,
		"code":       "TooManyRequests",
		"retryAfter": "7s",
		"for":        "1h",
	})
	_, err := s.disks.Get(t.Context(), group, "a", nil)
	re := responseError(t, err)
	expectCode(t, re, 429, "TooManyRequests")
	if re.RawResponse.Header.Get("Retry-After") != "7" {
		t.Errorf("Retry-After is %q, want %q", re.RawResponse.Header.Get("Retry-After"), "7")
	}
	s.adminCall("DELETE", "/admin/faults", nil, nil)
	s.getDisk("a")
}

func TestAnswerCanBeLostAfterTheWriteWasDone(t *testing.T) {
	s := start(t)
	s.fault(map[string]any{"method": "PUT", "kind": "disks", "stage": "after", "times": 1, "disconnect": true})
	if _, err := s.disks.BeginCreateOrUpdate(t.Context(), group, "a", diskParams(), nil); err == nil {
		t.Error("the answer arrived")
	}
	s.eventually("the disk is there nevertheless", func() bool {
		d, err := s.disks.Get(t.Context(), group, "a", nil)
		return err == nil && *d.Properties.ProvisioningState == "Succeeded"
	})
}

func TestBadFaultsAreRefused(t *testing.T) {
	s := start(t)
	for name, rule := range map[string]map[string]any{
		"does nothing":     {"method": "GET"},
		"unknown field":    {"methode": "GET", "status": 500},
		"unknown stage":    {"stage": "later", "status": 500},
		"status no error":  {"status": 200},
		"negative times":   {"status": 500, "times": -1},
		"method of no use": {"stage": "operation", "method": "GET", "status": 500},
	} {
		t.Run(name, func(t *testing.T) {
			if status := s.adminCall("POST", "/admin/faults", rule, nil); status != 400 {
				t.Errorf("status %d, want 400", status)
			}
		})
	}
}

func TestCallsAreCounted(t *testing.T) {
	s := start(t)
	s.disk("a")
	s.vm("node", "Standard_D4s_v5")
	var before, after audit.Snapshot
	s.adminCall("GET", "/admin/requests", nil, &before)
	s.attach("node", "a")
	s.adminCall("GET", "/admin/requests?writes=true&since="+strconv.FormatUint(before.Last, 10), nil, &after)
	if after.Writes != 1 || len(after.Records) != 1 {
		t.Fatalf("%d writes: %+v, want %d, len(after.Records) = %v", after.Writes, after.Records, 1, 1)
	}
	r := after.Records[0]
	if r.API != "VirtualMachines.AttachDetachDataDisks" || r.Policy != "UpdateVM" || r.Name != "node" || r.Status != 202 ||
		r.Operation == "" {
		t.Errorf("record is %+v", r)
	}
	if c := after.Counters["Disks.CreateOrUpdate"]; c.Calls != 1 || c.Failed != 0 {
		t.Errorf("counters are %+v", after.Counters)
	}
	s.adminCall("POST", "/admin/reset", nil, nil)
	s.adminCall("GET", "/admin/requests", nil, &after)
	if len(after.Records) != 0 || after.Last <= before.Last {
		t.Errorf("after reset: last %d, %d records", after.Last, len(after.Records))
	}
}

func TestPowerAndNetworkOfAVMAreCut(t *testing.T) {
	s := start(t)
	s.disk("a")
	s.vm("node", "Standard_D4s_v5")
	s.attach("node", "a")
	resp, err := http.Get(s.admin + "/admin/events")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	events := bufio.NewScanner(resp.Body)
	expectEvent := func(parts ...string) {
		t.Helper()
		if !events.Scan() {
			t.Fatal("no event")
		}
		for _, p := range parts {
			if !strings.Contains(events.Text(), p) {
				t.Errorf("event is %s, want %s in it", events.Text(), p)
			}
		}
	}
	act := func(action string) {
		t.Helper()
		if status := s.adminCall("POST", "/admin/vms/node/"+action, nil, nil); status != 204 {
			t.Fatalf("%s: status %d, want %d", action, status, 204)
		}
	}
	act("power-cut")
	expectEvent(`"kind":"power"`, `"state":"cut"`, `"vm":"node"`)
	if got := powerState(s.getVM("node")); got != "running" {
		t.Errorf("Azure says %s, want %s", got, "running")
	}
	act("power-restore")
	expectEvent(`"state":"running"`)
	act("power-cut?report=stopped")
	expectEvent(`"state":"cut"`)
	if got := powerState(s.getVM("node")); got != "stopped" {
		t.Errorf("Azure says %s, want %s", got, "stopped")
	}
	p, err := s.vms.BeginStart(t.Context(), group, "node", nil)
	finish(t, p, err)
	expectEvent(`"state":"running"`)
	act("network-cut")
	expectEvent(`"kind":"network"`, `"state":"cut"`)
	act("network-restore")
	expectEvent(`"state":"whole"`)
	if status := s.adminCall("POST", "/admin/vms/nowhere/power-cut", nil, nil); status != 404 {
		t.Errorf("unknown VM: %d, want %d", status, 404)
	}
	if status := s.adminCall("POST", "/admin/vms/node/paint", nil, nil); status != 404 {
		t.Errorf("unknown action: %d, want %d", status, 404)
	}
}

func TestOperationsTakeTheTimeOfTheirFault(t *testing.T) {
	s := start(t)
	s.fault(map[string]any{"stage": "operation", "kind": "disks", "operation": "disk.create", "delay": "300ms", "times": 1})
	began := time.Now()
	s.disk("a", sku(armcompute.DiskStorageAccountTypesStandardLRS))
	if took := time.Since(began); took < 300*time.Millisecond {
		t.Errorf("took %s", took)
	}
}

func TestLatenciesAreSwitchedWhileTheSimulatorRuns(t *testing.T) {
	s := start(t)
	var profile latency.Profile
	slow := map[string]any{"steps": map[string]any{"diskCreate": map[string]any{"min": "1h", "max": "1h"}}}
	if status := s.adminCall(http.MethodPut, "/admin/latency", slow, nil); status != http.StatusNoContent {
		t.Fatalf("a profile of one's own was answered with %d, want %d", status, http.StatusNoContent)
	}
	s.adminCall(http.MethodGet, "/admin/latency", nil, &profile)
	if got := time.Duration(profile.Steps[latency.DiskCreate].Min); got != time.Hour {
		t.Errorf("disks take %s, want %s", got, time.Hour)
	}
	if status := s.adminCall(http.MethodPut, "/admin/latency?name=fast", nil, nil); status != http.StatusNoContent {
		t.Fatalf("fast was answered with %d, want %d", status, http.StatusNoContent)
	}
	s.disk("quick")
	for _, path := range []string{"/admin/latency?name=slow", "/admin/latency"} {
		if status := s.adminCall(http.MethodPut, path, map[string]any{"speed": 1}, nil); status != http.StatusBadRequest {
			t.Errorf("PUT %s of something that is no profile was answered with %d, want %d", path, status, http.StatusBadRequest)
		}
	}
}
