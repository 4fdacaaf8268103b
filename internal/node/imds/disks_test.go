package imds_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/azuredisk-csi/azuredisk/internal/node/imds"
)

func TestDiskAt(t *testing.T) {
	const disk = "/subscriptions/s/resourceGroups/rg/providers/Microsoft.Compute/disks/d3"
	list := `[{"lun":"0","managedDisk":{"id":"/subscriptions/s/resourceGroups/rg/providers/Microsoft.Compute/disks/d0"}},{"lun":"3","managedDisk":{"id":"` + disk + `"}}]`
	for name, test := range map[string]struct {
		status int
		body   string
		lun    int32
		want   string
		err    bool
	}{
		"a disk at the LUN":       {200, list, 3, disk, false},
		"none at the LUN":         {200, list, 1, "", false},
		"a VM without disks":      {200, `[]`, 3, "", false},
		"a service that fails":    {500, list, 3, "", true},
		"an answer without sense": {200, `{"lun":3}`, 3, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/metadata/instance/compute/storageProfile/dataDisks" || r.Header.Get("Metadata") != "true" ||
					r.URL.Query().Get("format") != "json" {
					t.Errorf("asked for %s", r.URL)
				}
				w.WriteHeader(test.status)
				_, _ = w.Write([]byte(test.body))
			}))
			defer server.Close()
			got, err := imds.DiskAt(t.Context(), server.URL, test.lun)
			if got != test.want || (err != nil) != test.err {
				t.Errorf("DiskAt = %q, %v, want %q, error: %t", got, err, test.want, test.err)
			}
		})
	}
}
