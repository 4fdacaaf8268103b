package placement_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/nodehealth"
	"github.com/azuredisk-csi/azuredisk/internal/plan/placement"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/objects"
)

// together is a cluster whose pods have volumes of the same names, and all primaries are on node a.
type together struct {
	pods     []*corev1.Pod
	others   []*corev1.Pod
	nodes    []string
	replicas int32
	// without names the pods without a volume.
	without []string
	// cannot names the nodes on which a pod cannot run, as in "app:b".
	cannot []string
	// tainted and ill are nodes with a taint, and nodes that are not healthy.
	tainted, ill []string
	// at are the replicas, by volume.
	at map[string][]string
}

func (c *together) input(volume string) placement.Input {
	in := placement.Input{Now: objects.Now}
	in.Volume = objects.NewVolume(objects.Owned("a", 2, apiv1.OwnershipHeld), func(v *apiv1.AzVolume) {
		v.Name, v.Spec.Disk.MaxShares, v.Spec.MaxMountReplicaCount = volume, c.replicas+1, c.replicas
	})
	in.Attachments = objects.Attachments(objects.NewAttachment("a", apiv1.RolePrimary, 2, apiv1.AttachmentAttached))
	for _, n := range c.at[volume] {
		in.Attachments = append(in.Attachments, objects.NewAttachment(n, apiv1.RoleReplica, 0, apiv1.AttachmentAttached))
	}
	for _, name := range c.nodes {
		n := newNode(name, "1")
		n.Node.Labels["zone"] = "1"
		if slices.Contains(c.tainted, name) {
			taintedFor(0, "dedicated", corev1.TaintEffectNoSchedule)(&n)
		}
		if slices.Contains(c.ill, name) {
			suspect(&n)
		}
		for _, cannot := range c.cannot {
			if pod, node, _ := strings.Cut(cannot, ":"); node == name {
				n.Node.Labels["not-"+pod] = "true"
			}
		}
		for _, p := range c.pods {
			if name == "a" || slices.Contains(c.at[p.Name], name) {
				n.Volumes[p.Name] = !slices.Contains(c.without, p.Name)
			}
		}
		in.Nodes = append(in.Nodes, n)
		in.Cluster.Nodes = append(in.Cluster.Nodes, n.Node)
	}
	in.Cluster.Pods = append(slices.Clone(c.others), c.pods...)
	for _, p := range c.pods {
		if !slices.Contains(c.without, p.Name) {
			claims(p)
		}
	}
	in.Pods = []placement.PodView{{Pod: in.Cluster.Pods[slices.IndexFunc(in.Cluster.Pods,
		func(p *corev1.Pod) bool { return p.Name == volume })]}}
	for _, p := range placement.Companions(in) {
		view := placement.PodView{Pod: p}
		if !slices.Contains(c.without, p.Name) {
			view.Volumes, view.Replicated = []string{p.Name}, []string{p.Name}
		}
		in.Companions = append(in.Companions, view)
	}
	return in
}

// claims gives a pod a claim.
func claims(p *corev1.Pod) {
	p.Spec.Volumes = []corev1.Volume{
		{VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{}}},
	}
}

// place decides once about a volume, carries that out, and reports whether anything was decided.
func (c *together) place(volume string) (placement.Step, bool) {
	step := placement.Next(c.input(volume))
	for _, d := range step.Decisions {
		if d.Verb == placement.Create {
			c.at[volume] = append(c.at[volume], d.Node)
		} else {
			c.at[volume] = slices.DeleteFunc(c.at[volume], func(n string) bool { return n == d.Node })
		}
	}
	return step, len(step.Decisions) > 0
}

func tolerating(p *corev1.Pod) { p.Spec.Tolerations = tolerant().Pod.Spec.Tolerations }

// avoids keeps a pod off the nodes that together.cannot names for it.
func avoids(p *corev1.Pod) {
	affinityOf(p).NodeAffinity = &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{
			{MatchExpressions: []corev1.NodeSelectorRequirement{{
				Key:      "not-" + p.Name,
				Operator: corev1.NodeSelectorOpDoesNotExist,
			}}}}},
	}
}

// TestReplicasGoWhereThePodsWillGo has node a with the pods, and nodes b to e. The volumes are
// decided in the given order, each once.
func TestReplicasGoWhereThePodsWillGo(t *testing.T) {
	t.Parallel()
	const host = corev1.LabelHostname
	beside := func(names ...string) podChange {
		var terms []corev1.PodAffinityTerm
		for _, n := range names {
			terms = append(terms, term(n, host))
		}
		return nearTo(terms...)
	}
	for name, test := range map[string]struct {
		cluster together
		order   []string
		want    map[string]string
		why     string // of the last
	}{
		"beside a pod whose volume has a replica": {
			cluster: together{pods: []*corev1.Pod{newPod("app", "a", beside("db")), newPod("db", "a")},
				at: map[string][]string{"db": {"d"}}}, order: []string{"app"}, want: map[string]string{"app": "d", "db": "d"}},
		"not before the pod that it follows has a replica": {
			cluster: together{pods: []*corev1.Pod{newPod("app", "a", beside("db")), newPod("db", "a")}}, order: []string{"app"},
			want: map[string]string{"app": ""}, why: "must be near pods that will have replicas first: db"},
		"a pod without a volume can come everywhere": {
			cluster: together{pods: []*corev1.Pod{newPod("app", "a", beside("db")), newPod("db", "a")}, without: []string{"db"}},
			order:   []string{"app"}, want: map[string]string{"app": "b"}},
		"or everywhere where it can run": {
			cluster: together{pods: []*corev1.Pod{newPod("app", "a", beside("db")), newPod("db", "a", avoids)},
				without: []string{"db"}, cannot: []string{"db:b", "db:c"}}, order: []string{"app"},
			want: map[string]string{"app": "d"}},
		"nowhere where it cannot run": {
			cluster: together{pods: []*corev1.Pod{newPod("app", "a", beside("db")), newPod("db", "a", avoids)},
				without: []string{"db"}, cannot: []string{"db:b", "db:c", "db:d", "db:e"}}, order: []string{"app"},
			want: map[string]string{"app": ""}, why: "do not run there and will not move there"},
		"nor where it does not tolerate a taint": {
			cluster: together{pods: []*corev1.Pod{newPod("app", "a", beside("db"), tolerating), newPod("db", "a")},
				without: []string{"db"}, tainted: []string{"b", "c", "d", "e"}}, order: []string{"app"},
			want: map[string]string{"app": ""}, why: "do not run there and will not move there"},
		"only where its volume has its replica": {
			cluster: together{pods: []*corev1.Pod{newPod("app", "a", beside("db"), avoids), newPod("db", "a")},
				cannot: []string{"app:d"}, at: map[string][]string{"db": {"d"}}}, order: []string{"app"},
			want: map[string]string{"app": ""}, why: "do not run there and will not move there"},
		"a replica on a node where its pod cannot run": {
			cluster: together{pods: []*corev1.Pod{newPod("app", "a", beside("db")), newPod("db", "a", avoids)},
				cannot: []string{"db:d"}, at: map[string][]string{"db": {"d"}}}, order: []string{"app"},
			want: map[string]string{"app": ""}, why: "will have replicas first: db"},
		"a replica on a node that is not healthy": {
			cluster: together{pods: []*corev1.Pod{newPod("app", "a", beside("db")), newPod("db", "a")},
				ill: []string{"d"}, at: map[string][]string{"db": {"d"}}}, order: []string{"app"},
			want: map[string]string{"app": ""}, why: "will have replicas first: db"},
		"a pod that only follows it is not followed": {
			cluster: together{pods: []*corev1.Pod{newPod("app", "a", beside("db")), newPod("db", "a"),
				newPod("web", "a", beside("app"))}, at: map[string][]string{"db": {"d"}, "web": {"c"}}},
			order: []string{"app"}, want: map[string]string{"app": "d"}},
		"the replica of a pod that follows it attracts": {
			cluster: together{pods: []*corev1.Pod{newPod("app", "a"), newPod("web", "a", beside("app"))},
				at: map[string][]string{"web": {"d"}}}, order: []string{"app"}, want: map[string]string{"app": "d"}},
		"all that lead are named, in their order": {
			cluster: together{pods: []*corev1.Pod{newPod("cache", "a", called("set"), beside("set")),
				newPod("app", "a", called("set"), beside("set")), newPod("db", "a", called("set"), beside("set"))}},
			order: []string{"db"}, want: map[string]string{"db": ""}, why: "will have replicas first: app, cache"},
		"one that leads is waited for beside another that has no volume": {
			cluster: together{pods: []*corev1.Pod{newPod("app", "a", called("set"), beside("set")),
				newPod("db", "a", called("set"), beside("set")), newPod("zoo", "a", called("set"), beside("set"))},
				without: []string{"zoo"}}, order: []string{"db"}, want: map[string]string{"db": ""},
			why: "will have replicas first: app"},
		"a chain": {
			cluster: together{pods: []*corev1.Pod{newPod("app", "a", beside("cache")), newPod("cache", "a", beside("db")),
				newPod("db", "a")}, at: map[string][]string{"db": {"e"}}}, order: []string{"cache", "app"},
			want: map[string]string{"app": "e", "cache": "e"}},
		"a chain to a pod that stays where it is": {
			cluster: together{pods: []*corev1.Pod{newPod("app", "a", beside("db")), newPod("db", "a", beside("web"))},
				without: []string{"db"}, others: []*corev1.Pod{newPod("web", "d")}}, order: []string{"app"},
			want: map[string]string{"app": "d"}},
		"a chain to a pod that is being deleted": {
			cluster: together{pods: []*corev1.Pod{newPod("app", "a", beside("db")), newPod("db", "a", beside("web"))},
				without: []string{"db"}, others: []*corev1.Pod{newPod("web", "d", terminating)}}, order: []string{"app"},
			want: map[string]string{"app": ""}, why: "do not run there and will not move there"},
		"a chain over a pod without a volume": {
			cluster: together{pods: []*corev1.Pod{newPod("app", "a", beside("cache")), newPod("cache", "a", beside("db")),
				newPod("db", "a")}, without: []string{"cache"}, at: map[string][]string{"db": {"e"}}}, order: []string{"app"},
			want: map[string]string{"app": "e"}},
		"pods of a set that need one another: the second": {
			cluster: together{pods: []*corev1.Pod{newPod("app", "a", called("set"), beside("set")),
				newPod("db", "a", called("set"), beside("set"))}}, order: []string{"db"}, want: map[string]string{"db": ""},
			why: "will have replicas first: app"},
		"pods of a set that need one another: the first, and then the second": {
			cluster: together{pods: []*corev1.Pod{newPod("app", "a", called("set"), beside("set")),
				newPod("db", "a", called("set"), beside("set"))}}, order: []string{"app", "db"},
			want: map[string]string{"app": "b", "db": "b"}},
		"the first of a set goes where the second can run": {
			cluster: together{pods: []*corev1.Pod{newPod("app", "a", called("set"), beside("set")),
				newPod("db", "a", called("set"), beside("set"), avoids)}, cannot: []string{"db:b"}},
			order: []string{"db", "app", "db"}, want: map[string]string{"app": "c", "db": "c"}},
		"two pods and neither can be the first, as for the scheduler": {
			cluster: together{pods: []*corev1.Pod{newPod("app", "a", beside("db")), newPod("db", "a", beside("app"))}},
			order:   []string{"app"}, want: map[string]string{"app": ""}, why: "do not run there and will not move there"},
		"the pod that is followed prefers nodes where its follower can run": {
			cluster: together{pods: []*corev1.Pod{newPod("app", "a", beside("db"),
				func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{host: "e"} }), newPod("db", "a")}},
			order: []string{"db", "app"}, want: map[string]string{"app": "e", "db": "e"}},
		"a set of pods that want to be together on one node": {
			cluster: together{pods: []*corev1.Pod{newPod("db-0", "a", called("db"), beside("db")),
				newPod("db-1", "a", called("db"), beside("db"))}}, order: []string{"db-1", "db-0", "db-1"},
			want: map[string]string{"db-0": "b", "db-1": "b"}},
		"a pod that does not leave the node is found where it is": {
			cluster: together{pods: []*corev1.Pod{newPod("app", "a", beside("db"))}, others: []*corev1.Pod{newPod("db", "c")}},
			order:   []string{"app"}, want: map[string]string{"app": "c"}},
		"a pod that is being deleted attracts no one later": {
			cluster: together{pods: []*corev1.Pod{newPod("app", "a", beside("db")), newPod("db", "a", terminating)},
				without: []string{"db"}}, order: []string{"app"}, want: map[string]string{"app": ""},
			why: "do not run there and will not move there"},
		"an even spread, when the others on the node have left too": {
			cluster: together{
				pods: []*corev1.Pod{newPod("db-0", "a", called("db"), evenly(corev1.TopologySpreadConstraint{
					MaxSkew:           1,
					TopologyKey:       "zone",
					WhenUnsatisfiable: corev1.DoNotSchedule,
					LabelSelector:     app("db"),
					MinDomains:        ref(int32(2)),
				}))},
				others: []*corev1.Pod{newPod("db-1", "a", called("db"))},
			},
			order: []string{"db-0"}, want: map[string]string{"db-0": "b"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := test.cluster
			c.nodes, c.replicas = []string{"a", "b", "c", "d", "e"}, 1
			if c.at == nil {
				c.at = map[string][]string{}
			}
			var last placement.Step
			for _, volume := range test.order {
				last, _ = c.place(volume)
			}
			for volume, want := range test.want {
				if got := strings.Join(c.at[volume], " "); got != want {
					t.Errorf("got replicas of %s on %q, want %q", volume, got, want)
				}
			}
			if !strings.Contains(last.Why, test.why) {
				t.Errorf("got the reason %q, want it to contain %q", last.Why, test.why)
			}
		})
	}
}

// TestCompanionsComeTogetherAndStay decides about the volumes of pods that need one another in
// random order, until nothing is decided any more. Then all replicas are on the same nodes, and no
// replica was removed for that.
func TestCompanionsComeTogetherAndStay(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := together{
			nodes:    []string{"a", "b", "c", "d", "e"},
			replicas: int32(rapid.IntRange(1, 2).Draw(t, "replicas")),
			at:       map[string][]string{},
		}
		names := []string{"p0", "p1", "p2", "p3"}[:rapid.IntRange(2, 4).Draw(t, "pods")]
		for i, name := range names {
			// Each but the first needs an earlier one, so that all are linked. Pods of a set need
			// one another.
			label, needs := name, ""
			if rapid.Bool().Draw(t, name+" is of a set") {
				label = "set"
			}
			if i > 0 {
				needs = c.pods[rapid.IntRange(0, i-1).Draw(t, name+" needs")].Labels["app"]
			} else if label == "set" {
				needs = "set"
			}
			p := newPod(name, "a", called(label))
			if needs != "" {
				nearTo(term(needs, corev1.LabelHostname))(p)
			}
			c.pods = append(c.pods, p)
		}
		quiet := 0
		for round := 0; quiet < 2; round++ {
			if round > 2*len(names) {
				t.Fatalf("not settled after %d rounds: %v", round, c.at)
			}
			changed := false
			for _, name := range rapid.Permutation(names).Draw(t, "order") {
				before := slices.Clone(c.at[name])
				_, decided := c.place(name)
				changed = changed || decided
				if len(c.at[name]) < len(before) {
					t.Fatalf("a replica of %s was removed from %v", name, before)
				}
			}
			if quiet++; changed {
				quiet = 0
			}
		}
		for _, name := range names {
			got := slices.Sorted(slices.Values(c.at[name]))
			if want := slices.Sorted(slices.Values(c.at[names[0]])); len(got) != int(c.replicas) || !slices.Equal(got, want) {
				t.Fatalf("got replicas of %s on %v, and of %s on %v; want %d on the same nodes", name, got, names[0], want,
					c.replicas)
			}
		}
	})
}

func TestWhichPodsLeaveTogether(t *testing.T) {
	t.Parallel()
	const host = corev1.LabelHostname
	held, needsApp := objects.Owned("a", 2, apiv1.OwnershipHeld), nearTo(term("app", host))
	released := func(v *apiv1.AzVolume) {
		v.Status.Primary = &apiv1.Ownership{NodeName: "a", Epoch: 2, State: apiv1.OwnershipReleased}
	}
	for name, test := range map[string]struct {
		others []*corev1.Pod
		want   string
		moved  func(*apiv1.AzVolume) // for a pod that has no node now
	}{
		"a pod beside it that has a volume":     {others: []*corev1.Pod{newPod("other", "a", claims)}},
		"the volume is on the node still":       {[]*corev1.Pod{newPod("db", "a")}, "db", held},
		"the volume has left the node":          {[]*corev1.Pod{newPod("db", "a")}, "", released},
		"the volume was on no node":             {[]*corev1.Pod{newPod("db", "a")}, "", objects.NeverOwned},
		"pods that have no node are not beside": {[]*corev1.Pod{newPod("db", "")}, "", objects.NeverOwned},
		"a pod that it needs":                   {[]*corev1.Pod{newPod("db", "a")}, "db", nil},
		"a pod that needs it":                   {[]*corev1.Pod{newPod("web", "a", needsApp, claims)}, "web", nil},
		"a pod that needs it and has no volume": {[]*corev1.Pod{newPod("web", "a", needsApp)}, "", nil},
		"a chain": {[]*corev1.Pod{newPod("log", "a", nearTo(term("web", host)), claims),
			newPod("web", "a", needsApp, claims)}, "log web", nil},
		"a pod that only is on the node":        {[]*corev1.Pod{newPod("other", "a")}, "", nil},
		"a pod on another node":                 {[]*corev1.Pod{newPod("db", "b")}, "", nil},
		"a pod that is being deleted":           {[]*corev1.Pod{newPod("db", "a", terminating)}, "", nil},
		"a pod that only prefers to be near it": {[]*corev1.Pod{newPod("web", "a", ratherFarFrom(term("app", host)))}, "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pod := newPod("app", "a", nearTo(term("db", host)))
			in := placement.Input{
				Volume:  objects.NewVolume(objects.Owned("a", 2, apiv1.OwnershipHeld)),
				Pods:    []placement.PodView{{Pod: pod}},
				Cluster: placement.Cluster{Pods: append(test.others, pod)},
			}
			if test.moved != nil {
				in.Pods[0].Pod.Spec.NodeName = ""
				in.Volume = objects.NewVolume(test.moved)
			}
			var got []string
			for _, p := range placement.Companions(in) {
				got = append(got, p.Name)
			}
			if strings.Join(got, " ") != test.want {
				t.Errorf("got %v, want %s", got, test.want)
			}
		})
	}
}

// BenchmarkNext places a replica in a cluster of 5,000 nodes, among 150,000 pods, and 30 of them
// are on the node that the volume's pod leaves.
func BenchmarkNext(b *testing.B) {
	in := placement.Input{Now: objects.Now, Volume: objects.NewVolume(objects.Owned("n0", 2, apiv1.OwnershipHeld))}
	in.Attachments = objects.Attachments(objects.NewAttachment("n0", apiv1.RolePrimary, 2, apiv1.AttachmentAttached))
	for i := range 5000 {
		n := newNode(fmt.Sprint("n", i), "1", func(n *placement.NodeView) { n.Health = nodehealth.Healthy })
		in.Nodes, in.Cluster.Nodes = append(in.Nodes, n), append(in.Cluster.Nodes, n.Node)
		for j := range 30 {
			in.Cluster.Pods = append(in.Cluster.Pods, newPod(fmt.Sprintf("p%d-%d", i, j), n.Node.Name))
		}
	}
	for name, change := range map[string]podChange{
		"no rules":           func(*corev1.Pod) {},
		"beside another pod": nearTo(term("db", corev1.LabelHostname)),
	} {
		b.Run(name, func(b *testing.B) {
			in := in
			pod := newPod("app", "n0", change)
			in.Cluster.Pods = append(slices.Clip(in.Cluster.Pods), pod, newPod("db", "n0"))
			in.Pods = []placement.PodView{{Pod: pod}}
			for b.Loop() {
				in.Companions = nil
				for _, p := range placement.Companions(in) {
					in.Companions = append(in.Companions, placement.PodView{Pod: p})
				}
				placement.Next(in)
			}
		})
	}
}
