package volume

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/placement"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/expect"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/fakeapi"
)

// The pod app needs db, which has a volume with replicas and one without, and web, which has none.
// What the cache keeps of web does not say where it may run.
func TestThePodsThatLeaveTogetherComeWithTheirVolumes(t *testing.T) {
	t.Parallel()
	pod := func(name string, claims ...string) *corev1.Pod {
		p := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, Labels: map[string]string{"app": name}},
			Spec:       corev1.PodSpec{NodeName: "a"},
		}
		for _, claim := range claims {
			p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: claim, VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
			}})
		}
		return p
	}
	app, db, web, other := pod("app"), pod("db", "data", "logs"), pod("web"), pod("other")
	app.Spec.Affinity = &corev1.Affinity{
		PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
			TopologyKey: corev1.LabelHostname,
			LabelSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{
				Key:      "app",
				Operator: metav1.LabelSelectorOpIn,
				Values:   []string{"db", "web"},
			}}},
		}}},
	}
	cache, api := fakeapi.With(), fakeapi.With()
	names := map[string]string{}
	for claim, replicas := range map[string]int32{"data": 1, "logs": 0} {
		names[claim] = apiv1.VolumeName("s", "g", claim)
		cache = cache.WithObjects(
			&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: claim},
				Spec: corev1.PersistentVolumeClaimSpec{VolumeName: "pv-" + claim}},
			&corev1.PersistentVolume{
				ObjectMeta: metav1.ObjectMeta{Name: "pv-" + claim},
				Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: corev1.PersistentVolumeSource{
					CSI: &corev1.CSIPersistentVolumeSource{
						Driver:       "disk.csi.azure.com",
						VolumeHandle: "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks/" + claim,
					},
				}},
			},
			&apiv1.AzVolume{ObjectMeta: metav1.ObjectMeta{Namespace: "driver", Name: names[claim]},
				Spec: apiv1.AzVolumeSpec{MaxMountReplicaCount: replicas}},
		)
	}
	current := web.DeepCopy()
	current.Spec.NodeSelector = map[string]string{"pool": "web"}
	r := &Reconciler{Options: Options{
		Client:     cache.Build(),
		Reader:     api.WithObjects(current).Build(),
		DriverName: "disk.csi.azure.com",
	}}
	v := &apiv1.AzVolume{ObjectMeta: metav1.ObjectMeta{Namespace: "driver", Name: "vol"}}
	in := placement.Input{
		Volume:  v,
		Pods:    []placement.PodView{{Pod: app, Volumes: []string{names["data"]}}},
		Cluster: placement.Cluster{Pods: []*corev1.Pod{app, db, web, other}},
	}
	expect.Must(t, r.companions(t.Context(), v, &in))
	got := map[string][]string{}
	for _, c := range in.Companions {
		got[c.Pod.Name] = c.Replicated
		if c.Pod.Name == "web" && c.Pod.Spec.NodeSelector["pool"] != "web" {
			t.Error("got web as the cache has it, want it as the API server has it")
		}
		if c.Pod.Name == "db" && (len(c.Volumes) != 2 || len(c.PersistentVolumes) != 2) {
			t.Errorf("got %d volumes and %d PersistentVolumes of db, want 2 and 2", len(c.Volumes), len(c.PersistentVolumes))
		}
	}
	if want := map[string][]string{"db": {names["data"]}, "web": nil}; !cmp.Equal(got, want) {
		t.Errorf("got volumes with replicas by companion %v, want %v", got, want)
	}
	if got := in.Pods[0].Replicated; !cmp.Equal(got, []string{names["data"]}) {
		t.Errorf("got %v as the pod's own volumes with replicas, want %s", got, names["data"])
	}
}
