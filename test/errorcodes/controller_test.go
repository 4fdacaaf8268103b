package errorcodes

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	csicontroller "github.com/azuredisk-csi/azuredisk/internal/controller/csi"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/controlplane"
	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/fake"
)

// controllerWorld is a controller plug-in with nodes ec-a and ec-b in zone 1, and ec-far in zone 2.
// All rows share the processes; each has its own volume.
type controllerWorld struct {
	*testing.T
	plane *controlplane.ControlPlane
	// name of the row's volume.
	name string
}

const (
	nodeA, nodeB, nodeFar = "ec-a", "ec-b", "ec-far"
	smallSize             = "Standard_D2s_v5" // four data disks
	// soon is a deadline that passes while something is held up.
	soon = time.Second
)

func TestControllerCodes(t *testing.T) {
	plane := controlplane.New(t, controlplane.Options{Quiet: true, Latency: fake.Latency{BackgroundCopy: time.Hour}})
	for name, zone := range map[string]string{nodeA: "1", nodeB: "1", nodeFar: "2"} {
		plane.AddNode(name, zone, "Standard_D16s_v5")
	}
	serial := 0
	for _, rows := range [][]row[controllerWorld]{controllerRows()} {
		run(t, rows, func(t *testing.T) controllerWorld {
			serial++
			return controllerWorld{t, plane, fmt.Sprintf("vol-%d", serial)}
		})
	}
}

func (w controllerWorld) csi() *csicontroller.Server { return w.plane.CSI }

func (w controllerWorld) shortly() context.Context {
	ctx, cancel := context.WithTimeout(w.Context(), soon)
	w.Cleanup(cancel)
	return ctx
}

// untilFailed is the time of a caller who waits until the plug-in has seen that Azure failed with
// the row's volume.
func (w controllerWorld) untilFailed() context.Context {
	over := make(chan struct{})
	go func() {
		defer close(over)
		_ = wait.PollUntilContextTimeout(w.Context(), 10*time.Millisecond, time.Minute, true,
			func(ctx context.Context) (bool, error) {
				v := &apiv1.AzVolume{}
				err := w.csi().Client.Get(ctx, client.ObjectKey{Namespace: w.plane.Namespace, Name: w.plane.VolumeName(w.name)},
					v)
				return err == nil && v.Status.Error != nil, nil
			})
	}()
	return timeUp{w.Context(), over}
}

// timeUp is a context whose deadline comes when over is closed.
type timeUp struct {
	context.Context
	over <-chan struct{}
}

func (c timeUp) Done() <-chan struct{} { return c.over }

func (c timeUp) Err() error {
	select {
	case <-c.over:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// inject makes calls of the platform fail until the row ends.
func (w controllerWorld) inject(f fake.Fault) {
	w.Cleanup(w.plane.Cloud.Inject(f))
}

// refuse makes every call of a method about this row's disk fail.
func (w controllerWorld) refuse(method fake.Method, kind provisioner.Kind) {
	w.inject(fake.Fault{Method: method, Err: provisioner.Errorf(kind, "Azure says no")})
}

func (w controllerWorld) must(err error) { w.Helper(); must(w.T, err) }

func (w controllerWorld) volume(parameters map[string]string) string {
	w.Helper()
	return w.plane.Create(w.name, parameters)
}

// used returns a volume that node A has.
func (w controllerWorld) used(parameters map[string]string) string {
	w.Helper()
	handle := w.volume(parameters)
	w.must(w.plane.Publish(w.Context(), handle, nodeA))
	w.Cleanup(func() { _ = w.plane.Unpublish(context.Background(), handle, nodeA) })
	return handle
}

// disk is one at Azure that the driver did not make.
func (w controllerWorld) disk(change func(*provisioner.Disk)) string {
	d := provisioner.Disk{
		ID:           controlplane.DiskID(w.name),
		Location:     "eastus",
		Zone:         "1",
		SizeBytes:    10 << 30,
		MaxShares:    1,
		Ready:        true,
		DiskSettings: provisioner.DiskSettings{SKUName: "Premium_LRS"},
	}
	if change != nil {
		change(&d)
	}
	w.plane.Cloud.AddDisk(d)
	return d.ID
}

// ofAnother returns a disk whose AzVolume is made out to one in another resource group.
func (w controllerWorld) ofAnother() string {
	w.Helper()
	v := &apiv1.AzVolume{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.plane.Namespace, Name: w.plane.VolumeName(w.name)},
		Spec: apiv1.AzVolumeSpec{
			Origin:        apiv1.OriginAdopted,
			Access:        apiv1.AccessSingleNode,
			CapacityBytes: 10 << 30,
			Disk: apiv1.DiskParameters{
				SubscriptionID: controlplane.Subscription,
				ResourceGroup:  "other",
				Name:           w.name,
				MaxShares:      1,
				CachingMode:    "None",
				DiskSettings:   apiv1.DiskSettings{SKUName: "Premium_LRS"},
			},
		},
	}
	w.must(w.plane.Client.Create(w.Context(), v))
	w.Cleanup(func() { _ = w.plane.Client.Delete(context.Background(), v) })
	return w.disk(nil)
}

func (w controllerWorld) missing() string { return controlplane.DiskID(w.name) }

func (w controllerWorld) create(ctx context.Context, parameters map[string]string, change func(*csi.CreateVolumeRequest)) error {
	request := controlplane.CreateRequest(w.name, parameters)
	if change != nil {
		change(request)
	}
	_, err := w.csi().CreateVolume(ctx, request)
	return err
}

func (w controllerWorld) remove(ctx context.Context, handle string) error {
	_, err := w.csi().DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: handle})
	return err
}

func (w controllerWorld) publish(ctx context.Context, handle, node string,
	change func(*csi.ControllerPublishVolumeRequest)) error {
	request := &csi.ControllerPublishVolumeRequest{
		VolumeId:         handle,
		NodeId:           node,
		VolumeCapability: controlplane.Mounted(),
	}
	if change != nil {
		change(request)
	}
	_, err := w.csi().ControllerPublishVolume(ctx, request)
	if err == nil {
		w.Cleanup(func() { _ = w.plane.Unpublish(context.Background(), handle, node) })
	}
	return err
}

// held has a call that is at work until the row ends: a method of the platform takes for ever.
// begin makes the call, and at says when it has got there.
func (w controllerWorld) held(method fake.Method, begin func() error, at func() bool) {
	w.Helper()
	release := w.plane.Cloud.HoldAll(method)
	ended := make(chan error, 1)
	go func() { ended <- begin() }()
	w.Cleanup(func() { release(); <-ended })
	w.plane.Eventually("the first call is at work", func() string {
		if at() {
			return ""
		}
		return "not yet"
	})
}

func (w controllerWorld) creating() bool {
	v := w.plane.Volume(w.name)
	return v != nil && v.Status.State == apiv1.VolumeCreating && v.Status.Operation != nil
}

func (w controllerWorld) called(method fake.Method) func() bool {
	before := w.plane.Cloud.CallCount(method)
	return func() bool { return w.plane.Cloud.CallCount(method) > before }
}
