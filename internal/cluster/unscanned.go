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

// unscannedNodes knows from the cache which nodes do not say which volumes they use: those without
// an AzDriverNode, or with one whose node plug-in has not scanned the node's mounts. It saves a
// list of all nodes.
type unscannedNodes struct {
	synced []toolscache.InformerSynced

	mu    sync.Mutex
	nodes map[string]facts
	// unscanned counts the nodes that are unscanned.
	unscanned int
}

// facts say which objects a node has, and whether its mounts were scanned.
type facts struct{ node, report, scanned bool }

func (f facts) unscanned() int {
	if f.scanned || f == (facts{}) {
		return 0
	}
	return 1
}

func newUnscannedNodes(ctx context.Context, informers cache.Informers) (*unscannedNodes, error) {
	s := &unscannedNodes{nodes: map[string]facts{}}
	nodes, err := OnChange(ctx, informers, &corev1.Node{}, func(before, after *corev1.Node) {
		s.note(cmp.Or(after, before).Name, func(f *facts) { f.node = after != nil })
	})
	if err != nil {
		return nil, err
	}
	reports, err := OnChange(ctx, informers, &apiv1.AzDriverNode{}, func(before, after *apiv1.AzDriverNode) {
		scanned := after != nil && ownership.ReportedUse(&apiv1.AzVolume{}, after) == ""
		s.note(cmp.Or(after, before).Name, func(f *facts) { f.report, f.scanned = after != nil, scanned })
	})
	s.synced = append(s.synced, nodes, reports)
	return s, err
}

func (s *unscannedNodes) note(name string, change func(*facts)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.nodes[name]
	s.unscanned -= f.unscanned()
	change(&f)
	s.unscanned += f.unscanned()
	if s.nodes[name] = f; f == (facts{}) {
		delete(s.nodes, name)
	}
}

// any reports whether there may be an unscanned node. A nil unscannedNodes knows nothing.
func (s *unscannedNodes) any() bool {
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
	return s.unscanned > 0
}
