package placement_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"pgregory.net/rapid"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/nodehealth"
	"github.com/azuredisk-csi/azuredisk/internal/plan/placement"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/objects"
)

// TestPlacementIsTheBestOfAll compares the choice with every possible choice, in random clusters:
// each node chosen is allowed, none that is allowed is missed, no limit is passed, and no other
// choice is better.
func TestPlacementIsTheBestOfAll(t *testing.T) {
	t.Parallel()
	chosenAtAll, forbiddenAtAll, togetherAtAll := 0, 0, 0
	rapid.Check(t, func(t *rapid.T) {
		in := randomCluster(t)
		o := oracle{in}
		var allowed []*placement.NodeView
		for i := range in.Nodes {
			if o.allowed(&in.Nodes[i]) {
				allowed = append(allowed, &in.Nodes[i])
				if !o.canArrive(in.Nodes[i].Node, nil) {
					togetherAtAll++
				}
			}
		}
		chosen := map[string]bool{}
		for _, d := range placement.Next(in).Decisions {
			if d.Verb != placement.Create ||
				!slices.ContainsFunc(allowed, func(f *placement.NodeView) bool { return f.Node.Name == d.Node }) {
				t.Fatalf("%s %s is not allowed", d.Verb, d.Node)
			}
			chosen[d.Node] = true
		}
		chosenAtAll, forbiddenAtAll = chosenAtAll+len(chosen), forbiddenAtAll+len(in.Nodes)-len(allowed)
		wanted := min(int(in.Volume.Spec.MaxMountReplicaCount), int(in.Volume.Spec.Disk.MaxShares)-1, len(allowed))
		if len(chosen) != wanted {
			t.Fatalf("%d replicas, want %d", len(chosen), wanted)
		}
		likings := o.likings(allowed)
		mine := o.cost(allowed, likings, func(n *placement.NodeView) bool { return chosen[n.Node.Name] })
		for set := range 1 << len(allowed) {
			members := map[string]bool{}
			for i, f := range allowed {
				if set&(1<<i) != 0 {
					members[f.Node.Name] = true
				}
			}
			if len(members) != wanted {
				continue
			}
			if other := o.cost(allowed, likings,
				func(n *placement.NodeView) bool { return members[n.Node.Name] }); slices.Compare(other, mine) < 0 {
				t.Fatalf("chose %v with cost %v; %v costs %v", chosen, mine, members, other)
			}
		}
	})
	if chosenAtAll == 0 || forbiddenAtAll == 0 || togetherAtAll == 0 {
		t.Fatalf("%d nodes were chosen, %d forbidden, and %d allowed only because pods move together: the clusters try nothing",
			chosenAtAll, forbiddenAtAll, togetherAtAll)
	}
	t.Logf("%d nodes were chosen, %d forbidden, %d allowed only because pods move together", chosenAtAll, forbiddenAtAll,
		togetherAtAll)
}

// TestVolumesOfAPodLandTogether places the volumes of a pod one after the other.
func TestVolumesOfAPodLandTogether(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		in := randomCluster(t)
		in.Volume.Spec.MaxMountReplicaCount, in.Volume.Spec.Disk.MaxShares = 1, 3
		names := []string{"vol", "x", "y"}[:rapid.IntRange(2, 3).Draw(t, "volumes")]
		for i := range in.Nodes {
			in.Nodes[i].Volumes = map[string]bool{}
		}
		possible := false
		for i := range in.Nodes {
			n := &in.Nodes[i]
			possible = possible || (oracle{in}).allowed(n) && (n.FreeSlots < 0 || int(n.FreeSlots-in.ReservedSlots) >= len(names))
		}
		places := map[string]bool{}
		for _, name := range names {
			in.Volume.Name = name
			for i := range in.Pods {
				in.Pods[i].Volumes = slices.DeleteFunc(slices.Clone(names), func(v string) bool { return v == name })
				in.Pods[i].Replicated = in.Pods[i].Volumes
			}
			for _, d := range placement.Next(in).Decisions {
				places[d.Node] = true
				for i := range in.Nodes {
					if n := &in.Nodes[i]; n.Node.Name == d.Node {
						n.Volumes[name] = true
						if n.FreeSlots >= 0 {
							if n.FreeSlots--; n.FreeSlots < in.ReservedSlots {
								t.Fatalf("law 8: the reserve of %s is gone", d.Node)
							}
						}
					}
				}
			}
		}
		if possible && len(places) != 1 {
			t.Fatalf("the volumes are on %v, and one node could have had them all", places)
		}
	})
}

func randomCluster(t *rapid.T) placement.Input {
	in := placement.Input{
		Now:           objects.Now,
		ReservedSlots: int32(rapid.IntRange(0, 2).Draw(t, "reserve")),
		CleanUpDelay:  time.Minute,
		DrainGrace:    time.Minute,
		Cluster:       placement.Cluster{Namespaces: map[string]labels.Set{"team": {"tier": "data"}, "other": {"tier": "web"}}},
	}
	in.Volume = objects.NewVolume(objects.Owned("n0", 2, apiv1.OwnershipHeld), func(v *apiv1.AzVolume) {
		v.Spec.Disk.MaxShares = int32(rapid.IntRange(2, 5).Draw(t, "shares"))
		v.Spec.MaxMountReplicaCount = int32(rapid.IntRange(1, 4).Draw(t, "replicas"))
	})
	if rapid.Bool().Draw(t, "zrs") {
		zoneRedundant(in.Volume)
	}
	in.Attachments = objects.Attachments(objects.NewAttachment("n0", apiv1.RolePrimary, 2, apiv1.AttachmentAttached))
	for i := range rapid.IntRange(3, 8).Draw(t, "nodes") {
		in.Nodes = append(in.Nodes, randomNode(t, i))
		in.Cluster.Nodes = append(in.Cluster.Nodes, in.Nodes[i].Node)
	}
	stranger := newNode("stranger", "1") // without the node plug-in, and its pods count
	stranger.Node.Labels["zone"] = "1"
	in.Cluster.Nodes = append(in.Cluster.Nodes, stranger.Node)
	for i := range rapid.IntRange(0, 7).Draw(t, "other pods") {
		p := randomPod(t, fmt.Sprintf("other-%d", i))
		// often with the volume's pods
		p.Spec.NodeName = in.Cluster.Nodes[max(rapid.IntRange(-2, len(in.Cluster.Nodes)-1).Draw(t, "at"), 0)].Name
		if rapid.IntRange(0, 5).Draw(t, "terminating") == 0 {
			p.DeletionTimestamp = objects.Ago(time.Second)
		}
		in.Cluster.Pods = append(in.Cluster.Pods, p)
	}
	for i := range rapid.SampledFrom([]int{1, 1, 1, 2, 3}).Draw(t, "users") {
		p := randomPod(t, fmt.Sprintf("user-%d", i))
		p.Spec.NodeName = "n0"
		in.Cluster.Pods = append(in.Cluster.Pods, p) // it must not count against itself
		view := placement.PodView{Pod: p, Volumes: []string{"x", "y"}[:rapid.IntRange(0, 2).Draw(t, "other volumes")]}
		view.Replicated = view.Volumes[rapid.IntRange(0, len(view.Volumes)).Draw(t, "without replicas"):]
		if rapid.IntRange(0, 5).Draw(t, "other driver's volume") == 0 {
			view.PersistentVolumes = []*corev1.PersistentVolume{
				{Spec: corev1.PersistentVolumeSpec{NodeAffinity: &corev1.VolumeNodeAffinity{Required: randomNodeSelector(t)}}},
			}
		}
		in.Pods = append(in.Pods, view)
	}
	beside := slices.IndexFunc(in.Cluster.Pods, func(p *corev1.Pod) bool { return p.Spec.NodeName == "n0" })
	if rapid.IntRange(0, 2).Draw(t, "beside another pod") == 0 {
		term := corev1.PodAffinityTerm{
			LabelSelector:     &metav1.LabelSelector{MatchLabels: in.Cluster.Pods[beside].Labels},
			TopologyKey:       "kubernetes.io/hostname",
			NamespaceSelector: &metav1.LabelSelector{},
		}
		in.Pods[0].Pod.Spec.Affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution = []corev1.PodAffinityTerm{term}
	}
	for i, p := range placement.Companions(in) {
		volumes := [][]string{nil, {"a"}, {"w"}, {"w", "z"}, {"a", "z"}, {"xa"}}
		drawn := rapid.SampledFrom(volumes).Draw(t, fmt.Sprint("volumes of companion ", i))
		in.Companions = append(in.Companions, placement.PodView{
			Pod:        p,
			Volumes:    drawn,
			Replicated: drawn[rapid.IntRange(0, len(drawn)).Draw(t, "without replicas"):],
		})
	}
	for i := range in.Nodes {
		for _, v := range []string{"a", "w", "xa", "z"} {
			if rapid.IntRange(0, 3).Draw(t, "holds "+v) == 0 {
				in.Nodes[i].Volumes[v] = true
			}
		}
	}
	return in
}

func randomNode(t *rapid.T, i int) placement.NodeView {
	n := newNode(fmt.Sprintf("n%d", i), rapid.SampledFrom([]string{"1", "1", "1", "2", "3"}).Draw(t, "zone"),
		slots(int32(rapid.IntRange(-1, 8).Draw(t, "slots"))))
	n.Health = rapid.SampledFrom([]nodehealth.State{nodehealth.Healthy, nodehealth.Healthy, nodehealth.Healthy,
		nodehealth.Healthy, nodehealth.Healthy, nodehealth.Suspect, nodehealth.Lost}).Draw(t, "health")
	if rapid.IntRange(0, 15).Draw(t, "a size without Premium disks") == 0 {
		n.Capacity = &apiv1.NodeCapacity{MaxDataDisks: 8, LacksPremium: true}
	}
	n.Crowded = rapid.IntRange(0, 15).Draw(t, "crowded") == 0
	n.Node.Spec.Unschedulable = rapid.IntRange(0, 11).Draw(t, "cordoned") == 0
	n.Node.Labels["disk"] = rapid.SampledFrom([]string{"fast", "slow"}).Draw(t, "label")
	if rapid.IntRange(0, 5).Draw(t, "has zone label") > 0 {
		n.Node.Labels["zone"] = n.Zone
	}
	for _, taint := range []corev1.Taint{
		{
			Key:    "dedicated",
			Value:  "db",
			Effect: corev1.TaintEffectNoSchedule,
		}, {Key: "evict", Effect: corev1.TaintEffectNoExecute}, {Key: "rather-not", Effect: corev1.TaintEffectPreferNoSchedule},
	} {
		if rapid.IntRange(0, 8).Draw(t, "taint") == 0 {
			n.Node.Spec.Taints = append(n.Node.Spec.Taints, taint)
		}
	}
	for _, v := range []string{"x", "y"} {
		if rapid.Bool().Draw(t, "holds "+v) {
			n.Volumes[v] = true
		}
	}
	return n
}

func randomPod(t *rapid.T, name string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name:      name,
		Namespace: rapid.SampledFrom([]string{"team", "team", "other"}).Draw(t, "namespace"),
		Labels: map[string]string{
			"app":     rapid.SampledFrom([]string{"a", "b"}).Draw(t, "app"),
			"version": rapid.SampledFrom([]string{"1", "2"}).Draw(t, "version"),
		},
	}}
	if rapid.IntRange(0, 4).Draw(t, "selects") == 0 {
		p.Spec.NodeSelector = map[string]string{"disk": "fast"}
	}
	for _, toleration := range []corev1.Toleration{
		{
			Key:      "dedicated",
			Value:    "db",
			Operator: corev1.TolerationOpEqual,
		}, {Key: "evict", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute},
		{
			Key:      "rather-not",
			Operator: corev1.TolerationOpExists,
		}, {Key: "node.kubernetes.io/unschedulable", Operator: corev1.TolerationOpExists},
	} {
		if rapid.IntRange(0, 2).Draw(t, "tolerates") > 0 {
			p.Spec.Tolerations = append(p.Spec.Tolerations, toleration)
		}
	}
	if rapid.Bool().Draw(t, "has claims") {
		claims(p)
	}
	affinity := &corev1.Affinity{
		NodeAffinity:    &corev1.NodeAffinity{},
		PodAffinity:     &corev1.PodAffinity{},
		PodAntiAffinity: &corev1.PodAntiAffinity{},
	}
	if rapid.IntRange(0, 6).Draw(t, "node affinity") == 0 {
		affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution = randomNodeSelector(t)
	}
	if rapid.IntRange(0, 3).Draw(t, "node preference") == 0 {
		affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution = []corev1.PreferredSchedulingTerm{
			{Weight: int32(rapid.IntRange(1, 9).Draw(t, "weight")), Preference: randomNodeSelector(t).NodeSelectorTerms[0]}}
	}
	affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution = randomTerms(t, "affinity", 7)
	affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution = randomTerms(t, "anti-affinity", 9)
	affinity.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution = randomWeighted(t, "preferred affinity")
	affinity.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution = randomWeighted(t, "preferred anti-affinity")
	p.Spec.Affinity = affinity
	for range max(rapid.IntRange(-1, 2).Draw(t, "constraints"), 0) {
		p.Spec.TopologySpreadConstraints = append(p.Spec.TopologySpreadConstraints, randomConstraint(t))
	}
	return p
}

func randomNodeSelector(t *rapid.T) *corev1.NodeSelector {
	return rapid.SampledFrom([]*corev1.NodeSelector{
		{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{
			Key:      "zone",
			Operator: corev1.NodeSelectorOpIn,
			Values:   []string{"1", "2"},
		}}}}},
		{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{
			Key:      "disk",
			Operator: corev1.NodeSelectorOpIn,
			Values:   []string{"slow"},
		}}},
			{MatchFields: []corev1.NodeSelectorRequirement{{
				Key:      "metadata.name",
				Operator: corev1.NodeSelectorOpIn,
				Values:   []string{"n1"},
			}}}}},
	}).Draw(t, "node selector")
}

func randomSelector(t *rapid.T) *metav1.LabelSelector {
	return rapid.SampledFrom([]*metav1.LabelSelector{
		nil, {}, {MatchLabels: map[string]string{"app": "a"}}, {MatchLabels: map[string]string{"app": "b"}},
		{MatchLabels: map[string]string{
			"app":     "a",
			"version": "1",
		}},
		{MatchExpressions: []metav1.LabelSelectorRequirement{{
			Key:      "version",
			Operator: metav1.LabelSelectorOpNotIn,
			Values:   []string{"2"},
		}}},
		{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpExists}}},
	}).Draw(t, "selector")
}

func randomTerm(t *rapid.T) corev1.PodAffinityTerm {
	term := corev1.PodAffinityTerm{
		LabelSelector: randomSelector(t),
		TopologyKey:   rapid.SampledFrom([]string{"kubernetes.io/hostname", "zone", "disk"}).Draw(t, "key"),
	}
	switch rapid.IntRange(0, 5).Draw(t, "namespaces") {
	case 0:
		term.Namespaces = []string{"other"}
	case 1:
		term.NamespaceSelector = &metav1.LabelSelector{}
	case 2:
		term.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "data"}}
	}
	return term
}

func randomTerms(t *rapid.T, name string, rarity int) []corev1.PodAffinityTerm {
	var terms []corev1.PodAffinityTerm
	for rapid.IntRange(0, rarity).Draw(t, name) == 0 {
		terms = append(terms, randomTerm(t))
	}
	return terms
}

func randomWeighted(t *rapid.T, name string) []corev1.WeightedPodAffinityTerm {
	var terms []corev1.WeightedPodAffinityTerm
	for _, term := range randomTerms(t, name, 3) {
		terms = append(terms, corev1.WeightedPodAffinityTerm{
			Weight:          int32(rapid.IntRange(1, 100).Draw(t, "weight")),
			PodAffinityTerm: term,
		})
	}
	return terms
}

func randomConstraint(t *rapid.T) corev1.TopologySpreadConstraint {
	c := corev1.TopologySpreadConstraint{
		MaxSkew:     int32(rapid.IntRange(1, 2).Draw(t, "skew")),
		TopologyKey: rapid.SampledFrom([]string{"kubernetes.io/hostname", "zone"}).Draw(t, "spread over"),
		WhenUnsatisfiable: rapid.SampledFrom(
			[]corev1.UnsatisfiableConstraintAction{corev1.DoNotSchedule, corev1.ScheduleAnyway}).Draw(t, "unsatisfiable"),
		LabelSelector: randomSelector(t),
	}
	policies := []*corev1.NodeInclusionPolicy{nil, ref(corev1.NodeInclusionPolicyHonor), ref(corev1.NodeInclusionPolicyIgnore)}
	c.NodeAffinityPolicy = rapid.SampledFrom(policies).Draw(t, "affinity policy")
	c.NodeTaintsPolicy = rapid.SampledFrom(policies).Draw(t, "taints policy")
	if c.WhenUnsatisfiable == corev1.DoNotSchedule && rapid.IntRange(0, 2).Draw(t, "has min domains") == 0 {
		c.MinDomains = ref(int32(rapid.IntRange(1, 3).Draw(t, "min domains")))
	}
	if c.LabelSelector != nil && rapid.IntRange(0, 2).Draw(t, "has keys") == 0 {
		c.MatchLabelKeys = []string{"version", "absent"}
	}
	return c
}

func ref[T any](v T) *T { return &v }

func newNode(name, zone string, change ...func(*placement.NodeView)) placement.NodeView {
	n := placement.NodeView{
		Node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{
			Name:   name,
			Labels: map[string]string{"kubernetes.io/hostname": name},
		}},
		Zone:      zone,
		Location:  "eastus",
		Health:    nodehealth.Healthy,
		FreeSlots: 8,
		Volumes:   map[string]bool{},
	}
	for _, c := range change {
		c(&n)
	}
	return n
}
