package handover

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cluster"
	"github.com/azuredisk-csi/azuredisk/internal/kube"
	"github.com/azuredisk-csi/azuredisk/internal/plan/disk"
)

// beingChanged says that a node does not get a volume yet: its disk is being changed, or about to be,
// while no node has it.
type beingChanged struct {
	volume, node string
	// left is how long the change may still last, until a publish does not wait for it any more.
	left time.Duration
}

func (e *beingChanged) Error() string {
	return fmt.Sprintf("publish volume %s to node %s: its disk is being changed first, which Azure does only while no node has it; "+
		"the publish waits for that, at most %s more", e.volume, e.node, e.left.Round(time.Second))
}

// GRPCStatus makes the code Aborted: the call is repeated.
func (e *beingChanged) GRPCStatus() *grpcstatus.Status {
	return grpcstatus.New(codes.Aborted, e.Error())
}

// attachTogether is how long a publish waits, when its disk is changed, for the disks that the same node
// waits for: those of one pod are attached by one request then, and the pod waits for one attach and not for
// two, one after the other.
const attachTogether = 3 * time.Second

// changing counts the publishes of each node that wait for changes of disks. The zero value is ready.
type changing struct {
	mu    sync.Mutex
	nodes map[string]*waitingNode
}

type waitingNode struct {
	publishes int
	// none is closed when no publish waits any more.
	none chan struct{}
}

// join adds a publish.
func (c *changing) join(node string) *waitingNode {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.nodes == nil {
		c.nodes = map[string]*waitingNode{}
	}
	n := c.nodes[node]
	if n == nil {
		n = &waitingNode{none: make(chan struct{})}
		c.nodes[node] = n
	}
	n.publishes++
	return n
}

// leave takes a publish away.
func (c *changing) leave(node string, n *waitingNode) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n.publishes--; n.publishes == 0 {
		delete(c.nodes, node)
		close(n.none)
	}
}

// others waits until no publish of the node waits for a change, within attachTogether.
func (n *waitingNode) others(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, attachTogether)
	defer cancel()
	select {
	case <-n.none:
	case <-ctx.Done():
	}
}

// awaitChange waits until a publish of the volume does not have to wait for a change of its disk, and
// reads v again. At the end of ctx it returns e.
func (s *Publisher) awaitChange(ctx context.Context, v *apiv1.AzVolume, e *beingChanged) error {
	waiting, cancel := context.WithTimeout(ctx, e.left)
	defer cancel()
	n := s.changing.join(e.node)
	err := s.Watch.Until(waiting, func() (bool, error) {
		current, err := kube.Find[apiv1.AzVolume](ctx, s.Client, s.Key(v.Name))
		return err == nil && (current == nil || disk.Holds(current, s.clock.Now()) == 0), err
	}, cluster.VolumeNamed(v.Name))
	if err == nil || errors.Is(err, context.DeadlineExceeded) {
		err = s.refresh(ctx, v)
	}
	s.changing.leave(e.node, n)
	// A cache that was behind has ended the wait too early. The caller waits again.
	if err == nil && disk.Holds(v, s.clock.Now()) == 0 {
		n.others(ctx)
		err = s.refresh(ctx, v)
	}
	if ctx.Err() != nil {
		return e
	}
	return err
}
