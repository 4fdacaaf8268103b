package volume

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/disk"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/expect"
)

// The volume is used on node a, node b has nothing to do with it.
func TestALossOfWritesIsAConditionAndEvents(t *testing.T) {
	t.Parallel()
	l := newClaimLab(t)
	for _, node := range []string{"a", "b"} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "on-" + node}}
		pod.Spec.NodeName = node
		pod.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"},
		}}}
		d := &apiv1.AzDriverNode{ObjectMeta: metav1.ObjectMeta{Namespace: l.o.volume.Namespace, Name: node}}
		d.Status.LostWrites = []apiv1.LostWrites{{
			VolumeName: l.o.volume.Name, LossTime: metav1.NewTime(l.o.now.Add(-time.Minute)), Message: "EIO on " + node,
		}}
		expect.Must(t, l.api.Create(t.Context(), pod))
		expect.Must(t, l.api.Create(t.Context(), d))
		expect.Must(t, l.api.Status().Update(t.Context(), d))
	}
	for i, want := range []int{3, 0} { // the volume, the claim and one pod
		step := disk.Step{Status: *l.o.volume.Status.DeepCopy()}
		found, err := l.record(t.Context(), l.o, &step)
		expect.Must(t, err)
		l.Reconciler.tell(t.Context(), l.o, found)
		told := l.told()
		if len(told) != want || want > 0 && !strings.Contains(told[0], apiv1.ReasonDiskFlushFailed) {
			t.Errorf("reconciliation %d: got events %q, want %d", i, told, want)
		}
		c := meta.FindStatusCondition(step.Status.Conditions, apiv1.VolumeConditionWritesKept)
		if c == nil || c.Reason != apiv1.ReasonDiskFlushFailed || !strings.Contains(c.Message, "EIO on a") ||
			step.RequeueAfter <= 0 {
			t.Errorf("reconciliation %d: got condition %+v, again after %s; want the loss on node a", i, c, step.RequeueAfter)
		}
		l.o.volume.Status = step.Status
	}
}
