package controller_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"sync"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/controlplane"
	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/fake"
)

// csi-provisioner does not ask for the deletion of a volume whose CreateVolume ended with a final code.
func TestCreateVolumeHasNoFinalCodeWhileItsAzVolumeExists(t *testing.T) {
	p := laboratory(t)
	release := sync.OnceFunc(p.Cloud.HoldAll(fake.DisksCreate))
	defer release()
	ctx, hangUp := context.WithCancel(t.Context())
	first := make(chan error, 1)
	go func() {
		_, err := p.CSI.CreateVolume(ctx, controlplane.CreateRequest("left", nil))
		first <- err
	}()
	p.Eventually("the AzVolume exists", func() string {
		return notYet(p.Client.Get(t.Context(), client.ObjectKey{Namespace: p.Namespace, Name: p.VolumeName("left")}, &apiv1.AzVolume{}))
	})
	hangUp()
	expectRefusal(t, <-first, codes.Canceled)
	// The StorageClass is made again, with what is refused or cannot be had.
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
			expectRefusal(t, err, codes.Unavailable, "AzVolume "+p.VolumeName("left")+" exists")
			request.Name = "nothing-left"
			_, err = p.CSI.CreateVolume(t.Context(), request)
			if code := status.Code(err); code == codes.Unavailable || code == codes.OK {
				t.Errorf("without an AzVolume: %v, want a final code", err)
			}
		})
	}
	_, err := p.CSI.CreateVolume(t.Context(), controlplane.CreateRequest("left", map[string]string{"skuName": "Premium_LRS"}))
	expectRefusal(t, err, codes.AlreadyExists)
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

// csi-snapshotter does not ask for the deletion of a snapshot whose CreateSnapshot ended with a final code.
func TestCreateSnapshotHasNoFinalCodeWhileTheSnapshotExists(t *testing.T) {
	p := laboratory(t)
	disk := addDisk(p, "cut", nil)
	bad := map[string]string{"incremental": "maybe"}
	_, err := take(p, t, "snap", disk, bad)
	expectRefusal(t, err, codes.InvalidArgument)
	mustTake(p, t, "snap", disk, nil)
	_, err = take(p, t, "snap", disk, bad)
	expectRefusal(t, err, codes.Unavailable, "snap exists")
	stop := p.Cloud.Inject(fake.Fault{Method: fake.DisksGet, Err: provisioner.Errorf(provisioner.Unauthorized, "no")})
	_, err = take(p, t, "snap", disk, nil)
	expectRefusal(t, err, codes.Unavailable, "snap exists")
	_, err = take(p, t, "another", disk, nil)
	expectRefusal(t, err, codes.PermissionDenied)
	stop()
	mustTake(p, t, "snap", disk, nil)
}

// The same holds for a group, whose members are cut before its seal.
func TestCreateVolumeGroupSnapshotHasNoFinalCodeWhileAMemberExists(t *testing.T) {
	p := laboratory(t)
	p.AddNode("group-a", "1", "Standard_D4s_v5")
	a, b := p.Create("a", nil), p.Create("b", nil)
	sum := sha256.Sum256([]byte(strings.ToLower(b)))
	second := snapshotID("group-" + hex.EncodeToString(sum[:])[:8])
	denied := provisioner.Errorf(provisioner.Unauthorized, "no")
	for name, faults := range map[string][]fake.Fault{
		"the seal is refused":                              {{Method: fake.SnapshotsCreate, ID: snapshotID("group"), Err: denied}},
		"a member is refused, and the first one stays too": {{Method: fake.SnapshotsCreate, ID: second, Err: denied}, {Method: fake.SnapshotsDelete, Err: denied}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, f := range faults {
				defer p.Cloud.Inject(f)()
			}
			_, err := takeGroup(p, t, "group", a, b)
			expectRefusal(t, err, codes.Unavailable, "exists")
			if names(p) == "" {
				t.Error("no snapshot is left, want a member")
			}
		})
	}
	stop := p.Cloud.Inject(fake.Fault{Method: fake.SnapshotsCreate, ID: second, Err: denied})
	_, err := takeGroup(p, t, "group", a, b)
	expectRefusal(t, err, codes.PermissionDenied)
	if left := names(p); left != "" {
		t.Errorf("after a final code snapshots %q are left, want none", left)
	}
	stop()
	_, err = takeGroup(p, t, "group", a, b)
	must(t, err)
}
