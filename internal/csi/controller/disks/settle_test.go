package disks_test

import (
	"context"
	"sync"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/controlplane"
	"github.com/azuredisk-csi/azuredisk/provisioner/fake"
)

// csi-provisioner does not ask for the deletion of a volume whose CreateVolume ended with a final
// code.
func TestCreateVolumeHasNoFinalCodeWhileItsAzVolumeExists(t *testing.T) {
	p := controlplane.WithPendingCopies(t)
	release := sync.OnceFunc(p.Cloud.HoldAll(fake.DisksCreate))
	defer release()
	ctx, hangUp := context.WithCancel(t.Context())
	first := make(chan error, 1)
	go func() {
		_, err := p.CSI.CreateVolume(ctx, controlplane.CreateRequest("left", nil))
		first <- err
	}()
	p.Eventually("the AzVolume exists", func() string {
		return notYet(p.Client.Get(t.Context(), client.ObjectKey{
			Namespace: p.Namespace,
			Name:      p.VolumeName("left"),
		}, &apiv1.AzVolume{}))
	})
	hangUp()
	expectCode(t, <-first, codes.Canceled)
	// The StorageClass is created again, with parameters that Azure refuses or cannot provide.
	for name, change := range map[string]func(*csi.CreateVolumeRequest){
		"a parameter that is not allowed": func(r *csi.CreateVolumeRequest) { r.Parameters = map[string]string{"skuName": "Premium"} },
		"a size that no disk has":         func(r *csi.CreateVolumeRequest) { r.CapacityRange.RequiredBytes = 100 << 40 },
		"a source that does not exist": func(r *csi.CreateVolumeRequest) {
			r.VolumeContentSource = &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Volume{
				Volume: &csi.VolumeContentSource_VolumeSource{VolumeId: controlplane.DiskID("no-such-disk")},
			}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			request := controlplane.CreateRequest("left", nil)
			change(request)
			_, err := p.CSI.CreateVolume(t.Context(), request)
			expectCode(t, err, codes.Unavailable, "AzVolume "+p.VolumeName("left")+" exists")
			request.Name = "nothing-left"
			_, err = p.CSI.CreateVolume(t.Context(), request)
			if code := status.Code(err); code == codes.Unavailable || code == codes.OK {
				t.Errorf("without an AzVolume: %v, want a final code", err)
			}
		})
	}
	_, err := p.CSI.CreateVolume(t.Context(), controlplane.CreateRequest("left", map[string]string{"skuName": "Premium_LRS"}))
	expectCode(t, err, codes.AlreadyExists)
	release()
	_, err = p.CSI.CreateVolume(t.Context(), controlplane.CreateRequest("left", nil))
	must(t, err)
}

func notYet(err error) string {
	if err != nil {
		return err.Error()
	}
	return ""
}
