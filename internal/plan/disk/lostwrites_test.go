package disk_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/disk"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/objects"
)

func TestLostWrites(t *testing.T) {
	t.Parallel()
	now := objects.Now.Truncate(time.Second)
	v := objects.NewVolume()
	loss := func(volume, message string, age time.Duration) apiv1.LostWrites {
		return apiv1.LostWrites{VolumeName: volume, LossTime: metav1.NewTime(now.Add(-age)), Message: message}
	}
	report := func(node string, losses ...apiv1.LostWrites) *apiv1.AzDriverNode {
		return &apiv1.AzDriverNode{
			ObjectMeta: metav1.ObjectMeta{Name: node},
			Status:     apiv1.AzDriverNodeStatus{LostWrites: losses},
		}
	}
	// recorded is the status after the reconciliation that has found a loss on node a.
	recorded := func(l apiv1.LostWrites, then time.Time) apiv1.AzVolumeStatus {
		status := apiv1.AzVolumeStatus{}
		disk.LostWrites(v, []*apiv1.AzDriverNode{report("a", l)}, then, &status)
		return status
	}
	reports := func(all ...*apiv1.AzDriverNode) []*apiv1.AzDriverNode { return all }
	const day = 24 * time.Hour
	left, none := day-time.Minute, apiv1.AzVolumeStatus{}
	eio, gone, future := loss(v.Name, "EIO", time.Minute), loss(v.Name, "gone", 0), loss(v.Name, "EIO", -time.Hour)
	before := loss(v.Name, "gone", time.Hour)
	for name, c := range map[string]struct {
		status  apiv1.AzVolumeStatus
		reports []*apiv1.AzDriverNode
		// found and message are "" for none: the node of the loss that is found, and a part of the
		// condition's message.
		found, message string
		after          time.Duration
	}{
		"nothing is lost":                         {none, reports(report("a", loss("w", "EIO", 0))), "", "", 0},
		"a loss is recorded":                      {none, reports(report("a", eio)), "a", "node a could not", left},
		"it is recorded once":                     {recorded(eio, now), reports(report("a", eio)), "", "EIO", left},
		"it outlives the report":                  {recorded(eio, now), nil, "", "EIO", left},
		"a later one replaces it":                 {recorded(eio, now), reports(report("a", gone)), "a", "gone", day},
		"an earlier one does not":                 {recorded(eio, now), reports(report("b", before)), "", "EIO", left},
		"the last of several counts":              {none, reports(report("a", eio), report("b", gone)), "b", "gone", day},
		"it ends after a day":                     {recorded(loss(v.Name, "EIO", day), now.Add(-time.Hour)), nil, "", "", 0},
		"an old one is not recorded":              {none, reports(report("a", loss(v.Name, "EIO", day))), "", "", 0},
		"one in the future is recorded as of now": {none, reports(report("a", future)), "a", "EIO", day},
		"one in the future is recorded once": {
			recorded(future, now.Add(-time.Minute)), reports(report("a", future)), "", "EIO", left,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			status := *c.status.DeepCopy()
			found, after := disk.LostWrites(v, c.reports, now, &status)
			if _, again := disk.LostWrites(v, nil, now, &status); again != after {
				t.Errorf("got %s until the condition is removed, looked at again %s", after, again)
			}
			node, message := "", ""
			if found != nil {
				node = found.NodeName
			}
			if condition := meta.FindStatusCondition(status.Conditions, apiv1.VolumeConditionWritesKept); condition != nil {
				message = condition.Message
				if kept := condition.Status == metav1.ConditionTrue; kept != (message == "") {
					t.Errorf("got condition %+v, want True if nothing is lost", condition)
				}
			}
			if node != c.found || after != c.after || (message == "") != (c.message == "") ||
				!strings.Contains(message, c.message) {
				t.Errorf("got a loss on %q, condition %q, again after %s; want %q, %q, %s", node, message, after, c.found, c.message,
					c.after)
			}
		})
	}
}

func TestOnlyNodesThatUseAVolumeReportItsLosses(t *testing.T) {
	t.Parallel()
	released := func(v *apiv1.AzVolume) { v.Status.LastRelease = &apiv1.ReleaseRecord{NodeName: "last"} }
	attached := func(nodes ...string) (all []*apiv1.AzVolumeAttachment) {
		for _, node := range nodes {
			all = append(all, objects.NewAttachment(node, apiv1.RoleReplica, 0, apiv1.AttachmentAttached))
		}
		return all
	}
	owned, free := objects.Owned("owner", 3, apiv1.OwnershipHeld), objects.Owned("", 3, apiv1.OwnershipReleased)
	for name, test := range map[string]struct {
		volume      *apiv1.AzVolume
		attachments []*apiv1.AzVolumeAttachment
		want        []string
	}{
		"primary, replica and the last one": {objects.NewVolume(owned, released), attached("replica", "owner"),
			[]string{"last", "owner", "replica"}},
		"a primary whose attachment is gone": {objects.NewVolume(owned), nil, []string{"owner"}},
		"a volume that was released":         {objects.NewVolume(free, released), nil, []string{"last"}},
		"a volume that was never used":       {objects.NewVolume(), attached("replica"), []string{"replica"}},
	} {
		if got := disk.LossReporters(test.volume, test.attachments); !slices.Equal(got, test.want) {
			t.Errorf("%s: got %v, want %v", name, got, test.want)
		}
	}
}
