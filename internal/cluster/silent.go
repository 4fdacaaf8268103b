package cluster

import (
	"cmp"
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
)

// silentNodes knows from the cache which nodes do not say which volumes they use: those without an
// AzDriverNode, or with one whose node plug-in has not scanned the node's mounts. It saves a list
// of all nodes.
type silentNodes struct {
	synced []toolscache.InformerSynced

	mu    sync.Mutex
	nodes map[string]facts
	// silent counts the nodes whose report does not speak.
	silent int
}

// facts say which objects a node has, and whether its report speaks.
type facts struct{ node, report, speaks bool }

func (f facts) silent() int {
	if f.speaks || f == (facts{}) {
		return 0
	}
	return 1
}

func newSilentNodes(ctx context.Context, informers cache.Informers) (*silentNodes, error) {
	s := &silentNodes{nodes: map[string]facts{}}
	nodes, err := OnChange(ctx, informers, &corev1.Node{}, func(before, after *corev1.Node) {
		s.note(cmp.Or(after, before).Name, func(f *facts) { f.node = after != nil })
	})
	if err != nil {
		return nil, err
	}
	reports, err := OnChange(ctx, informers, &apiv1.AzDriverNode{}, func(before, after *apiv1.AzDriverNode) {
		speaks := after != nil && ownership.ReportedUse(&apiv1.AzVolume{}, after) == ""
		s.note(cmp.Or(after, before).Name, func(f *facts) { f.report, f.speaks = after != nil, speaks })
	})
	s.synced = append(s.synced, nodes, reports)
	return s, err
}

func (s *silentNodes) note(name string, change func(*facts)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.nodes[name]
	s.silent -= f.silent()
	change(&f)
	s.silent += f.silent()
	if s.nodes[name] = f; f == (facts{}) {
		delete(s.nodes, name)
	}
}

// any reports whether there may be a silent node. A nil silentNodes knows nothing.
func (s *silentNodes) any() bool {
	if s == nil {
		return true
	}
	for _, synced := range s.synced {
		if !synced() {
			return true
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.silent > 0
}
