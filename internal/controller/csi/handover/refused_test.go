package handover

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	crcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cluster"
	"github.com/azuredisk-csi/azuredisk/internal/controller/csi/adoption"
	"github.com/azuredisk-csi/azuredisk/internal/rpc/status"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/fakeapi"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/memapi"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

func TestARefusedPublishSaysWhatAzureAnswersToTheFenceOfTheOwner(t *testing.T) {
	scheme := fakeapi.Scheme()
	v := &apiv1.AzVolume{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "vol"},
		Spec:       apiv1.AzVolumeSpec{Access: apiv1.AccessSingleNode},
	}
	v.Status.Primary = &apiv1.Ownership{
		NodeName: "node-2",
		Epoch:    4,
		State:    apiv1.OwnershipReleasing,
		Cause:    apiv1.CauseNodeLost,
	}
	a := &apiv1.AzVolumeAttachment{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: apiv1.AttachmentName("vol", "node-2")}}
	a.Status.Error = &apiv1.Error{Reason: "Unavailable", Message: "503 Service Unavailable"}
	s := &Publisher{
		clock: clocktesting.NewFakePassiveClock(time.Unix(0, 0)),
		Adopter: &adoption.Adopter{Records: &cluster.Records{
			Client: fake.NewClientBuilder().WithScheme(scheme).WithObjects(v, a).Build(), Namespace: "ns",
		}},
	}
	_, err := s.acquire(t.Context(), v, "node-3")
	if got := status.Code(err); got != codes.FailedPrecondition {
		t.Errorf("got %v (%v), want FailedPrecondition", got, err)
	}
	for _, want := range []string{"held by node node-2 (epoch 4), which was lost", "503 Service Unavailable"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want a message with %q", err, want)
		}
	}
}

// attached is a disk at VMs.
type attached struct {
	provisioner.Disks
	vms []string
}

func (a attached) Get(context.Context, string) (provisioner.Disk, error) {
	return provisioner.Disk{ID: "disk", AttachedTo: a.vms}, nil
}

// Lists of Nodes and AzDriverNodes that use no index fail: their cost would grow with the cluster.
func TestOnlyTheReportOfANodeThatHasTheDiskRefusesAPublish(t *testing.T) {
	t.Parallel()
	const vm = "/subscriptions/s/resourceGroups/rg/providers/Microsoft.Compute/virtualMachines/"
	scheme := fakeapi.Scheme()
	released := &apiv1.Ownership{NodeName: "b", Epoch: 4, State: apiv1.OwnershipReleased}
	for name, test := range map[string]struct {
		owner    *apiv1.Ownership
		vms      []string
		reported int64 // epoch under which node b reports the volume; 0 if it does not
		scanned  bool
		want     string
	}{
		"no ownership, and the disk is attached nowhere":                     {want: ""},
		"no ownership, and the disk is at a node that reports other volumes": {vms: []string{vm + "B"}, scanned: true, want: ""},
		"no ownership, and the disk is at a node that has not scanned its mounts": {vms: []string{vm + "B"},
			want: "node b: its node plug-in has not yet compared"},
		"no ownership, and the disk is at a VM without a node": {vms: []string{vm + "x"}, want: ""},
		"a report under the epoch of the ownership": {owner: released, vms: []string{vm + "b"}, reported: 4, scanned: true,
			want: ""},
		"a report under a later epoch, from the VM of the disk": {owner: released, vms: []string{vm + "b"}, reported: 5,
			scanned: true, want: "node b: it reports the volume"},
		"a report under a later epoch, from another VM": {owner: released, vms: []string{vm + "c"}, reported: 5, scanned: true,
			want: ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := &apiv1.AzVolume{
				ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "vol"},
				Status:     apiv1.AzVolumeStatus{Primary: test.owner},
			}
			d := &apiv1.AzDriverNode{
				ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "b"},
				Spec:       apiv1.AzDriverNodeSpec{VMID: vm + "b"},
			}
			if test.scanned {
				d.Status.MountsScannedTime = &metav1.MicroTime{Time: time.Unix(1, 0)}
			}
			if test.reported > 0 {
				d.Status.StagedVolumes = []apiv1.StagedVolume{{VolumeName: "vol", Epoch: test.reported, Phase: apiv1.PhaseStaged}}
			}
			node := &corev1.Node{
				ObjectMeta: metav1.ObjectMeta{Name: "b"},
				Spec:       corev1.NodeSpec{ProviderID: "azure://" + vm + "b"},
			}
			cache := fake.NewClientBuilder().WithScheme(scheme).WithObjects(v, d, node).
				WithIndex(&apiv1.AzDriverNode{}, cluster.NodeVM, cluster.NodeVMKeys).WithIndex(&corev1.Node{}, cluster.NodeVM,
				cluster.NodeVMKeys).
				WithIndex(&apiv1.AzDriverNode{}, cluster.NodeVolume, cluster.NodeVolumeKeys).
				WithInterceptorFuncs(interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList,
					options ...client.ListOption) error {
					if o := (&client.ListOptions{}).ApplyOptions(options); o.FieldSelector == nil {
						return fmt.Errorf("list of %T without an index", list)
					}
					return c.List(ctx, list, options...)
				}}).Build()
			s := &Publisher{Adopter: &adoption.Adopter{
				Records: &cluster.Records{Client: cache, Watch: cluster.NewWatch(), Namespace: "ns"},
				Disks:   attached{vms: test.vms},
			}}
			err := s.unreported(t.Context(), v, "a", nil, s.disk(t.Context(), v))
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("got error %v, want %q", err, test.want)
			}
		})
	}
}

// countedReads counts the reads of disks, which are attached nowhere.
type countedReads struct {
	provisioner.Disks
	reads int
}

func (c *countedReads) Get(context.Context, string) (provisioner.Disk, error) {
	c.reads++
	return provisioner.Disk{ID: "disk"}, nil
}

// The first publish of a volume asks Azure who has the disk only if there is a node whose report
// does not say whether it uses the volume.
func TestTheFirstPublishReadsTheDiskOnlyIfANodeIsUnscanned(t *testing.T) {
	t.Parallel()
	scheme := fakeapi.Scheme()
	for name, test := range map[string]struct {
		scanned, reported bool
		want              int
	}{
		"every node has scanned its mounts, and none reports the volume": {scanned: true, want: 0},
		"a node has not scanned its mounts":                              {want: 1},
		"a node reports the volume":                                      {scanned: true, reported: true, want: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := memapi.New(scheme, clocktesting.NewFakePassiveClock(time.Unix(0, 0)))
			cache := memapi.NewCache(store, crcache.Options{})
			api := memapi.NewClient(store, memapi.Open, cache)
			v := &apiv1.AzVolume{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "vol"}}
			d := &apiv1.AzDriverNode{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "b"}}
			if test.scanned {
				d.Status.MountsScannedTime = &metav1.MicroTime{Time: time.Unix(1, 0)}
			}
			if test.reported {
				d.Status.StagedVolumes = []apiv1.StagedVolume{{VolumeName: "vol", Epoch: 1, Phase: apiv1.PhaseStaged}}
			}
			report := d.DeepCopy()
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "b"}}
			err := errors.Join(cache.IndexField(t.Context(), &apiv1.AzDriverNode{}, cluster.NodeVolume, cluster.NodeVolumeKeys),
				api.Create(t.Context(), node), api.Create(t.Context(), d))
			report.ResourceVersion = d.ResourceVersion
			watch := cluster.NewWatch()
			if err = errors.Join(err, api.Status().Update(t.Context(), report), watch.Register(t.Context(), cache)); err != nil {
				t.Fatal(err)
			}
			disks := &countedReads{}
			s := &Publisher{Adopter: &adoption.Adopter{
				Records: &cluster.Records{Client: api, Watch: watch, Namespace: "ns"},
				Disks:   disks,
			}}
			if err := s.unreported(t.Context(), v, "a", nil, s.disk(t.Context(), v)); err != nil || disks.reads != test.want {
				t.Errorf("got %d reads of the disk, error %v; want %d", disks.reads, err, test.want)
			}
		})
	}
}
