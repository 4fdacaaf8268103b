package volume

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
	"github.com/azuredisk-csi/azuredisk/internal/plan/placement"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/expect"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/fakeapi"
)

func TestTheStatusCountsReplicasAndSaysWhyOneIsMissing(t *testing.T) {
	t.Parallel()
	kept := placement.Step{Guards: []placement.Guard{{Node: "x", For: "a"}}}
	const why = "the replica on node x is kept until the disk is detached from node a, which only its reservation keeps from writing"
	short := placement.Step{Short: true, Why: "b: no free slot beyond the reserve"}
	for name, test := range map[string]struct {
		maximum int32
		plan    replicaPlan
		want    *apiv1.ReplicaCount
		reason  string
		message string
	}{
		"no replicas are asked for": {0, replicaPlan{}, nil, apiv1.ReasonReplicasNotWanted, ""},
		"one of two is there": {2, replicaPlan{target: placement.Target{Floor: 2}, attached: 1, Step: short},
			&apiv1.ReplicaCount{Ready: 1, Wanted: 2}, apiv1.ReasonReplicasMissing, short.Why},
		"one is on its way": {1, replicaPlan{target: placement.Target{Floor: 1}}, &apiv1.ReplicaCount{Ready: 0, Wanted: 1},
			apiv1.ReasonReplicasMissing, ""},
		"all are there": {1, replicaPlan{target: placement.Target{Floor: 1}, attached: 1},
			&apiv1.ReplicaCount{Ready: 1, Wanted: 1},
			apiv1.ReasonReplicasAttached, ""},
		"one more is there in the middle of a move": {1, replicaPlan{target: placement.Target{Floor: 1}, attached: 2},
			&apiv1.ReplicaCount{Ready: 1, Wanted: 1}, apiv1.ReasonReplicasAttached, ""},
		"a volume that is not in use": {1, replicaPlan{}, &apiv1.ReplicaCount{Ready: 0, Wanted: 0}, apiv1.ReasonReplicasNotWanted, ""},
		"not in use, and one guards against a node": {1, replicaPlan{Step: kept}, &apiv1.ReplicaCount{Ready: 0, Wanted: 0},
			apiv1.ReasonGuardsFencedNode, why},
		"none are asked for, and one guards against a node": {0, replicaPlan{Step: kept}, nil, apiv1.ReasonGuardsFencedNode, why},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := observed{
				volume: &apiv1.AzVolume{Spec: apiv1.AzVolumeSpec{MaxMountReplicaCount: test.maximum}},
				now:    time.Unix(1000, 0),
			}
			var status apiv1.AzVolumeStatus
			test.plan.status(o, &status)
			if !equality.Semantic.DeepEqual(status.Replicas, test.want) {
				t.Errorf("got replicas %+v, want %+v", status.Replicas, test.want)
			}
			c := meta.FindStatusCondition(status.Conditions, apiv1.VolumeConditionReplicasAttached)
			if c == nil || c.Reason != test.reason || c.Message != test.message {
				t.Fatalf("got condition %+v, want reason %q and message %q", c, test.reason, test.message)
			}
			fine := test.reason == apiv1.ReasonReplicasAttached || test.reason == apiv1.ReasonReplicasNotWanted
			if is := c.Status == metav1.ConditionTrue; is != fine {
				t.Errorf("got status %s for the reason %s, want True only if no wanted replica is missing", c.Status, c.Reason)
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

// A replica's readOnly means nothing, and a lost attachment has none. Published again, the volume
// would be refused for ever, or could be written to.
func TestThePrimaryIsReadOnlyAsItsPersistentVolumeSays(t *testing.T) {
	t.Parallel()
	pv := func(readOnly bool) *corev1.PersistentVolume {
		return &corev1.PersistentVolume{
			Spec: corev1.PersistentVolumeSpec{
				PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{ReadOnly: readOnly}},
			},
		}
	}
	edited := &apiv1.AzVolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: apiv1.AttachmentName("v", "a")},
		Spec: apiv1.AzVolumeAttachmentSpec{
			VolumeName: "v",
			NodeName:   "a",
			Role:       apiv1.RoleReplica,
			Epoch:      2,
			ReadOnly:   true,
		},
	}
	for name, test := range map[string]struct {
		there bool
		pv    *corev1.PersistentVolume
		want  bool
	}{
		"edited, of a PersistentVolume to write to":  {true, pv(false), false},
		"edited, of a PersistentVolume to read only": {true, pv(true), true},
		"edited, of a disk that a pod names":         {true, nil, true},
		"lost, of a PersistentVolume to write to":    {false, pv(false), false},
		"lost, of a PersistentVolume to read only":   {false, pv(true), true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := &apiv1.AzVolume{
				ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "v"},
				Status: apiv1.AzVolumeStatus{Primary: &apiv1.Ownership{
					NodeName: "a",
					Epoch:    2,
					State:    apiv1.OwnershipHeld,
				}},
			}
			scheme := fakeapi.Scheme()
			api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(v).Build()
			o := observed{volume: v, pv: test.pv}
			if err := api.Get(t.Context(), client.ObjectKeyFromObject(v), v); err != nil {
				t.Fatal(err)
			}
			if test.there {
				a := edited.DeepCopy()
				if err := api.Create(t.Context(), a); err != nil {
					t.Fatal(err)
				}
				o.attachments = append(o.attachments, a)
			}
			r := &Reconciler{Options: Options{Client: api, Reader: api, Events: events.NewFakeRecorder(1)}}
			if err := r.doRepair(t.Context(), o, ownership.Repairs(v, o.attachments, time.Unix(1000, 0))); err != nil {
				t.Fatal(err)
			}
			a := &apiv1.AzVolumeAttachment{}
			if err := api.Get(t.Context(), client.ObjectKeyFromObject(edited), a); err != nil {
				t.Fatal(err)
			}
			if want := (apiv1.AzVolumeAttachmentSpec{
				VolumeName: "v",
				NodeName:   "a",
				Role:       apiv1.RolePrimary,
				Epoch:      2,
				ReadOnly:   test.want,
			}); a.Spec != want {
				t.Errorf("got %+v, want %+v", a.Spec, want)
			}
		})
	}
}

// The replica of a volume without replicas is kept and removed later: then the volume has what it wants.
func TestTheConditionOfAKeptReplicaEnds(t *testing.T) {
	t.Parallel()
	o := observed{volume: &apiv1.AzVolume{}, now: time.Unix(1000, 0)}
	var status apiv1.AzVolumeStatus
	replicaPlan{Step: placement.Step{Guards: []placement.Guard{{Node: "x", For: "a"}}}}.status(o, &status)
	replicaPlan{}.status(o, &status)
	c := meta.FindStatusCondition(status.Conditions, apiv1.VolumeConditionReplicasAttached)
	if c.Status != metav1.ConditionTrue || c.Reason != apiv1.ReasonReplicasNotWanted || c.Message != "" {
		t.Errorf("got condition %+v, want True %s", c, apiv1.ReasonReplicasNotWanted)
	}
}

// Deletion and changes of the disk detach it everywhere, but not from the node that guards against
// a fenced one.
func TestDetachingEverywhereKeepsANodeThatGuardsAgainstAnother(t *testing.T) {
	t.Parallel()
	v := &apiv1.AzVolume{
		ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "v"},
		Status:     apiv1.AzVolumeStatus{Primary: &apiv1.Ownership{Epoch: 2, State: apiv1.OwnershipReleased}},
	}
	api := fake.NewClientBuilder().WithScheme(fakeapi.Scheme()).Build()
	o := observed{volume: v}
	for node, epoch := range map[string]int64{"a": 2, "x": 0, "y": 0} {
		a := &apiv1.AzVolumeAttachment{
			ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: apiv1.AttachmentName("v", node)},
			Spec: apiv1.AzVolumeAttachmentSpec{
				VolumeName: "v",
				NodeName:   node,
				Role:       apiv1.RoleReplica,
				Epoch:      epoch,
			},
		}
		if epoch > 0 {
			a.Status.Proof = &apiv1.ReleaseProof{
				Type:       apiv1.ProofPreempted,
				Epoch:      epoch,
				Preemption: &apiv1.Preemption{NodeName: "x"},
			}
		}
		expect.Must(t, api.Create(t.Context(), a))
		o.attachments = append(o.attachments, a)
	}
	r := &Reconciler{Options: Options{Client: api, Reader: api, Events: events.NewFakeRecorder(1)}}
	expect.Must(t, r.detachAll(t.Context(), o, "test"))
	var left apiv1.AzVolumeAttachmentList
	expect.Must(t, api.List(t.Context(), &left))
	if len(left.Items) != 1 || left.Items[0].Spec.NodeName != "x" {
		t.Errorf("got %d attachments left, want the one of node x: %+v", len(left.Items), left.Items)
	}
}
