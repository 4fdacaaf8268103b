package supervisor

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/azuredisk-csi/azuredisk/playground/topology"
)

// The actions on a node.
const (
	powerOff  = "power-off"
	powerOn   = "power-on"
	partition = "partition"
	heal      = "heal"
)

// act does something to a node and returns when it is done. Each action is idempotent.
func (s *Supervisor) act(ctx context.Context, name, action string) error {
	node, err := s.plan.Node(name)
	if err != nil {
		return err
	}
	unlock := s.lock(name)
	defer unlock()
	s.log.Info("node action", "node", name, "action", action)
	switch action {
	case powerOff:
		// The disks are cut before the machine is killed: killing it unmounts its
		// filesystems, which would write back what a power cut loses.
		if err := s.azure.CutPower(ctx, node.VM()); err != nil {
			return err
		}
		return s.switchOff(ctx, node)
	case powerOn:
		if err := s.azure.RestorePower(ctx, node.VM()); err != nil {
			return err
		}
		return s.boot(ctx, node)
	case partition, heal:
		if !s.machines[name].Running() {
			return fmt.Errorf("%s is switched off", name)
		}
		if err := s.connect(node, action == heal); err != nil {
			return err
		}
		return s.azure.SetNetworkCut(ctx, node.VM(), action == partition)
	}
	return fmt.Errorf("unknown action %q: there are %s, %s, %s, %s", action, powerOff, powerOn, partition, heal)
}

// lock serialises what is done to one node.
func (s *Supervisor) lock(name string) func() {
	s.mu.Lock()
	lock := s.locks[name]
	if lock == nil {
		lock = &sync.Mutex{}
		s.locks[name] = lock
	}
	s.mu.Unlock()
	lock.Lock()
	return lock.Unlock
}

// boot plugs the node in, with its metadata service, and switches it on. A machine
// that runs is left alone.
func (s *Supervisor) boot(ctx context.Context, n topology.Node) error {
	if s.machines[n.Name].Running() {
		return nil
	}
	ns, err := s.lab.Plug(n.Name, n.Address)
	if err != nil {
		return err
	}
	for _, other := range s.plan.Nodes {
		if other.Name == n.Name {
			continue
		}
		if err := ns.Route(other.PodNet, other.Address); err != nil {
			return err
		}
	}
	if err := ns.RouteDefault(s.plan.Cloud()); err != nil {
		return err
	}
	if err := ns.AddLocal(metadataIP); err != nil {
		return err
	}
	if err := s.azure.ServeMetadata(n, ns); err != nil {
		return err
	}
	if err := s.takePorts(ctx, n.Name, ns); err != nil {
		return err
	}
	if err := s.machines[n.Name].PowerOn(ns); err != nil {
		return fmt.Errorf("boot %s: %w", n.Name, err)
	}
	s.setConnected(n.Name, true)
	return nil
}

// switchOff kills the machine and forgets its network, with all that was set up in it.
func (s *Supervisor) switchOff(ctx context.Context, n topology.Node) error {
	if !s.machines[n.Name].Running() {
		return nil
	}
	s.machines[n.Name].PowerOff()
	s.forgetFrozen(n.Name)
	s.azure.StopMetadata(ctx, n)
	s.freePorts(n.Name)
	s.setConnected(n.Name, false)
	return s.lab.Unplug(n.Name)
}

// connect plugs the cable of a running machine in or pulls it.
func (s *Supervisor) connect(n topology.Node, connected bool) error {
	s.setConnected(n.Name, connected)
	return s.plug(n)
}

// plug has the cable of a running machine be as it should: a machine that is frozen has none.
func (s *Supervisor) plug(n topology.Node) error {
	s.mu.Lock()
	connected := s.connected[n.Name] && s.frozen[n.Name] == nil
	s.mu.Unlock()
	return s.lab.SetConnected(n.Name, connected)
}

func (s *Supervisor) setConnected(name string, connected bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.connected[name] = connected
}

// load gives an image tar to all nodes that are switched on.
func (s *Supervisor) load(ctx context.Context, tar io.Reader) error {
	file, err := os.CreateTemp(string(s.dir), "load-*.tar")
	if err != nil {
		return err
	}
	defer os.Remove(file.Name())
	defer file.Close()
	if _, err := io.Copy(file, tar); err != nil {
		return fmt.Errorf("receive the image: %w", err)
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(2)
	for _, n := range s.plan.Nodes {
		if s.machines[n.Name].Running() {
			group.Go(func() error { return s.machines[n.Name].LoadImage(ctx, file.Name()) })
		}
	}
	return group.Wait()
}
