package nodeplugin

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/expect"
	"github.com/azuredisk-csi/azuredisk/provisioner/host/hosttest"
)

// series returns what the plug-in serves of the metrics whose names begin with azuredisk_v, by
// series.
func (m *machine) series() map[string]float64 {
	m.t.Helper()
	response, err := http.Get("http://" + m.metrics + "/metrics")
	expect.Must(m.t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	expect.Must(m.t, err)
	found := map[string]float64{}
	for line := range strings.Lines(string(body)) {
		name, text, _ := strings.Cut(strings.TrimSpace(line), "} ")
		if value, err := strconv.ParseFloat(text, 64); err == nil && strings.HasPrefix(name, "azuredisk_v") {
			found[name+"}"] = value
		}
	}
	return found
}

// TestMetricsOfAVolume: the claim, the limits and the traffic of a volume, from its staging to its
// unstaging, also after a restart of the plug-in.
func TestMetricsOfAVolume(t *testing.T) {
	m := newMachine(t)
	m.start()
	m.register("")
	disk, attach := m.newDisk(lun)
	v, a := m.publish(1, 1)
	v.Status.PersistentVolume = "pv-1"
	expect.Must(t, m.api.Status().Update(t.Context(), v))
	a.Status.State, a.Status.LUN = apiv1.AttachmentAttached, ptr.To(lun)
	expect.Must(t, m.api.Status().Update(t.Context(), a))
	attach()
	node := m.report()
	before := node.DeepCopy()
	node.Status.Capacity = &apiv1.NodeCapacity{
		MaxDataDisks:           8,
		VMSize:                 node.Spec.VMSize,
		UncachedIOPS:           6400,
		UncachedBytesPerSecond: 145_000_000,
	}
	expect.Must(t, m.api.Status().Patch(t.Context(), node, client.MergeFrom(before)))
	info := `azuredisk_volume_info{claim_namespace="shop",device="` + filepath.Base(disk.Device) +
		`",disk="pvc-1",node="` + m.name + `",persistentvolume="pv-1",persistentvolumeclaim="data",volume="` + volume + `"}`
	ofVolume := func(name string) string { return name + `{node="` + m.name + `",volume="` + volume + `"}` }
	if got := m.series(); len(got) != 0 && got[info] != 0 {
		t.Errorf("got %v before the volume is staged", got)
	}
	expect.Must(t, m.stage(t.Context()))
	m.await("the metrics of the volume", func() bool {
		return m.series()[info] == 1 && m.series()[`azuredisk_vm_uncached_iops{node="`+m.name+`"}`] == 6400
	})
	start := m.series()
	// A Premium SSD of 64 MiB is of the smallest tier.
	for name, want := range map[string]float64{
		"azuredisk_volume_provisioned_iops":             120,
		"azuredisk_volume_provisioned_bytes_per_second": 25_000_000,
	} {
		if got := start[ofVolume(name)]; got != want {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
	}
	file, err := os.Create(filepath.Join(m.stagingPath(), "data"))
	expect.Must(t, err)
	_, err = file.Write(make([]byte, 4*hosttest.MiB))
	expect.Must(t, err)
	expect.Must(t, file.Sync())
	expect.Must(t, file.Close())
	after := m.series()
	written := ofVolume("azuredisk_volume_written_bytes_total")
	if grown := after[written] - start[written]; grown < 4*hosttest.MiB || grown > 8*hosttest.MiB {
		t.Errorf("%s has grown by %v, want the 4 MiB that were written", written, grown)
	}
	for _, name := range []string{"azuredisk_volume_writes_total", "azuredisk_volume_reads_total"} {
		if after[ofVolume(name)] <= 0 {
			t.Errorf("%s: got %v, want more than 0", name, after[ofVolume(name)])
		}
	}
	expect.Must(t, m.stop(os.Interrupt))
	m.start()
	m.register("")
	m.await("the metrics of the volume after a restart", func() bool { return m.series()[info] == 1 })
	// As for the kubelet, the volume may be busy shortly after a start.
	m.await("the unstage", func() bool { return m.unstage(t.Context()) == nil })
	if got := m.series(); len(got) != 2 { // of the VM
		t.Errorf("got %v, want no series of the volume that was unstaged", got)
	}
}
