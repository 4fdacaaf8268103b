package attachdetach

import (
	"context"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
)

const outOfOrder = "the API server is out of order"

// failing is a client whose access with this number fails, from 0. failed is set when it does.
func failing(api client.WithWatch, number int, failed *bool) client.WithWatch {
	next := func() error {
		if number--; number != -1 {
			return nil
		}
		*failed = true
		return errors.New(outOfOrder)
	}
	return interceptor.NewClient(api, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object,
			options ...client.GetOption) error {
			if err := next(); err != nil {
				return err
			}
			return c.Get(ctx, key, o, options...)
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			if err := next(); err != nil {
				return err
			}
			return c.List(ctx, list, options...)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, patch client.Patch,
			options ...client.SubResourcePatchOption) error {
			if err := next(); err != nil {
				return err
			}
			return c.SubResource(sub).Patch(ctx, o, patch, options...)
		},
	})
}

// eachFailing makes a call as often as it has accesses. In each of them another access fails, and the
// call must return its error.
func eachFailing(t *testing.T, r *Reconciler, call func(r *Reconciler) error) {
	t.Helper()
	api := r.Client.(client.WithWatch)
	for n := 0; ; n++ {
		failed, again := false, New(r.Options)
		c := failing(api, n, &failed)
		again.Client, again.Reader = c, c
		err := call(again)
		if !failed {
			return
		}
		if err == nil || !strings.Contains(err.Error(), outOfOrder) {
			t.Errorf("access %d fails: got error %v, want its error", n, err)
		}
	}
}

// What was not read is no reason to do anything, and the reconciliation is repeated.
func TestAReconciliationEndsWithTheErrorOfAnAccess(t *testing.T) {
	onVM := report("a")
	onVM.Spec.VMID = "/vm/a"
	for name, test := range map[string]struct {
		objects []client.Object
		before  func(context.Context, string) error
	}{
		"a fence": {objects: fencedVolume("")},
		"an unpublish of a multi-node volume": {
			objects: append(volume("vol", apiv1.AccessMultiNode, "a"), readyNode("a"), onVM),
		},
		"a pod on a full node": {objects: onFullNode(limit(driver, ptr.To[int32](0))), before: noSlot},
	} {
		t.Run(name, func(t *testing.T) {
			r, publisher := setUp(t, driver, test.objects...)
			publisher.before = test.before
			eachFailing(t, r, func(r *Reconciler) error { return tryReconcile(t, r, "vol") })
		})
	}
}

func TestTheVolumesOfAnEventAreIncompleteAfterAnError(t *testing.T) {
	r, _ := setUp(t, driver, readyNode("a"), pod("apps", "p", "a", claimVolume("data")))
	for name, volumes := range map[string]func(*Reconciler) volumesOf{
		"of a node":  func(r *Reconciler) volumesOf { return r.onNode("ns") },
		"of a pod":   func(r *Reconciler) volumesOf { return r.ofPod },
		"of a claim": func(r *Reconciler) volumesOf { return r.ofClaim },
	} {
		t.Run(name, func(t *testing.T) {
			eachFailing(t, r, func(r *Reconciler) error {
				_, err := volumes(r)(t.Context(), pod("apps", "a", "a", claimVolume("data")))
				return err
			})
		})
	}
}

// The cache still has the PersistentVolume.
func TestAPersistentVolumeThatIsGoneIsNotPublished(t *testing.T) {
	r, calls := setUp(t, driver, persistentVolume("pv", disk("rg", "vol"), "apps", "data", "1"), claim("apps", "data", "1", "pv"),
		readyNode("a"), report("a"), pod("apps", "p", "a", claimVolume("data")))
	empty, _ := setUp(t, driver)
	r.Reader = empty.Reader
	reconcileOf(t, r, "vol")
	calls.expect(t)
	if got := recorded(t, r); len(got) != 0 {
		t.Errorf("got events %q, want none", got)
	}
}

func TestTheRequestOfAnInTreeVolume(t *testing.T) {
	inTree := persistentVolume("pv", "", "apps", "data", "1")
	inTree.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{AzureDisk: &corev1.AzureDiskVolumeSource{
		DiskName: "vol", DataDiskURI: disk("rg", "vol"), Kind: ptr.To(corev1.AzureManagedDisk),
	}}
	foreign, unusable := inTree.DeepCopy(), inTree.DeepCopy()
	foreign.Name, foreign.Spec.PersistentVolumeSource = "foreign", corev1.PersistentVolumeSource{}
	unusable.Name, unusable.Spec.AccessModes = "unusable", nil
	several := inTree.DeepCopy()
	several.Name, several.Spec.AccessModes = "several", append(several.Spec.AccessModes, corev1.ReadOnlyMany)
	r, _ := setUp(t, driver, inTree, foreign, unusable, several)
	named := &corev1.Volume{Name: "data", VolumeSource: inline(disk("rg", "vol"))}
	for name, test := range map[string]struct {
		by   source
		says string // the error; "" if there is none
	}{
		"of a PersistentVolume":                        {source{pv: inTree}, ""},
		"of a PersistentVolume of another kind":        {source{pv: foreign}, "translate in-tree PersistentVolume"},
		"of a PersistentVolume without an access mode": {source{pv: unusable}, "access modes"},
		"of a PersistentVolume with two access modes":  {source{pv: several}, "give PersistentVolume several one of them alone"},
		"that a pod names":                             {source{inline: named}, ""},
		"that a pod names, and is of another kind":     {source{inline: &corev1.Volume{}}, "translate in-tree volume"},
	} {
		request, _, err := r.request(t.Context(), test.by, "apps", "a")
		switch {
		case test.says != "":
			if err == nil || !strings.Contains(err.Error(), test.says) {
				t.Errorf("%s: got error %v, want one with %q", name, err, test.says)
			}
		case err != nil || request.GetVolumeId() != disk("rg", "vol") || request.GetNodeId() != "a":
			t.Errorf("%s: got %v, %v, want the disk's handle and node a", name, request, err)
		}
	}
}
