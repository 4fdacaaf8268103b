package azure_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/azure"
)

// recorder keeps the bodies of what is put, by the last part of the path.
type recorder map[string]map[string]any

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
		r[nameOf(req.URL.Path)] = body
	}
	return http.DefaultClient.Do(req)
}

func TestDisksAndSnapshotsAreMadeInTheClustersEdgeZone(t *testing.T) {
	s := startSimulator(t)
	config := s.config(t)
	credential, err := config.Credential()
	must(t, err)
	put := recorder{}
	azureCloud, err := azure.New(t.Context(), azure.Options{
		Credential: credential, Cloud: config.CloudConfiguration(), SubscriptionID: subscription, EdgeZone: "attatlanta1", Transport: put,
	})
	must(t, err)
	disk, err := makeDisk(t.Context(), azureCloud, "at-the-edge")
	must(t, err)
	op, err := azureCloud.Snapshots().Create(t.Context(), provisioner.SnapshotSpec{ID: strings.ReplaceAll(disk, "/disks/", "/snapshots/") + "-s", SourceID: disk, Location: "eastus"})
	must(t, err)
	must(t, op.Wait(t.Context()))
	for _, name := range []string{"at-the-edge", "at-the-edge-s"} {
		if got, _ := put[name]["extendedLocation"].(map[string]any); got["name"] != "attatlanta1" || got["type"] != "EdgeZone" {
			t.Errorf("%s is put with %v", name, put[name])
		}
	}
	plain := recorder{}
	azureCloud, err = azure.New(t.Context(), azure.Options{Credential: credential, Cloud: config.CloudConfiguration(), SubscriptionID: subscription, Transport: plain})
	must(t, err)
	if _, err := makeDisk(t.Context(), azureCloud, "in-the-region"); err != nil || plain["in-the-region"]["extendedLocation"] != nil {
		t.Errorf("%v: %v", plain, err)
	}
}
