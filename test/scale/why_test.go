package scale

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/azuredisk-csi/azuredisk/internal/cli/collect"
	"github.com/azuredisk-csi/azuredisk/internal/cli/explain"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/apiserver"
)

// mostRequests is how many requests an explanation of a pod with volumesPerNode volumes may take.
const mostRequests = 40

// counted counts requests and the bytes of the answers.
type counted struct {
	next            http.RoundTripper
	requests, bytes atomic.Int64
}

func (c *counted) RoundTrip(request *http.Request) (*http.Response, error) {
	answer, err := c.next.RoundTrip(request)
	c.requests.Add(1)
	if err == nil {
		answer.Body = countedBody{answer.Body, c}
	}
	return answer, err
}

// countedBody counts what is read, also of an answer whose length is not known before.
type countedBody struct {
	io.ReadCloser
	count *counted
}

func (b countedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.count.bytes.Add(int64(n))
	return n, err
}

// explained asks why a pod is as it is, and returns the cost.
func (f *filler) explained(t testing.TB, node int) (requests, bytes int64, took time.Duration) {
	t.Helper()
	config, count := apiserver.Config(t), &counted{}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { count.next = next; return count })
	config.DisableCompression = true
	reader := newReader(t, config)
	began := time.Now()
	facts, err := collect.Collect(t.Context(), reader, f.question(node))
	must(t, err)
	report := explain.Explain(facts)
	took = time.Since(began)
	if len(facts.Volumes) != volumesPerNode || report.ID == "Unknown" || report.Rights != explain.ScopeCluster {
		t.Fatalf("got %d volumes and %s, want %d volumes and a cause", len(facts.Volumes), report.Text(), volumesPerNode)
	}
	return count.requests.Load(), count.bytes.Load(), took
}

// question is why the pod of a node is as it is.
func (f *filler) question(node int) collect.Options {
	return collect.Options{
		Subject:         explain.Subject{Kind: explain.KindPod, Namespace: f.namespace, Name: podName(node)},
		DriverName:      driverName,
		DriverNamespace: f.namespace,
		Now:             time.Now,
	}
}

// settled waits until the caches of the API server have what was written to etcd directly.
func (f *filler) settled(t testing.TB) {
	t.Helper()
	reader := newReader(t, apiserver.Config(t))
	must(t, wait.PollUntilContextTimeout(t.Context(), time.Second, 5*time.Minute, true, func(ctx context.Context) (bool, error) {
		_, err := collect.Collect(ctx, reader, f.question(0))
		return err == nil, nil
	}))
}

func newReader(t testing.TB, config *rest.Config) client.Reader {
	t.Helper()
	reader, _, err := collect.NewReader(config, clock.RealClock{})
	must(t, err)
	return reader
}

// TestAnExplanationCostsTheSameInALargerCluster compares requests and bytes, which depend on nothing
// but the objects.
func TestAnExplanationCostsTheSameInALargerCluster(t *testing.T) {
	bytes := map[int]int64{}
	for _, nodes := range []int{fewNodes, manyNodes} {
		t.Run(fmt.Sprintf("%d nodes", nodes), func(t *testing.T) {
			f := filled(t, nodes)
			t.Cleanup(func() { f.clear(t) })
			requests, size, _ := f.explained(t, nodes/2)
			if requests > mostRequests {
				t.Errorf("got %d requests, want at most %d", requests, mostRequests)
			}
			t.Logf("%d requests, %d bytes", requests, size)
			bytes[nodes] = size
		})
	}
	if bytes[manyNodes] > bytes[fewNodes]*11/10 {
		t.Errorf("got %d bytes with %d nodes and %d with %d, want the same: does it list all objects of a kind?",
			bytes[fewNodes], fewNodes, bytes[manyNodes], manyNodes)
	}
}

// BenchmarkWhy measures an explanation in a cluster of -nodes nodes.
func BenchmarkWhy(b *testing.B) {
	f := filled(b, *nodesFlag)
	f.settled(b)
	var longest time.Duration
	var requests, bytes int64
	for b.Loop() {
		for k := range 20 {
			var took time.Duration
			requests, bytes, took = f.explained(b, k*(*nodesFlag/20))
			longest = max(longest, took)
		}
	}
	b.ReportMetric(float64(longest.Milliseconds()), "ms/longest")
	b.ReportMetric(float64(requests), "requests")
	b.ReportMetric(float64(bytes)/1024, "KiB")
}
