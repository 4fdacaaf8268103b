package attachdetach

import (
	"context"
	"errors"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/expect"
)

// limit is the count of a driver in a CSINode; nil for none.
func limit(driver string, count *int32) storagev1.CSINodeDriver {
	d := storagev1.CSINodeDriver{Name: driver, NodeID: "full"}
	if count != nil {
		d.Allocatable = &storagev1.VolumeNodeResources{Count: count}
	}
	return d
}

// onFullNode is a pod of a StatefulSet on a node that has no slot for its volume.
func onFullNode(limits ...storagev1.CSINodeDriver) []client.Object {
	p := pod("default", "db-0", "full", claimVolume("data"))
	p.Status.Phase = corev1.PodPending
	p.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: "apps/v1", Kind: "StatefulSet", Name: "db", UID: "s", Controller: ptr.To(true),
	}}
	csiNode := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: "full"}}
	csiNode.Spec.Drivers = limits
	return append(volume("vol", apiv1.AccessSingleNode), p, readyNode("full"), report("full"), csiNode,
		claim("default", "data", "c", "pv"), persistentVolume("pv", disk("rg", "vol"), "default", "data", "c"))
}

func noSlot(context.Context, string) error {
	return status.Error(codes.ResourceExhausted, "no slot is free")
}

func TestAPodOnAFullNodeFails(t *testing.T) {
	none, five, notNow := ptr.To[int32](0), ptr.To[int32](5), errors.New("not now")
	other := limit("disk.example.com", none)
	pods := schema.GroupResource{Resource: "pods"}
	for name, test := range map[string]struct {
		limits []storagev1.CSINodeDriver
		since  func(*corev1.Pod) // what the cache does not show yet
		write  error             // of the status of the pod
		fails  bool
		says   string // the error, beside the publish's
	}{
		"the CSINode says that it is full":       {limits: []storagev1.CSINodeDriver{limit(driver, none)}, fails: true},
		"the node is full for another driver":    {limits: []storagev1.CSINodeDriver{limit(driver, five), other}},
		"the CSINode has no count of the driver": {limits: []storagev1.CSINodeDriver{limit(driver, nil)}},
		"the pod was created again":              {since: func(p *corev1.Pod) { p.UID = "another" }},
		"the pod runs":                           {since: func(p *corev1.Pod) { p.Status.Phase = corev1.PodRunning }},
		"the pod is deleted before the write":    {write: apierrors.NewNotFound(pods, "db-0")},
		"the pod changes before the write":       {write: apierrors.NewConflict(pods, "db-0", notNow)},
		"the API server does not take the write": {write: notNow, says: "fail pod default/db-0"},
	} {
		t.Run(name, func(t *testing.T) {
			if test.limits == nil {
				test.limits = []storagev1.CSINodeDriver{limit(driver, none)}
			}
			r, publisher := setUp(t, driver, onFullNode(test.limits...)...)
			publisher.before = noSlot
			api := r.Client.(client.WithWatch)
			r.Client = interceptor.NewClient(api, interceptor.Funcs{SubResourcePatch: func(ctx context.Context, c client.Client,
				sub string, o client.Object, patch client.Patch, options ...client.SubResourcePatchOption) error {
				if test.write != nil {
					return test.write
				}
				return c.SubResource(sub).Patch(ctx, o, patch, options...)
			}})
			r.Reader = interceptor.NewClient(api, interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch,
				key client.ObjectKey, o client.Object, options ...client.GetOption) error {
				err := c.Get(ctx, key, o, options...)
				if p, ok := o.(*corev1.Pod); ok && test.since != nil {
					test.since(p)
				}
				return err
			}})
			err := tryReconcile(t, r, "vol")
			if status.Code(err) != codes.ResourceExhausted || test.says == "" && strings.Contains(err.Error(), "fail pod") ||
				!strings.Contains(err.Error(), test.says) {
				t.Errorf("got error %v, want the publish's, with %q", err, test.says)
			}
			p := &corev1.Pod{}
			expect.Must(t, api.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "db-0"}, p))
			got, told := p.Status, recorded(t, r)
			if !test.fails {
				if got.Phase == corev1.PodFailed || len(told) != 1 {
					t.Errorf("got phase %s and events %q, want the pod to wait and one event on the publish", got.Phase, told)
				}
				return
			}
			want := "volume pv cannot be attached to node full: no slot is free"
			if got.Phase != corev1.PodFailed || got.Reason != "VolumeAttachmentLimitExceeded" || got.Message != want {
				t.Errorf("got status %+v, want Failed, the kubelet's reason, and %q", got, want)
			}
			if last := "Warning VolumeAttachmentLimitExceeded " + want; len(told) != 2 || told[1] != last {
				t.Errorf("got events %q, want the last to be %q", told, last)
			}
		})
	}
}
