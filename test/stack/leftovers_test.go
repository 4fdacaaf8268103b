package stack

import (
	"os"
	"testing"

	"github.com/azuredisk-csi/azuredisk/internal/testkit/apiserver"
)

func TestMain(m *testing.M) { os.Exit(apiserver.Run(m)) }

// A search that never finds anything would let every leak pass.
func TestWhatAVolumeTakesIsFoundUntilItIsGone(t *testing.T) {
	s := Start(t, Options{Nodes: 1, Controllers: 1})
	volume, err := s.CreateVolume(t.Context(), "vol", 1<<30, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Use(t.Context(), volume, s.Nodes[0]); err != nil {
		t.Fatal(err)
	}
	for what, found := range map[string][]string{"disks": s.atAzure(t, "disks"), "loop devices": s.loopDevices(t), "mounts": s.mounts(t)} {
		if len(found) == 0 {
			t.Errorf("no %s of a volume in use are found", what)
		}
	}
	if err := s.Release(t.Context(), volume, s.Nodes[0]); err != nil {
		t.Fatal(err)
	}
	if err := s.DeleteVolume(t.Context(), volume.GetVolumeId()); err != nil {
		t.Fatal(err)
	}
	s.AssertNothingLeft(t)
}
