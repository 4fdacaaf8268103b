package supervisor

import (
	"context"
	"fmt"
	"net"
	"net/netip"

	"github.com/azuredisk-csi/azuredisk/playground/azure"
	"github.com/azuredisk-csi/azuredisk/playground/topology"
)

// metadataIP is the address at which a VM finds its metadata.
var metadataIP = netip.MustParseAddr("169.254.169.254")

// startAzure starts azuresim and opens it to the host on loopback ports.
func (s *Supervisor) startAzure(ctx context.Context) error {
	ns, err := s.lab.Namespace("azure")
	if err != nil {
		return err
	}
	running, err := azure.Start(ctx, azure.Options{
		Dir:         s.dir.Azure(),
		Logs:        s.dir.Logs(),
		Program:     s.opts.Programs["azuresim"],
		Plan:        s.plan,
		Namespace:   ns,
		Latency:     s.opts.Latency,
		NoQuotas:    s.opts.NoQuotas,
		Seed:        s.opts.Seed,
		Credentials: s.opts.Credentials,
		Log:         s.log,
	})
	s.mu.Lock()
	s.azure = running
	s.mu.Unlock()
	if err != nil {
		return err
	}
	arm, err := s.openToHost(ctx, func(ctx context.Context) (net.Conn, error) { return ns.Dial(ctx, "tcp", running.Endpoint()) })
	if err != nil {
		return err
	}
	admin, err := s.openToHost(ctx, func(ctx context.Context) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", azure.AdminSocket(s.dir.Azure()))
	})
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.armURL, s.armHostURL, s.adminURL = "http://"+running.Endpoint(), "http://"+arm, "http://"+admin
	s.mu.Unlock()
	s.progress("azuresim has %d VMs, latencies are %s", len(s.plan.Nodes), s.opts.Latency)
	return nil
}

// openToHost opens a loopback port of the host that leads where dial dials.
func (s *Supervisor) openToHost(ctx context.Context, dial dialer) (string, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("open a loopback port: %w", err)
	}
	s.proxies.serve(listener, dial)
	return listener.Addr().String(), nil
}

// followAzure keeps the machines as azuresim reports them: a client that stops or
// deallocates a VM through ARM, or cuts its power by the admin API, switches the
// machine off.
func (s *Supervisor) followAzure(ctx context.Context) {
	s.azure.Watch(ctx, func(vms []azure.VM) {
		for _, vm := range vms {
			node, ours := s.plan.NodeOfVM(vm.Name)
			if !ours {
				continue // a VM that a user made: it has no machine
			}
			if err := s.follow(ctx, node, vm); err != nil && ctx.Err() == nil {
				s.log.Error("a machine is not as its VM", "node", node.Name, "error", err)
			}
		}
	})
}

func (s *Supervisor) follow(ctx context.Context, node topology.Node, vm azure.VM) error {
	unlock := s.lock(node.Name)
	defer unlock()
	on, settled := vm.On()
	switch running := s.machines[node.Name].Running(); {
	case settled && on && !running:
		s.log.Info("the VM is on, booting its machine", "node", node.Name)
		if err := s.boot(ctx, node); err != nil {
			return err
		}
	case settled && !on && running:
		s.log.Info("the VM is off, switching its machine off", "node", node.Name)
		return s.switchOff(ctx, node)
	}
	if s.machines[node.Name].Running() {
		return s.connect(node, !vm.NetworkCut)
	}
	return nil
}
