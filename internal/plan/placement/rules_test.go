package placement_test

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/placement"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/objects"
)

func app(name string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}
}

func term(name, key string) corev1.PodAffinityTerm {
	return corev1.PodAffinityTerm{LabelSelector: app(name), TopologyKey: key}
}

type podChange func(*corev1.Pod)

func newPod(name, node string, changes ...podChange) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "team", Labels: map[string]string{"app": name}},
		Spec:       corev1.PodSpec{NodeName: node},
	}
	for _, c := range changes {
		c(p)
	}
	return p
}

func affinityOf(p *corev1.Pod) *corev1.Affinity {
	if p.Spec.Affinity == nil {
		p.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{}, PodAntiAffinity: &corev1.PodAntiAffinity{}}
	}
	return p.Spec.Affinity
}

func nearTo(terms ...corev1.PodAffinityTerm) podChange {
	return func(p *corev1.Pod) {
		affinityOf(p).PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution = terms
	}
}

func farFrom(terms ...corev1.PodAffinityTerm) podChange {
	return func(p *corev1.Pod) {
		affinityOf(p).PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution = terms
	}
}

func ratherFarFrom(t corev1.PodAffinityTerm) podChange {
	return func(p *corev1.Pod) {
		affinityOf(p).PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution = []corev1.WeightedPodAffinityTerm{{
			Weight:          10,
			PodAffinityTerm: t,
		}}
	}
}

func ratherNear(t corev1.PodAffinityTerm) podChange {
	return func(p *corev1.Pod) {
		affinityOf(p).PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution = []corev1.WeightedPodAffinityTerm{{
			Weight:          10,
			PodAffinityTerm: t,
		}}
	}
}

type constraint = corev1.TopologySpreadConstraint

func evenly(c constraint, changes ...func(*constraint)) podChange {
	for _, change := range changes {
		change(&c)
	}
	return func(p *corev1.Pod) { p.Spec.TopologySpreadConstraints = append(p.Spec.TopologySpreadConstraints, c) }
}

func noSelector(c *constraint) { c.LabelSelector = nil }

func domains(n int32) func(*constraint) { return func(c *constraint) { c.MinDomains = &n } }

func byVersion(c *constraint) { c.MatchLabelKeys = []string{"version", "absent"} }

func version(v string) podChange { return func(p *corev1.Pod) { p.Labels["version"] = v } }

// unreadable is a selector that no API server accepts.
var unreadable = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: "Likes"}}}

func prefersUnreadable(p *corev1.Pod) {
	likes := []corev1.NodeSelectorRequirement{{Key: "x", Operator: "Likes"}}
	affinityOf(p).NodeAffinity = &corev1.NodeAffinity{
		PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{
			Weight: 1, Preference: corev1.NodeSelectorTerm{MatchExpressions: likes},
		}},
	}
}

func inNamespace(name string) podChange { return func(p *corev1.Pod) { p.Namespace = name } }
func called(app string) podChange       { return func(p *corev1.Pod) { p.Labels["app"] = app } }
func terminating(p *corev1.Pod)         { p.DeletionTimestamp = objects.Ago(0) }

// TestWherePodsCouldRun has a volume on node a, and b and c in zone 1, d in zone 2. The disk can go
// everywhere.
func TestWherePodsCouldRun(t *testing.T) {
	t.Parallel()
	const host, zone = corev1.LabelHostname, corev1.LabelTopologyZone
	everywhere := []string{"b", "c", "d"}
	noTerm := corev1.PodAffinityTerm{LabelSelector: unreadable, TopologyKey: host}
	strict := func(key string, skew int32) corev1.TopologySpreadConstraint {
		return corev1.TopologySpreadConstraint{
			MaxSkew:           skew,
			TopologyKey:       key,
			WhenUnsatisfiable: corev1.DoNotSchedule,
			LabelSelector:     app("db"),
		}
	}
	for name, test := range map[string]struct {
		users, others []*corev1.Pod
		pvs           []*corev1.PersistentVolume
		want          []string
	}{
		"a pod without rules may run anywhere": {users: []*corev1.Pod{newPod("db", "a")}, want: everywhere},
		"near pods of its choice": {users: []*corev1.Pod{newPod("db", "a", nearTo(term("web", host)))},
			others: []*corev1.Pod{newPod("web", "c")}, want: []string{"c"}},
		"in the zone of pods of its choice": {users: []*corev1.Pod{newPod("db", "a", nearTo(term("web", zone)))},
			others: []*corev1.Pod{newPod("web", "a")}, want: []string{"b", "c"}},
		"nowhere if there are none": {users: []*corev1.Pod{newPod("db", "a", nearTo(term("web", host)))}},
		"one pod must match all terms": {users: []*corev1.Pod{newPod("db", "a", nearTo(term("web", host), term("cache", host)))},
			others: []*corev1.Pod{newPod("web", "c"), newPod("cache", "c")}},
		"pods of other namespaces are not meant": {users: []*corev1.Pod{newPod("db", "a", nearTo(term("web", host)))},
			others: []*corev1.Pod{newPod("web", "c", inNamespace("other"))}},
		"unless they are named": {
			users: []*corev1.Pod{newPod("db", "a", nearTo(corev1.PodAffinityTerm{
				LabelSelector: app("web"),
				TopologyKey:   host,
				Namespaces:    []string{"other"},
			}))},
			others: []*corev1.Pod{newPod("web", "c", inNamespace("other"))},
			want:   []string{"c"},
		},
		"or their labels are": {
			users: []*corev1.Pod{newPod("db", "a",
				nearTo(corev1.PodAffinityTerm{LabelSelector: app("web"), TopologyKey: host,
					NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "web"}}}))},
			others: []*corev1.Pod{newPod("web", "c", inNamespace("other")), newPod("web", "b")}, want: []string{"c"}},
		"the first of a set that wants to be together may run anywhere": {
			users: []*corev1.Pod{newPod("db", "a", nearTo(term("db", host)))}, want: everywhere},
		"but not if others of the set are there": {users: []*corev1.Pod{newPod("db", "a", nearTo(term("db", host)))},
			others: []*corev1.Pod{newPod("db-1", "d", called("db"))}, want: []string{"d"}},
		"two pods of the volume that want each other move together": {
			users: []*corev1.Pod{newPod("db", "a", nearTo(term("sidekick", host))), newPod("sidekick", "a")}, want: everywhere},
		"far from pods of its choice": {users: []*corev1.Pod{newPod("db", "a", farFrom(term("web", host)))},
			others: []*corev1.Pod{newPod("web", "c")}, want: []string{"b", "d"}},
		"violating one of two terms is enough": {
			users:  []*corev1.Pod{newPod("db", "a", farFrom(term("web", host), term("cache", host)))},
			others: []*corev1.Pod{newPod("web", "c"), newPod("cache", "b")}, want: []string{"d"}},
		"and far from pods that do not want it": {users: []*corev1.Pod{newPod("db", "a")},
			others: []*corev1.Pod{newPod("web", "c", farFrom(term("db", zone)))}, want: []string{"d"}},
		"also when they are terminating": {users: []*corev1.Pod{newPod("db", "a")},
			others: []*corev1.Pod{newPod("web", "c", farFrom(term("db", host)), terminating)}, want: []string{"b", "d"}},
		"a StatefulSet with anti-affinity does not keep off itself": {
			users: []*corev1.Pod{newPod("db", "a", farFrom(term("db", zone)))}, want: everywhere},
		"but its other replicas": {users: []*corev1.Pod{newPod("db", "a", farFrom(term("db", host)))},
			others: []*corev1.Pod{newPod("db-1", "b", called("db"))}, want: []string{"c", "d"}},
		"pods on nodes without the driver count": {users: []*corev1.Pod{newPod("db", "a", farFrom(term("web", zone)))},
			others: []*corev1.Pod{newPod("web", "virtual")}, want: []string{"b", "c"}},
		"a pod without a node does not count": {users: []*corev1.Pod{newPod("db", "a", farFrom(term("web", zone)))},
			others: []*corev1.Pod{newPod("web", "")}, want: everywhere},
		"in one of several namespaces": {
			users: []*corev1.Pod{newPod("db", "a", farFrom(corev1.PodAffinityTerm{
				LabelSelector: app("web"), TopologyKey: host, Namespaces: []string{"other", "third"},
			}))},
			others: []*corev1.Pod{newPod("web", "c", inNamespace("other"))}, want: []string{"b", "d"}},
		"a rule that cannot be read names no pod": {
			users:  []*corev1.Pod{newPod("db", "a", farFrom(noTerm))},
			others: []*corev1.Pod{newPod("web", "c")}, want: everywhere},
		"near pods by two keys, and one of them matches": {
			users:  []*corev1.Pod{newPod("db", "a", nearTo(term("web", host), term("web", zone)))},
			others: []*corev1.Pod{newPod("web", "c")}, want: []string{"c"}},
		"a preference of other pods orders the nodes": {users: []*corev1.Pod{newPod("db", "a")},
			others: []*corev1.Pod{newPod("web", "d", ratherNear(term("db", host)))}, want: []string{"d", "b", "c"}},
		"and one against the volume's pod": {users: []*corev1.Pod{newPod("db", "a")},
			others: []*corev1.Pod{newPod("web", "b", ratherFarFrom(term("db", host)))}, want: []string{"c", "d", "b"}},
		"what other pods require is a preference, too": {users: []*corev1.Pod{newPod("db", "a")},
			others: []*corev1.Pod{newPod("web", "d", nearTo(term("db", host)))}, want: []string{"d", "b", "c"}},
		"what other pods require of others is none": {users: []*corev1.Pod{newPod("db", "a")},
			others: []*corev1.Pod{newPod("web", "d", nearTo(term("cache", host)))}, want: everywhere},
		"nor is its own preference for other pods": {users: []*corev1.Pod{newPod("db", "a", ratherNear(term("cache", host)))},
			others: []*corev1.Pod{newPod("web", "d")}, want: everywhere},
		"its own preference": {users: []*corev1.Pod{newPod("db", "a", ratherNear(term("web", host)))},
			others: []*corev1.Pod{newPod("web", "d")}, want: []string{"d", "b", "c"}},
		"a preference of nodes that cannot be read": {users: []*corev1.Pod{newPod("db", "a", prefersUnreadable)},
			want: everywhere},
		"spread over zones, and a pod of another namespace": {users: []*corev1.Pod{newPod("db", "a", evenly(strict(zone, 1)))},
			others: []*corev1.Pod{newPod("db-1", "b", called("db"), inNamespace("other"))}, want: everywhere},
		"spread over zones before others leave the node": {users: []*corev1.Pod{newPod("db", "a", evenly(strict(zone, 1)))},
			others: []*corev1.Pod{newPod("db-1", "a", called("db")), newPod("db-2", "d", called("db"))}, want: everywhere},
		"as many domains as asked for": {
			users:  []*corev1.Pod{newPod("db", "a", evenly(strict(zone, 1), domains(2)))},
			others: []*corev1.Pod{newPod("db-1", "b", called("db")), newPod("db-2", "d", called("db"))},
			want:   everywhere},
		"a spread that selects no pods": {
			users:  []*corev1.Pod{newPod("db", "a", version("2"), evenly(strict(zone, 1), byVersion, noSelector))},
			others: []*corev1.Pod{newPod("db-1", "b", called("db"))}, want: everywhere},
		"a spread over the pods of one version": {
			users:  []*corev1.Pod{newPod("db", "a", version("2"), evenly(strict(zone, 1), byVersion))},
			others: []*corev1.Pod{newPod("db-1", "b", called("db"), version("1"))}, want: everywhere},
		"one pod of the version is there": {
			users:  []*corev1.Pod{newPod("db", "a", version("2"), evenly(strict(zone, 1), byVersion))},
			others: []*corev1.Pod{newPod("db-1", "b", called("db"), version("2"))}, want: []string{"d"}},
		"spread over zones": {users: []*corev1.Pod{newPod("db", "a", evenly(strict(zone, 1)))},
			others: []*corev1.Pod{newPod("db-1", "b", called("db"))}, want: []string{"d"}},
		"with a larger skew": {users: []*corev1.Pod{newPod("db", "a", evenly(strict(zone, 2)))},
			others: []*corev1.Pod{newPod("db-1", "b", called("db"))}, want: everywhere},
		"what terminates does not count in the spread": {users: []*corev1.Pod{newPod("db", "a", evenly(strict(zone, 1)))},
			others: []*corev1.Pod{newPod("db-1", "b", called("db"), terminating)}, want: everywhere},
		"fewer domains than asked for count as an empty one": {
			users:  []*corev1.Pod{newPod("db", "a", evenly(strict(zone, 1), domains(3)))},
			others: []*corev1.Pod{newPod("db-1", "b", called("db")), newPod("db-2", "d", called("db"))},
		},
		"a spread that is only preferred forbids nothing": {
			users: []*corev1.Pod{newPod("db", "a",
				evenly(corev1.TopologySpreadConstraint{MaxSkew: 1, TopologyKey: host,
					WhenUnsatisfiable: corev1.ScheduleAnyway, LabelSelector: app("db")}))},
			others: []*corev1.Pod{newPod("db-1", "b", called("db"))}, want: []string{"c", "d", "b"}},
		"a preference against pods orders the nodes": {users: []*corev1.Pod{newPod("db", "a", ratherFarFrom(term("web", zone)))},
			others: []*corev1.Pod{newPod("web", "b")}, want: []string{"d", "b", "c"}},
		"the other volumes of the pod must be able to follow": {users: []*corev1.Pod{newPod("db", "a")},
			pvs: []*corev1.PersistentVolume{inZone("2")}, want: []string{"d"}},
		"other volumes that can follow everywhere": {users: []*corev1.Pod{newPod("db", "a")},
			pvs:  []*corev1.PersistentVolume{{}, {Spec: corev1.PersistentVolumeSpec{NodeAffinity: &corev1.VolumeNodeAffinity{}}}},
			want: everywhere},
		"a node that the pod of a DaemonSet is bound to by its fields": {users: []*corev1.Pod{newPod("db", "a", onNode("c"))},
			want: []string{"c"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := placement.Input{
				Now:         objects.Now,
				Attachments: objects.Attachments(objects.NewAttachment("a", apiv1.RolePrimary, 2, apiv1.AttachmentAttached)),
				Cluster: placement.Cluster{
					Pods: append(test.others, test.users...), Namespaces: map[string]labels.Set{
						"other": {"tier": "web"},
						"team":  {"tier": "data"},
					},
				},
			}
			// Four shares and a disk that any VM can have, so that all that is allowed is chosen,
			// in the order of preference.
			in.Volume = objects.NewVolume(objects.Owned("a", 2, apiv1.OwnershipHeld), func(v *apiv1.AzVolume) {
				v.Spec.Disk.MaxShares, v.Spec.MaxMountReplicaCount, v.Spec.Disk.Zone = 10, 9, ""
			})
			for n, z := range map[string]string{"a": "1", "b": "1", "c": "1", "d": "2", "virtual": "2"} {
				node := newNode(n, "")
				node.Node.Labels[zone] = z
				in.Cluster.Nodes = append(in.Cluster.Nodes, node.Node)
				if n != "virtual" {
					in.Nodes = append(in.Nodes, node)
				}
			}
			for _, p := range test.users {
				in.Pods = append(in.Pods, placement.PodView{Pod: p, PersistentVolumes: test.pvs})
			}
			var got []string
			for _, d := range placement.Next(in).Decisions {
				got = append(got, d.Node)
			}
			if !slices.Equal(got, test.want) {
				t.Fatalf("got %v, want %v", got, test.want)
			}
		})
	}
}

func inZone(zone string) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{
		Spec: corev1.PersistentVolumeSpec{
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{
				{MatchExpressions: []corev1.NodeSelectorRequirement{{
					Key:      corev1.LabelTopologyZone,
					Operator: corev1.NodeSelectorOpIn,
					Values:   []string{zone},
				}}}}}},
		},
	}
}

func onNode(name string) podChange {
	return func(p *corev1.Pod) {
		affinityOf(p).NodeAffinity = &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{
				{MatchFields: []corev1.NodeSelectorRequirement{{
					Key:      "metadata.name",
					Operator: corev1.NodeSelectorOpIn,
					Values:   []string{name},
				}}}}},
		}
	}
}

func TestNamespacesAreLookedAtOnlyIfARuleSelectsThem(t *testing.T) {
	t.Parallel()
	all := corev1.PodAffinityTerm{
		LabelSelector:     app("db"),
		TopologyKey:       corev1.LabelHostname,
		NamespaceSelector: &metav1.LabelSelector{},
	}
	some := corev1.PodAffinityTerm{
		LabelSelector:     app("db"),
		TopologyKey:       corev1.LabelHostname,
		NamespaceSelector: app("x"),
	}
	own := farFrom(term("db", corev1.LabelHostname))
	if placement.SelectsNamespaces([]*corev1.Pod{newPod("p", ""), newPod("q", "", farFrom(all)), newPod("r", "", own)}) {
		t.Fatal("all namespaces need no labels")
	}
	for _, change := range []podChange{nearTo(some), farFrom(some), ratherFarFrom(some)} {
		if !placement.SelectsNamespaces([]*corev1.Pod{newPod("q", "", change)}) {
			t.Fatal("a selector was overlooked")
		}
	}
}

func TestHowFarTheRulesOfPodsLook(t *testing.T) {
	t.Parallel()
	named := corev1.PodAffinityTerm{
		LabelSelector: app("db"),
		TopologyKey:   corev1.LabelHostname,
		Namespaces:    []string{"other"},
	}
	for name, test := range map[string]struct {
		pod                    *corev1.Pod
		rules, otherNamespaces bool
	}{
		"not at all":               {newPod("p", "", evenly(corev1.TopologySpreadConstraint{})), false, false},
		"into its own namespace":   {newPod("p", "", farFrom(term("db", corev1.LabelHostname))), true, false},
		"into a namespace by name": {newPod("p", "", ratherFarFrom(named)), true, true},
		"into the namespace of many": {newPod("p", "",
			nearTo(corev1.PodAffinityTerm{NamespaceSelector: &metav1.LabelSelector{}})), true, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := placement.HasRules(test.pod); got != test.rules {
				t.Fatalf("has rules: %t", got)
			}
			if got := placement.SelectsOtherNamespaces([]*corev1.Pod{newPod("q", ""), test.pod}); got != test.otherNamespaces {
				t.Fatalf("got selects other namespaces = %t, want %t", got, test.otherNamespaces)
			}
		})
	}
}
