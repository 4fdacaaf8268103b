package attachment

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/attaching"
	"github.com/azuredisk-csi/azuredisk/internal/plan/operation"
	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/fake"
)

func TestAFenceThatKnowsNoVMGoesByTheDisk(t *testing.T) {
	t.Parallel()
	all := func(_ context.Context, attachedTo []string) ([]string, error) { return attachedTo, nil }
	for name, test := range map[string]struct {
		prepare  func(cloud *fake.Cloud)
		suspects func(context.Context, []string) ([]string, error)
		cut      bool
		fails    provisioner.Kind
	}{
		"a VM that runs": {func(*fake.Cloud) {}, all, true, ""},
		// The VM starts again, and no object would say that it has the disk.
		"a VM that is stopped":        {func(c *fake.Cloud) { c.SetPower(lostVM, provisioner.PowerStopped) }, all, true, ""},
		"a VM that has lost the disk": {func(c *fake.Cloud) { c.RemoveVM(lostVM) }, all, false, ""},
		"a VM of another attachment": {func(*fake.Cloud) {},
			func(context.Context, []string) ([]string, error) { return nil, nil }, false, ""},
		"a VM without an attachment": {func(*fake.Cloud) {}, func(context.Context, []string) ([]string, error) {
			return nil, provisioner.Errorf(provisioner.Conflict, "known")
		}, false, provisioner.Conflict},
		"Azure does not speak of disks": {func(c *fake.Cloud) {
			c.FailNext(fake.DisksGet, 1, provisioner.Errorf(provisioner.Unavailable, "no answer"))
		}, all, false, provisioner.Unavailable},
	} {
		t.Run(name, func(t *testing.T) {
			withLostVM(t, 1, func(t *testing.T, cloud *fake.Cloud, disks []string) {
				test.prepare(cloud)
				truth, err := newDiskWork(cloud).fenceByDisk(disks[0], "", test.suspects)(t.Context(),
					func(provisioner.Operation) {})
				if provisioner.KindOf(err) != test.fails || truth != (operation.Truth{}) {
					t.Errorf("%+v, %v", truth, err)
				}
				if n := cloud.CallCount(fake.AttachmentsForceDetach); n > 0 != test.cut {
					t.Errorf("%d forced detaches", n)
				}
			})
		})
	}
	t.Run("a disk that is gone", func(t *testing.T) {
		withLostVM(t, 1, func(t *testing.T, cloud *fake.Cloud, _ []string) {
			truth, err := newDiskWork(cloud).fenceByDisk(compute+"disks/gone", "", all)(t.Context(),
				func(provisioner.Operation) {})
			if err != nil || truth.Attached {
				t.Errorf("%+v, %v", truth, err)
			}
		})
	})
}

// shelf is an API server with some attachments and nodes.
type shelf struct {
	client.Reader
	attachments []apiv1.AzVolumeAttachment
	nodes       []apiv1.AzDriverNode
	// vms are the VMs that the providerIDs of Nodes name, by node.
	vms map[string]string
}

func (s shelf) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	node, isNode := into.(*corev1.Node)
	vm, found := s.vms[key.Name]
	if !isNode || !found {
		return apierrors.NewNotFound(corev1.Resource("nodes"), key.Name)
	}
	node.Name, node.Spec.ProviderID = key.Name, "azure://"+vm
	return nil
}

func (s shelf) List(_ context.Context, into client.ObjectList, _ ...client.ListOption) error {
	switch into := into.(type) {
	case *apiv1.AzVolumeAttachmentList:
		into.Items = s.attachments
	case *apiv1.AzDriverNodeList:
		into.Items = s.nodes
	case *corev1.NodeList:
		for i := range s.nodes {
			into.Items = append(into.Items, corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: s.nodes[i].Name}})
		}
	}
	return nil
}

// An attachment lost its status while Azure attached the disk, and the AzDriverNode was gone. Azure
// listed the disk at no VM, which was taken for the proof, and then the attach ended.
func TestTheFenceOfAnAttachmentThatNamesNoVMEndsAnAttachUnderWay(t *testing.T) {
	t.Parallel()
	const otherVM = compute + "virtualMachines/other"
	token := func(t *testing.T, cloud *fake.Cloud, disk string) string {
		cloud.AddVM(provisioner.Instance{
			ID:        otherVM,
			Size:      "Standard_M128s",
			DataDisks: []provisioner.Attachment{{DiskID: disk}},
		})
		op, err := cloud.Attachments().ForceDetach(t.Context(), otherVM, disk)
		if err == nil {
			err = op.Wait(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
		return op.Token()
	}
	for name, resume := range map[string]func(t *testing.T, cloud *fake.Cloud, disk string) string{
		"a first try": func(*testing.T, *fake.Cloud, string) string { return "" },
		// The token that is recorded is that of the last forced detach, of whichever VM.
		"after the forced detach from another VM": token,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cloud := fake.New(fake.Options{Latency: fake.Latency{Attach: 12 * time.Second, ForceDetach: 8 * time.Second}})
				disk := compute + "disks/pvc-0"
				cloud.AddDisk(provisioner.Disk{ID: disk, MaxShares: 3})
				cloud.AddVM(provisioner.Instance{ID: lostVM, Size: "Standard_M128s"})
				a := &apiv1.AzVolumeAttachment{Spec: apiv1.AzVolumeAttachmentSpec{VolumeName: "v", NodeName: "a"}}
				r := &Reconciler{
					Options: Options{Reader: shelf{
						vms:         map[string]string{"a": lostVM},
						attachments: []apiv1.AzVolumeAttachment{*a},
					}},
					disks: newDiskWork(cloud),
				}
				in := attaching.Input{Attachment: a, Volume: &apiv1.AzVolume{Status: apiv1.AzVolumeStatus{DiskID: disk}}}
				token := resume(t, cloud, disk)
				if _, err := cloud.Attachments().Attach(t.Context(), provisioner.AttachRequest{
					VMID:   lostVM,
					DiskID: disk,
					Shared: true,
				}); err != nil {
					t.Fatal(err)
				}
				truth, err := r.fence(in, disk, "", token)(t.Context(), func(provisioner.Operation) {})
				if err != nil || truth != (operation.Truth{}) {
					t.Errorf("got %+v, %v; want the proof that the disk is attached to no VM of the node's", truth, err)
				}
				time.Sleep(time.Minute)
				if got, _ := cloud.Attachments().List(t.Context(), lostVM); len(got) > 0 {
					t.Errorf("got %+v at the VM a minute after the proof, want no disk", got)
				}
			})
		})
	}
}

func TestANodeThatIsThereIsNotCutOffForAnother(t *testing.T) {
	const vmC = compute + "virtualMachines/c"
	t.Parallel()
	api := shelf{nodes: []apiv1.AzDriverNode{{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Spec: apiv1.AzDriverNodeSpec{VMID: vmC}}}}
	a := &apiv1.AzVolumeAttachment{Spec: apiv1.AzVolumeAttachmentSpec{VolumeName: "v", NodeName: "a"}}
	r := &Reconciler{Options: Options{Reader: api}}
	cut, err := r.suspects(t.Context(), &apiv1.AzVolume{}, a, []string{"/vm/x", vmC})
	if !errors.Is(err, provisioner.Conflict) || len(cut) > 0 || !strings.Contains(err.Error(), "node c ("+vmC+")") {
		t.Errorf("cut %q, %v", cut, err)
	}
	api.attachments = []apiv1.AzVolumeAttachment{{
		Spec:   apiv1.AzVolumeAttachmentSpec{VolumeName: "v", NodeName: "c"},
		Status: apiv1.AzVolumeAttachmentStatus{VMID: vmC},
	}}
	r.Reader = api
	if cut, err := r.suspects(t.Context(), &apiv1.AzVolume{}, a, []string{vmC}); err != nil || len(cut) > 0 {
		t.Errorf("after its attachment was re-created: got detach %q, %v; want no detach and no error", cut, err)
	}
}

// The VM may be another cluster's, whatever the objects say: they may have been restored from a backup
// of that cluster, or a person may have taken the disk from this one.
func TestAnUnnamedVMIsNeverCutOff(t *testing.T) {
	const vm = compute + "virtualMachines/production"
	t.Parallel()
	a := apiv1.AzVolumeAttachment{Spec: apiv1.AzVolumeAttachmentSpec{
		VolumeName: "v",
		NodeName:   "a",
		Role:       apiv1.RolePrimary,
		Epoch:      7,
	}}
	r := &Reconciler{Options: Options{Reader: shelf{attachments: []apiv1.AzVolumeAttachment{a}}}}
	for name, confirmed := range map[string]types.UID{"nothing confirms that this cluster uses the disk": "",
		"the confirmation was restored": "former", "it is confirmed": "present"} {
		v := &apiv1.AzVolume{
			ObjectMeta: metav1.ObjectMeta{Name: "v", UID: "present"},
			Status: apiv1.AzVolumeStatus{ConfirmedUID: confirmed, Primary: &apiv1.Ownership{
				NodeName: "a",
				Epoch:    7,
				State:    apiv1.OwnershipReleasing,
				Cause:    apiv1.CauseNodeLost,
			}},
		}
		cut, err := r.suspects(t.Context(), v, &a, []string{vm})
		if !errors.Is(err, provisioner.FailedPrecondition) || len(cut) > 0 || !strings.Contains(err.Error(), vm) ||
			!strings.Contains(err.Error(), "az vm disk detach") {
			t.Errorf("%s: got detach %q, %v; want no detach, and an error that names the VM and what to do", name, cut, err)
		}
	}
}
