package azure_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/azuredisk-csi/azuredisk/internal/testkit/expect"
	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/azure"
)

// recorder keeps the bodies of what is put, by the last part of the path.
type recorder struct {
	client *http.Client
	put    map[string]map[string]any
}

func (s *simulator) recorder() recorder { return recorder{s.HTTP, map[string]map[string]any{}} }

// Do implements policy.Transporter.
func (r recorder) Do(req *http.Request) (*http.Response, error) {
	if req.Method == http.MethodPut {
		raw, err := io.ReadAll(req.Body)
		if err != nil {
			return nil, err
		}
		req.Body = io.NopCloser(bytes.NewReader(raw))
		body := map[string]any{}
		if err := json.Unmarshal(raw, &body); err != nil {
			return nil, err
		}
		r.put[nameOf(req.URL.Path)] = body
	}
	return r.client.Do(req)
}

func TestDisksAndSnapshotsAreMadeInTheClustersEdgeZone(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		s := startSimulator(t)
		recorded := s.recorder()
		options := s.options(t)
		options.EdgeZone, options.Transport = "attatlanta1", recorded
		azureCloud, err := azure.New(t.Context(), options)
		expect.Must(t, err)
		disk, err := makeDisk(t.Context(), azureCloud, "at-the-edge")
		expect.Must(t, err)
		op, err := azureCloud.Snapshots().Create(t.Context(), provisioner.SnapshotSpec{
			ID:       strings.ReplaceAll(disk, "/disks/", "/snapshots/") + "-s",
			SourceID: disk,
			Location: "eastus",
		})
		expect.Must(t, err)
		expect.Must(t, op.Wait(t.Context()))
		for _, name := range []string{"at-the-edge", "at-the-edge-s"} {
			got, _ := recorded.put[name]["extendedLocation"].(map[string]any)
			if got["name"] != "attatlanta1" || got["type"] != "EdgeZone" {
				t.Errorf("%s is put with %v", name, recorded.put[name])
			}
		}
		plain := s.recorder()
		options.EdgeZone, options.Transport = "", plain
		azureCloud, err = azure.New(t.Context(), options)
		expect.Must(t, err)
		if _, err := makeDisk(t.Context(), azureCloud, "in-the-region"); err != nil ||
			plain.put["in-the-region"]["extendedLocation"] != nil {
			t.Errorf("%v: %v", plain.put, err)
		}
	})
}

func TestRequestsCarryTheUserAgentOfTheProgramAndItsOperator(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		s := startSimulator(t)
		options := s.options(t)
		options.UserAgent, options.UserAgentPrefix, options.UserAgentSuffix = "azuredisk/v9", "AKS", "team-a"
		azureCloud, err := azure.New(t.Context(), options)
		expect.Must(t, err)
		if _, err := makeDisk(t.Context(), azureCloud, "signed"); err != nil {
			t.Fatal(err)
		}
		calls, _ := s.requests(t, 0)
		for _, c := range calls {
			if !strings.HasPrefix(c.UserAgent, "AKS azuredisk/v9 ") || !strings.HasSuffix(c.UserAgent, " team-a") {
				t.Errorf("%s: %s", c.API, c.UserAgent)
			}
		}
		if len(calls) == 0 {
			t.Error("no call was seen")
		}
	})
}

// makeDisk makes a disk.
func makeDisk(ctx context.Context, cloud *azure.Cloud, name string) (id string, err error) {
	id = fmt.Sprintf("/subscriptions/%s/resourceGroups/%s/providers/Microsoft.Compute/disks/%s", subscription, group, name)
	op, err := cloud.Disks().Create(ctx, provisioner.DiskSpec{
		ID:           id,
		Location:     "eastus",
		SizeBytes:    4 << 30,
		MaxShares:    1,
		DiskSettings: provisioner.DiskSettings{SKUName: "Premium_LRS"},
	})
	if err != nil {
		return id, err
	}
	return id, op.Wait(ctx)
}
