package collect_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cli/explain"
	"github.com/azuredisk-csi/azuredisk/internal/plan/cause"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/objects"
)

// A pod that works is healthy also while something about it is paused, and its answer says so.
func TestAPauseAndAnUnknownAnnotationAreToldBesideTheAnswer(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*stage)
		want   string
		says   []string
	}{
		"a paused volume": {func(s *stage) {
			s.volume.Annotations = map[string]string{apiv1.AnnotationPaused: apiv1.PausedTrue}
			s.volume.Status.Conditions = append(s.volume.Status.Conditions, metav1.Condition{
				Type: apiv1.VolumeConditionPaused, Status: metav1.ConditionTrue, LastTransitionTime: *objects.Ago(time.Hour),
			})
		}, apiv1.ReasonVolumePaused, []string{"because it is paused", "kubectl annotate azv"}},
		"a node without failover": {func(s *stage) {
			s.nodes["b"].condition(apiv1.NodeConditionFailoverEnabled, metav1.ConditionFalse, apiv1.ReasonOptedOut, "the Node has …")
		}, apiv1.ReasonOptedOut, []string{"node b stay there"}},
		"an unknown value on the pod": {func(s *stage) {
			s.pod.Annotations = map[string]string{apiv1.AnnotationMaintenance: "no"}
		}, apiv1.ReasonAnnotationInvalid, []string{"pod shop/cart-0", `maintenance: "no"`, "neither evict nor stay"}},
		"an unknown value on the claim": {func(s *stage) {
			s.claim.Annotations = map[string]string{apiv1.AnnotationFailover: "off"}
		}, apiv1.ReasonAnnotationInvalid, []string{`failover: "off"`, "neither enabled nor disabled"}},
		"an unknown value on the Node": {func(s *stage) {
			s.nodes["b"].node.Annotations = map[string]string{apiv1.AnnotationFailover: "off"}
		}, apiv1.ReasonAnnotationInvalid, []string{"node b", `failover: "off"`}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage()
			runs(s.pod)
			test.change(s)
			got := s.explain(t)
			i := slices.IndexFunc(got.Others, func(f explain.Finding) bool { return f.ID == test.want })
			if got.Outcome != cause.Healthy || i < 0 {
				t.Fatalf("got %s (%s) and others %+v, want a healthy pod and %s", got.ID, got.Outcome, got.Others, test.want)
			}
			for _, part := range test.says {
				if text := got.Text(); !strings.Contains(text, part) {
					t.Errorf("got %q, want it to say %q", text, part)
				}
			}
		})
	}
}

func TestThePauseIsInTheList(t *testing.T) {
	v := objects.NewVolume(func(v *apiv1.AzVolume) {
		v.Status.Conditions = []metav1.Condition{{Type: apiv1.VolumeConditionPaused, Status: metav1.ConditionTrue}}
	})
	d := objects.Report("a")
	d.Status.Conditions = append(d.Status.Conditions, metav1.Condition{
		Type: apiv1.NodeConditionFailoverEnabled, Status: metav1.ConditionFalse, Reason: apiv1.ReasonOptedOut,
	})
	if got := explain.VolumeRows([]*apiv1.AzVolume{v}, nil, "")[0].Reasons; !slices.Contains(got, apiv1.ReasonVolumePaused) {
		t.Errorf("got the reasons %v of the volume, want Paused", got)
	}
	if got := explain.NodeRows([]*apiv1.AzDriverNode{d}, nil, nil)[0].Reasons; !slices.Contains(got, apiv1.ReasonOptedOut) {
		t.Errorf("got the reasons %v of the node, want OptedOut", got)
	}
}
