package liveness_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/azuredisk-csi/azuredisk/internal/controller/liveness"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/expect"
)

func nodeAt(address string, port int32) *corev1.Node {
	n := &corev1.Node{}
	n.Status.DaemonEndpoints.KubeletEndpoint.Port = port
	n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: "elsewhere.test"}}
	if address != "" {
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: address})
	}
	return n
}

func TestProbesOfRealSockets(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	expect.Must(t, err)
	port := int32(listener.Addr().(*net.TCPAddr).Port)
	if r := (liveness.KubeletProber{}).Probe(t.Context(), nodeAt("127.0.0.1", port)); !r.Answered || r.Unknown {
		t.Errorf("an open port: %+v", r)
	}
	listener.Close()
	if r := (liveness.KubeletProber{}).Probe(t.Context(), nodeAt("127.0.0.1", port)); !r.Answered || r.Unknown {
		t.Errorf("a refusal is an answer: %+v", r)
	}
}

func TestProbes(t *testing.T) {
	fail := func(err error) error {
		return &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", err)}
	}
	for name, c := range map[string]struct {
		node              *corev1.Node
		err               error
		answered, unknown bool
		address           string
	}{
		"a refusal is an answer": {nodeAt("10.0.0.4", 10250), fail(syscall.ECONNREFUSED), true, false, "10.0.0.4:10250"},
		"a reset is an answer":   {nodeAt("10.0.0.4", 10250), fail(syscall.ECONNRESET), true, false, "10.0.0.4:10250"},
		"a timeout is none": {nodeAt("10.0.0.4", 10250), &net.OpError{Op: "dial", Err: os.ErrDeadlineExceeded}, false, false,
			"10.0.0.4:10250"},
		"the end of the context's time is none": {nodeAt("10.0.0.4", 10250),
			&net.OpError{Op: "dial", Err: context.DeadlineExceeded}, false, false, "10.0.0.4:10250"},
		"no route to the host is none": {
			nodeAt("10.0.0.4", 10250), fail(syscall.EHOSTUNREACH), false, false, "10.0.0.4:10250"},
		"no route to the network is none": {nodeAt("10.0.0.4", 10250), fail(syscall.ENETUNREACH), false, false, "10.0.0.4:10250"},
		"our own lack of descriptors tells nothing": {nodeAt("10.0.0.4", 10250), fail(syscall.EMFILE), false, true,
			"10.0.0.4:10250"},
		"what our own firewall says tells nothing": {nodeAt("10.0.0.4", 10250), fail(syscall.EPERM), false, true,
			"10.0.0.4:10250"},
		"a node that names no port has the usual": {nodeAt("fd00::4", 0), fail(syscall.ECONNREFUSED), true, false,
			"[fd00::4]:10250"},
		"a node without an address is not probed": {nodeAt("", 10250), fmt.Errorf("not to be called"), false, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			dialled := ""
			p := liveness.KubeletProber{Dial: func(_ context.Context, _, address string) (net.Conn, error) {
				dialled = address
				return nil, c.err
			}}
			if r := p.Probe(t.Context(), c.node); r.Answered != c.answered || r.Unknown != c.unknown || dialled != c.address {
				t.Errorf("%+v of %q", r, dialled)
			}
		})
	}
}
