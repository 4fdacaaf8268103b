package sdk_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7"
	"github.com/google/uuid"
)

func TestOperationGoesOnFromAResumeToken(t *testing.T) {
	s := start(t)
	s.disk("a")
	s.vm("node", "Standard_D4s_v5")
	s.hold("vm.disks", "node")
	p, err := s.begin("node", attachments("a"))
	if err != nil {
		t.Fatal(err)
	}
	token, err := p.ResumeToken()
	if err != nil {
		t.Fatal(err)
	}
	resumed, err := s.vms.BeginAttachDetachDataDisks(t.Context(), "", "", armcompute.AttachDetachDataDisksRequest{},
		&armcompute.VirtualMachinesClientBeginAttachDetachDataDisksOptions{ResumeToken: token})
	if got := finish(t, resumed, err).DataDisks; len(got) != 1 {
		t.Errorf("got %+v, want len(got) = %v", got, 1)
	}
}

func (s *simulator) raw(method, path, body string) *http.Response {
	s.t.Helper()
	req, err := http.NewRequest(method, s.url+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { resp.Body.Close() })
	return resp
}

func TestOperationHeadersAndDocuments(t *testing.T) {
	s := start(t)
	s.disk("a")
	s.vm("node", "Standard_D4s_v5")
	s.hold("vm.disks", "node")
	vm := "/subscriptions/" + subscription + "/resourceGroups/" + group + "/providers/Microsoft.Compute/virtualMachines/node"
	resp := s.raw("POST", vm+"/attachDetachDataDisks?api-version=2025-04-01",
		`{"dataDisksToAttach":[{"diskId":"`+diskID("a")+`"}]}`)
	status, location := resp.Header.Get("Azure-AsyncOperation"), resp.Header.Get("Location")
	if resp.StatusCode != 202 || !strings.Contains(status, "/providers/Microsoft.Compute/locations/eastus/operations/") ||
		!strings.Contains(location, "monitor=true") {
		t.Fatalf("%d, %v", resp.StatusCode, resp.Header)
	}
	get := func(url string) (int, map[string]any) {
		r := s.raw("GET", strings.TrimPrefix(url, s.url), "")
		raw, err := io.ReadAll(r.Body)
		if err != nil {
			t.Fatal(err)
		}
		var doc map[string]any
		if len(raw) > 0 {
			if err := json.Unmarshal(raw, &doc); err != nil {
				t.Fatal(err)
			}
		}
		return r.StatusCode, doc
	}
	if code, doc := get(status); code != 200 || doc["status"] != "InProgress" || doc["startTime"] == nil ||
		doc["endTime"] != nil {
		t.Errorf("status while it is in flight: got %d %v", code, doc)
	}
	if code, _ := get(location); code != 202 {
		t.Errorf("location while it is in flight: got %d, want %d", code, 202)
	}
	s.eventually("the operation is done", func() bool {
		_, doc := get(status)
		return doc["status"] == "Succeeded" && doc["endTime"] != nil
	})
	if code, doc := get(location); code != 200 || len(doc["dataDisks"].([]any)) != 1 {
		t.Errorf("location after it: %d %v", code, doc)
	}

	disk := s.raw("PUT", diskID("b")+"?api-version=2025-01-02",
		`{"location":"East US","properties":{"creationData":{"createOption":"Empty"},"diskSizeGB":4}}`)
	if disk.StatusCode != 202 || !strings.Contains(disk.Header.Get("Location"), "/DiskOperations/") ||
		disk.Header.Get("x-ms-request-id") == "" {
		t.Errorf("disk PUT: %d %v", disk.StatusCode, disk.Header)
	}
}

// Microsoft's support looks up a request by these IDs.
func TestEachAnswerHasTheIDsOfItsRequest(t *testing.T) {
	s := start(t)
	seen := map[string]bool{}
	for _, path := range []string{
		diskID("a") + "?api-version=2025-01-02", diskID("a") + "?api-version=2025-01-02", diskID("a") + "?api-version=latest",
	} {
		answer := s.raw("GET", path, "")
		for _, header := range []string{"x-ms-correlation-request-id", "x-ms-request-id"} {
			if id := answer.Header.Get(header); uuid.Validate(id) != nil || seen[id] {
				t.Errorf("%s of the refusal with %d is %q, want a new UUID", header, answer.StatusCode, id)
			} else {
				seen[id] = true
			}
		}
	}
}

func TestRequestsAreCheckedBeforeResources(t *testing.T) {
	s := start(t)
	for name, tc := range map[string]struct {
		method, path, body string
		status             int
		code               string
	}{
		"an odd api-version": {"GET", diskID("a") + "?api-version=latest", "", 400, "InvalidApiVersionParameter"},
		"an unknown action":  {"POST", diskID("a") + "/explode?api-version=2025-01-02", "", 404, "InvalidResourceType"},
		"an odd skip token": {"GET", "/subscriptions/" + subscription +
			"/providers/Microsoft.Compute/disks?api-version=2025-01-02&$skiptoken=%21", "", 400, "InvalidParameter"},
		"case does not matter": {"GET", strings.ToUpper(diskID("a")) + "?api-version=2025-01-02", "", 404, "ResourceNotFound"},
	} {
		t.Run(name, func(t *testing.T) {
			resp := s.raw(tc.method, tc.path, tc.body)
			var doc struct {
				Error struct{ Code string }
			}
			if err := json.NewDecoder(resp.Body).Decode(&doc); err != nil {
				t.Fatal(err)
			}
			if resp.StatusCode != tc.status || doc.Error.Code != tc.code {
				t.Errorf("got %d %s, want %d %s", resp.StatusCode, doc.Error.Code, tc.status, tc.code)
			}
		})
	}
}

type fixedToken string

func (f fixedToken) GetToken(context.Context, policy.TokenRequestOptions) (azcore.AccessToken, error) {
	return azcore.AccessToken{Token: string(f), ExpiresOn: time.Now().Add(time.Hour)}, nil
}
