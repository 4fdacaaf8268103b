package cluster

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
)

// silentNodes knows from the cache which nodes do not say which volumes they use: those without an
// AzDriverNode, or with one whose node plug-in has not scanned the node's mounts. It saves a list
// of all nodes.
type silentNodes struct {
	synced []func() bool

	mu sync.Mutex
	// nodes says of each node whether its report speaks, and silent has the nodes whose report does
	// not.
	nodes  map[string]facts
	silent map[string]struct{}
}

type facts struct{ node, report, speaks bool }

func newSilentNodes(ctx context.Context, informers cache.Informers) (*silentNodes, error) {
	s := &silentNodes{nodes: map[string]facts{}, silent: map[string]struct{}{}}
	for _, kind := range []struct {
		object client.Object
		note   func(f *facts, o client.Object, exists bool)
	}{
		{&corev1.Node{}, func(f *facts, _ client.Object, exists bool) { f.node = exists }},
		{&apiv1.AzDriverNode{}, func(f *facts, o client.Object, exists bool) {
			d, ok := o.(*apiv1.AzDriverNode)
			f.report, f.speaks = exists, exists && ok && ownership.ReportedUse(&apiv1.AzVolume{}, d) == ""
		}},
	} {
		informer, err := informers.GetInformer(ctx, kind.object)
		if err != nil {
			return nil, fmt.Errorf("get informer of %T: %w", kind.object, err)
		}
		registration, err := informer.AddEventHandler(s.handler(kind.note))
		if err != nil {
			return nil, fmt.Errorf("watch %T: %w", kind.object, err)
		}
		s.synced = append(s.synced, registration.HasSynced)
	}
	return s, nil
}

func (s *silentNodes) handler(note func(f *facts, o client.Object, exists bool)) toolscache.ResourceEventHandler {
	change := func(changed any, exists bool) {
		if gone, ok := changed.(toolscache.DeletedFinalStateUnknown); ok {
			changed = gone.Obj
		}
		o, ok := changed.(client.Object)
		if !ok {
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		f := s.nodes[o.GetName()]
		note(&f, o, exists)
		s.nodes[o.GetName()] = f
		if delete(s.silent, o.GetName()); !f.speaks {
			s.silent[o.GetName()] = struct{}{}
		}
		if !f.node && !f.report {
			delete(s.nodes, o.GetName())
			delete(s.silent, o.GetName())
		}
	}
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { change(o, true) },
		UpdateFunc: func(_, o any) { change(o, true) },
		DeleteFunc: func(o any) { change(o, false) },
	}
}

// any reports whether there may be such a node. A nil silentNodes knows nothing.
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
	return len(s.silent) > 0
}
