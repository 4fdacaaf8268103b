package scale

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/azuredisk-csi/azuredisk/internal/testkit/apiserver"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/loopback"
)

// controllerResult is what was measured of the controller.
type controllerResult struct {
	Nodes int
	// First is the first start in the cluster, Second one at which nothing has changed since.
	First, Second startResult
	// Steady is a minute at rest after the second start.
	Steady minute
	// Loss is what follows when nodes lose their power after that.
	Loss lossResult
}

type startResult struct {
	// LeaderSeconds and RestSeconds are the times from the start of the program until it leads, and
	// until it rests: neither writes to the API server, nor calls to Azure, nor works.
	LeaderSeconds, RestSeconds float64
	CPUSeconds                 float64
	MemoryMiB, PeakMemoryMiB   int
	traffic
}

type minute struct {
	CPUSeconds float64
	traffic
}

// traffic counts requests.
type traffic struct {
	// API has the requests to the API server by verb and resource; those that failed have their
	// code as well.
	API map[string]int
	// Writes are those that are neither of leases nor of events.
	Writes int
	// Azure has the calls to Azure by kind.
	Azure map[string]int
}

// measureController starts the controller, stops it when it rests, and starts it again.
func measureController(t testing.TB, f *filler, nodes int) controllerResult {
	t.Helper()
	l := &controllerLab{
		azure:   startAzure(t, nodes),
		api:     newAPIMetrics(t),
		nodes:   nodes,
		filler:  f,
		quiet:   15 * time.Second,
		metrics: "0",
	}
	result := controllerResult{Nodes: nodes}
	f.answerRequests(t)
	first := l.start(t, "first")
	result.First = l.rest(t, first)
	fmt.Printf("first start with %d nodes: leads after %.1f s, rests after %.1f s\n", nodes, result.First.LeaderSeconds,
		result.First.RestSeconds)
	// Volumes and attachments are filled in as the driver writes them. A write of one means that the
	// filler is behind the driver, and what is measured is that write.
	for kind, n := range result.First.API {
		if n > nodes/100 && (strings.Contains(kind, "azvolumes") || strings.Contains(kind, "azvolumeattachments")) {
			t.Errorf("the first start did %q %d times; the filled-in objects are not what the driver writes", kind, n)
		}
	}
	first.stop(t)
	second := l.start(t, "second")
	result.Second = l.rest(t, second)
	before, cpu := l.traffic(t), second.cpu(t)
	select {
	case <-second.exited:
		t.Fatalf("the controller has ended (log: %s)", second.log)
	case <-time.After(time.Minute): // what is measured is a minute
	}
	result.Steady = minute{CPUSeconds: (second.cpu(t) - cpu).Seconds(), traffic: l.traffic(t).since(before)}
	result.Loss = l.measureLoss(t, second)
	second.stop(t)
	return result
}

type controllerLab struct {
	*filler
	azure *simulator
	api   *apiMetrics
	nodes int
	// quiet is how long a controller does nothing that is said to rest.
	quiet time.Duration
	// metrics is where the controller serves its metrics; "0" for nowhere.
	metrics string
	before  traffic
}

func (l *controllerLab) start(t testing.TB, name string) *program {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "azure.json")
	raw, err := json.Marshal(map[string]string{
		"tenantId": "00000000-0000-0000-0000-00000000000a", "subscriptionId": subscription, "resourceGroup": resourceGroup,
		"location":                location,
		"resourceManagerEndpoint": l.azure.url, "aadClientId": "scale", "aadClientSecret": "scale",
	})
	must(t, err)
	must(t, os.WriteFile(file, raw, 0o600))
	l.before = l.traffic(t)
	return start(t, l.nodes, 1, fmt.Sprintf("controller-%d-%s", l.nodes, name), "azuredisk", "controller", "--kubeconfig",
		apiserver.Kubeconfig(t), "--driver-namespace", l.namespace,
		"--endpoint", "unix://"+filepath.Join(dir, "csi.sock"), "--cloud-config", file, "--leader-election-namespace",
		l.namespace,
		"--health-address", loopback.Address(t), "--attach-required=false", "--metrics-address", l.metrics,
		// A machine that also runs the API server and does other work may be too busy to renew a
		// lease in 10 s.
		"--lease-duration=90s", "--renew-deadline=80s", "--retry-period=2s")
}

// rest waits until a controller rests: for a while it makes no writes and no calls to Azure, and
// uses less than a tenth of a processor. The requests are looked at only while it uses no more: the
// API server needs about as much processor time to count them as the controller does for a second's
// work.
func (l *controllerLab) rest(t testing.TB, p *program) startResult {
	t.Helper()
	const limit, lookEvery = 20 * time.Minute, 5 * time.Second
	result := startResult{LeaderSeconds: p.await(t, "the controller leads", pollEvery, limit,
		func() bool { return p.said(t, "acquired lease") }).Seconds()}
	began, looked, seen, cpu := time.Now(), time.Time{}, -1, time.Duration(0)
	works := func(used time.Duration) {
		began, cpu = time.Now(), used
		result.RestSeconds, result.CPUSeconds = time.Since(p.began).Seconds(), used.Seconds()
	}
	p.await(t, "the controller rests", time.Second, limit, func() bool {
		used := p.cpu(t)
		if used-cpu > l.quiet/10 {
			works(used)
			return false
		}
		if time.Since(looked) < lookEvery {
			return false
		}
		now := l.traffic(t).since(l.before)
		busy := now.Writes
		for _, n := range now.Azure {
			busy += n
		}
		looked = time.Now()
		if busy != seen {
			seen = busy
			works(used)
		}
		return time.Since(began) > l.quiet
	})
	result.MemoryMiB, result.PeakMemoryMiB = p.memory(t)
	result.traffic = l.traffic(t).since(l.before)
	return result
}

func (l *controllerLab) traffic(t testing.TB) traffic {
	t.Helper()
	n := traffic{API: l.api.requests(t), Azure: map[string]int{}}
	for request, count := range n.API {
		verb, resource, _ := strings.Cut(request, " ")
		if strings.Contains("POST PUT PATCH APPLY DELETE", verb) && !strings.HasPrefix(resource, "leases") &&
			!strings.HasPrefix(resource, "events") {
			n.Writes += count
		}
	}
	var log struct {
		Counters map[string]struct{ Calls, Throttled int }
	}
	must(t, l.azure.send(http.MethodGet, fmt.Sprintf("/admin/requests?since=%d", uint64(math.MaxInt64)), &log))
	for api, c := range log.Counters {
		n.Azure[api] = c.Calls
		if c.Throttled > 0 {
			n.Azure[api+" 429"] = c.Throttled
		}
	}
	return n
}

func (n traffic) since(before traffic) traffic {
	less := func(after, before map[string]int) map[string]int {
		rest := maps.Clone(after)
		for key, count := range before {
			rest[key] -= count
		}
		maps.DeleteFunc(rest, func(_ string, count int) bool { return count == 0 })
		return rest
	}
	return traffic{
		API:    less(n.API, before.API),
		Writes: n.Writes - before.Writes,
		Azure:  less(n.Azure, before.Azure),
	}
}

// apiMetrics reads the metrics of the API server.
type apiMetrics struct {
	http *http.Client
	url  string
}

func newAPIMetrics(t testing.TB) *apiMetrics {
	t.Helper()
	config := apiserver.Config(t)
	client, err := rest.HTTPClientFor(config)
	must(t, err)
	server, _, err := rest.DefaultServerUrlFor(config)
	must(t, err)
	return &apiMetrics{http: client, url: server.JoinPath("metrics").String()}
}

var requestTotal = regexp.MustCompile(`(?m)^apiserver_request_total\{(.*)\} (\S+)$`)

func (m *apiMetrics) text(t testing.TB) string {
	t.Helper()
	answer, err := m.http.Get(m.url)
	must(t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	must(t, err)
	return string(text)
}

var processCPU = regexp.MustCompile(`(?m)^process_cpu_seconds_total (\S+)$`)

// cpu is the processor time in seconds that the API server has used.
func (m *apiMetrics) cpu(t testing.TB) float64 {
	t.Helper()
	match := processCPU.FindStringSubmatch(m.text(t))
	if match == nil {
		t.Fatal("the API server has no metric process_cpu_seconds_total")
	}
	seconds, err := strconv.ParseFloat(match[1], 64)
	must(t, err)
	return seconds
}

// requests counts the requests of the driver's kinds by verb and resource. The API server's own are
// left out.
func (m *apiMetrics) requests(t testing.TB) map[string]int {
	t.Helper()
	counts := map[string]int{}
	for _, match := range requestTotal.FindAllStringSubmatch(m.text(t), -1) {
		labels := map[string]string{}
		for pair := range strings.SplitSeq(match[1], ",") {
			name, value, _ := strings.Cut(pair, "=")
			labels[name] = strings.Trim(value, `"`)
		}
		if labels["resource"] == "" || labels["verb"] == "WATCH" {
			continue
		}
		count, err := strconv.ParseFloat(match[2], 64)
		must(t, err)
		key := labels["verb"] + " " + labels["resource"]
		if labels["subresource"] != "" {
			key += "/" + labels["subresource"]
		}
		if !strings.HasPrefix(labels["code"], "2") {
			key += " " + labels["code"]
		}
		counts[key] += int(count)
	}
	if len(counts) == 0 {
		t.Fatal("the API server has no metric apiserver_request_total")
	}
	return counts
}
