package scaledown_test

import (
	"maps"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/scaledown"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/objects"
)

func TestWhichAnnotationsANodeGets(t *testing.T) {
	t.Parallel()
	const (
		mark = apiv1.AnnotationScaleDownDisabled
		ca   = scaledown.ClusterAutoscaler
		kp   = scaledown.Karpenter
		both = ca + "," + kp
	)
	type set = map[string]string
	full := set{ca: "true", kp: "true", mark: both}
	for name, c := range map[string]struct {
		present set
		needed  bool
		want    set
	}{
		"a node that is not needed stays as it is": {set{"a": "b"}, false, set{"a": "b"}},
		"a node that is needed gets both":          {set{"a": "b"}, true, set{"a": "b", ca: "true", kp: "true", mark: both}},
		"a node that has both stays as it is":      {full, true, full},
		"both are removed when it is not needed":   {set{"a": "b", ca: "true", kp: "true", mark: both}, false, set{"a": "b"}},
		"one that was removed is set again":        {set{ca: "true", mark: both}, true, set{ca: "true", kp: "true", mark: both}},
		"a person's prohibition is not recorded":   {set{ca: "true"}, true, set{ca: "true", kp: "true", mark: kp}},
		"a person's prohibition is not removed":    {set{ca: "true", kp: "true", mark: kp}, false, set{ca: "true"}},
		"a person's permission stays":              {set{ca: "false"}, true, set{ca: "false", kp: "true", mark: kp}},
		"a value that was changed since stays": {
			set{ca: "false", kp: "true", mark: both}, true, set{ca: "false", kp: "true", mark: kp},
		},
		"a value that was changed since is not taken": {set{ca: "false", kp: "true", mark: both}, false, set{ca: "false"}},
		"nothing is recorded if others have set both": {set{ca: "true", kp: "false"}, true, set{ca: "true", kp: "false"}},
		"a record without annotations is removed":     {set{mark: both}, false, set{}},
		"only annotations for autoscalers are taken":  {set{"a": "true", mark: "a"}, false, set{"a": "true"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, changed := scaledown.Annotate(c.present, c.needed)
			if scaledown.Recorded(got) != (got[mark] != "") {
				t.Errorf("got that annotations are recorded: %t, want what %q says", scaledown.Recorded(got), got[mark])
			}
			if !maps.Equal(got, c.want) || changed == maps.Equal(c.present, c.want) {
				t.Errorf("got %v, changed %t; want %v", got, changed, c.want)
			}
		})
	}
}

func TestWhichNodesAreNeeded(t *testing.T) {
	t.Parallel()
	volume := objects.NewVolume(objects.Owned("b", 4, apiv1.OwnershipHeld))
	volume.UID = "uid"
	lost := objects.NewAttachment("a", apiv1.RolePrimary, 3, apiv1.AttachmentDetaching)
	fenced := lost.DeepCopy()
	objects.Proved(fenced, apiv1.ProofPreempted)
	fenced.Status.Proof.Preemption = &apiv1.Preemption{NodeName: "b"}
	helper := objects.NewAttachment("b", apiv1.RoleReplica, 0, apiv1.AttachmentAttached)
	request := apiv1.FenceRequest{VolumeName: volume.Name, VolumeUID: "uid", NodeName: "a", Epoch: 3}
	asked := func(results ...apiv1.FenceResult) *apiv1.AzDriverNode {
		return &apiv1.AzDriverNode{ObjectMeta: metav1.ObjectMeta{Name: "b"},
			Spec:   apiv1.AzDriverNodeSpec{Requests: &apiv1.NodeRequests{Fences: []apiv1.FenceRequest{request}}},
			Status: apiv1.AzDriverNodeStatus{FenceResults: results}}
	}
	kept := &apiv1.AzDriverNode{Status: apiv1.AzDriverNodeStatus{Conditions: []metav1.Condition{
		{Type: apiv1.NodeConditionGuards, Status: metav1.ConditionTrue}}}}
	for name, c := range map[string]struct {
		report *apiv1.AzDriverNode
		all    []*apiv1.AzVolumeAttachment
		want   string
	}{
		"a node that fences no other one":              {nil, []*apiv1.AzVolumeAttachment{lost, helper}, ""},
		"a node that took the reservation":             {nil, []*apiv1.AzVolumeAttachment{fenced, helper}, "a"},
		"a node that was asked to take it":             {asked(), []*apiv1.AzVolumeAttachment{lost, helper}, "a"},
		"a node that was asked, and the disk is off":   {asked(), []*apiv1.AzVolumeAttachment{helper}, ""},
		"a node that says that it keeps a reservation": {kept, []*apiv1.AzVolumeAttachment{lost, helper}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			disks := []scaledown.Disk{{Volume: volume, Attachment: helper, All: c.all}}
			if got := scaledown.Needed(c.report, disks); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}
