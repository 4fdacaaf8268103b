package controlplane

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/azuredisk-csi/azuredisk/playground/network"
	"github.com/azuredisk-csi/azuredisk/playground/poll"
	"github.com/azuredisk-csi/azuredisk/playground/process"
	"github.com/azuredisk-csi/azuredisk/playground/topology"
)

// Options say what a control plane is made of.
type Options struct {
	// Dir holds its data, Logs its logs.
	Dir, Logs string
	Plan      topology.Plan
	// Namespace is the network namespace that has the control plane's address.
	Namespace *network.Namespace
	// Programs are the paths of the programs by name.
	Programs    map[string]string
	Credentials Credentials
	// Extender is the scheduler extender to begin with, or nil.
	Extender *Extender
	Log      *slog.Logger
}

// ControlPlane is a running control plane.
type ControlPlane struct {
	opts Options

	mu       sync.Mutex
	children map[string]*process.Child
	order    []string
}

// Start starts the control plane and returns when its API server is ready.
func Start(ctx context.Context, opts Options) (*ControlPlane, error) {
	c := &ControlPlane{opts: opts, children: map[string]*process.Child{}}
	if err := os.MkdirAll(opts.Dir, 0o700); err != nil {
		return nil, err
	}
	if err := c.writeSchedulerConfig(opts.Extender); err != nil {
		return nil, err
	}
	if err := os.WriteFile(c.file("kube-proxy.yaml"), []byte(c.proxyConfig()), 0o644); err != nil {
		return nil, err
	}
	for _, p := range []struct {
		name string
		args []string
	}{{"etcd", c.etcdArgs()}, {"kube-apiserver", c.apiServerArgs()}} {
		if err := c.start(p.name, p.args); err != nil {
			return c, err
		}
	}
	if err := c.waitReady(ctx); err != nil {
		return c, err
	}
	for _, p := range []struct {
		name string
		args []string
	}{
		{"kube-controller-manager", c.controllerManagerArgs()},
		{"kube-scheduler", []string{"--config", c.file("kube-scheduler.yaml")}},
		// So that the API server and the scheduler reach Services (webhooks, extenders).
		{"kube-proxy", []string{"--config", c.file("kube-proxy.yaml")}},
	} {
		if err := c.start(p.name, p.args); err != nil {
			return c, err
		}
	}
	return c, nil
}

func (c *ControlPlane) file(name string) string { return filepath.Join(c.opts.Dir, name) }

func (c *ControlPlane) start(name string, args []string) error {
	child, err := process.Start(process.Spec{
		Name:   name,
		Path:   c.opts.Programs[name],
		Args:   args,
		Dir:    c.opts.Dir,
		LogDir: c.opts.Logs,
		Enter:  c.opts.Namespace.Do,
		Grace:  10 * time.Second,
	}, c.opts.Log)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.children[name] = child
	c.order = append(c.order, name)
	return nil
}

// Stop stops the control plane, the last part first.
func (c *ControlPlane) Stop(ctx context.Context) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := len(c.order) - 1; i >= 0; i-- {
		c.children[c.order[i]].Stop(ctx)
	}
	c.order = nil
}

// Components lists the programs of the control plane.
func (c *ControlPlane) Components() []process.Component {
	c.mu.Lock()
	defer c.mu.Unlock()
	var list []process.Component
	for _, name := range c.order {
		child := c.children[name]
		list = append(list, process.Component{
			Name:     name,
			PID:      child.PID(),
			Restarts: child.Restarts(),
		})
	}
	return list
}

// SetExtender gives the scheduler another extender, or none, and restarts it.
func (c *ControlPlane) SetExtender(extender *Extender) error {
	if err := c.writeSchedulerConfig(extender); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if scheduler := c.children["kube-scheduler"]; scheduler != nil {
		scheduler.Restart()
	}
	return nil
}

// Dial connects to the API server.
func (c *ControlPlane) Dial(ctx context.Context) (net.Conn, error) {
	return c.opts.Namespace.Dial(ctx, "tcp", fmt.Sprintf("%s:%d", c.opts.Plan.ControlPlane(), APIPort))
}

// waitReady waits until the API server says that it is ready.
func (c *ControlPlane) waitReady(ctx context.Context) error {
	client := &http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return c.Dial(ctx) },
		// Readiness is no secret, and the connection does not leave this machine.
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true},
		DisableKeepAlives: true,
	}}
	what := "the API server is ready (see " + filepath.Join(c.opts.Logs, "kube-apiserver.log") + ")"
	return poll.Until(ctx, 90*time.Second, 100*time.Millisecond, what, func(context.Context) error {
		response, err := client.Get("https://api/readyz")
		if err != nil {
			return err
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		if err == nil && response.StatusCode != http.StatusOK {
			err = errors.New(strings.TrimSpace(string(body)))
		}
		return err
	})
}
