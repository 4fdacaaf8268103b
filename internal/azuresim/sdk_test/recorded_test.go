package sdk_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7"

	"github.com/azuredisk-csi/azuredisk/internal/azuresim/latency"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/server"
)

// What these tests expect is what recorded sessions with Azure show; rules.All has the sources.

func vmID(name string) string {
	return strings.Replace(diskID(name), "/disks/", "/virtualMachines/", 1)
}

func setID(name string) string {
	return strings.Replace(diskID(name), "/disks/", "/virtualMachineScaleSets/", 1)
}

// send makes a call with a header, and returns the answer with its body.
func (s *simulator) send(method, path, body string, header ...string) (answer *http.Response, document map[string]any) {
	s.t.Helper()
	if !strings.Contains(path, "?") {
		path += "?api-version=2025-04-01"
	}
	r, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	answer, err = http.DefaultClient.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer answer.Body.Close()
	_ = json.NewDecoder(answer.Body).Decode(&document) // there may be none
	return answer, document
}

// at returns a part of a document, by names and indexes.
func at(document any, path ...any) any {
	for _, p := range path {
		switch in := document.(type) {
		case map[string]any:
			document = in[p.(string)]
		case []any:
			if i := p.(int); i < len(in) {
				document = in[i]
				continue
			}
			return nil
		default:
			return nil
		}
	}
	return document
}

func expect(t *testing.T, what string, got, want any) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// realistic lets the simulator answer as Azure, at once.
func (s *simulator) realistic() {
	s.t.Helper()
	p := latency.Realistic()
	p.Steps = map[latency.Step]latency.Range{}
	s.adminCall("PUT", "/admin/latency", p, nil)
}

var azuresTime = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{7}\+00:00$`)

// attachA attaches the disk a to the VM node.
func (s *simulator) attachA() (*http.Response, map[string]any) {
	s.t.Helper()
	return s.send("POST", vmID("node")+"/attachDetachDataDisks", `{"dataDisksToAttach": [{"diskId": "`+diskID("a")+`"}]}`)
}

const (
	onePool = `{"location": "eastus", "sku": {"name": "Standard_D4s_v5", "capacity": 1},
		"properties": {"orchestrationMode": "Uniform"}}`
	smallVM = `{"location": "eastus", "properties": {"hardwareProfile": {"vmSize": "Standard_D4s_v5"}}}`
)

func TestTheAnswerToThePutOfADiskHasWhatWasSent(t *testing.T) {
	s := start(t)
	const version = "?api-version=2025-01-02"
	_, got := s.send("PUT", diskID("a")+version,
		`{"location": "eastus", "properties": {"creationData": {"createOption": "Empty"}, "diskSizeGB": 200}}`)
	raw, _ := json.Marshal(got)
	expect(t, "answer", string(raw), `{"id":"`+diskID("a")+`","location":"eastus","name":"a",`+
		`"properties":{"creationData":{"createOption":"Empty"},"diskSizeGB":200,"provisioningState":"Updating"},`+
		`"type":"Microsoft.Compute/disks"}`)
	s.settle()
	_, got = s.send("PUT", diskID("a")+version,
		`{"location": "eastus", "tags": {"a": "b"}, "properties": {"creationData": {"createOption": "Empty"}, "diskSizeGB": 200}}`)
	expect(t, "tier of a disk that exists", at(got, "sku", "tier"), "Standard")
	expect(t, "its size", at(got, "properties", "diskSizeBytes"), float64(200<<30))
	expect(t, "its state", at(got, "properties", "diskState"), nil)
}

func TestVMsAndScaleSetsHaveETagsThatCount(t *testing.T) {
	s := start(t)
	made, _ := s.send("PUT", vmID("node"), smallVM)
	s.settle()
	read, body := s.send("GET", vmID("node"), "")
	same, state := s.send("PUT", vmID("node"), smallVM)
	again, _ := s.send("GET", vmID("node"), "")
	expect(t, "ETag of the answer to the creation", made.Header.Get("ETag"), `"1"`)
	expect(t, "ETag of the VM", read.Header.Get("ETag"), `"2"`)
	expect(t, "etag of the VM", at(body, "etag"), `"2"`)
	expect(t, "ETag after a PUT that changes nothing", again.Header.Get("ETag"), `"2"`)
	expect(t, "operation of a PUT that changes nothing", same.Header.Get("Azure-AsyncOperation"), "")
	expect(t, "state in its answer", at(state, "properties", "provisioningState"), "Updating")
	s.send("PATCH", vmID("node"), `{"tags": {"a": "b"}}`)
	s.settle()
	read, _ = s.send("GET", vmID("node"), "")
	expect(t, "ETag after a change", read.Header.Get("ETag"), `"3"`)

	created, set := s.send("PUT", setID("pool"), onePool)
	expect(t, "state of a scale set that is created", at(set, "properties", "provisioningState"), "Creating")
	expect(t, "ETag of a scale set", created.Header.Get("ETag"), `"1"`)
	s.settle()
	for _, id := range []string{vmID("node"), setID("pool")} {
		refused, fault := s.send("PATCH", id, `{"tags": {"a": "c"}}`, "If-Match", `"invalid"`)
		expect(t, "status with another ETag", refused.StatusCode, 412)
		expect(t, "code", at(fault, "error", "code"), "PreconditionFailed")
		expect(t, "message", regexp.MustCompile(`^Etag provided in if-match header "invalid" does not match etag "\d" of resource\.$`).
			MatchString(fmt.Sprint(at(fault, "error", "message"))), true)
	}
}

func TestListsOfUnknownScaleSetsAreEmpty(t *testing.T) {
	s := start(t)
	list := strings.TrimSuffix(vmID(""), "/") + "?api-version=2025-04-01&"
	for _, query := range []string{"$filter=%27virtualMachineScaleSet/id%27%20eq%20%27notexists%27",
		"$filter=%27virtualMachineScaleSet/id%27%20eq%20%27" + setID("none") + "%27", "$expand=instanceView"} {
		answer, body := s.send("GET", list+query, "")
		value, _ := at(body, "value").([]any)
		if answer.StatusCode != 200 || value == nil || len(value) > 0 {
			t.Errorf("%s: got %d and %v, want 200 and an empty list", query, answer.StatusCode, body)
		}
	}
}

func TestAnInstanceIsANumber(t *testing.T) {
	s := start(t)
	s.send("PUT", setID("pool"), onePool)
	s.settle()
	for _, test := range []struct{ method, instance, target string }{
		{"GET", "0notfound", "instanceId"}, {"PUT", "99", "instanceIds"},
	} {
		answer, fault := s.send(test.method, setID("pool")+"/virtualMachines/"+test.instance, bodyOf(test.method))
		expect(t, "status of "+test.instance, answer.StatusCode, 400)
		expect(t, "code", at(fault, "error", "code"), "InvalidParameter")
		expect(t, "target", at(fault, "error", "target"), test.target)
	}
}

func bodyOf(method string) string {
	if method == "PUT" {
		return `{"location": "eastus"}`
	}
	return ""
}

func TestAVMShowsItsDisksAsAzureDoes(t *testing.T) {
	s := start(t)
	s.vm("node", "Standard_D4s_v5")
	s.disk("a")
	s.send("PATCH", vmID("node"), `{"properties": {"storageProfile": {"dataDisks": [{"lun": 3, "createOption": "Attach",
		"managedDisk": {"id": "`+diskID("a")+`", "storageAccountType": "Standard_LRS"}}]}}}`)
	s.settle()
	_, body := s.send("GET", vmID("node"), "")
	entry := at(body, "properties", "storageProfile", "dataDisks", 0)
	expect(t, "size", at(entry, "diskSizeGB"), 16.0)
	expect(t, "write accelerator", at(entry, "writeAcceleratorEnabled"), nil)
	expect(t, "storage type", at(entry, "managedDisk", "storageAccountType"), "Standard_LRS")
	s.send("POST", vmID("node")+"/deallocate", "")
	s.settle()
	_, body = s.send("GET", vmID("node"), "")
	expect(t, "size at a VM that is off", at(body, "properties", "storageProfile", "dataDisks", 0, "diskSizeGB"), nil)
}

func TestAnUltraDiskShowsSharesAndReadersPerformance(t *testing.T) {
	s := start(t)
	d := s.disk("ultra", sku(armcompute.DiskStorageAccountTypesUltraSSDLRS), zone("1"))
	if p := d.Properties; p.MaxShares == nil || *p.MaxShares != 1 || p.DiskIOPSReadOnly == nil || p.DiskMBpsReadOnly == nil {
		t.Errorf("got shares %v, readers' IOPS %v and MBps %v, want 1 and both", p.MaxShares, p.DiskIOPSReadOnly, p.DiskMBpsReadOnly)
	}
}

func TestACopyFromAnotherPlaceIsNotFound(t *testing.T) {
	s := start(t)
	s.disk("a")
	copyOf := func(source, location string) string {
		return `{"location": "` + location + `", "properties": {"creationData": {"createOption": "Copy",
			"sourceResourceId": "` + diskID(source) + `"}}}`
	}
	for name, test := range map[string]struct{ body, message string }{
		"of another region":      {copyOf("a", "westus2"), "The entity was not found in this Azure location."},
		"of what does not exist": {copyOf("none", "eastus"), "Resource none is not found."},
	} {
		answer, fault := s.send("PUT", diskID("copy")+"?api-version=2025-01-02", test.body)
		expect(t, name, answer.StatusCode, 404)
		expect(t, name, at(fault, "error", "code"), "NotFound")
		expect(t, name, at(fault, "error", "message"), test.message)
	}
}

func TestOperationsHaveAzuresURLsTimesAndPauses(t *testing.T) {
	s := start(t)
	s.realistic()
	answer, _ := s.send("PUT", vmID("node"), smallVM)
	operation := answer.Header.Get("Azure-AsyncOperation")
	expect(t, "Retry-After of a creation", answer.Header.Get("Retry-After"), "10")
	if n := len(operation); n < 3500 || n > 5000 {
		t.Errorf("the URL of the operation has %d bytes, want about 4200", n)
	}
	id := regexp.MustCompile(`/operations/([^?]+)`).FindStringSubmatch(operation)
	if len(id) != 2 || answer.Header.Get("x-ms-request-id") != id[1] {
		t.Errorf("the request ID is %s, want that of the operation, %v", answer.Header.Get("x-ms-request-id"), id)
	}
	s.settle()
	_, document := s.send("GET", strings.TrimPrefix(operation, s.url), "")
	for _, member := range []string{"startTime", "endTime"} {
		if got := fmt.Sprint(document[member]); !azuresTime.MatchString(got) {
			t.Errorf("%s is %s, want seven digits and +00:00", member, got)
		}
	}
	s.disk("a")
	s.fault(map[string]any{"stage": "operation", "operation": "vm.disks", "delay": "500ms", "times": 1})
	answer, _ = s.attachA()
	operation = strings.TrimPrefix(answer.Header.Get("Azure-AsyncOperation"), s.url)
	first, _ := s.send("GET", operation, "")
	second, _ := s.send("GET", operation, "")
	expect(t, "Retry-After of an attach", answer.Header.Get("Retry-After"), "10")
	expect(t, "Retry-After of the first poll", first.Header.Get("Retry-After"), "10")
	expect(t, "Retry-After of the second poll", second.Header.Get("Retry-After"), "")
	answer, _ = s.send("PATCH", vmID("node"), `{"tags": {"a": "b"}}`)
	expect(t, "Retry-After of a PATCH", answer.Header.Get("Retry-After"), "")
	_, list := s.send("GET", strings.TrimSuffix(vmID(""), "/"), "")
	expect(t, "ID in a list", strings.Contains(fmt.Sprint(at(list, "value", 0, "id")), "/DEFAULT/"), true)
}

func TestTheDiskProviderHasQuotas(t *testing.T) {
	s := start(t, func(o *server.Options) { o.Throttle = "on" })
	const version = "?api-version=2025-01-02"
	left := func(answer *http.Response) string { return answer.Header.Get("x-ms-ratelimit-remaining-resource") }
	list := strings.TrimSuffix(diskID(""), "/") + version
	answer, _ := s.send("GET", list, "")
	expect(t, "left after a list", left(answer), "Microsoft.Compute/HighCostGet30Min;1919,Microsoft.Compute/HighCostGet3Min;239")
	answer, _ = s.send("PUT", diskID("a")+version, emptyDisk)
	expect(t, "left after a PUT", left(answer),
		"Microsoft.Compute/CreateUpdateDisks30Min;7999,Microsoft.Compute/CreateUpdateDisks3Min;999")
	for range 239 {
		s.send("GET", list, "")
	}
	answer, fault := s.send("GET", list, "")
	if answer.StatusCode != 429 || answer.Header.Get("Retry-After") == "" {
		t.Errorf("list 241 within 3 minutes: got %d %v, want 429 with Retry-After", answer.StatusCode, fault)
	}
}

func TestAttachDetachCanBeOff(t *testing.T) {
	for value, message := range map[string]string{
		"subscription": "The subscription is not enabled for using the attach detach data disks API.",
		"region":       "The attach detach data disks API is not enabled for the region.",
	} {
		s := start(t, func(o *server.Options) { o.AttachDetach = value })
		s.vm("node", "Standard_D4s_v5")
		s.disk("a")
		answer, fault := s.attachA()
		expect(t, "status", answer.StatusCode, 400)
		expect(t, "message", at(fault, "error", "message"), message)
	}
}

func TestDiskSKUsHaveAzuresNames(t *testing.T) {
	s := start(t)
	_, list := s.send("GET", "/subscriptions/"+subscription+
		"/providers/Microsoft.Compute/skus?api-version=2021-07-01&$filter=location%20eq%20%27eastus%27", "")
	entries, _ := at(list, "value").([]any)
	seen := map[string]string{}
	for _, e := range entries {
		name := fmt.Sprint(at(e, "name"))
		if at(e, "resourceType") != "disks" || seen[name] != "" {
			continue
		}
		info := at(e, "locationInfo", 0).(map[string]any)
		seen[name] = fmt.Sprint(at(e, "size"), " ", info["zoneDetails"])
		capabilities, _ := at(e, "capabilities").([]any)
		for _, c := range capabilities {
			seen[name] += fmt.Sprintf(" %v=%v", at(c, "name"), at(c, "value"))
		}
	}
	for name, want := range map[string]string{
		"PremiumV2_LRS": `^P \[\] .*MaxIOpsReadWrite=80000 MinIOpsReadWrite=3000 MaxBandwidthMBpsReadWrite=\d+ MinBandwidthMBpsReadWrite=125 `,
		"Standard_LRS":  `^S4 \[\] MaxSizeGiB=32 MinSizeGiB=0 .*MaxIOps=500`,
	} {
		if !regexp.MustCompile(want).MatchString(seen[name]) {
			t.Errorf("first entry of %s: got %s, want %s", name, seen[name], want)
		}
	}
}

func TestAnEncryptionSetIsMadeByAnOperation(t *testing.T) {
	s := start(t)
	set := strings.Replace(diskID("e"), "/disks/", "/diskEncryptionSets/", 1) + "?api-version=2025-01-02"
	answer, body := s.send("PUT", set, `{"location": "eastus"}`)
	expect(t, "status", answer.StatusCode, http.StatusAccepted)
	operation := answer.Header.Get("Azure-AsyncOperation")
	expect(t, "operation of the disk provider", strings.Contains(operation, "/DiskOperations/"), true)
	expect(t, "ID", at(body, "id"), strings.TrimSuffix(set, "?api-version=2025-01-02"))
	s.settle()
	_, document := s.send("GET", strings.TrimPrefix(operation, s.url), "")
	expect(t, "status of the operation", at(document, "status"), "Succeeded")
	expect(t, "its result", at(document, "properties", "output", "name"), "e")

	s.fault(map[string]any{"stage": "operation", "operation": "linked.put", "times": 1, "code": "InternalServerError"})
	failing := strings.Replace(set, "/e?", "/f?", 1)
	s.send("PUT", failing, `{"location": "eastus"}`)
	s.settle()
	gone, _ := s.send("GET", failing, "")
	expect(t, "status of one whose creation failed", gone.StatusCode, http.StatusNotFound)
}

func TestAVMsViewSaysSinceWhenADiskIsThere(t *testing.T) {
	s := start(t)
	s.vm("node", "Standard_D4s_v5")
	s.disk("a")
	s.attach("node", "a")
	_, view := s.send("GET", vmID("node")+"/instanceView", "")
	if got := fmt.Sprint(at(view, "disks", 0, "statuses", 0, "time")); !azuresTime.MatchString(got) {
		t.Errorf("time of the disk's state is %s, want Azure's form", got)
	}
}
