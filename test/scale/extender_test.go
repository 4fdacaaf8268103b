package scale

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
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
	Nodes          int
	StartUpSeconds float64
	MemoryMiB      int
	PeakMemoryMiB  int
	Requests       []requests
}

// requests of one kind, one after the other or by several clients at once.
type requests struct {
	Verb         string
	Names        int
	Clients      int
	P50, P99     float64 // ms
	CPU          float64 // ms for each request, of the extender
	PerSecond    float64
	AnswerLength int
}

// measureExtender runs the extender in the cluster and asks it about many nodes and about 100.
func measureExtender(t testing.TB, f *filler, nodes int) extenderResult {
	t.Helper()
	address := loopback.Address(t)
	p := start(t, fmt.Sprintf("extender-%d", nodes), "azuredisk", "scheduler-extender",
		"--kubeconfig", apiserver.Kubeconfig(t), "--namespace", f.namespace, "--address", address)
	defer p.stop(t)
	up := p.await(t, "the extender is ready", pollEvery, 2*time.Minute, func() bool { return answers("http://" + address + "/readyz") })
	result := extenderResult{Nodes: nodes, StartUpSeconds: up.Seconds()}
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
				result.Requests = append(result.Requests, p.ask(t, "http://"+address, verb, body, names, clients))
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
	var mu sync.Mutex
	var times []time.Duration
	send := func(n int) {
		own := &http.Client{Transport: &http.Transport{}}
		defer own.CloseIdleConnections()
		for range n {
			began := time.Now()
			answer, err := own.Post(url+"/"+verb, "application/json", bytes.NewReader(body))
			if err != nil {
				t.Error(err)
				return
			}
			raw, err := io.ReadAll(answer.Body)
			took := time.Since(began)
			answer.Body.Close()
			if err != nil || answer.StatusCode != http.StatusOK {
				t.Errorf("%s: %s: %s (%v)", verb, answer.Status, raw, err)
				return
			}
			mu.Lock()
			times, r.AnswerLength = append(times, took), len(raw)
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
