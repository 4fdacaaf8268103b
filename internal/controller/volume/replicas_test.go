package volume

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/placement"
)

func TestTheStatusCountsReplicasAndSaysWhyOneIsMissing(t *testing.T) {
	t.Parallel()
	short := placement.Step{Short: true, Why: "b: no free slot beyond the reserve"}
	for name, test := range map[string]struct {
		maximum int32
		plan    replicaPlan
		want    *apiv1.ReplicaCount
		reason  string
		message string
	}{
		"no replicas are asked for":                 {0, replicaPlan{}, nil, "", ""},
		"one of two is there":                       {2, replicaPlan{target: placement.Target{Floor: 2}, attached: 1, Step: short}, &apiv1.ReplicaCount{Ready: 1, Wanted: 2}, placement.ReasonReplicasMissing, short.Why},
		"one is on its way":                         {1, replicaPlan{target: placement.Target{Floor: 1}}, &apiv1.ReplicaCount{Wanted: 1}, placement.ReasonReplicasMissing, ""},
		"all are there":                             {1, replicaPlan{target: placement.Target{Floor: 1}, attached: 1}, &apiv1.ReplicaCount{Ready: 1, Wanted: 1}, placement.ReasonReplicasAttached, ""},
		"one more is there in the middle of a move": {1, replicaPlan{target: placement.Target{Floor: 1}, attached: 2}, &apiv1.ReplicaCount{Ready: 1, Wanted: 1}, placement.ReasonReplicasAttached, ""},
		"a volume that is not in use":               {1, replicaPlan{}, &apiv1.ReplicaCount{}, placement.ReasonReplicasNotWanted, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := observed{volume: &apiv1.AzVolume{Spec: apiv1.AzVolumeSpec{MaxMountReplicaCount: test.maximum}}, now: time.Unix(1000, 0)}
			var status apiv1.AzVolumeStatus
			test.plan.status(o, &status)
			if !equality.Semantic.DeepEqual(status.Replicas, test.want) {
				t.Errorf("got replicas %+v, want %+v", status.Replicas, test.want)
			}
			c := meta.FindStatusCondition(status.Conditions, placement.ConditionReplicasAttached)
			if c == nil && test.reason != "" || c != nil && (c.Reason != test.reason || c.Message != test.message) {
				t.Errorf("got condition %+v, want reason %q and message %q", c, test.reason, test.message)
			}
			again := *status.DeepCopy()
			o.now = o.now.Add(time.Minute)
			test.plan.status(o, &again)
			if !equality.Semantic.DeepEqual(again, status) {
				t.Errorf("got another status %+v when nothing has changed, want %+v", again, status)
			}
		})
	}
}
