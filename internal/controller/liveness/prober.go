package liveness

import (
	"context"
	"errors"
	"net"
	"strconv"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
)

const (
	probeTimeout       = 600 * time.Millisecond
	defaultKubeletPort = 10250
)

// KubeletProber opens a TCP connection to the kubelet's port and closes it at once. It sends nothing and does not check
// which program answers, because an answer of the machine is enough.
type KubeletProber struct {
	// Dial opens the connection; nil for a plain one.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Probe returns what happened to the connection. A refusal is an answer.
func (p KubeletProber) Probe(ctx context.Context, node *corev1.Node) ProbeResult {
	address := kubeletAddress(node)
	if address == "" {
		return ProbeResult{Unknown: true, Detail: "the Node has no internal address"}
	}
	dial := p.Dial
	if dial == nil {
		dial = (&net.Dialer{Timeout: probeTimeout}).DialContext
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	conn, err := dial(ctx, "tcp", address)
	if err == nil {
		// Nothing was written, so that closing cannot lose anything.
		_ = conn.Close()
		return ProbeResult{Answered: true, Detail: address + " answers"}
	}
	return judgeDial(address, err)
}

// judgeDial distinguishes an answer, silence, and a failure of this process, for example if it has no file descriptors left.
func judgeDial(address string, err error) ProbeResult {
	r := ProbeResult{Detail: address + ": " + err.Error()}
	var timeout net.Error
	switch {
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.ECONNRESET):
		r.Answered = true
	case errors.As(err, &timeout) && timeout.Timeout(), errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.EHOSTDOWN):
	default:
		r.Unknown = true
	}
	return r
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
