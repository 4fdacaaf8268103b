package scale

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"github.com/azuredisk-csi/azuredisk/internal/testkit/apiserver"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/loopback"
)

// extenderResult is what was measured of the extender.
type extenderResult struct {
	Nodes int
	// StartUpSeconds is the time until it is ready, and the others are the processor time of the
	// extender and of the API server until then.
	StartUpSeconds, StartUpCPU, StartUpAPIServerCPU float64

	MemoryMiB     int
	PeakMemoryMiB int
	Requests      []requests
}

// requests of one kind, one after the other or by several clients at once.
type requests struct {
	Verb         string
	Names        int
	Clients      int
	P50, P99     float64 // ms, as the client sees it: with its own time to connect, send and read
	CPU          float64 // ms for each request, of the extender
	PerSecond    float64
	AnswerLength int
	// ServerMean is the mean time in ms that the extender's own metric says, from the request's
	// header to the answer's last byte. ServerP50 and ServerP99 are the bounds of the metric's
	// buckets below which these shares of the requests are.
	ServerMean, ServerP50, ServerP99 float64
}

// measureExtender runs the extender in the cluster and asks it about many nodes and about 100.
func measureExtender(t testing.TB, f *filler, nodes int) extenderResult {
	t.Helper()
	address, metrics := loopback.Address(t), loopback.Address(t)
	api := newAPIMetrics(t)
	apiCPU := api.cpu(t)
	p := start(t, nodes, 0.5, fmt.Sprintf("extender-%d", nodes), "azuredisk", "scheduler",
		"--kubeconfig", apiserver.Kubeconfig(t), "--driver-namespace", f.namespace, "--address", address,
		"--metrics-address", metrics)
	defer p.stop(t)
	up := p.await(t, "the extender is ready", pollEvery, 2*time.Minute,
		func() bool { return answers("http://" + address + "/readyz") })
	result := extenderResult{
		Nodes:               nodes,
		StartUpSeconds:      up.Seconds(),
		StartUpCPU:          p.cpu(t).Seconds(),
		StartUpAPIServerCPU: api.cpu(t) - apiCPU,
	}
	pod := &corev1.Pod{}
	must(t, f.kube.Get(t.Context(), client.ObjectKey{Namespace: f.namespace, Name: podName(nodes / 2)}, pod))
	pod.Spec.NodeName, pod.Status = "", corev1.PodStatus{}
	for _, names := range []int{nodes, 100} {
		asked := make([]string, names)
		for i := range asked {
			asked[i] = nodeName((nodes/2 - names/2 + i + nodes) % nodes)
		}
		body, err := json.Marshal(extenderv1.ExtenderArgs{Pod: pod, NodeNames: &asked})
		must(t, err)
		for _, verb := range []string{"filter", "prioritize"} {
			for _, clients := range []int{1, 4} {
				before := durations(t, "http://"+metrics, verb)
				asked := p.ask(t, "http://"+address, verb, body, names, clients)
				durations(t, "http://"+metrics, verb).since(before).into(&asked)
				result.Requests = append(result.Requests, asked)
			}
		}
	}
	result.MemoryMiB, result.PeakMemoryMiB = p.memory(t)
	return result
}

// ask sends requests, and measures them.
func (p *program) ask(t testing.TB, url, verb string, body []byte, names, clients int) requests {
	t.Helper()
	const warm, each = 20, 400
	r := requests{Verb: verb, Names: names, Clients: clients}
	// The collector of this process, whose heap has the cluster's objects, would take one of the
	// two cores from the program that is measured.
	runtime.GC()
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	var mu sync.Mutex
	var times []time.Duration
	send := func(n int) {
		own := &http.Client{Transport: &http.Transport{}}
		defer own.CloseIdleConnections()
		var text bytes.Buffer
		for range n {
			began := time.Now()
			answer, err := own.Post(url+"/"+verb, "application/json", bytes.NewReader(body))
			if err != nil {
				t.Error(err)
				return
			}
			text.Reset()
			_, err = text.ReadFrom(answer.Body)
			took := time.Since(began)
			answer.Body.Close()
			if err != nil || answer.StatusCode != http.StatusOK {
				t.Errorf("%s: %s: %s (%v)", verb, answer.Status, &text, err)
				return
			}
			mu.Lock()
			times, r.AnswerLength = append(times, took), text.Len()
			mu.Unlock()
		}
	}
	send(warm)
	times = nil
	cpu, began := p.cpu(t), time.Now()
	var all sync.WaitGroup
	for range clients {
		all.Go(func() { send(each / clients) })
	}
	all.Wait()
	if t.Failed() {
		t.FailNow()
	}
	r.PerSecond = float64(len(times)) / time.Since(began).Seconds()
	r.CPU = milliseconds((p.cpu(t) - cpu) / time.Duration(len(times)))
	r.P50, r.P99 = quantile(times, 0.5), quantile(times, 0.99)
	return r
}

// histogram is the extender's metric of the time that it takes for the requests of a verb.
type histogram struct {
	count, sum float64
	atMost     map[float64]float64 // how many requests took at most as many seconds
}

func durations(t testing.TB, url, verb string) histogram {
	t.Helper()
	answer, err := http.Get(url + "/metrics")
	must(t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	must(t, err)
	h := histogram{atMost: map[float64]float64{}}
	for _, m := range regexp.MustCompile(`(?m)^azuredisk_scheduler_extender_request_duration_seconds_(\w+)\{.*verb="`+verb+
		`".*?(?:le="(.*)")?\} (\S+)$`).FindAllStringSubmatch(string(text), -1) {
		value, err := strconv.ParseFloat(m[3], 64)
		must(t, err)
		switch m[1] {
		case "count":
			h.count = value
		case "sum":
			h.sum = value
		case "bucket":
			bound, err := strconv.ParseFloat(m[2], 64)
			must(t, err)
			h.atMost[bound] = value
		}
	}
	return h
}

func (h histogram) since(before histogram) histogram {
	rest := histogram{count: h.count - before.count, sum: h.sum - before.sum, atMost: maps.Clone(h.atMost)}
	for bound, n := range before.atMost {
		rest.atMost[bound] -= n
	}
	return rest
}

func (h histogram) into(r *requests) {
	within := func(share float64) float64 {
		for _, bound := range slices.Sorted(maps.Keys(h.atMost)) {
			if h.atMost[bound] >= share*h.count {
				return bound * 1000
			}
		}
		return math.Inf(1)
	}
	r.ServerMean, r.ServerP50, r.ServerP99 = h.sum/h.count*1000, within(0.5), within(0.99)
}
