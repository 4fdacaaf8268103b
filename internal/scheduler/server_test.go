package scheduler

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"io"
	"iter"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
)

var update = flag.Bool("update", false, "write the golden files")

// knows is an observer that knows one volume: primary at node-a, replica at node-b; node-c has no
// plug-in.
type knows struct{}

func (knows) Volumes(_ context.Context, p *corev1.Pod) ([]Volume, error) {
	if len(p.Spec.Volumes) == 0 {
		return nil, nil
	}
	return []Volume{{Name: "data", Nodes: map[string]DiskState{"node-a": primary, "node-b": Replica, "node-c": Replica}}}, nil
}

func (knows) Nodes(_ context.Context, volumes []Volume, use func(Nodes)) error {
	use(fewNodes{volumes})
	return nil
}

// fewNodes are those of knows; node-e is full.
type fewNodes struct{ volumes []Volume }

func (fewNodes) Mountable(node string) Feasibility {
	if node == "node-c" {
		return Feasibility{faultNoPlugin, "the node plug-in has not registered on this node"}
	}
	return Feasibility{}
}

func (f fewNodes) Feasible(node string) Feasibility {
	if node == "node-e" {
		return Room(node, &apiv1.NodeCapacity{MaxDataDisks: 4, ForeignDisks: 1}, []string{"x", "y", "z"}, f.volumes)
	}
	return f.Mountable(node)
}

func (fewNodes) Registered() iter.Seq[string] {
	return slices.Values([]string{"node-a", "node-b", "node-c", "node-d", "node-e"})
}

func yes() bool                  { return true }
func no() bool                   { return false }
func ready(context.Context) bool { return true }
func not(context.Context) bool   { return false }

func newExtender(change func(*extender)) (http.Handler, *prometheus.Registry) {
	registry := prometheus.NewRegistry()
	e := &extender{
		Observer:        knows{},
		Ready:           ready,
		Accepting:       yes,
		MaxRequestBytes: 1 << 20,
		Metrics:         newMetrics(registry, yes),
		Clock:           clock.RealClock{},
	}
	if change != nil {
		change(e)
	}
	return e.handler(), registry
}

func names(list ...string) *[]string { return &list }

func wholeNodes(list ...string) *corev1.NodeList {
	nodes := &corev1.NodeList{}
	for _, name := range list {
		nodes.Items = append(nodes.Items, corev1.Node{ObjectMeta: metav1.ObjectMeta{
			Name:   name,
			Labels: map[string]string{"kept": "yes"},
		}})
	}
	return nodes
}

func post(handler http.Handler, path string, body []byte) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, httptest.NewRequest(http.MethodPost, path, bytes.NewReader(body)))
	return w
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	all := []string{"node-a", "node-b", "node-c", "node-d", "node-e"}
	cases := map[string]struct {
		verb   string
		args   extenderv1.ExtenderArgs
		change func(*extender)
	}{
		"filter-names":               {"filter", extenderv1.ExtenderArgs{Pod: pod("data"), NodeNames: names(all...)}, nil},
		"filter-whole-nodes":         {"filter", extenderv1.ExtenderArgs{Pod: pod("data"), Nodes: wholeNodes(all...)}, nil},
		"filter-without-our-volumes": {"filter", extenderv1.ExtenderArgs{Pod: pod(), NodeNames: names(all...)}, nil},
		"filter-no-nodes":            {"filter", extenderv1.ExtenderArgs{Pod: pod("data"), NodeNames: &[]string{}}, nil},
		"filter-not-ready-without-volumes": {"filter", extenderv1.ExtenderArgs{Pod: pod(), NodeNames: names(all...)},
			func(e *extender) { e.Ready = not }},
		"prioritize-names": {
			"prioritize", extenderv1.ExtenderArgs{Pod: pod("data"), NodeNames: names(all...)}, nil},
		"prioritize-whole-nodes": {
			"prioritize", extenderv1.ExtenderArgs{Pod: pod("data"), Nodes: wholeNodes(all...)}, nil},
		"prioritize-without-our-volumes": {"prioritize", extenderv1.ExtenderArgs{Pod: pod(), NodeNames: names(all...)}, nil},
		"prioritize-not-ready-without-volumes": {"prioritize", extenderv1.ExtenderArgs{Pod: pod(), NodeNames: names(all...)},
			func(e *extender) { e.Ready = not }},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			body, err := json.Marshal(c.args)
			if err != nil {
				t.Fatal(err)
			}
			handler, _ := newExtender(c.change)
			w := post(handler, "/"+c.verb, body)
			if w.Code != http.StatusOK || w.Header().Get("Content-Type") != "application/json" {
				t.Fatalf("status %d, type %s: %s", w.Code, w.Header().Get("Content-Type"), w.Body)
			}
			var pretty bytes.Buffer
			if err := json.Indent(&pretty, w.Body.Bytes(), "", "  "); err != nil {
				t.Fatal(err)
			}
			golden(t, filepath.Join("testdata", name+".json"), pretty.Bytes())
		})
	}
}

func golden(t *testing.T, file string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s (update it with -update): got\n%s\nwant\n%s", file, got, want)
	}
}

func TestRequestsThatGetNoAnswer(t *testing.T) {
	t.Parallel()
	good, err := json.Marshal(extenderv1.ExtenderArgs{Pod: pod("data"), NodeNames: names("node-a")})
	if err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		method, path, body string
		change             func(*extender)
		want               int
		says               string
	}{
		"not JSON": {http.MethodPost, "/filter", "{", nil, http.StatusBadRequest, "read the arguments"},
		"a pod of the wrong type": {http.MethodPost, "/filter", `{"Pod": 7}`, nil, http.StatusBadRequest,
			"ExtenderArgs.Pod"},
		"no pod": {http.MethodPost, "/prioritize", `{"NodeNames": ["a"]}`, nil, http.StatusBadRequest,
			"no Pod"},
		"neither nodes nor their names": {http.MethodPost, "/prioritize", `{"Pod": {}}`, nil, http.StatusBadRequest,
			"neither Nodes nor NodeNames"},
		"nothing but null": {http.MethodPost, "/filter", "null", nil, http.StatusBadRequest, "no Pod"},
		"an empty body":    {http.MethodPost, "/filter", "", nil, http.StatusBadRequest, "EOF"},
		"something after the arguments": {http.MethodPost, "/filter", string(good) + "{}", nil, http.StatusBadRequest,
			"something after"},
		"an unknown field is passed over": {http.MethodPost, "/filter",
			`{"Pod": {"spec": {"news": 1}}, "NodeNames": [], "News": 1}`, nil, http.StatusOK, ""},
		"a body over the limit": {http.MethodPost, "/filter", `{"NodeNames": ["` + strings.Repeat("x", 2<<20) + `"]}`,
			nil, http.StatusRequestEntityTooLarge, "too large"},
		"space over the limit": {http.MethodPost, "/filter", string(good) + strings.Repeat(" ", 2<<20), nil,
			http.StatusRequestEntityTooLarge, "too large"},
		"a body that is nested too deep": {http.MethodPost, "/filter", strings.Repeat("[", 100_000), nil, http.StatusBadRequest,
			""},
		"the wrong method":          {http.MethodGet, "/filter", "", nil, http.StatusMethodNotAllowed, "Method Not Allowed"},
		"a verb that is not served": {http.MethodPost, "/bind", "{}", nil, http.StatusNotFound, "not found"},
		"filter while the caches fill": {http.MethodPost, "/filter", string(good), func(e *extender) { e.Ready = not },
			http.StatusServiceUnavailable, "caches are not filled"},
		"prioritize while the caches fill": {http.MethodPost, "/prioritize", string(good), func(e *extender) { e.Ready = not },
			http.StatusServiceUnavailable, "caches are not filled"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			handler, _ := newExtender(c.change)
			server := httptest.NewServer(handler)
			defer server.Close()
			request, err := http.NewRequestWithContext(context.Background(), c.method, server.URL+c.path,
				strings.NewReader(c.body))
			if err != nil {
				t.Fatal(err)
			}
			response, err := server.Client().Do(request)
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			text, _ := io.ReadAll(response.Body)
			if response.StatusCode != c.want || !strings.Contains(string(text), c.says) {
				t.Errorf("status %d, want %d and %q: %s", response.StatusCode, c.want, c.says, text)
			}
		})
	}
}

// FuzzRequest sends any bytes to both verbs: the answer is sound, or a 400.
func FuzzRequest(f *testing.F) {
	for _, args := range []extenderv1.ExtenderArgs{
		{Pod: pod("data"), NodeNames: names("node-a", "node-c")}, {Pod: pod(), Nodes: wholeNodes("node-b")}, {},
	} {
		body, err := json.Marshal(args)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(body)
	}
	f.Add([]byte(`{"pod": {"spec": {"volumes": [{"ephemeral": {}}, {"persistentVolumeClaim": null}, {}]}}, "nodes": {"items": [{}]}, "nodenames": [""]}`))
	handler, _ := newExtender(nil)
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, verb := range []string{"/filter", "/prioritize"} {
			w := post(handler, verb, body)
			switch {
			case w.Code == http.StatusOK && !json.Valid(w.Body.Bytes()):
				t.Errorf("%s answers %s", verb, w.Body)
			case w.Code != http.StatusOK && (w.Code != http.StatusBadRequest || w.Body.Len() == 0):
				t.Errorf("%s answers %d: %s", verb, w.Code, w.Body)
			}
		}
	})
}

func TestReadyz(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		accepting func() bool
		want      int
	}{"ready": {yes, http.StatusOK}, "not ready": {no, http.StatusServiceUnavailable}} {
		handler, _ := newExtender(func(e *extender) { e.Accepting = c.accepting })
		for path, want := range map[string]int{"/readyz": c.want, "/healthz": http.StatusOK} {
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
			if w.Code != want {
				t.Errorf("%s: %s answers %d, want %d", name, path, w.Code, want)
			}
		}
	}
}

func TestMetricsCountFaults(t *testing.T) {
	t.Parallel()
	handler, registry := newExtender(nil)
	body, _ := json.Marshal(extenderv1.ExtenderArgs{Pod: pod("data"), NodeNames: names("node-a", "node-c")})
	post(handler, "/filter", body)
	post(handler, "/filter", []byte("{"))
	want := `# HELP azuredisk_scheduler_extender_nodes_filtered_total Nodes that were filtered out for a pod with volumes of the driver, by fault.
# TYPE azuredisk_scheduler_extender_nodes_filtered_total counter
azuredisk_scheduler_extender_nodes_filtered_total{fault="NoNodePlugin"} 1
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want),
		"azuredisk_scheduler_extender_nodes_filtered_total"); err != nil {
		t.Error(err)
	}
	if n, err := testutil.GatherAndCount(registry, "azuredisk_scheduler_extender_request_duration_seconds"); err != nil ||
		n != 2 {
		t.Errorf("%d series of request durations, want one for each status code: %v", n, err)
	}
}
