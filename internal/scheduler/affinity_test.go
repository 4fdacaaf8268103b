package scheduler

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
)

// term is a preference for a label of one value, as people write them.
func term(weight int32, key, value string) corev1.PreferredSchedulingTerm {
	return corev1.PreferredSchedulingTerm{Weight: weight, Preference: corev1.NodeSelectorTerm{
		MatchExpressions: []corev1.NodeSelectorRequirement{{
			Key:      key,
			Operator: corev1.NodeSelectorOpIn,
			Values:   []string{value},
		}},
	}}
}

// brief writes terms as WEIGHT KEY OPERATOR VALUES.
func brief(terms []corev1.PreferredSchedulingTerm) []string {
	var texts []string
	for _, t := range terms {
		for _, e := range t.Preference.MatchExpressions {
			texts = append(texts, fmt.Sprintf("%d %s %s %s", t.Weight, e.Key, e.Operator, strings.Join(e.Values, ",")))
		}
	}
	return texts
}

func TestPreferences(t *testing.T) {
	t.Parallel()
	many := map[string]Fault{"a-full-one": FaultNoRoom, "z-lost": faultLost}
	for i := range mostAvoided {
		many[fmt.Sprintf("full-%03d", i)] = FaultNoRoom
	}
	cases := map[string]struct {
		fitness fitness
		want    []string
	}{
		"nothing is known": {fitness{}, nil},
		"the primary comes before the replicas, and nodes of one score share a term": {
			fitness{Scores: map[string]int64{"b": 8, "c": 8, "a": 10, "d": 3}},
			[]string{"100 kubernetes.io/hostname In a", "80 kubernetes.io/hostname In b,c", "30 kubernetes.io/hostname In d"}},
		"unfit nodes are avoided, sorted": {
			fitness{Scores: map[string]int64{"b": 8}, Unfit: map[string]Fault{"y": faultLost, "x": FaultNoRoom}},
			[]string{"80 kubernetes.io/hostname In b", "50 kubernetes.io/hostname NotIn x,y"}},
		"unfit nodes are avoided by a pod whose disks are nowhere": {fitness{Unfit: map[string]Fault{"x": faultUnsupported}},
			[]string{"50 kubernetes.io/hostname NotIn x"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(c.want, brief(c.fitness.preferences())); diff != "" {
				t.Errorf("want (-) and got (+):\n%s", diff)
			}
		})
	}
	names := fitness{Unfit: many}.avoided()
	if len(names) != mostAvoided || names[len(names)-1] != "z-lost" {
		t.Errorf("of %d unfit nodes, got %d, the last %s; want %d with the lost one", len(many), len(names), names[len(names)-1],
			mostAvoided)
	}
}

// TestSteer applies the patch as the API server does, to pods with fields that this program does
// not know.
func TestSteer(t *testing.T) {
	t.Parallel()
	ours := fitness{Scores: map[string]int64{"a": 10}}.preferences()
	const oursJSON = `{"weight":100,"preference":{"matchExpressions":[{"key":"kubernetes.io/hostname","operator":"In","values":["a"]}]}}`
	existing := func(weight int) string {
		return fmt.Sprintf(`{"weight":%d,"preference":{"matchFields":[{"key":"future","operator":"Near","values":["x"]}],"later":1}}`, weight)
	}
	preferred := func(before, terms string) string {
		return `{"spec":{"new":true,"affinity":{` + before +
			`"nodeAffinity":{"preferredDuringSchedulingIgnoredDuringExecution":[` + terms + `]}}}}`
	}
	cases := map[string]struct{ pod, want string }{
		"no affinity": {`{"spec":{"new":true}}`, preferred("", oursJSON)},
		"null":        {`{"spec":{"new":true,"affinity":null}}`, preferred("", oursJSON)},
		"affinity to pods, which stays": {
			`{"spec":{"new":true,"affinity":{"podAffinity":{"later":2}}}}`, preferred(`"podAffinity":{"later":2},`, oursJSON),
		},
		"required node affinity, which stays": {
			`{"spec":{"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[]}}}}}`,
			`{"spec":{"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[]},` +
				`"preferredDuringSchedulingIgnoredDuringExecution":[` + oursJSON + `]}}}}`,
		},
		"an empty list": {preferred("", ""), preferred("", oursJSON)},
		"light preferences stay": {preferred("", existing(15)+","+existing(5)),
			preferred("", existing(15)+","+existing(5)+","+oursJSON)},
		"heavy ones are reduced": {preferred("", existing(100)), preferred("", existing(20)+","+oursJSON)},
		"in proportion": {
			preferred("", existing(90)+","+existing(30)), preferred("", existing(15)+","+existing(5)+","+oursJSON)},
		"and none becomes nothing": {preferred("", existing(100)+","+existing(1)),
			preferred("", existing(20)+","+existing(1)+","+oursJSON)},
		"a weight that the API server refuses is not corrected": {preferred("", existing(101)), preferred("", existing(101))},
		"the same with no weight":                               {preferred("", existing(0)), preferred("", existing(0))},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := steered(t, c.pod, ours); !jsonpatch.Equal(got, []byte(c.want)) {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
			if got := steered(t, c.pod, nil); !jsonpatch.Equal(got, []byte(c.pod)) {
				t.Errorf("without anything to add: got %s, want %s", got, c.pod)
			}
		})
	}
}

func steered(t *testing.T, podJSON string, add []corev1.PreferredSchedulingTerm) []byte {
	t.Helper()
	var pod corev1.Pod
	if err := json.Unmarshal([]byte(podJSON), &pod); err != nil {
		t.Fatal(err)
	}
	operations, err := json.Marshal(steer(&pod, add))
	if err != nil {
		t.Fatal(err)
	}
	patch, err := jsonpatch.DecodePatch(operations)
	if err != nil {
		t.Fatal(err)
	}
	got, err := patch.Apply([]byte(podJSON))
	if err != nil {
		t.Fatalf("apply %s: %v", operations, err)
	}
	return got
}

func TestReducedWeightsKeepTheirOrder(t *testing.T) {
	t.Parallel()
	for first := int32(1); first <= largestWeight; first++ {
		for second := int32(1); second <= first; second++ {
			weights, valid := reduce([]corev1.PreferredSchedulingTerm{term(first, "k", "v"), term(second, "k", "w")})
			if !valid || weights[0] < weights[1] || weights[1] < 1 || weights[0]+weights[1] > existingWeight+1 {
				t.Errorf("%d and %d: got %v, valid %t; want the same order, each at least 1, the sum at most %d", first, second,
					weights, valid, existingWeight+1)
			}
		}
	}
}
