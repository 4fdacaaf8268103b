package handover_test

import (
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/disk"
)

// grows is a volume that node a has just released, and whose disk has to grow before a node gets it
// again.
func grows(w *world) {
	v, now := w.volume(), metav1.NewTime(time.Now())
	v.Spec.CapacityBytes = 20 << 30
	v.Status.DiskID, v.Status.SizeBytes, v.Status.LastReleasedTime = diskID, 10<<30, &now
	v.Status.Primary = &apiv1.Ownership{Epoch: 1, State: apiv1.OwnershipReleased}
	w.put(v)
}

// severalGrow is grows for a volume of several nodes, whose change has begun.
func severalGrow(w *world) {
	grows(w)
	v, now := w.volume(), metav1.NowMicro()
	v.Spec.Access, v.Spec.MaxMountReplicaCount = apiv1.AccessMultiNode, 0
	v.Status.Primary, v.Status.LastReleasedTime, v.Status.UpdateWantedTime = nil, nil, &now
	w.put(v)
}

// A call that ends before the change is Aborted, has written nothing, and is repeated.
func TestAPublishWaitsForAChangeOfTheDisk(t *testing.T) {
	t.Parallel()
	larger := func(v *apiv1.AzVolume) { v.Status.SizeBytes = 20 << 30 }
	for name, test := range map[string]struct {
		volume given
		do     act
		how    func(*apiv1.AzVolume)
		want   time.Duration
	}{
		"until the disk has grown": {grows, publish("b"), larger, 25 * time.Second},
		"until Azure has failed": {grows, publish("b"), func(v *apiv1.AzVolume) { v.Status.Error = &apiv1.Error{Reason: "Conflict"} },
			25 * time.Second},
		"not for ever":                       {grows, publish("b"), func(*apiv1.AzVolume) {}, disk.HoldsFor},
		"of several nodes":                   {severalGrow, publish("b", shared), larger, 25 * time.Second},
		"of several nodes, but not for ever": {severalGrow, publish("b", shared), func(*apiv1.AzVolume) {}, disk.HoldsFor},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in(t, func(w *world) {
				go func() {
					time.Sleep(25 * time.Second)
					v := w.volume()
					test.how(v)
					w.put(v)
				}()
				began := time.Now()
				err := test.do(w)
				for ; status.Code(err) == codes.Aborted; err = test.do(w) {
					if state := w.state(); state != "Released 1" && state != "unowned" {
						t.Fatalf("got %s after %v, want no owner and no attachment", state, err)
					}
				}
				w.must(err)
				if took := time.Since(began).Round(time.Second); took < test.want || took > test.want+3*time.Second {
					t.Errorf("got a publish after %s, want one after %s", took, test.want)
				}
				if w.attachment("b") == nil {
					t.Errorf("got no attachment of node b")
				}
			}, test.volume)
		})
	}
}
