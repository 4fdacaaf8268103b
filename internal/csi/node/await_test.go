package node_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/csi/node"
)

// awaiting is a machine whose plug-in takes a stage before the publish.
func awaiting(t *testing.T) *machine {
	m := newMachine(t, newMemoryHost(), t.TempDir(), quiet)
	m.edit = func(o *node.Options) { o.AwaitPublish = true }
	return m
}

func TestAStageThatComesBeforeThePublishWaitsForItAndAnnouncesNothing(t *testing.T) {
	before := map[string]func(*machine){
		"there is no AzVolume yet": func(*machine) {},
		"another node has the claim": func(m *machine) {
			m.publish(func(v *apiv1.AzVolume, a *apiv1.AzVolumeAttachment) {
				v.Status.Primary.NodeName, a.Spec.Role, a.Spec.Epoch = "node-a", apiv1.RoleReplica, 0
			})
		},
		"the node's own claim of before is being taken back": func(m *machine) {
			m.publish(func(v *apiv1.AzVolume, _ *apiv1.AzVolumeAttachment) { v.Status.Primary.State = apiv1.ClaimReleasing })
		},
	}
	for name, prepare := range before {
		t.Run(name, func(t *testing.T) {
			m := awaiting(t)
			prepare(m)
			waiting := m.watched()
			s := m.start()
			staged := make(chan error, 1)
			go func() { staged <- m.stage(s, mountCapability("ext4")) }()
			<-waiting
			if entry := m.entry(); entry != nil {
				t.Errorf("the report says %+v, which another node's hand-over would wait for", entry)
			}
			epoch := int64(1)
			if name == "there is no AzVolume yet" {
				m.publish(nil)
			} else {
				epoch = 2
				m.change(func(v *apiv1.AzVolume, a *apiv1.AzVolumeAttachment) {
					v.Status.Primary = &apiv1.PrimaryClaim{NodeName: thisNode, Epoch: epoch, State: apiv1.ClaimHeld}
					a.Spec.Role, a.Spec.Epoch = apiv1.RolePrimary, epoch
				})
			}
			if err := <-staged; err != nil {
				t.Fatal(err)
			}
			if entry := m.entry(); entry == nil || entry.Phase != apiv1.PhaseStaged || entry.Epoch != epoch {
				t.Errorf("entry = %+v", entry)
			}
		})
	}
}

func TestAStageThatWaitedForThePublishInVainSaysWhatIsMissing(t *testing.T) {
	m := awaiting(t)
	m.publish(func(v *apiv1.AzVolume, a *apiv1.AzVolumeAttachment) { v.Status.Primary.NodeName = "node-a" })
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := m.start().NodeStageVolume(ctx, &csi.NodeStageVolumeRequest{
		VolumeId: volumeID, StagingTargetPath: m.stagingPath(), VolumeCapability: mountCapability("ext4"),
	})
	if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "node-a is the primary") {
		t.Errorf("stage: %v, want FailedPrecondition and who has the volume", err)
	}
	m.assertClean()
}
