package scenario

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func TestKarpenterEvictsOneGroupOfPodsAfterTheOther(t *testing.T) {
	t.Parallel()
	pod := func(name string, edit func(*corev1.Pod)) corev1.Pod {
		p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if edit != nil {
			edit(&p)
		}
		return p
	}
	daemon := func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{Kind: "DaemonSet", Controller: ptr.To(true)}}
	}
	critical := func(p *corev1.Pod) { p.Spec.PriorityClassName = "system-node-critical" }
	both := func(p *corev1.Pod) { daemon(p); critical(p) }
	ended := func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }
	ends := func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} }
	stays := func(p *corev1.Pod) {
		both(p)
		p.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	}
	plugin, agent, app, dns := pod("plugin", both), pod("agent", daemon), pod("app", nil), pod("dns", critical)
	for name, test := range map[string]struct {
		pods    []corev1.Pod
		waiting int
		evict   []string
	}{
		"other pods come first":  {[]corev1.Pod{plugin, agent, app, dns}, 4, []string{"app"}},
		"then daemons":           {[]corev1.Pod{plugin, agent, dns}, 3, []string{"agent"}},
		"then critical pods":     {[]corev1.Pod{plugin, dns}, 2, []string{"dns"}},
		"critical daemons last":  {[]corev1.Pod{plugin}, 1, []string{"plugin"}},
		"a pod that is ending":   {[]corev1.Pod{pod("app", ends)}, 1, nil},
		"a pod that tolerates":   {[]corev1.Pod{pod("plugin", stays)}, 0, nil},
		"a pod that has ended":   {[]corev1.Pod{pod("job", ended)}, 0, nil},
		"a node without any pod": {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			waiting, evict := drainStep(test.pods)
			var names []string
			for _, p := range evict {
				names = append(names, p.Name)
			}
			if diff := cmp.Diff(test.evict, names); diff != "" || waiting != test.waiting {
				t.Errorf("waiting for %d, want %d; evicted (-want +got):\n%s", waiting, test.waiting, diff)
			}
		})
	}
}
