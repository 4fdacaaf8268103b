package ownership_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/objects"
)

func TestWhenAPrimaryNoLongerUsesItsVolume(t *testing.T) {
	t.Parallel()
	on := func(node string) *corev1.Pod { return &corev1.Pod{Spec: corev1.PodSpec{NodeName: node}} }
	ending := on("a")
	ending.DeletionTimestamp = objects.Ago(0)
	for name, test := range map[string]struct {
		report *apiv1.AzDriverNode
		pod    *corev1.Pod
		want   bool
	}{
		"its report does not name the volume":          {objects.Report("a"), nil, true},
		"its report names the volume":                  {objects.Report("a", "vol"), nil, false},
		"a pod on the node is going to use the volume": {objects.Report("a"), on("a"), false},
		"the pod on the node is being deleted":         {objects.Report("a"), ending, true},
		"the volume's pod is on another node":          {objects.Report("a"), on("b"), true},
	} {
		var pods []*corev1.Pod
		if test.pod != nil {
			pods = append(pods, test.pod)
		}
		if got := ownership.NoLongerUsed("vol", "a", test.report, pods); got != test.want {
			t.Errorf("%s: got %t, want %t", name, got, test.want)
		}
	}
}

func TestAProcessThatOutlivedItsPod(t *testing.T) {
	t.Parallel()
	published := func(volume string) *apiv1.AzDriverNode {
		d := objects.Report("a", volume)
		d.Status.StagedVolumes[0].Published = true
		return d
	}
	for name, test := range map[string]struct {
		report *apiv1.AzDriverNode
		used   bool
		want   bool
	}{
		"the volume is published, and its pod is gone": {published("vol"), false, true},
		"the volume is published to a pod that exists": {published("vol"), true, false},
		"the volume is staged, and its pod has ended":  {objects.Report("a", "vol"), false, false},
		"another volume is published":                  {published("other"), false, false},
		"the node has no report":                       {nil, false, false},
	} {
		if got := ownership.LeftBehind(test.report, "vol", test.used); got != test.want {
			t.Errorf("%s: got %t, want %t", name, got, test.want)
		}
	}
}
