package csi_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
)

// PremiumV2_LRS and UltraSSD_LRS have logical sectors of 4096 bytes unless the StorageClass says
// otherwise.
func TestAVolumeOnADeviceWithLargeSectors(t *testing.T) {
	for _, fsType := range []string{"ext4", "xfs", ""} {
		t.Run("filesystem "+fsType, func(t *testing.T) {
			m, disk := newRealMachine(t)
			disk.SetSectorSize(t, 4096)
			m.publish(func(v *apiv1.AzVolume, _ *apiv1.AzVolumeAttachment) { v.Status.SizeBytes = diskSize })
			capability := mountCapability(fsType)
			if fsType == "" {
				capability = blockCapability(csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER)
			}
			s := m.start()
			for range 2 { // the second time with what the first has left on the disk
				m.must(m.stage(s, capability))
				m.must(m.publishVolume(s, capability, false))
				if fsType != "" {
					m.must(os.WriteFile(filepath.Join(m.target(), "file"), []byte("kept"), 0o600))
				}
				if _, err := s.NodeGetVolumeStats(t.Context(), &csi.NodeGetVolumeStatsRequest{
					VolumeId:   volumeID,
					VolumePath: m.target(),
				}); err != nil {
					t.Error(err)
				}
				health, err := s.NodeGetVolumeHealth(t.Context(), &csi.NodeGetVolumeHealthRequest{VolumeId: volumeID})
				if err != nil || len(health.GetVolumeHealth().GetHealthStatuses()) != 0 {
					t.Errorf("health %v, %v, want no fault", health, err)
				}
				m.must(m.unpublishVolume(s))
				m.must(m.unstage(s))
				m.assertClean()
			}
		})
	}
}
