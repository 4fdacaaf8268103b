package maintenance

import (
	"net/http"
	"testing"
	"time"

	"github.com/azuredisk-csi/azuredisk/playground/scenario"
	"github.com/azuredisk-csi/azuredisk/playground/scenario/evidence"
	"github.com/azuredisk-csi/azuredisk/playground/scenario/observer"
)

func TestWritesToAzureCountIfAMoveMayHaveWaitedForThem(t *testing.T) {
	t.Parallel()
	const (
		vms      = "Microsoft.Compute/virtualMachines"
		disks    = "Microsoft.Compute/disks"
		networks = "Microsoft.Network/networkInterfaces"
	)
	noon := time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)
	m := scenario.Move{
		Volume:    observer.Volume{Name: "pvc-1"},
		From:      "node-1",
		To:        "node-2",
		Requested: noon,
		Running:   noon.Add(10 * time.Second),
	}
	for name, test := range map[string]struct {
		method, kind, name string
		after              time.Duration
		want               int
	}{
		"an attach to the new node":             {http.MethodPost, vms, "node-2", time.Second, 1},
		"a detach from the old node":            {http.MethodPost, vms, "NODE-1", time.Second, 1},
		"a change of the disk":                  {http.MethodPatch, disks, "pvc-1", time.Second, 1},
		"a replica that comes to a third node":  {http.MethodPost, vms, "node-3", time.Second, 0},
		"a read":                                {http.MethodGet, vms, "node-2", time.Second, 0},
		"a write before the eviction":           {http.MethodPost, vms, "node-2", -time.Second, 0},
		"a write when the pod runs on its node": {http.MethodPost, vms, "node-2", 11 * time.Second, 0},
		"a change of neither a disk nor a VM":   {http.MethodPut, networks, "node-2", time.Second, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			call := evidence.AzureCall{
				Time:   noon.Add(test.after),
				Method: test.method,
				Path:   "/subscriptions/s/resourceGroups/g/providers/" + test.kind + "/" + test.name,
				Name:   test.name,
			}
			if got := writesFor(m, []evidence.AzureCall{call}); len(got) != test.want {
				t.Errorf("got %q, want %d", got, test.want)
			}
		})
	}
}
