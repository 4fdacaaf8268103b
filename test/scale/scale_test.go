package scale

import (
	"flag"
	"fmt"
	"net"
	"strconv"
	"testing"
	"time"
)

var (
	nodesFlag = flag.Int("nodes", 5000, "nodes of the cluster of BenchmarkScale")
	partFlag  = flag.String("part", "", "measure only this program: extender or controller; empty for both")
)

// BenchmarkScale measures the programs in a cluster of -nodes nodes, and writes the results to
// out/bench-scale.
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
	_, port := startMachine(t, "", net.JoinHostPort(commonIP, "0"))
	f := newFiller(t, int32(port))
	for node := range min(nodes, lostAlone+lostTogether) {
		m, _ := startMachine(t, nodeName(node), net.JoinHostPort(kubeletIP(node), strconv.Itoa(port)))
		f.machines = append(f.machines, m)
	}
	f.fill(t, f.sample(t), nodes)
	f.check(t, nodes)
	return f
}
