package scenario

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
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
		_ = json.NewEncoder(w).Encode(map[string]any{"last": 2, "writes": 1, "records": []azureCall{
			{Time: noon, Millis: 90, Method: "POST", Path: vmPath + "/attachDetachDataDisks", API: "VirtualMachines.AttachDetachDataDisks", Name: "node-1", Status: 202, Operation: operation},
		}})
	}))
	defer server.Close()
	calls, err := (&azureLog{url: server.URL, client: server.Client()}).since(t.Context(), noon)
	if err != nil {
		t.Fatal(err)
	}
	if len(calls) != 1 || !calls[0].isWrite() || calls[0].Operation != operation {
		t.Errorf("read %+v", calls)
	}
	if at, err := time.Parse(time.RFC3339Nano, since); err != nil || !at.Equal(noon) {
		t.Errorf("asked for the time since %q", since)
	}
	if _, err := (&azureLog{url: server.URL + "/elsewhere", client: server.Client()}).since(t.Context(), noon); err == nil {
		t.Error("an answer of 404 passed for a record without calls")
	}
}

func TestTheWritesOfAMoveAreCounted(t *testing.T) {
	t.Parallel()
	m := Move{Requested: noon, Running: noon.Add(8 * time.Second), Machines: []string{"node-1", "node-3"}, Volume: volume{Name: "pvc-1"}}
	during := noon.Add(time.Second)
	tests := map[string]struct {
		call azureCall
		want int
	}{
		"an attach counts":                       {azureCall{Time: during, Method: "POST", Path: vmPath + "/attachDetachDataDisks", Name: "node-1"}, 1},
		"an update of the VM counts":             {azureCall{Time: during, Method: "PUT", Path: vmPath, Name: "node-1"}, 1},
		"a write that was refused counts too":    {azureCall{Time: during, Method: "PATCH", Path: vmPath, Status: 409, Name: "node-1"}, 1},
		"an update of the disk counts":           {azureCall{Time: during, Method: "PATCH", Path: diskPath, Name: "PVC-1"}, 1},
		"another disk does not":                  {azureCall{Time: during, Method: "PATCH", Path: diskPath, Name: "pvc-2"}, 0},
		"a VM of the other zone does not":        {azureCall{Time: during, Method: "PUT", Path: vmPath, Name: "node-2"}, 0},
		"a read does not":                        {azureCall{Time: during, Method: "GET", Path: vmPath, Name: "node-1"}, 0},
		"the issue of a token does not":          {azureCall{Time: during, Method: "POST", Path: "/tenant/oauth2/v2.0/token"}, 0},
		"a write before the move does not":       {azureCall{Time: noon.Add(-1), Method: "PUT", Path: vmPath, Name: "node-1"}, 0},
		"a write after the pod's start does not": {azureCall{Time: m.Running.Add(1), Method: "PUT", Path: vmPath, Name: "node-1"}, 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := len(azureWrites([]azureCall{test.call}, m)); got != test.want {
				t.Errorf("counted %d, want %d", got, test.want)
			}
		})
	}
}

func TestAnOperationLastsUntilItWasLastAskedAbout(t *testing.T) {
	t.Parallel()
	attach := azureCall{Time: noon, Millis: 90, Method: "POST", Path: vmPath + "/attachDetachDataDisks", Operation: operation}
	poll := azureCall{Time: noon.Add(11 * time.Second), Method: "GET", Path: "/subscriptions/s/providers/Microsoft.Compute/locations/eastus/operations/" + operation}
	stranger := azureCall{Time: noon.Add(20 * time.Second), Method: "GET", Path: vmPath}
	if got := attach.ended([]azureCall{attach, poll, stranger}).Sub(noon); got != 11*time.Second {
		t.Errorf("ended after %s", got)
	}
	if got := attach.ended([]azureCall{attach}).Sub(noon); got != 90*time.Millisecond {
		t.Errorf("without a poll it ended after %s", got)
	}
}
