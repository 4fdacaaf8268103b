package scale

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/apiserver"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/loopback"
)

const (
	fewNodes, manyNodes = 50, 200
	// mostGrowth is how much more memory an event may take in the larger cluster, which is four
	// times as large. On a busy machine up to 1.08 was measured, and 3.85 with one path that lists
	// all volumes.
	mostGrowth = 1.7
)

// TestAnEventCostsTheSameInALargerCluster compares how much memory the real programs allocate for
// an event. Other than time, that depends on the machine's load only a little.
func TestAnEventCostsTheSameInALargerCluster(t *testing.T) {
	few, many := costs(t, fewNodes), costs(t, manyNodes)
	for event, cost := range many {
		t.Logf("%s: %.0f KiB with %d nodes, %.0f KiB with %d", event, few[event]/1024, fewNodes, cost/1024, manyNodes)
		if cost > mostGrowth*few[event] {
			t.Errorf("%s: got %.0f KiB with %d nodes and %.0f KiB with %d, want at most %.1f times as much: does it list all objects of a kind?",
				event, few[event]/1024, fewNodes, cost/1024, manyNodes, mostGrowth)
		}
	}
}

// costs are the bytes that events cost in a cluster of a size, by what happens.
func costs(t *testing.T, nodes int) map[string]float64 {
	t.Helper()
	found := map[string]float64{}
	t.Run(fmt.Sprintf("%d nodes", nodes), func(t *testing.T) {
		f := filled(t, nodes)
		t.Cleanup(func() { f.clear(t) })
		l := &controllerLab{
			azure:   startAzure(t, nodes),
			api:     newAPIMetrics(t),
			nodes:   nodes,
			filler:  f,
			quiet:   3 * time.Second,
			metrics: loopback.Address(t),
		}
		controller := l.start(t, "growth")
		l.rest(t, controller)
		heapOf := allocations(t, "http://"+l.metrics+"/metrics")
		for what, touch := range map[string]func(round, node int){
			"a condition of a node changes":      f.flipCondition(t),
			"a node sends a heartbeat":           f.beat(t),
			"an attachment's status changes":     f.touchAttachment(t),
			"a pod's labels change":              f.touchPod(t),
			"a PersistentVolume's labels change": f.touchPersistentVolume(t),
		} {
			before := heapOf()
			const rounds = 2
			for round := range rounds {
				for node := range fewNodes {
					touch(round, node)
				}
			}
			l.settle(t, controller)
			found[what] = (heapOf() - before) / (rounds * fewNodes)
			t.Logf("%s: %.0f KiB", what, found[what]/1024)
		}
		controller.stop(t)
		found[fmt.Sprintf("a request of the scheduler about %d nodes", fewNodes)] = f.requestCost(t, nodes)
	})
	return found
}

// settle waits until the controller has handled all events: its queues are empty, and it has
// reconciled nothing since the last look.
func (l *controllerLab) settle(t testing.TB, p *program) {
	t.Helper()
	last, looks := -1.0, 0
	p.await(t, "the controller has handled all events", pollEvery, 2*time.Minute, func() bool {
		text := fetch(t, "http://"+l.metrics+"/metrics")
		done, waiting := sum(t, text, reconciled), sum(t, text, queued)
		if done != last || waiting != 0 {
			last, looks = done, 0
		}
		looks++
		return looks > 25
	})
}

var (
	reconciled = regexp.MustCompile(`(?m)^controller_runtime_reconcile_total\{.*\} (\S+)$`)
	queued     = regexp.MustCompile(`(?m)^(?:workqueue_depth|controller_runtime_active_workers)\{.*\} (\S+)$`)
	allocated  = regexp.MustCompile(`(?m)^go_memstats_alloc_bytes_total (\S+)$`)
)

func sum(t testing.TB, text []byte, metric *regexp.Regexp) float64 {
	t.Helper()
	all := metric.FindAllSubmatch(text, -1)
	if len(all) == 0 {
		t.Fatalf("no metric matches %s", metric)
	}
	total := 0.0
	for _, match := range all {
		value, err := strconv.ParseFloat(string(match[1]), 64)
		must(t, err)
		total += value
	}
	return total
}

func fetch(t testing.TB, url string) []byte {
	t.Helper()
	answer, err := http.Get(url)
	must(t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	must(t, err)
	return text
}

// allocations returns a function that says how many bytes a program has allocated since its start.
func allocations(t testing.TB, url string) func() float64 {
	return func() float64 { return sum(t, fetch(t, url), allocated) }
}

func (f *filler) patchStatus(t testing.TB, o client.Object, change func()) {
	t.Helper()
	must(t, f.kube.Get(t.Context(), client.ObjectKeyFromObject(o), o))
	before := o.DeepCopyObject().(client.Object)
	change()
	must(t, f.kube.Status().Patch(t.Context(), o, client.MergeFrom(before)))
}

func (f *filler) object(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: f.namespace, Name: name}
}

func (f *filler) flipCondition(t testing.TB) func(round, node int) {
	return func(round, node int) {
		d := &apiv1.AzDriverNode{ObjectMeta: f.object(nodeName(node))}
		f.patchStatus(t, d, func() {
			status := []metav1.ConditionStatus{metav1.ConditionTrue, metav1.ConditionFalse}[round%2]
			meta.SetStatusCondition(&d.Status.Conditions, metav1.Condition{
				Type:   "Scale",
				Status: status,
				Reason: "Scale",
			})
		})
	}
}

func (f *filler) beat(t testing.TB) func(round, node int) {
	return func(_, node int) {
		d := &apiv1.AzDriverNode{ObjectMeta: f.object(nodeName(node))}
		f.patchStatus(t, d, func() {
			now := metav1.NowMicro()
			d.Status.HeartbeatTime = &now
		})
	}
}

func (f *filler) touchAttachment(t testing.TB) func(round, node int) {
	return func(round, node int) {
		a := &apiv1.AzVolumeAttachment{ObjectMeta: f.object(
			apiv1.AttachmentName(volumeName(node*volumesPerNode), nodeName(node)))}
		f.patchStatus(t, a, func() {
			meta.SetStatusCondition(&a.Status.Conditions, metav1.Condition{
				Type:    "Scale",
				Status:  metav1.ConditionTrue,
				Reason:  "Scale",
				Message: fmt.Sprint(round),
			})
		})
	}
}

func (f *filler) label(t testing.TB, o client.Object, round int) {
	t.Helper()
	patch := fmt.Appendf(nil, `{"metadata":{"labels":{"scale":"%d"}}}`, round)
	must(t, f.kube.Patch(t.Context(), o, client.RawPatch("application/merge-patch+json", patch)))
}

func (f *filler) touchPod(t testing.TB) func(round, node int) {
	return func(round, node int) { f.label(t, &corev1.Pod{ObjectMeta: f.object(podName(node))}, round) }
}

func (f *filler) touchPersistentVolume(t testing.TB) func(round, node int) {
	return func(round, node int) {
		f.label(t, &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: diskName(node * volumesPerNode)}}, round)
	}
}

// requestCost is what a filter request about some nodes costs the extender.
func (f *filler) requestCost(t testing.TB, nodes int) float64 {
	t.Helper()
	address, metrics := loopback.Address(t), loopback.Address(t)
	p := start(t, nodes, 0.5, fmt.Sprintf("extender-%d-growth", nodes), "azuredisk", "scheduler",
		"--kubeconfig", apiserver.Kubeconfig(t), "--driver-namespace", f.namespace, "--address", address,
		"--metrics-address", metrics)
	defer p.stop(t)
	p.await(t, "the extender is ready", pollEvery, 2*time.Minute, func() bool { return answers("http://" + address + "/readyz") })
	asked := make([]string, fewNodes)
	for i := range asked {
		asked[i] = nodeName(i)
	}
	body, err := json.Marshal(extenderv1.ExtenderArgs{Pod: f.pod(1, volumesOf(1)), NodeNames: &asked})
	must(t, err)
	heap := allocations(t, "http://"+metrics+"/metrics")
	const requests = 300
	before := heap()
	for range requests {
		answer, err := http.Post("http://"+address+"/filter", "application/json", bytes.NewReader(body))
		must(t, err)
		_, err = io.Copy(io.Discard, answer.Body)
		must(t, err)
		answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			t.Fatalf("filter: %s", answer.Status)
		}
	}
	return (heap() - before) / requests
}
