package csi_test

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
)

// If the report says so and no pod object is left, a process has outlived its pod, and no other pod
// may start beside it. The kubelet removes the object of a pod that ends regularly after
// NodeUnpublishVolume: by then the report must not say so.
func TestTheReportSaysIfAVolumeIsMountedForAPod(t *testing.T) {
	t.Parallel()
	for name, capability := range map[string]*csi.VolumeCapability{
		"a filesystem":     mountCapability("ext4"),
		"raw block volume": blockCapability(csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t, newMemoryHost(), t.TempDir(), quiet)
			m.publish(nil)
			fails := false
			m.failReports(func() error {
				if fails {
					return errors.New("no answer")
				}
				return nil
			})
			s := m.start()
			want := func(when string, published bool) {
				t.Helper()
				if e := m.entry(); e == nil || e.Published != published {
					t.Errorf("%s: got entry %+v, want published %t", when, e, published)
				}
			}
			second := filepath.Join(m.dir, "pods", "2", "mount")
			m.must(m.stage(s, capability))
			m.must(m.publishVolume(s, capability, false))
			want("a pod has it", true)
			m.must(m.publishAt(s, second, capability, false))
			m.must(m.unpublishVolume(s))
			want("the second of two pods has it", true)
			s = m.start()
			m.unpublishAt(s, second)
			want("the last one has ended", false)
			m.must(m.publishAt(s, second, capability, false))
			want("the next pod has it without a stage", true)
			fails = true
			m.unpublishAt(s, second) // the pod ends although the API server does not answer
			fails = false
			s = m.start()
			m.unpublishAt(s, second)
			want("the node plug-in has scanned the mounts", false)
		})
	}
}
