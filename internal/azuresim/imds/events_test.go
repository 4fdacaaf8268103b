package imds_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/azuredisk-csi/azuredisk/azuresim/simtest"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/imds"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/scheduledevents"
)

const (
	simSubscription = "00000000-0000-0000-0000-000000000001"
	simGroup        = "/subscriptions/" + simSubscription + "/resourceGroups/default/providers/Microsoft.Compute/"
)

// site is a simulator, and the metadata services of its VMs.
type site struct {
	t   *testing.T
	sim simtest.Simulator
}

// put makes a resource and waits until it is there.
func (s site) put(id, body string) {
	s.t.Helper()
	call := func(method string, body io.Reader) string {
		request, err := http.NewRequestWithContext(s.t.Context(), method, s.sim.URL+id+"?api-version=2025-04-01", body)
		must(s.t, err)
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set("Authorization", "Bearer t")
		response, err := http.DefaultClient.Do(request)
		must(s.t, err)
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		must(s.t, err)
		if response.StatusCode/100 != 2 {
			s.t.Fatalf("%s %s: %s: %s", method, id, response.Status, text)
		}
		return string(text)
	}
	call(http.MethodPut, strings.NewReader(body))
	deadline := time.Now().Add(20 * time.Second)
	for !strings.Contains(call(http.MethodGet, nil), "Succeeded") {
		if time.Now().After(deadline) {
			s.t.Fatalf("%s was not there after 20 s", id)
		}
	}
}

func (s site) vm(name, properties string) {
	s.put(simGroup+"virtualMachines/"+name, `{"location": "eastus", "properties": {`+properties+
		`"hardwareProfile": {"vmSize": "Standard_D4s_v5"}, "storageProfile": {"dataDisks": []}}}`)
}

// metadata serves the metadata of the VM or instance, and returns the address of its events.
func (s site) metadata(resource string) string {
	s.t.Helper()
	server := httptest.NewServer((&imds.Server{Events: &imds.AdminEvents{
		Endpoint:   s.sim.AdminURL,
		Client:     http.DefaultClient,
		ResourceID: simGroup + resource,
	}}).Handler())
	s.t.Cleanup(server.Close)
	return server.URL + "/metadata/scheduledevents?api-version="
}

// make makes an event and returns it.
func (s site) make(request map[string]any) scheduledevents.Event {
	s.t.Helper()
	var event scheduledevents.Event
	if status := s.sim.Admin(s.t, http.MethodPost, "/admin/scheduled-events", request, &event); status != http.StatusOK {
		s.t.Fatalf("the event %v was answered with %d, want 200", request, status)
	}
	return event
}

func (s site) admin(method, path string, body any) int {
	s.t.Helper()
	return s.sim.Admin(s.t, method, "/admin/scheduled-events"+path, body, nil)
}

type document struct {
	DocumentIncarnation int
	Events              []map[string]any
}

func (s site) read(url string) document {
	s.t.Helper()
	status, body := get(s.t, url)
	var d document
	if err := json.Unmarshal([]byte(body), &d); err != nil || status != http.StatusOK {
		s.t.Fatalf("%d %s: %v", status, body, err)
	}
	return d
}

func (s site) approve(url, body string, headers ...string) int {
	s.t.Helper()
	request, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, url, strings.NewReader(body))
	must(s.t, err)
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		request.Header.Set(name, value)
	}
	response, err := http.DefaultClient.Do(request)
	must(s.t, err)
	must(s.t, response.Body.Close())
	return response.StatusCode
}

const latest = "2020-07-01"

func TestAnEventFromItsAnnouncementToItsEnd(t *testing.T) {
	s := site{t, simtest.Start(t)}
	s.vm("node-1", "")
	s.vm("other", "")
	url, other := s.metadata("virtualMachines/node-1"), s.metadata("virtualMachines/other")
	if _, body := get(t, url+latest); strings.TrimSpace(body) != `{"DocumentIncarnation":1,"Events":[]}` {
		t.Errorf("without an event got %s", body)
	}
	made := s.make(map[string]any{"type": "Freeze", "vms": []string{"node-1"}, "durationSeconds": 9})
	want := map[string]any{
		"EventId":           made.ID,
		"EventStatus":       "Scheduled",
		"EventType":         "Freeze",
		"ResourceType":      "VirtualMachine",
		"Resources":         []any{"node-1"},
		"NotBefore":         made.NotBefore.UTC().Format("Mon, 02 Jan 2006 15:04:05 GMT"),
		"Description":       "Virtual machine is being paused because of a memory-preserving Live Migration operation.",
		"EventSource":       "Platform",
		"DurationInSeconds": 9.0,
	}
	if diff := cmp.Diff(document{2, []map[string]any{want}}, s.read(url+latest)); diff != "" {
		t.Errorf("announced (-want +got): %s", diff)
	}
	if got := s.read(other + latest); len(got.Events) != 0 || got.DocumentIncarnation != 1 {
		t.Errorf("a VM that shares nothing with it sees %+v", got)
	}
	if status := s.admin(http.MethodPatch, "/"+made.ID, map[string]any{"notice": "1h"}); status != http.StatusNoContent {
		t.Errorf("postponing it was answered with %d, want 204", status)
	}
	if got := s.read(url + latest); got.DocumentIncarnation != 3 || got.Events[0]["NotBefore"] == want["NotBefore"] {
		t.Errorf("postponed, got %+v", got)
	}
	want["EventStatus"], want["NotBefore"] = "Started", ""
	for range 2 { // the second approval is answered as the first
		body := `{"StartRequests": [{"EventId": "` + made.ID + `"}]}`
		if status := s.approve(url+latest, body, "Metadata: true"); status != http.StatusOK {
			t.Errorf("the approval was answered with %d, want 200", status)
		}
		if diff := cmp.Diff(document{4, []map[string]any{want}}, s.read(url+latest)); diff != "" {
			t.Errorf("approved (-want +got): %s", diff)
		}
	}
	if status := s.admin(http.MethodDelete, "/"+made.ID, nil); status != http.StatusNoContent {
		t.Errorf("its end was answered with %d, want 204", status)
	}
	if got := s.read(url + latest); len(got.Events) != 0 || got.DocumentIncarnation != 5 {
		t.Errorf("ended, got %+v", got)
	}
	if status := s.admin(http.MethodDelete, "/"+made.ID, nil); status != http.StatusNotFound {
		t.Errorf("an event that is gone was ended: %d, want 404", status)
	}
}

func TestAnEventStartsAtItsTimeAndIsStartedNow(t *testing.T) {
	s := site{t, simtest.Start(t)}
	s.vm("node-1", "")
	url := s.metadata("virtualMachines/node-1")
	made := s.make(map[string]any{"type": "Preempt", "vms": []string{"node-1"}, "notice": "10ms", "source": "User"})
	for s.read(url + latest).Events[0]["EventStatus"] != "Started" {
		if time.Now().After(made.NotBefore.Add(20 * time.Second)) {
			t.Fatal("it has not started 20 s after its time")
		}
	}
	if early := time.Until(made.NotBefore); early > 0 {
		t.Errorf("it started %s before its time", early)
	}
	second := s.make(map[string]any{"type": "Redeploy", "vms": []string{"node-1"}})
	if status := s.admin(http.MethodPost, "/"+second.ID+"/start", nil); status != http.StatusNoContent {
		t.Errorf("its start was answered with %d, want 204", status)
	}
	at := s.make(map[string]any{"type": "Reboot", "vms": []string{"node-1"}, "notice": "0s"})
	for _, event := range s.read(url + latest).Events {
		if event["EventStatus"] != "Started" {
			t.Errorf("got %v, want it Started", event)
		}
	}
	var all []scheduledevents.Event
	s.sim.Admin(t, http.MethodGet, "/admin/scheduled-events", nil, &all)
	if len(all) != 3 || all[2].ID != at.ID {
		t.Errorf("the admin API lists %+v, want three events", all)
	}
}

func TestVMsOfASetShareTheirEvents(t *testing.T) {
	s := site{t, simtest.Start(t)}
	s.put(simGroup+"virtualMachineScaleSets/pool", `{"location": "eastus", "sku": {"name": "Standard_D4s_v5", "capacity": 2},
		"properties": {"orchestrationMode": "Uniform", "virtualMachineProfile": {"scheduledEventsProfile":
		{"terminateNotificationProfile": {"enable": true, "notBeforeTimeout": "PT12M"}}}}}`)
	const set = `"availabilitySet": {"id": "/subscriptions/x/resourceGroups/default/providers/Microsoft.Compute/availabilitySets/AS"}, `
	s.vm("a", set)
	s.vm("b", strings.Replace(set, "/AS", "/as", 1))
	s.vm("alone", "")
	s.make(map[string]any{"type": "Freeze", "vms": []string{"a", "b"}})
	terminate := s.make(map[string]any{"type": "Terminate", "vms": []string{"pool_1"}})
	for resource, want := range map[string]string{
		"virtualMachines/a":                              `["a","b"]`,
		"virtualMachines/b":                              `["a","b"]`,
		"virtualMachines/alone":                          ``,
		"virtualMachineScaleSets/pool/virtualMachines/0": `["pool_1"]`,
		"virtualMachineScaleSets/pool/virtualMachines/1": `["pool_1"]`,
	} {
		events, got := s.read(s.metadata(resource)+latest).Events, ""
		if len(events) > 0 {
			text, err := json.Marshal(events[0]["Resources"])
			must(t, err)
			got = string(text)
		}
		if got != want || len(events) > 1 {
			t.Errorf("%s: got %d events, the first of %q, want %q", resource, len(events), got, want)
		}
	}
	if notice := time.Until(terminate.NotBefore).Round(time.Minute); notice != 12*time.Minute {
		t.Errorf("the configured notice is %s, want 12m", notice)
	}
	for name, request := range map[string]map[string]any{
		"VMs that share nothing":       {"type": "Freeze", "vms": []string{"a", "alone"}},
		"a VM that does not exist":     {"type": "Freeze", "vms": []string{"nowhere"}},
		"no VM":                        {"type": "Freeze"},
		"a Terminate of no configured": {"type": "Terminate", "vms": []string{"alone"}},
		"an unknown member":            {"type": "Freeze", "vms": []string{"a"}, "delay": "1s"},
	} {
		if status := s.admin(http.MethodPost, "", request); status/100 != 4 {
			t.Errorf("%s: %d, want a refusal", name, status)
		}
	}
}

func TestOldVersionsHaveTheFieldsOfTheirTime(t *testing.T) {
	s := site{t, simtest.Start(t)}
	s.vm("node-1", "")
	url := s.metadata("virtualMachines/node-1")
	for _, kind := range []string{"Freeze", "Preempt", "Terminate", "Hibernate"} {
		s.make(map[string]any{"type": kind, "vms": []string{"node-1"}, "notice": "1h"})
	}
	for version, want := range map[string]struct {
		types, resource string
		fields          int
	}{
		"2017-03-01": {"Freeze", "_node-1", 6},
		"2017-08-01": {"Freeze", "node-1", 6},
		"2017-11-01": {"Freeze Preempt", "node-1", 6},
		"2019-01-01": {"Freeze Preempt Terminate", "node-1", 6},
		"2019-04-01": {"Freeze Preempt Terminate", "node-1", 7},
		"2019-08-01": {"Freeze Preempt Terminate", "node-1", 8},
		"2020-07-01": {"Freeze Preempt Terminate Hibernate", "node-1", 9},
	} {
		var types []string
		events := s.read(url + version).Events
		for _, event := range events {
			types = append(types, event["EventType"].(string))
		}
		resource := events[0]["Resources"].([]any)[0]
		if got := strings.Join(types, " "); got != want.types || resource != want.resource || len(events[0]) != want.fields {
			t.Errorf("%s: %s of %v with %d fields, want %s of %s with %d", version, got, resource, len(events[0]), want.types,
				want.resource, want.fields)
		}
	}
}

func TestBadApprovalsAreRefused(t *testing.T) {
	s := site{t, simtest.Start(t)}
	s.vm("node-1", "")
	url := s.metadata("virtualMachines/node-1")
	id := s.make(map[string]any{"type": "Freeze", "vms": []string{"node-1"}}).ID
	good := `{"StartRequests": [{"EventId": "` + id + `"}]}`
	for name, test := range map[string]struct{ url, body, header string }{
		"without the header":  {url + latest, good, "Metadata: false"},
		"without a version":   {strings.TrimSuffix(url, "?api-version="), good, "Metadata: true"},
		"no JSON":             {url + latest, "approve", "Metadata: true"},
		"no request":          {url + latest, `{"StartRequests": []}`, "Metadata: true"},
		"of an unknown event": {url + latest, `{"StartRequests": [{"EventId": "x"}]}`, "Metadata: true"},
	} {
		if status := s.approve(test.url, test.body, test.header); status != http.StatusBadRequest {
			t.Errorf("%s: %d, want 400", name, status)
		}
	}
	if got := s.read(url + latest).Events[0]["EventStatus"]; got != "Scheduled" {
		t.Errorf("the event is %v, want Scheduled", got)
	}
}
