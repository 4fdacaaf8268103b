package disk_test

import (
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/disk"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/objects"
)

func problemOn(node, volume, reason, message string) *apiv1.AzDriverNode {
	return &apiv1.AzDriverNode{
		ObjectMeta: metav1.ObjectMeta{Name: node},
		Status: apiv1.AzDriverNodeStatus{VolumeProblems: []apiv1.VolumeProblem{{
			VolumeName: volume, Reason: reason, Message: message, StartTime: *objects.Ago(time.Minute),
		}}},
	}
}

func TestTheProblemOfAVolumeIsTheConditionUsable(t *testing.T) {
	t.Parallel()
	v := objects.NewVolume()
	const held, frozen = apiv1.ReasonDeviceHeld, apiv1.ReasonFilesystemFrozen
	is := func(status metav1.ConditionStatus, reason, message string) *metav1.Condition {
		return &metav1.Condition{Type: apiv1.VolumeConditionUsable, Status: status, Reason: reason, Message: message,
			LastTransitionTime: metav1.NewTime(objects.Now.Add(-time.Hour))}
	}
	fine := is(metav1.ConditionTrue, apiv1.ReasonNoProblem, "")
	on := func(node, reason, message string) *apiv1.AzDriverNode {
		return problemOn(node, v.Name, reason, message)
	}
	for name, c := range map[string]struct {
		before  *metav1.Condition
		reports []*apiv1.AzDriverNode
		// told is the event, "" for none; want is the condition, and age how old its transition is.
		told, want string
		age        time.Duration
	}{
		"nothing was ever reported": {nil, nil, "", "", 0},
		"nothing is reported":       {fine, nil, "", "True NoProblem ", time.Hour},
		"a problem of another volume": {fine, []*apiv1.AzDriverNode{problemOn("a", "w", held, "x")}, "",
			"True NoProblem ", time.Hour},
		"a problem": {fine, []*apiv1.AzDriverNode{on("a", held, "x")}, held,
			"False DeviceHeld node a: x", time.Minute},
		"a problem without a condition": {nil, []*apiv1.AzDriverNode{on("a", held, "x")}, held,
			"False DeviceHeld node a: x", time.Minute},
		"it lasts": {is(metav1.ConditionFalse, held, "node a: x"), []*apiv1.AzDriverNode{on("a", held, "x")}, "",
			"False DeviceHeld node a: x", time.Hour},
		"its words change": {is(metav1.ConditionFalse, held, "node a: x"), []*apiv1.AzDriverNode{on("a", held, "y")}, "",
			"False DeviceHeld node a: y", time.Hour},
		"another cause": {is(metav1.ConditionFalse, held, "node a: x"), []*apiv1.AzDriverNode{on("a", frozen, "x")}, frozen,
			"False FilesystemFrozen node a: x", time.Minute},
		"the same on another node": {is(metav1.ConditionFalse, held, "node a: x"), []*apiv1.AzDriverNode{on("b", held, "x")},
			"", "False DeviceHeld node b: x", time.Hour},
		"the worst of two nodes": {fine, []*apiv1.AzDriverNode{on("a", held, "x"), on("b", frozen, "y")},
			frozen, "False FilesystemFrozen node b: y", time.Minute},
		"it has ended": {is(metav1.ConditionFalse, held, "node a: x"), nil, apiv1.ReasonNoProblem, "True NoProblem ", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			status := apiv1.AzVolumeStatus{}
			if c.before != nil {
				status.Conditions = []metav1.Condition{*c.before}
			}
			told, got := "", ""
			if p := disk.Usable(v, c.reports, objects.Now, &status); p != nil {
				told = p.Reason
			}
			if is := meta.FindStatusCondition(status.Conditions, apiv1.VolumeConditionUsable); is != nil {
				got = string(is.Status) + " " + is.Reason + " " + is.Message
				if age := objects.Now.Sub(is.LastTransitionTime.Time); age != c.age {
					t.Errorf("got a transition %s ago, want %s", age, c.age)
				}
			}
			if told != c.told || got != c.want {
				t.Errorf("got event %q and condition %q, want %q and %q", told, got, c.told, c.want)
			}
			if p := disk.Usable(v, c.reports, objects.Now, &status); p != nil {
				t.Errorf("got event %+v again, want it once", p)
			}
		})
	}
}

func TestLaw7OnlyNodesThatHaveAVolumeReportItsProblems(t *testing.T) {
	t.Parallel()
	at := func(node string, role apiv1.Role) *apiv1.AzVolumeAttachment {
		return &apiv1.AzVolumeAttachment{Spec: apiv1.AzVolumeAttachmentSpec{NodeName: node, Role: role}}
	}
	attachments := []*apiv1.AzVolumeAttachment{at("c", apiv1.RolePrimary), at("b", apiv1.RoleReplica), at("a", apiv1.RolePrimary)}
	shared := objects.NewVolume(func(v *apiv1.AzVolume) { v.Spec.Access = apiv1.AccessMultiNode })
	for name, c := range map[string]struct {
		volume *apiv1.AzVolume
		want   []string
	}{
		"held":       {objects.NewVolume(objects.Owned("a", 1, apiv1.OwnershipHeld)), []string{"a"}},
		"releasing":  {objects.NewVolume(objects.Owned("a", 1, apiv1.OwnershipReleasing)), []string{"a"}},
		"released":   {objects.NewVolume(objects.Owned("a", 1, apiv1.OwnershipReleased)), nil},
		"multi-node": {shared, []string{"a", "c"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := disk.ProblemReporters(c.volume, attachments); !slices.Equal(got, c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}
