package volume

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/placement"
)

func TestPodsThatTheWebhookHasNotSeenAreCountedOnce(t *testing.T) {
	t.Parallel()
	m, err := newMetrics(prometheus.NewRegistry(), nil)
	if err != nil {
		t.Fatal(err)
	}
	pods := func(names string) []placement.PodView {
		var views []placement.PodView
		for name := range strings.FieldsSeq(names) {
			name, steered, _ := strings.Cut(name, "=")
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(name)}}
			switch steered {
			case "":
			case apiv1.SteeringDisabled:
				pod.Annotations = map[string]string{apiv1.AnnotationSteering: steered}
			default:
				pod.Annotations = map[string]string{apiv1.AnnotationSteered: steered}
			}
			views = append(views, placement.PodView{Pod: pod})
		}
		return views
	}
	for _, step := range []struct {
		does   string
		volume string
		pods   string
		want   float64
	}{
		{"one pod without the mark, of three", "data", "a=true b c=false", 1},
		{"the same pod with a second volume", "log", "b", 1},
		{"another pod", "log", "b d", 2},
		{"the first volume has no pods", "data", "", 2},
		{"the second volume has a new pod", "log", "e=true", 0},
		{"a pod that opts out", "log", "f=disabled", 0},
		{"a pod again", "log", "b", 1},
	} {
		m.steering(step.volume, pods(step.pods))
		if got := testutil.ToFloat64(m.notSteeredGauge); got != step.want {
			t.Errorf("%s: got %v pods, want %v", step.does, got, step.want)
		}
	}
	m.forget("log")
	if got := testutil.ToFloat64(m.notSteeredGauge); got != 0 || len(m.unseen)+len(m.notSteered) > 0 {
		t.Errorf("a volume that is gone: got %v pods, and %v and %v are kept", got, m.unseen, m.notSteered)
	}
}

func TestAStandbyServesNoGaugesOfVolumes(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	if _, err := newMetrics(registry, make(chan struct{})); err != nil {
		t.Fatal(err)
	}
	if got, err := testutil.GatherAndCount(registry); err != nil || got != 0 {
		t.Errorf("got %d series in a standby, %v, want 0", got, err)
	}
}
