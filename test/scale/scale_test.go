package scale

import (
	"flag"
	"fmt"
	"net"
	"testing"
	"time"
)

var (
	nodesFlag = flag.Int("nodes", 5000, "nodes of the cluster of BenchmarkScale")
	partFlag  = flag.String("part", "", "measure only this program: extender or controller; empty for both")
)

// BenchmarkScale measures the programs in a cluster of -nodes nodes, and writes the results to out/bench-scale.
func BenchmarkScale(b *testing.B) {
	began := time.Now()
	f := filled(b, *nodesFlag)
	fmt.Printf("filled with %d nodes in %.1f s\n", *nodesFlag, time.Since(began).Seconds())
	for range b.N {
		if *partFlag != "controller" {
			report(b, fmt.Sprintf("extender-%d", *nodesFlag), measureExtender(b, f, *nodesFlag))
		}
		if *partFlag != "extender" {
			report(b, fmt.Sprintf("controller-%d", *nodesFlag), measureController(b, f, *nodesFlag))
		}
		writePage(b)
	}
}

// filled returns a cluster with as many nodes, which answer probes.
func filled(t testing.TB, nodes int) *filler {
	t.Helper()
	kubelets, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { _ = kubelets.Close() })
	go answerProbes(kubelets)
	f := newFiller(t, int32(kubelets.Addr().(*net.TCPAddr).Port))
	f.fill(t, f.sample(t), nodes)
	f.check(t, nodes)
	return f
}

// answerProbes keeps each connection until its peer closes it, as a kubelet does.
func answerProbes(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			_, _ = conn.Read(make([]byte, 1))
		}()
	}
}
