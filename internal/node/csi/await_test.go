package csi_test

import (
	"testing"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	csinode "github.com/azuredisk-csi/azuredisk/internal/node/csi"
)

// awaiting is a machine whose plug-in takes a stage before the publish.
func awaiting(t *testing.T) *machine {
	m := newMachine(t, newMemoryHost(), t.TempDir(), quiet)
	m.edit = func(o *csinode.Options) { o.AwaitPublish = true }
	return m
}

func TestAStageBeforeThePublishWaitsAndAnnouncesNothing(t *testing.T) {
	t.Parallel()
	before := map[string]func(*machine){
		"there is no AzVolume yet": func(*machine) {},
		"another node is the primary": func(m *machine) {
			m.publish(func(v *apiv1.AzVolume, a *apiv1.AzVolumeAttachment) {
				v.Status.Primary.NodeName, a.Spec.Role, a.Spec.Epoch = "node-a", apiv1.RoleReplica, 0
			})
		},
		"the node's own earlier ownership is being released": func(m *machine) {
			m.publish(func(v *apiv1.AzVolume, _ *apiv1.AzVolumeAttachment) {
				v.Status.Primary.State = apiv1.OwnershipReleasing
			})
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
					v.Status.Primary = &apiv1.Ownership{
						NodeName: thisNode,
						Epoch:    epoch,
						State:    apiv1.OwnershipHeld,
					}
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
