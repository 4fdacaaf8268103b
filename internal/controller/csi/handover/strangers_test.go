package handover

import (
	"context"
	"errors"
	"testing"

	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/azuredisk-csi/azuredisk/internal/cluster"
	"github.com/azuredisk-csi/azuredisk/internal/controller/csi/adoption"
	"github.com/azuredisk-csi/azuredisk/internal/rpc/status"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/expect"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/fakeapi"
	"github.com/azuredisk-csi/azuredisk/internal/volumehandle"
)

const driverName = "disk.csi.azure.com"

// withPods returns a client with the indexes of the cache.
func withPods(objects ...client.Object) client.Client {
	return fakeapi.With(objects...).
		WithIndex(&corev1.PersistentVolume{}, cluster.PersistentVolumeVolume, cluster.PersistentVolumeKeys(driverName)).
		WithIndex(&corev1.Pod{}, cluster.PodClaim, cluster.PodClaimKeys).
		WithIndex(&corev1.Pod{}, cluster.PodNode, cluster.PodNodeKeys).
		Build()
}

// With VolumeAttachments Kubernetes asks for a node, and does not say for which pod.
func TestNoPublishForPodsThatNameTheDiskOfAnotherNamespace(t *testing.T) {
	t.Parallel()
	const disk = "/subscriptions/s/resourceGroups/rg/providers/Microsoft.Compute/disks/vol"
	handle, err := volumehandle.Parse(disk)
	if err != nil {
		t.Fatal(err)
	}
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}}
	pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: driverName, VolumeHandle: disk}
	pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "shop", Name: "data"}
	free := pv.DeepCopy()
	free.Spec.ClaimRef = nil
	on := func(node, namespace string, source corev1.VolumeSource) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "p"}}
		p.Spec.NodeName = node
		p.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: source}}
		return p
	}
	claim := corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}
	inline := corev1.VolumeSource{AzureDisk: &corev1.AzureDiskVolumeSource{DataDiskURI: disk}}
	ended := on("a", "shop", claim)
	ended.Status.Phase = corev1.PodSucceeded
	for name, test := range map[string]struct {
		pv *corev1.PersistentVolume
		// cached and there are the pods that the cache and the API server have.
		cached, there []client.Object
		refused       bool
		// calls says that the call comes without a VolumeAttachment.
		calls bool
	}{
		"for the pod of the claim, which the API server does not have any more": {pv: pv,
			cached: []client.Object{on("a", "shop", claim)}, there: []client.Object{on("a", "apps", inline)}},
		"for a pod that the caller has checked": {pv: pv, there: []client.Object{on("a", "apps", inline)}, calls: true},
		"for the pod of the claim":              {pv: pv, cached: []client.Object{on("a", "shop", claim)}},
		"for the pod of the claim, which the cache does not have yet": {pv: pv,
			there: []client.Object{on("a", "shop", claim), on("a", "apps", inline)}},
		"for a pod of another namespace": {pv: pv, there: []client.Object{on("a", "apps", inline)}, refused: true},
		"for a pod of another namespace, while the claim's is on another node": {pv: pv,
			cached:  []client.Object{on("b", "shop", claim)},
			there:   []client.Object{on("a", "apps", inline), on("b", "shop", claim)},
			refused: true},
		"for a pod of another namespace, after the claim's ended": {pv: pv,
			there: []client.Object{on("a", "apps", inline), ended}, refused: true},
		"for a pod that names the disk in the namespace of the claim": {pv: pv, there: []client.Object{on("a", "shop", inline)}},
		"of a disk that no claim has":                                 {pv: free, there: []client.Object{on("a", "apps", inline)}},
		"for a VolumeAttachment without a pod":                        {pv: pv},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &Publisher{
				Adopter: &adoption.Adopter{Records: &cluster.Records{
					Client: withPods(append(test.cached, test.pv)...), Reader: withPods(test.there...), Namespace: "ns",
				}},
				ByVolumeAttachments: !test.calls,
			}
			err := s.notForStrangers(t.Context(), handle, nil, "a")
			if refused := status.Code(err) == codes.FailedPrecondition; refused != test.refused || err != nil && !refused {
				t.Errorf("got %v, want it refused: %t", err, test.refused)
			}
		})
	}
}

// Pods that cannot be read are no pods of another namespace, and no pods of the claim.
func TestAPublishForPodsThatCannotBeReadIsRepeated(t *testing.T) {
	t.Parallel()
	const disk = "/subscriptions/s/resourceGroups/rg/providers/Microsoft.Compute/disks/vol"
	handle, err := volumehandle.Parse(disk)
	expect.Must(t, err)
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}}
	pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: driverName, VolumeHandle: disk}
	pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "shop", Name: "data"}
	fault := errors.New("the cache has stopped")
	cached := interceptor.NewClient(withPods(pv).(client.WithWatch), interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, o ...client.ListOption) error {
			if _, pods := list.(*corev1.PodList); pods {
				return fault
			}
			return c.List(ctx, list, o...)
		},
	})
	s := &Publisher{ByVolumeAttachments: true, Adopter: &adoption.Adopter{Records: &cluster.Records{
		Client: cached, Reader: withPods(), Namespace: "ns"}}}
	if err := s.notForStrangers(t.Context(), handle, nil, "a"); !errors.Is(err, fault) {
		t.Errorf("got %v, want %v", err, fault)
	}
}
