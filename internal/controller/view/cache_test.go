package view

import (
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestPodsAreKeptAsFarAsPlacementLooksAtThem(t *testing.T) {
	t.Parallel()
	full := func(volumes ...corev1.Volume) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "n", Labels: map[string]string{"app": "a"}, Annotations: map[string]string{"long": "text"}},
			Spec: corev1.PodSpec{
				NodeName: "node", NodeSelector: map[string]string{"disk": "fast"}, Tolerations: []corev1.Toleration{{Key: "t"}}, Volumes: volumes,
				Containers: []corev1.Container{{Name: "c"}}, TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{TopologyKey: "zone"}},
				Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{}, PodAntiAffinity: &corev1.PodAntiAffinity{}},
			},
		}
	}
	claim := corev1.Volume{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}}
	for name, test := range map[string]struct {
		pod  *corev1.Pod
		want corev1.PodSpec
	}{
		"one with a volume, with all that says where it may go": {full(claim), corev1.PodSpec{
			NodeName: "node", NodeSelector: map[string]string{"disk": "fast"}, Tolerations: []corev1.Toleration{{Key: "t"}}, Volumes: []corev1.Volume{claim},
			TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{TopologyKey: "zone"}},
			Affinity:                  &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{}, PodAntiAffinity: &corev1.PodAntiAffinity{}},
		}},
		"one without, with what it wants of others": {full(), corev1.PodSpec{NodeName: "node", Affinity: &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{}}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			trimmed, err := trimPod(test.pod)
			got, ok := trimmed.(*corev1.Pod)
			if err != nil || !ok {
				t.Fatal(trimmed, err)
			}
			if !reflect.DeepEqual(got.Spec, test.want) || got.Labels["app"] != "a" || len(got.Annotations) > 0 {
				t.Fatalf("kept %+v", got)
			}
		})
	}
}
