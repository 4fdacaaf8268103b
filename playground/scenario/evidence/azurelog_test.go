package evidence

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/azuredisk-csi/azuredisk/playground/azure"
)

const (
	vmPath    = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/node-1"
	diskPath  = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks/pvc-1"
	operation = "op-7"
)

func TestTheRecordOfAzuresimIsReadFromTheTimeOn(t *testing.T) {
	t.Parallel()
	var since string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/admin/requests" {
			http.NotFound(w, r)
			return
		}
		since = r.URL.Query().Get("since")
		_ = json.NewEncoder(w).Encode(map[string]any{"last": 2, "writes": 1, "records": []AzureCall{
			{Time: noon, Millis: 90, Method: "POST", Path: vmPath + "/attachDetachDataDisks",
				API: "VirtualMachines.AttachDetachDataDisks", Name: "set_1", Status: 202, Operation: operation},
		}})
	}))
	defer server.Close()
	nodeOf := func(vm string) string { return strings.ReplaceAll(vm, "set_1", "node-1") }
	log := AzureLog{Admin: azure.Admin{URL: server.URL, Client: server.Client()}, Node: nodeOf}
	calls, err := log.Since(t.Context(), noon)
	if err != nil {
		t.Fatal(err)
	}
	if len(calls) != 1 || !calls[0].IsWrite() || calls[0].Operation != operation || calls[0].Name != "node-1" {
		t.Errorf("got %+v, want one write of the operation %s at node-1", calls, operation)
	}
	if at, err := time.Parse(time.RFC3339Nano, since); err != nil || !at.Equal(noon) {
		t.Errorf("asked for the calls since %q, want %s", since, noon)
	}
	log.URL += "/elsewhere"
	if _, err := log.Since(t.Context(), noon); err == nil {
		t.Error("got no error for an answer of 404, want one")
	}
}

func TestAnOperationLastsUntilItWasLastAskedAbout(t *testing.T) {
	t.Parallel()
	attach := AzureCall{
		Time:      noon,
		Millis:    90,
		Method:    "POST",
		Path:      vmPath + "/attachDetachDataDisks",
		Operation: operation,
	}
	poll := AzureCall{
		Time:   noon.Add(11 * time.Second),
		Method: "GET",
		Path:   "/subscriptions/s/providers/Microsoft.Compute/locations/eastus/operations/" + operation,
	}
	stranger := AzureCall{Time: noon.Add(20 * time.Second), Method: "GET", Path: vmPath}
	if got := attach.ended([]AzureCall{attach, poll, stranger}).Sub(noon); got != 11*time.Second {
		t.Errorf("ended after %s, want %s", got, 11*time.Second)
	}
	if got := attach.ended([]AzureCall{attach}).Sub(noon); got != 90*time.Millisecond {
		t.Errorf("without a poll it ended after %s, want %s", got, 90*time.Millisecond)
	}
}

func TestRefusalsAreCountedByStatus(t *testing.T) {
	t.Parallel()
	calls := []AzureCall{{Status: http.StatusOK}, {Status: http.StatusTooManyRequests}, {Status: http.StatusInternalServerError},
		{Status: http.StatusServiceUnavailable}}
	if throttled, broken := Refused(calls, http.StatusTooManyRequests), Refused(calls,
		http.StatusInternalServerError); throttled != 1 || broken != 2 {
		t.Errorf("%d with 429 and %d with 5xx, want %d, %d", throttled, broken, 1, 2)
	}
}
