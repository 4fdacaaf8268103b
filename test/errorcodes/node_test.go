package errorcodes

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/csi/node"
	"github.com/azuredisk-csi/azuredisk/internal/nodereport"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/fakeapi"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/memhost"
)

const (
	thisNode = "node-a"
	volumeID = "/subscriptions/s/resourceGroups/rg/providers/Microsoft.Compute/disks/pvc-1"
)

// volume is the name of the AzVolume of volumeID.
var volume = apiv1.VolumeName("s", "rg", "pvc-1")

// nodeWorld is a node plug-in to which a volume is published: its disk is attached, and nothing is
// mounted yet.
type nodeWorld struct {
	*testing.T
	kernel *memhost.Host
	server *node.Server
	api    client.WithWatch
	dir    string
	// records of the node plug-in.
	records nodereport.Records
	// failing is what the API server answers to reads; nil for the truth.
	failing *error
}

func TestNodeCodes(t *testing.T) { run(t, nodeRows(), newNodeWorld) }

func newNodeWorld(t *testing.T) nodeWorld {
	const namespace = "azure-disk-csi"
	v := &apiv1.AzVolume{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: volume},
		Spec: apiv1.AzVolumeSpec{
			Origin:        apiv1.OriginProvisioned,
			Access:        apiv1.AccessSingleNode,
			CapacityBytes: 1 << 30,
			Disk:          apiv1.DiskParameters{SubscriptionID: "s", ResourceGroup: "rg", Name: "pvc-1"},
		},
		Status: apiv1.AzVolumeStatus{
			SizeBytes: 1 << 30,
			Primary:   &apiv1.Ownership{NodeName: thisNode, Epoch: 1, State: apiv1.OwnershipHeld},
		},
	}
	a := &apiv1.AzVolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: apiv1.AttachmentName(volume, thisNode)},
		Spec: apiv1.AzVolumeAttachmentSpec{
			VolumeName: volume,
			NodeName:   thisNode,
			Role:       apiv1.RolePrimary,
			Epoch:      1,
		},
		Status: apiv1.AzVolumeAttachmentStatus{State: apiv1.AttachmentAttached, LUN: ptr.To(int32(0))},
	}
	failing := new(error)
	w := nodeWorld{
		T:       t,
		kernel:  memhost.New(thisNode, 0),
		dir:     t.TempDir(),
		failing: failing,
		api:     fakeapi.With(v, a).Build(),
	}
	api := interceptor.NewClient(w.api, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
			o.SetUID(uuid.NewUUID())
			return c.Create(ctx, o, options...)
		},
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object,
			options ...client.GetOption) error {
			if *failing != nil {
				return *failing
			}
			return c.Get(ctx, key, o, options...)
		},
	})
	records := nodereport.Records{Dir: filepath.Join(w.dir, "staged")}
	spec := apiv1.AzDriverNodeSpec{VMID: "vm", Location: "eastus", Zone: "1"}
	w.records = records
	w.server = node.New(node.Options{
		NodeName:   thisNode,
		DriverName: "disk.csi.azure.com",
		Namespace:  namespace,
		BootID:     "boot",
		Cluster:    1,
		Client:     api,
		Host:       w.kernel,
		Records:    records,
		Instance:   spec,
		Limit:      node.Limit{Patience: time.Minute},
		Expansion:  true,
		Report: nodereport.New(nodereport.Options{
			Client:       api,
			Namespace:    namespace,
			NodeName:     thisNode,
			Spec:         spec,
			SlowInterval: time.Minute,
			FastInterval: time.Second,
			Scanner: nodereport.Scanner{
				KubeletDir: w.dir,
				DriverName: "disk.csi.azure.com",
				BootID:     "boot",
				Records:    records,
				Mounts:     w.kernel.Mounts(),
				Devices:    w.kernel.Devices(),
			},
		}),
	})
	return w
}

func (w nodeWorld) shortly() context.Context {
	ctx, cancel := context.WithTimeout(w.Context(), 300*time.Millisecond)
	w.Cleanup(cancel)
	return ctx
}

// unreachable has the API server answer no more.
func (w nodeWorld) unreachable() {
	*w.failing = apierrors.NewServiceUnavailable("the API server is gone")
}

// change changes what the API server holds of the volume.
func (w nodeWorld) change(edit func(*apiv1.AzVolume, *apiv1.AzVolumeAttachment)) {
	w.Helper()
	v, a := &apiv1.AzVolume{}, &apiv1.AzVolumeAttachment{}
	w.must(errors.Join(
		w.api.Get(w.Context(), client.ObjectKey{Namespace: "azure-disk-csi", Name: volume}, v),
		w.api.Get(w.Context(), client.ObjectKey{Namespace: "azure-disk-csi", Name: apiv1.AttachmentName(volume, thisNode)}, a)))
	edit(v, a)
	for _, o := range []client.Object{v, a} {
		kept := o.DeepCopyObject().(client.Object)
		w.must(w.api.Update(w.Context(), o))
		kept.SetResourceVersion(o.GetResourceVersion())
		w.must(w.api.Status().Update(w.Context(), kept))
	}
}

func (w nodeWorld) must(err error) { w.Helper(); must(w.T, err) }

func (w nodeWorld) staging() string { return filepath.Join(w.dir, "globalmount") }
func (w nodeWorld) target() string  { return filepath.Join(w.dir, "pods", "1", "mount") }

func onOneNode() *csi.VolumeCapability {
	return &csi.VolumeCapability{
		AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: "ext4"}},
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER},
	}
}

func (w nodeWorld) stage(ctx context.Context, change func(*csi.NodeStageVolumeRequest)) error {
	request := &csi.NodeStageVolumeRequest{
		VolumeId:          volumeID,
		StagingTargetPath: w.staging(),
		VolumeCapability:  onOneNode(),
	}
	if change != nil {
		change(request)
	}
	_, err := w.server.NodeStageVolume(ctx, request)
	return err
}

func (w nodeWorld) unstage(id, path string) error {
	_, err := w.server.NodeUnstageVolume(w.Context(), &csi.NodeUnstageVolumeRequest{VolumeId: id, StagingTargetPath: path})
	return err
}

func (w nodeWorld) publish(change func(*csi.NodePublishVolumeRequest)) error {
	request := &csi.NodePublishVolumeRequest{
		VolumeId:          volumeID,
		StagingTargetPath: w.staging(),
		TargetPath:        w.target(),
		VolumeCapability:  onOneNode(),
	}
	if change != nil {
		change(request)
	}
	_, err := w.server.NodePublishVolume(w.Context(), request)
	return err
}

func (w nodeWorld) unpublish(id, path string) error {
	_, err := w.server.NodeUnpublishVolume(w.Context(), &csi.NodeUnpublishVolumeRequest{VolumeId: id, TargetPath: path})
	return err
}

func (w nodeWorld) stats(id, path string) error {
	_, err := w.server.NodeGetVolumeStats(w.Context(), &csi.NodeGetVolumeStatsRequest{VolumeId: id, VolumePath: path})
	return err
}

func (w nodeWorld) expand(path string, bytes int64) error {
	_, err := w.server.NodeExpandVolume(w.Context(), &csi.NodeExpandVolumeRequest{
		VolumeId:      volumeID,
		VolumePath:    path,
		CapacityRange: &csi.CapacityRange{RequiredBytes: bytes},
	})
	return err
}

func (w nodeWorld) health(id string) error {
	_, err := w.server.NodeGetVolumeHealth(w.Context(), &csi.NodeGetVolumeHealthRequest{VolumeId: id})
	return err
}

// inUse stages and publishes the volume.
func (w nodeWorld) inUse() nodeWorld {
	w.Helper()
	w.must(w.stage(w.Context(), nil))
	w.must(w.publish(nil))
	return w
}

// ofAnother stages and publishes the volume, and then makes its record out to another disk.
func (w nodeWorld) ofAnother() nodeWorld {
	w.Helper()
	w.inUse()
	record, _, err := w.records.Get(volume)
	w.must(err)
	record.VolumeID = strings.Replace(volumeID, "/resourceGroups/rg/", "/resourceGroups/other/", 1)
	w.must(w.records.Put(record))
	return w
}

// busy has a call for the volume at work until the row ends.
func (w nodeWorld) busy() {
	w.Helper()
	held := make(chan struct{})
	w.kernel.Hook = func(step string) {
		if step == "before mount" {
			<-held
		}
	}
	first := make(chan error, 1)
	go func() {
		for {
			// It may meet the second one.
			if err := w.stage(context.Background(), nil); status.Code(err) != codes.Aborted {
				first <- err
				return
			}
		}
	}()
	w.Cleanup(func() { close(held); <-first })
	// The second call shows that the first has the volume.
	for deadline := time.Now().Add(10 * time.Second); ; {
		if err := w.unpublish(volumeID, w.target()+"-none"); err != nil {
			return
		}
		if time.Now().After(deadline) {
			w.Fatal("the first call does not begin")
		}
	}
}

// capacity has the controller say how many disks the node can take.
func (w nodeWorld) capacity(disks int32) {
	w.Helper()
	d := &apiv1.AzDriverNode{}
	w.must(w.api.Get(w.Context(), client.ObjectKey{Namespace: "azure-disk-csi", Name: thisNode}, d))
	d.Status.Capacity = &apiv1.NodeCapacity{MaxDataDisks: disks}
	w.must(w.api.Status().Update(w.Context(), d))
}
