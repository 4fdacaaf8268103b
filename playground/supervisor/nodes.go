package supervisor

import (
	"context"
	"fmt"
	"io"
	"os"

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

// act does something to a node. Each action is idempotent; two at a time on one
// node are refused.
func (s *Supervisor) act(ctx context.Context, name, action string) error {
	node, err := s.plan.Node(name)
	if err != nil {
		return err
	}
	s.mu.Lock()
	if s.busy[name] {
		s.mu.Unlock()
		return fmt.Errorf("%s is being worked on by another command", name)
	}
	s.busy[name] = true
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.busy, name)
		s.mu.Unlock()
	}()
	s.log.Info("node action", "node", name, "action", action)
	switch action {
	case powerOff:
		return s.powerOff(ctx, node)
	case powerOn:
		return s.powerOn(ctx, node)
	case partition, heal:
		return s.setConnected(node, action == heal)
	}
	return fmt.Errorf("unknown action %q: there are %s, %s, %s, %s", action, powerOff, powerOn, partition, heal)
}

// powerOff cuts the disks before it kills the machine: killing it unmounts its
// filesystems, which would write back what a power cut loses.
func (s *Supervisor) powerOff(ctx context.Context, n topology.Node) error {
	if !s.machines[n.Name].Running() {
		return nil
	}
	s.machines[n.Name].PowerOff()
	return s.lab.Unplug(n.Name)
}

func (s *Supervisor) powerOn(ctx context.Context, n topology.Node) error {
	if s.machines[n.Name].Running() {
		return nil
	}
	return s.boot(n)
}

func (s *Supervisor) setConnected(n topology.Node, connected bool) error {
	if !s.machines[n.Name].Running() {
		return fmt.Errorf("%s is switched off", n.Name)
	}
	if err := s.lab.SetConnected(n.Name, connected); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.connected[n.Name] = connected
	return nil
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

// linkOrCopy gives a file a second name, or a copy on another filesystem.
func linkOrCopy(from, to string) error {
	_ = os.Remove(to)
	if os.Link(from, to) == nil {
		return nil
	}
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer source.Close()
	target, err := os.Create(to)
	if err != nil {
		return err
	}
	defer target.Close()
	_, err = io.Copy(target, source)
	return err
}
