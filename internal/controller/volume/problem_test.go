package volume

import (
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/disk"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/expect"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/objects"
)

func TestAProblemOnTheNodeIsAConditionAndEventsOnce(t *testing.T) {
	t.Parallel()
	l := newClaimLab(t)
	d := &apiv1.AzDriverNode{ObjectMeta: metav1.ObjectMeta{Namespace: l.o.volume.Namespace, Name: "a"}}
	expect.Must(t, l.api.Create(t.Context(), d))
	for i, c := range []struct {
		problems []apiv1.VolumeProblem
		events   []string // how each of the three on the volume, the claim and the pod begins; nil for none
		reason   string
	}{
		{nil, nil, apiv1.ReasonNoProblem},
		{[]apiv1.VolumeProblem{{VolumeName: l.o.volume.Name, Reason: apiv1.ReasonDeviceHeld, Message: "by swap",
			StartTime: *objects.Ago(time.Minute)}}, []string{"Warning DeviceHeld volume "}, apiv1.ReasonDeviceHeld},
		{[]apiv1.VolumeProblem{{VolumeName: l.o.volume.Name, Reason: apiv1.ReasonDeviceHeld, Message: "by swap",
			StartTime: *objects.Ago(time.Minute)}}, nil, apiv1.ReasonDeviceHeld},
		{nil, []string{"Normal NoProblem volume "}, apiv1.ReasonNoProblem},
		{nil, nil, apiv1.ReasonNoProblem},
	} {
		d.Status.VolumeProblems = c.problems
		expect.Must(t, l.api.Status().Update(t.Context(), d))
		step := disk.Step{Status: *l.o.volume.Status.DeepCopy()}
		found, err := l.record(t.Context(), l.o, &step)
		expect.Must(t, err)
		l.Reconciler.tell(t.Context(), l.o, found)
		told := l.told()
		wrong := func(e string) bool { return !strings.HasPrefix(e, c.events[0]) }
		if len(told) != 3*len(c.events) || slices.ContainsFunc(told, wrong) {
			t.Errorf("step %d: got events %q, want three that begin with %q", i, told, c.events)
		}
		is := meta.FindStatusCondition(step.Status.Conditions, apiv1.VolumeConditionUsable)
		if (is != nil || i > 0) && (is == nil || is.Reason != c.reason) {
			t.Errorf("step %d: got condition %+v, want the reason %s", i, is, c.reason)
		}
		l.o.volume.Status = step.Status
	}
}
