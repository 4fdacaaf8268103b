package scale

import (
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
)

const (
	// lostAlone nodes lose their power one after the other, and then lostTogether at once.
	lostAlone, lostTogether = 5, 100
	// commonIP is where the nodes answer that keep their power. The addresses of the others are as
	// long.
	commonIP = "127.0.0.1"
)

// lossResult is what was measured of nodes that lose their power.
type lossResult struct {
	// AloneSeconds are the times from the loss of a node until its AzDriverNode says that it is
	// lost.
	AloneSeconds []float64
	// Together is how many nodes are lost at once, and TogetherSeconds the time until all of them
	// are said to be lost.
	Together        int
	TogetherSeconds float64
	traffic
}

// kubeletIP is where a node answers.
func kubeletIP(node int) string {
	if node >= lostAlone+lostTogether {
		return commonIP
	}
	return fmt.Sprintf("127.%d.%d.%d", 1+node/81, node/9%9, 1+node%9)
}

// machine answers probes at the address of one node, or of all that keep their power.
type machine struct {
	node    string
	off     atomic.Bool
	mu      sync.Mutex
	sockets []syscall.Conn
}

// startMachine answers probes for a node, or for "" for all others, until the test ends. It keeps
// each connection until its peer closes it, as a kubelet does.
func startMachine(t testing.TB, node, address string) (*machine, int) {
	t.Helper()
	var plain net.ListenConfig
	plain.SetMultipathTCP(false) // the kernel applies no filter to the listener of a multipath connection
	listener, err := plain.Listen(t.Context(), "tcp", address)
	must(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	m := &machine{node: node, sockets: []syscall.Conn{listener.(*net.TCPListener)}}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			m.mu.Lock()
			m.sockets = append(m.sockets, conn.(*net.TCPConn))
			m.mu.Unlock()
			go func() {
				defer conn.Close()
				_, _ = conn.Read(make([]byte, 1))
			}()
		}
	}()
	return m, listener.Addr().(*net.TCPAddr).Port
}

// cutPower lets the kernel drop all packets for the machine: to its peers that looks like a machine
// without power. A connection that has ended is no longer a socket, which is no failure.
func (m *machine) cutPower(t testing.TB) {
	t.Helper()
	drop := &unix.SockFprog{Len: 1, Filter: &unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K}}
	m.off.Store(true)
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, s := range m.sockets {
		raw, err := s.SyscallConn()
		if err == nil {
			err = raw.Control(func(fd uintptr) {
				if err := unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, drop); err != nil {
					t.Errorf("drop the packets of a machine: %v", err)
				}
			})
		}
		if err != nil && i == 0 {
			t.Fatalf("drop the packets for the listener of a machine: %v", err)
		}
	}
}

// measureLoss cuts the power of nodes while a controller leads, and waits until their AzDriverNodes
// say that they are lost.
func (l *controllerLab) measureLoss(t testing.TB, p *program) lossResult {
	t.Helper()
	var result lossResult
	machines := l.machines
	before := l.traffic(t)
	cut := func(nodes ...int) float64 {
		began := time.Now()
		for _, n := range nodes {
			machines[n].cutPower(t)
		}
		waiting := slices.Clone(nodes)
		p.await(t, "the loss of nodes is known", pollEvery, 5*time.Minute, func() bool {
			waiting = slices.DeleteFunc(waiting, func(n int) bool { return l.isLost(t, n) })
			return len(waiting) == 0
		})
		return time.Since(began).Seconds()
	}
	alone := min(lostAlone, len(machines))
	for n := range alone {
		result.AloneSeconds = append(result.AloneSeconds, cut(n))
	}
	together := make([]int, 0, lostTogether)
	for n := alone; n < len(machines); n++ {
		together = append(together, n)
	}
	result.Together, result.TogetherSeconds = len(together), cut(together...)
	result.traffic = l.traffic(t).since(before)
	return result
}

// answerRequests sends a heartbeat for each request until the test ends, as the node plug-ins of
// the nodes that have power do. On a busy machine a probe may fail.
func (f *filler) answerRequests(t testing.TB) {
	t.Helper()
	watching, err := f.kube.Watch(t.Context(), &apiv1.AzDriverNodeList{}, client.InNamespace(f.namespace))
	must(t, err)
	t.Cleanup(watching.Stop)
	go func() {
		for event := range watching.ResultChan() {
			d, ok := event.Object.(*apiv1.AzDriverNode)
			if !ok || d.HeartbeatRequestedTime() == nil || !d.Status.HeartbeatTime.Before(d.HeartbeatRequestedTime()) ||
				f.isOff(d.Name) {
				continue
			}
			now := metav1.NowMicro()
			changed := d.DeepCopy()
			changed.Status.HeartbeatTime = &now
			if err := f.kube.Status().Patch(t.Context(), changed, client.MergeFrom(d)); err != nil && t.Context().Err() == nil {
				t.Errorf("answer the request for a heartbeat of node %s: %v", d.Name, err)
			}
		}
	}()
}

func (f *filler) isOff(node string) bool {
	return slices.ContainsFunc(f.machines, func(m *machine) bool { return m.node == node && m.off.Load() })
}

func (l *controllerLab) isLost(t testing.TB, node int) bool {
	t.Helper()
	d := &apiv1.AzDriverNode{}
	must(t, l.kube.Get(t.Context(), client.ObjectKey{Namespace: l.namespace, Name: nodeName(node)}, d))
	c := meta.FindStatusCondition(d.Status.Conditions, apiv1.NodeConditionReachable)
	return c != nil && c.Status == metav1.ConditionFalse && c.Reason == apiv1.ReasonNodeLost
}
