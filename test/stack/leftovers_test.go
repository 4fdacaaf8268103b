package stack

import (
	"os"
	"slices"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/azuredisk-csi/azuredisk/internal/testkit/apiserver"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/expect"
)

func TestMain(m *testing.M) { os.Exit(apiserver.Run(m)) }

// A search that never finds anything would let every leak pass.
func TestWhatAVolumeTakesIsFoundUntilItIsGone(t *testing.T) {
	s := Start(t, Options{Nodes: 1, Controllers: 1})
	volume, err := s.CreateVolume(t.Context(), "vol", 1<<30, nil)
	expect.Must(t, err)
	if _, err := s.Use(t.Context(), volume, s.Nodes[0]); err != nil {
		t.Fatal(err)
	}
	for what, found := range map[string][]string{
		"disks":        s.atAzure(t, "disks"),
		"loop devices": s.loopDevices(t),
		"mounts":       s.mounts(t),
	} {
		if len(found) == 0 {
			t.Errorf("no %s of a volume in use are found", what)
		}
	}
	expect.Must(t, s.Release(t.Context(), volume, s.Nodes[0]))
	expect.Must(t, s.DeleteVolume(t.Context(), volume.GetVolumeId()))
	s.AssertNothingLeft(t)
}

// The driver reads past the cache, which still has what the disk held: only a real device that
// fails shows that.
func TestANodeTellsThatItsDiskIsCutOff(t *testing.T) {
	s := Start(t, Options{Nodes: 1, Controllers: 1})
	node := s.Nodes[0]
	volume, err := s.CreateVolume(t.Context(), "vol", 1<<30, nil)
	expect.Must(t, err)
	_, err = s.Use(t.Context(), volume, node)
	expect.Must(t, err)
	check := func(when string, want bool) {
		t.Helper()
		health, err := node.client.NodeGetVolumeHealth(t.Context(), &csi.NodeGetVolumeHealthRequest{VolumeId: volume.VolumeId})
		expect.Must(t, err)
		got := slices.ContainsFunc(health.GetVolumeHealth().GetHealthStatuses(),
			func(e *csi.VolumeHealth_VolumeHealthEntry) bool {
				return e.GetStatus() == csi.VolumeHealthErrorType_INACCESSIBLE
			})
		if got != want {
			t.Errorf("%s: got health %v, want it inaccessible: %t", when, health, want)
		}
	}
	check("while the disk works", false)
	s.CutPower(t, node)
	check("after the power cut", true)
	s.RestorePower(t, node)
	expect.Must(t, s.Release(t.Context(), volume, node))
	expect.Must(t, s.DeleteVolume(t.Context(), volume.GetVolumeId()))
	s.AssertNothingLeft(t)
}
