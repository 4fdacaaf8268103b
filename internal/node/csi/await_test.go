package csi_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

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

// The read that the deadline cuts off is the last one of a wait.
func TestAStageWhoseLastReadIsCutOffNamesTheHolder(t *testing.T) {
	synctest.Test(t, stageWithACutOffRead)
}

func stageWithACutOffRead(t *testing.T) {
	m := awaiting(t)
	m.publish(func(v *apiv1.AzVolume, a *apiv1.AzVolumeAttachment) {
		v.Status.Primary = &apiv1.Ownership{
			NodeName: "node-a",
			Epoch:    4,
			State:    apiv1.OwnershipReleasing,
			Cause:    apiv1.CauseNodeLost,
		}
		a.Spec.Role, a.Spec.Epoch = apiv1.RoleReplica, 0
	})
	holder := &apiv1.AzVolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: apiv1.AttachmentName(volume, "node-a")},
		Spec: apiv1.AzVolumeAttachmentSpec{
			VolumeName: volume,
			NodeName:   "node-a",
			Role:       apiv1.RolePrimary,
			Epoch:      4,
		},
		Status: apiv1.AzVolumeAttachmentStatus{Error: &apiv1.Error{Reason: "Unavailable", Message: "503 Service Unavailable"}},
	}
	if err := m.direct.Create(t.Context(), holder); err != nil {
		t.Fatal(err)
	}
	if err := m.direct.Status().Update(t.Context(), holder); err != nil {
		t.Fatal(err)
	}
	reads := 0
	m.edit = func(o *csinode.Options) {
		o.AwaitPublish = true
		o.Client = interceptor.NewClient(m.api, interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object,
				opts ...client.GetOption) error {
				if _, is := obj.(*apiv1.AzVolume); is {
					if reads++; reads == 3 {
						<-ctx.Done()
						return ctx.Err()
					}
				}
				return c.Get(ctx, key, obj, opts...)
			},
		})
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // passes when the third read waits
	defer cancel()
	_, err := m.start().NodeStageVolume(ctx, &csi.NodeStageVolumeRequest{
		VolumeId:          volumeID,
		StagingTargetPath: m.stagingPath(),
		VolumeCapability:  mountCapability("ext4"),
	})
	if reads < 3 || status.Code(err) != codes.FailedPrecondition {
		t.Errorf("got %v after %d reads of the volume, want FailedPrecondition after 3", err, reads)
	}
	for _, want := range []string{"held by node node-a (epoch 4), which was lost", "503 Service Unavailable"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want a message with %q", err, want)
		}
	}
}
