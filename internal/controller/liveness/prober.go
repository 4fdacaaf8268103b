package liveness

import (
	"context"
	"errors"
	"net"
	"strconv"
	"sync/atomic"
	"syscall"

	corev1 "k8s.io/api/core/v1"

	"github.com/azuredisk-csi/azuredisk/internal/plan/nodehealth"
)

const (
	defaultKubeletPort = 10250
	// keepAlive is after how long without an answer the kernel probes a connection that is kept,
	// and how long that probe may take.
	keepAlive = nodehealth.ConnectionTimeout / 2
)

// KubeletProber opens a TCP connection to the kubelet's port and keeps it. It sends nothing and
// does not check which program answers, because an answer of the machine is enough. The kernels of
// both sides probe the connection every second (TCP keepalive), so that it ends within
// nodehealth.ConnectionTimeout if the node does not answer.
type KubeletProber struct {
	// Dial opens the connection; nil for one that the kernel probes.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Probe returns what happened to the connection. A refusal is an answer.
func (p KubeletProber) Probe(ctx context.Context, node *corev1.Node) ProbeResult {
	address := kubeletAddress(node)
	if address == "" {
		return ProbeResult{Unknown: true}
	}
	dial := p.Dial
	if dial == nil {
		dial = (&net.Dialer{KeepAliveConfig: net.KeepAliveConfig{
			Enable:   true,
			Idle:     keepAlive,
			Interval: keepAlive,
			Count:    1,
		}}).DialContext
	}
	ctx, cancel := context.WithTimeout(ctx, nodehealth.ProbeTimeout)
	defer cancel()
	conn, err := dial(ctx, "tcp", address)
	if err == nil {
		return ProbeResult{Answered: true, Connection: keepOpen(conn)}
	}
	return judgeDial(err)
}

// connection is a connection on which nothing is sent or expected.
type connection struct {
	net.Conn
	// state is the state of the connection.
	state atomic.Int32
}

const (
	isOpen int32 = iota
	isEnded
	isUnanswered
)

func keepOpen(conn net.Conn) *connection {
	c := &connection{Conn: conn}
	go func() {
		state := isEnded
		// The kubelet sends nothing before it is asked, so that this returns when the connection
		// ends.
		if _, err := conn.Read(make([]byte, 1)); err != nil && noAnswer(err) {
			state = isUnanswered
		}
		c.state.Store(state)
		_ = conn.Close()
	}()
	return c
}

// Ended implements Connection.
func (c *connection) Ended() (ended, unanswered bool) {
	state := c.state.Load()
	return state != isOpen, state == isUnanswered
}

// Close implements Connection.
func (c *connection) Close() { _ = c.Conn.Close() }

// judgeDial distinguishes an answer, silence, and a failure of this process, for example if it has
// no file descriptors left.
func judgeDial(err error) ProbeResult {
	answered := errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ECONNRESET)
	return ProbeResult{Answered: answered, Unknown: !answered && !noAnswer(err)}
}

// noAnswer reports whether the machine did not answer, or no way leads to it.
func noAnswer(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout() ||
		errors.Is(err, syscall.EHOSTUNREACH) || errors.Is(err, syscall.ENETUNREACH) || errors.Is(err, syscall.EHOSTDOWN)
}

func kubeletAddress(node *corev1.Node) string {
	port := int(node.Status.DaemonEndpoints.KubeletEndpoint.Port)
	if port == 0 {
		port = defaultKubeletPort
	}
	for _, a := range node.Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			return net.JoinHostPort(a.Address, strconv.Itoa(port))
		}
	}
	return ""
}
