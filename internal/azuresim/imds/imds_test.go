package imds_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/azuredisk-csi/azuredisk/internal/azuresim/imds"
)

const tokenKey = "0123456789abcdef0123456789abcdef"

const group = "/subscriptions/0000-1/resourceGroups/rg"

// vmJSON is a VM as ARM represents it.
const vmJSON = `{
  "id": "` + group + `/providers/Microsoft.Compute/virtualMachines/node-1", "name": "node-1", "location": "westeurope", "zones": ["2"],
  "tags": {"b": "2", "a": "1"},
  "identity": {"type": "SystemAssigned, UserAssigned", "principalId": "p-system", "tenantId": "t-1",
    "userAssignedIdentities": {"` + group +
	`/providers/Microsoft.ManagedIdentity/userAssignedIdentities/u": {"clientId": "c-user", "principalId": "p-user"}}},
  "properties": {
    "vmId": "v-1", "hardwareProfile": {"vmSize": "Standard_D4s_v5"}, "osProfile": {"computerName": "node-1"},
    "virtualMachineScaleSet": {"id": "` + group + `/providers/Microsoft.Compute/virtualMachineScaleSets/pool"},
    "storageProfile": {"osDisk": {"osType": "Linux", "name": "os", "createOption": "FromImage"}, "dataDisks": [
      {"lun": 3, "name": "d3", "caching": "None", "createOption": "Attach", "diskSizeGB": 256,
       "managedDisk": {"id": "` + group + `/providers/Microsoft.Compute/disks/d3", "storageAccountType": "Premium_LRS"}},
      {"lun": 0, "name": "d0", "caching": "None", "createOption": "Attach", "managedDisk": {"id": "x"}}]}}}`

const instanceJSON = `{"id": "` + group +
	`/providers/Microsoft.Compute/virtualMachineScaleSets/pool/virtualMachines/7", "name": "pool_7",
  "location": "westeurope", "sku": {"name": "Standard_D2s_v5"}, "properties": {"vmId": "v-7"}}`

// frontEnd answers as ARM does for what it has, and counts.
type frontEnd struct {
	*httptest.Server
	resources map[string]string
	calls     atomic.Int64
	down      atomic.Bool
}

func startFrontEnd(t *testing.T) *frontEnd {
	t.Helper()
	f := &frontEnd{resources: map[string]string{}}
	for _, resource := range []string{vmJSON, instanceJSON} {
		var parsed struct{ ID string }
		must(t, json.Unmarshal([]byte(resource), &parsed))
		f.resources[parsed.ID] = resource
	}
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.calls.Add(1)
		body, ok := f.resources[r.URL.Path]
		switch {
		case f.down.Load():
			w.WriteHeader(http.StatusServiceUnavailable)
		case !strings.HasPrefix(r.Header.Get("Authorization"), "Bearer "):
			w.WriteHeader(http.StatusUnauthorized)
		case !ok || r.URL.Query().Get("api-version") == "":
			w.WriteHeader(http.StatusNotFound)
		default:
			_, _ = io.WriteString(w, body)
		}
	}))
	t.Cleanup(f.Close)
	return f
}

// serve serves the VM with that ARM ID and returns the service's address.
func serve(t *testing.T, f *frontEnd, id string, c clock.PassiveClock) string {
	t.Helper()
	signer, err := imds.NewSigner([]byte(tokenKey), c)
	must(t, err)
	source := &imds.ARM{
		ResourceID: id,
		Endpoint:   f.URL,
		Token:      func() (string, error) { return "t", nil },
	}
	server := httptest.NewServer((&imds.Server{
		Source: &imds.Cached{Source: source, Clock: c, Keep: 10 * time.Second}, Signer: signer, Events: imds.NoEvents{},
	}).Handler())
	t.Cleanup(server.Close)
	return server.URL
}

const vmPath = group + "/providers/Microsoft.Compute/virtualMachines/node-1"

// get returns the status and the body.
func get(t *testing.T, url string, headers ...string) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	must(t, err)
	for _, header := range append(headers, "Metadata: true") {
		name, value, _ := strings.Cut(header, ": ")
		if request.Header.Get(name) == "" {
			request.Header.Set(name, value)
		}
	}
	answer, err := http.DefaultClient.Do(request)
	must(t, err)
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	must(t, err)
	return answer.StatusCode, string(body)
}

func TestInstanceDocument(t *testing.T) {
	base := serve(t, startFrontEnd(t), vmPath, clock.RealClock{})
	for path, want := range map[string]string{
		"compute/name":                                      "node-1",
		"compute/vmId":                                      "v-1",
		"compute/vmSize":                                    "Standard_D4s_v5",
		"compute/zone":                                      "2",
		"compute/location":                                  "westeurope",
		"compute/subscriptionId":                            "0000-1",
		"compute/resourceGroupName":                         "rg",
		"compute/resourceId":                                vmPath,
		"compute/vmScaleSetName":                            "pool",
		"compute/tags":                                      "a:1;b:2",
		"compute/tagsList/1/value":                          "2",
		"Compute/StorageProfile/DataDisks/0/lun":            "0",
		"compute/storageProfile/dataDisks/1/lun":            "3",
		"compute/storageProfile/dataDisks/1/diskSizeGB":     "256",
		"compute/storageProfile/dataDisks/1/managedDisk/id": group + "/providers/Microsoft.Compute/disks/d3",
		"compute/storageProfile/dataDisks/1/writeAcceleratorEnabled": "false",
		"compute/storageProfile/dataDisks":                           "0/\n1/",
		"":                                                           "compute/\nnetwork/",
	} {
		status, body := get(t, base+"/metadata/instance/"+path+"?format=text&api-version=2021-02-01")
		if status != http.StatusOK || body != want {
			t.Errorf("%s: %d %q, want %q", path, status, body, want)
		}
	}
	var document struct {
		Compute struct {
			StorageProfile struct{ DataDisks []struct{ LUN, Name string } }
		}
	}
	_, body := get(t, base+"/metadata/instance?api-version=2021-02-01")
	must(t, json.Unmarshal([]byte(body), &document))
	if got := fmt.Sprint(document.Compute.StorageProfile.DataDisks); got != "[{0 d0} {3 d3}]" {
		t.Errorf("data disks %s, want %s", got, "[{0 d0} {3 d3}]")
	}
}

func TestInstanceOfAUniformScaleSet(t *testing.T) {
	base := serve(t, startFrontEnd(t), group+"/providers/Microsoft.Compute/virtualMachineScaleSets/pool/virtualMachines/7",
		clock.RealClock{})
	for path, want := range map[string]string{
		"name":           "pool_7",
		"vmScaleSetName": "pool",
		"vmSize":         "Standard_D2s_v5",
		"zone":           "",
		"osType":         "Linux",
	} {
		if status, body := get(t, base+"/metadata/instance/compute/"+path+
			"?format=text&api-version=2021-02-01"); status != http.StatusOK || body != want {
			t.Errorf("%s: %d %q, want %q", path, status, body, want)
		}
	}
}

func TestRequestsThatAzureRefusesAreRefused(t *testing.T) {
	base := serve(t, startFrontEnd(t), vmPath, clock.RealClock{})
	const version = "?api-version=2021-02-01"
	for name, test := range map[string]struct {
		path    string
		headers []string
		status  int
		body    string
	}{
		"no Metadata header": {"/metadata/instance" + version, []string{"Metadata: false"}, 400,
			"Required metadata header not specified"},
		"through a proxy":       {"/metadata/instance" + version, []string{"X-Forwarded-For: 1.2.3.4"}, 400, "X-Forwarded-For"},
		"no version":            {"/metadata/instance", nil, 400, `"newest-versions":["2023-11-15"`},
		"unknown version":       {"/metadata/instance?api-version=1999-01-01", nil, 400, "api-version is invalid"},
		"leaf as JSON":          {"/metadata/instance/compute/name" + version, nil, 400, "format=text"},
		"unknown node":          {"/metadata/instance/compute/nothing" + version, nil, 404, "Not found"},
		"index beyond the list": {"/metadata/instance/compute/storageProfile/dataDisks/9" + version, nil, 404, "Not found"},
		"unknown path":          {"/metadata/nothing", nil, 404, "Not found"},
		"token without header": {"/metadata/identity/oauth2/token?api-version=2018-02-01&resource=r",
			[]string{"Metadata: no"}, 400, `"invalid_request"`},
		"token without resource": {"/metadata/identity/oauth2/token?api-version=2018-02-01", nil, 400, "'resource' is missing"},
		"token of an unknown client": {"/metadata/identity/oauth2/token?api-version=2018-02-01&resource=r&client_id=x", nil, 400,
			"Identity not found"},
	} {
		if status, body := get(t, base+test.path, test.headers...); status != test.status || !strings.Contains(body, test.body) {
			t.Errorf("%s: %d %s, want %d with %q", name, status, body, test.status, test.body)
		}
	}
}

func TestVMWithoutIdentityGetsNoToken(t *testing.T) {
	base := serve(t, startFrontEnd(t), group+"/providers/Microsoft.Compute/virtualMachineScaleSets/pool/virtualMachines/7",
		clock.RealClock{})
	status, body := get(t, base+"/metadata/identity/oauth2/token?api-version=2018-02-01&resource=r")
	if status != http.StatusBadRequest || !strings.Contains(body, "Identity not found") {
		t.Errorf("%d %s, want %d, it to contain %q", status, body, http.StatusBadRequest, "Identity not found")
	}
}

func TestNoEventIsScheduledWhereNoneAreKnown(t *testing.T) {
	base := serve(t, startFrontEnd(t), vmPath, clock.RealClock{})
	if status, body := get(t, base+"/metadata/scheduledevents?api-version=2020-07-01"); status != 200 ||
		strings.TrimSpace(body) != `{"DocumentIncarnation":1,"Events":[]}` {
		t.Errorf("%d %s", status, body)
	}
}

func TestFrontEndIsAskedRarelyAndItsAbsenceIsNotNoticed(t *testing.T) {
	f, c := startFrontEnd(t), clocktesting.NewFakePassiveClock(time.Unix(1e9, 0))
	base := serve(t, f, vmPath, c)
	name := base + "/metadata/instance/compute/name?format=text&api-version=2021-02-01"
	f.down.Store(true)
	if status, _ := get(t, name); status != http.StatusInternalServerError {
		t.Errorf("before the front end ever answered: %d, want 500", status)
	}
	f.down.Store(false)
	f.calls.Store(0)
	for range 20 {
		get(t, name)
	}
	if calls := f.calls.Load(); calls != 1 {
		t.Errorf("20 requests at one time made %d calls to ARM, want 1", calls)
	}
	f.down.Store(true)
	c.SetTime(c.Now().Add(time.Minute))
	if status, body := get(t, name); status != http.StatusOK || body != "node-1" {
		t.Errorf("while the front end is down: %d %q, want what it said before", status, body)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
