package scheduler

import (
	"fmt"
	"iter"
	"maps"
	"reflect"
	"testing"

	extenderv1 "k8s.io/kube-scheduler/extender/v1"
	"pgregory.net/rapid"
)

func TestScore(t *testing.T) {
	t.Parallel()
	at := func(presences map[string]DiskState) Volume { return Volume{Name: "v", Nodes: presences} }
	cases := map[string]struct {
		volumes []Volume
		want    int64
	}{
		"a pod without volumes scores nothing":                    {nil, 0},
		"a volume without a replica anywhere scores nothing":      {[]Volume{at(nil)}, 0},
		"a replica elsewhere scores nothing here":                 {[]Volume{at(map[string]DiskState{"b": Replica})}, 0},
		"a replica of the only volume":                            {[]Volume{at(map[string]DiskState{"a": Replica})}, 8},
		"the primary of the only volume scores the most":          {[]Volume{at(map[string]DiskState{"a": primary})}, 10},
		"a replica on its way scores less than one that is there": {[]Volume{at(map[string]DiskState{"a": Attaching})}, 3},
		"replicas of one of two volumes score half": {[]Volume{at(map[string]DiskState{"a": Replica}),
			at(nil)}, 4},
		"replicas of both volumes": {[]Volume{at(map[string]DiskState{"a": Replica}),
			at(map[string]DiskState{"a": Replica})}, 8},
		"a claim without a disk yet counts as a volume that is absent": {[]Volume{at(map[string]DiskState{"a": Replica}), {}}, 4},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := score("a", c.volumes); got != c.want {
				t.Errorf("score %d, want %d", got, c.want)
			}
		})
	}
}

// judged are nodes that can run every pod, except for those with a fault.
type judged map[string]Fault

func (j judged) Registered() iter.Seq[string] { return maps.Keys(j) }

func (j judged) Mountable(node string) Feasibility { return Feasibility{Fault: j[node]} }

func (j judged) Feasible(node string) Feasibility { return j.Mountable(node) }

// scoresOf are those above the least, by node.
func scoresOf(nodes []string, volumes []Volume) map[string]int64 {
	scores := map[string]int64{}
	for _, p := range Prioritize(nodes, volumes, judged{}) {
		scores[p.Host] = p.Score
	}
	return scores
}

func volumesOf(t *rapid.T, nodes []string) []Volume {
	volumes := make([]Volume, rapid.IntRange(0, 30).Draw(t, "volumes"))
	for i := range volumes {
		volumes[i] = Volume{Name: fmt.Sprint("v", i), Nodes: map[string]DiskState{}}
		for _, node := range nodes {
			volumes[i].Nodes[node] = DiskState(rapid.IntRange(int(absent), int(primary)).Draw(t, "presence"))
		}
	}
	return volumes
}

func TestScoresStayInTheProtocolsRangeAndNeverFallWithCoverage(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		nodes := []string{"a", "b", "c"}
		volumes := volumesOf(t, nodes)
		before := scoresOf(nodes, volumes)
		for node, score := range before {
			if score <= extenderv1.MinExtenderPriority || score > extenderv1.MaxExtenderPriority {
				t.Fatalf("score %d of %s is out of range", score, node)
			}
		}
		if len(volumes) == 0 {
			return
		}
		more := &volumes[rapid.IntRange(0, len(volumes)-1).Draw(t, "volume")]
		more.Nodes["a"] = min(more.Nodes["a"]+1, primary)
		after := scoresOf(nodes, volumes)
		if after["a"] < before["a"] {
			t.Fatalf("the score of a fell from %d to %d with more of the pod's volumes there", before["a"], after["a"])
		}
		if after["b"] != before["b"] || after["c"] != before["c"] {
			t.Fatal("the scores of other nodes changed")
		}
	})
}

func TestANodeWithAllVolumesBeatsEachNodeThatWaitsForAzure(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		volumes := volumesOf(t, []string{"some"})
		if len(volumes) == 0 {
			return
		}
		for i := range volumes {
			volumes[i].Nodes["all"] = Replica
		}
		volumes[rapid.IntRange(0, len(volumes)-1).Draw(t, "missing")].Nodes["some"] = DiskState(
			rapid.IntRange(int(absent), int(Attaching)).Draw(t, "presence"))
		if all, some := score("all", volumes), score("some", volumes); all <= some {
			t.Fatalf("all replicas score %d, with one missing %d", all, some)
		}
	})
}

func TestPrioritizeIgnoresReplicasOnNodesThatCannotMount(t *testing.T) {
	t.Parallel()
	volumes := []Volume{{Name: "v", Nodes: map[string]DiskState{"dead": primary, "alive": Replica}}}
	got := Prioritize([]string{"dead", "far", "alive"}, volumes, judged{"dead": faultLost})
	if want := (extenderv1.HostPriorityList{{Host: "alive", Score: 8}}); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
