package scheduler

import (
	"fmt"
	"testing"

	extenderv1 "k8s.io/kube-scheduler/extender/v1"
	"pgregory.net/rapid"
)

func usable(string) (Feasibility, error) { return Feasibility{}, nil }

func TestScore(t *testing.T) {
	t.Parallel()
	at := func(presences map[string]DiskState) Volume { return Volume{Name: "v", Nodes: presences} }
	cases := map[string]struct {
		volumes []Volume
		want    int64
	}{
		"a pod without volumes scores nothing":                         {nil, 0},
		"a volume without a replica anywhere scores nothing":           {[]Volume{at(nil)}, 0},
		"a replica elsewhere scores nothing here":                      {[]Volume{at(map[string]DiskState{"b": Replica})}, 0},
		"a replica of the only volume":                                 {[]Volume{at(map[string]DiskState{"a": Replica})}, 8},
		"the primary of the only volume scores the most":               {[]Volume{at(map[string]DiskState{"a": Primary})}, 10},
		"a replica on its way scores less than one that is there":      {[]Volume{at(map[string]DiskState{"a": Attaching})}, 3},
		"replicas of one of two volumes score half":                    {[]Volume{at(map[string]DiskState{"a": Replica}), at(nil)}, 4},
		"replicas of both volumes":                                     {[]Volume{at(map[string]DiskState{"a": Replica}), at(map[string]DiskState{"a": Replica})}, 8},
		"a claim without a disk yet counts as a volume that is absent": {[]Volume{at(map[string]DiskState{"a": Replica}), {}}, 4},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := Score("a", c.volumes); got != c.want {
				t.Errorf("score %d, want %d", got, c.want)
			}
		})
	}
}

// prioritize is Prioritize with an observer that does not fail.
func prioritize(t interface{ Fatal(...any) }, nodes []string, volumes []Volume, health func(string) (Feasibility, error)) extenderv1.HostPriorityList {
	list, err := Prioritize(nodes, volumes, health)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func volumesOf(t *rapid.T, nodes []string) []Volume {
	volumes := make([]Volume, rapid.IntRange(0, 30).Draw(t, "volumes"))
	for i := range volumes {
		volumes[i] = Volume{Name: fmt.Sprint("v", i), Nodes: map[string]DiskState{}}
		for _, node := range nodes {
			volumes[i].Nodes[node] = DiskState(rapid.IntRange(int(Absent), int(Primary)).Draw(t, "presence"))
		}
	}
	return volumes
}

func TestScoresStayInTheProtocolsRangeAndNeverFallWithCoverage(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		nodes := []string{"a", "b", "c"}
		volumes := volumesOf(t, nodes)
		before := prioritize(t, nodes, volumes, usable)
		for _, p := range before {
			if p.Score < extenderv1.MinExtenderPriority || p.Score > extenderv1.MaxExtenderPriority {
				t.Fatalf("score %d of %s is out of range", p.Score, p.Host)
			}
		}
		if len(volumes) == 0 {
			return
		}
		more := &volumes[rapid.IntRange(0, len(volumes)-1).Draw(t, "volume")]
		more.Nodes["a"] = min(more.Nodes["a"]+1, Primary)
		after := prioritize(t, nodes, volumes, usable)
		if after[0].Score < before[0].Score {
			t.Fatalf("the score of a fell from %d to %d with more of the pod's volumes there", before[0].Score, after[0].Score)
		}
		if after[1] != before[1] || after[2] != before[2] {
			t.Fatal("the scores of other nodes changed")
		}
	})
}

func TestANodeWithAllOfThePodsVolumesBeatsEveryNodeThatWaitsForAzure(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		volumes := volumesOf(t, []string{"some"})
		if len(volumes) == 0 {
			return
		}
		for i := range volumes {
			volumes[i].Nodes["all"] = Replica
		}
		volumes[rapid.IntRange(0, len(volumes)-1).Draw(t, "missing")].Nodes["some"] = DiskState(rapid.IntRange(int(Absent), int(Attaching)).Draw(t, "presence"))
		if all, some := Score("all", volumes), Score("some", volumes); all <= some {
			t.Fatalf("all replicas score %d, with one missing %d", all, some)
		}
	})
}

func TestPrioritizeIgnoresReplicasOnNodesThatCannotMount(t *testing.T) {
	t.Parallel()
	volumes := []Volume{{Name: "v", Nodes: map[string]DiskState{"dead": Primary, "alive": Replica}}}
	list := prioritize(t, []string{"dead", "alive"}, volumes, func(node string) (Feasibility, error) {
		if node == "dead" {
			return Feasibility{Fault: FaultStale}, nil
		}
		return Feasibility{}, nil
	})
	if list[0].Score != 0 || list[1].Score != 8 {
		t.Errorf("scores %v", list)
	}
}
