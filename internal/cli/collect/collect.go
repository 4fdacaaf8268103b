// Package collect reads the facts from which the command-line program answers. It reads with the rights of its
// caller, and takes note of what it may not read. For an explanation it reads objects by their names, and lists by
// selectors that few objects meet; of StorageClasses it may list all. For what-if, checks and lists it reads whole
// resources.
package collect

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cli/explain"
	"github.com/azuredisk-csi/azuredisk/internal/cluster"
	"github.com/azuredisk-csi/azuredisk/internal/kube"
	"github.com/azuredisk-csi/azuredisk/internal/plan/nodehealth"
)

// Options say what is asked.
type Options struct {
	Subject explain.Subject
	// DriverName is the CSI driver's, DriverNamespace the namespace of its objects.
	DriverName, DriverNamespace string
	// Now returns the API server's time. It is called after the first answer.
	Now func() time.Time
}

// NotFoundError is the error if there is no object that is asked about.
type NotFoundError struct{ What string }

// Error says what was not found.
func (e NotFoundError) Error() string { return "there is no " + e.What }

// collection is the work on one question.
type collection struct {
	*reader
	Options

	mu    sync.Mutex
	facts explain.Facts
	lists map[string]*podList
}

// Collect reads the facts about a subject. It fails if there is no such object, or if the API
// server cannot be reached.
func Collect(ctx context.Context, from client.Reader, options Options) (explain.Facts, error) {
	c := &collection{reader: &reader{Reader: from}, Options: options, lists: map[string]*podList{}}
	c.facts = explain.Facts{
		Subject:         options.Subject,
		DriverName:      options.DriverName,
		DriverNamespace: options.DriverNamespace,
		Nodes:           map[string]*explain.Node{},
	}
	err := c.subject(ctx)
	c.facts.Now = options.Now()
	slices.SortFunc(c.unread, func(a, b explain.Unread) int { return cmp.Compare(a.What, b.What) })
	c.facts.Unread = c.unread
	return c.facts, err
}

func (c *collection) subject(ctx context.Context) error {
	events := func(ctx context.Context) error { return c.events(ctx, c.Subject) }
	switch c.Subject.Kind {
	case explain.KindPod:
		return c.inTurn(ctx, together(c.pod, c.driver, events), c.placement, c.around)
	case explain.KindClaim:
		return c.inTurn(ctx, together(c.claim, c.driver, events), c.around)
	case explain.KindVolume:
		return c.inTurn(ctx, together(c.persistentVolume, c.driver), c.around)
	case explain.KindNode:
		return c.inTurn(ctx, together(c.node, c.driver, events))
	case explain.KindSnapshot:
		return c.inTurn(ctx, together(c.snapshot, c.driver))
	}
	return fmt.Errorf("cannot explain a %s", c.Subject.Kind)
}

type step func(context.Context) error

// inTurn takes steps one after the other.
func (c *collection) inTurn(ctx context.Context, steps ...step) error {
	for _, s := range steps {
		if err := s(ctx); err != nil {
			return err
		}
	}
	return nil
}

// together takes steps at once.
func together(steps ...step) step {
	return func(ctx context.Context) error {
		group, ctx := errgroup.WithContext(ctx)
		for _, s := range steps {
			group.Go(func() error { return s(ctx) })
		}
		return group.Wait()
	}
}

// driver reads the objects that show whether the driver's components run.
func (c *collection) driver(ctx context.Context) error {
	var deployments []*appsv1.Deployment
	err := together(
		func(ctx context.Context) (err error) {
			c.facts.Driver.CSIDriver, err = get[storagev1.CSIDriver](ctx, c.reader, explain.CSIDrivers, "", c.DriverName)
			return err
		},
		c.deployments(&deployments, c.DriverNamespace),
	)(ctx)
	if err != nil {
		return err
	}
	release := c.DriverNamespace
	if d := explain.DeploymentOf(deployments, explain.ControllerComponent, c.DriverName); d != nil {
		c.facts.Driver.Controller, release = d, d.Namespace
	}
	leases := map[string]*coordinationv1.Lease{}
	var mu sync.Mutex
	var steps []step
	for _, name := range explain.LeaseNames(c.DriverName) {
		steps = append(steps, func(ctx context.Context) error {
			lease, err := get[coordinationv1.Lease](ctx, c.reader, explain.Leases, release, name)
			mu.Lock()
			defer mu.Unlock()
			leases[name] = lease
			return err
		})
	}
	err = together(steps...)(ctx)
	c.facts.Driver.Leases = leases
	return err
}

// eventLimit bounds the events of one object.
const eventLimit = 200

// events reads those of one object. The events of a Node are in the namespace default.
func (c *collection) events(ctx context.Context, of explain.Subject) error {
	namespace := of.Namespace
	if namespace == "" {
		namespace = corev1.NamespaceDefault
	}
	var list corev1.EventList
	err := c.list(ctx, explain.EventResource, &list, client.InNamespace(namespace), client.Limit(eventLimit),
		client.MatchingFields{"involvedObject.kind": string(of.Kind), "involvedObject.name": of.Name})
	c.mu.Lock()
	defer c.mu.Unlock()
	c.facts.Events = append(c.facts.Events, list.Items...)
	return err
}

// node reads the subject, a node.
func (c *collection) node(ctx context.Context) error {
	if err := c.nodeNamed(ctx, c.Subject.Name); err != nil {
		return err
	}
	n := c.facts.Nodes[c.Subject.Name]
	if n.Node == nil && n.DriverNode == nil && !c.isUnread(explain.NodesResource) && !c.isUnread(explain.AzDriverNodes) {
		return NotFoundError{What: c.Subject.String()}
	}
	var attachments apiv1.AzVolumeAttachmentList
	if err := c.list(ctx, explain.AzAttachments, &attachments, client.InNamespace(c.DriverNamespace),
		client.MatchingFields{cluster.AttachmentNode: c.Subject.Name}); err != nil {
		return err
	}
	n.Attachments = kube.Pointers(attachments.Items)
	if !seemsLost(n) {
		return nil
	}
	return c.failover(ctx, c.Subject.Name, nil)
}

// seemsLost reports whether the pods of a node matter.
func seemsLost(n *explain.Node) bool {
	return n.DriverNode != nil && nodehealth.PublishedJudgement(n.DriverNode).State.LostOrDown()
}

// nodeNamed reads a node, once.
func (c *collection) nodeNamed(ctx context.Context, name string) error {
	c.mu.Lock()
	if name == "" || c.facts.Nodes[name] != nil {
		c.mu.Unlock()
		return nil
	}
	n := &explain.Node{}
	c.facts.Nodes[name] = n
	c.mu.Unlock()
	return together(
		func(ctx context.Context) (err error) {
			n.Node, err = get[corev1.Node](ctx, c.reader, explain.NodesResource, "", name)
			return err
		},
		func(ctx context.Context) (err error) {
			n.DriverNode, err = get[apiv1.AzDriverNode](ctx, c.reader, explain.AzDriverNodes, c.DriverNamespace, name)
			return err
		},
		func(ctx context.Context) (err error) {
			n.CSINode, err = get[storagev1.CSINode](ctx, c.reader, explain.CSINodes, "", name)
			return err
		},
	)(ctx)
}

// around reads what is around the volumes: their nodes, the pods there, and the failover of a lost
// one.
func (c *collection) around(ctx context.Context) error {
	var steps []step
	for _, v := range c.facts.Volumes {
		steps = append(steps, func(ctx context.Context) error { return c.aroundVolume(ctx, v) })
	}
	if p := c.facts.Pod; p != nil {
		steps = append(steps, func(ctx context.Context) error { return c.nodeNamed(ctx, p.Spec.NodeName) })
	}
	if err := together(steps...)(ctx); err != nil {
		return err
	}
	for _, v := range c.facts.Volumes {
		if p := v.Waiting(); p != nil && c.facts.Pod == nil {
			if err := c.events(ctx, explain.Subject{Kind: explain.KindPod, Namespace: p.Namespace, Name: p.Name}); err != nil {
				return err
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.facts.Nodes)) {
		if seemsLost(c.facts.Nodes[name]) {
			if err := c.failover(ctx, name, c.facts.Volumes); err != nil {
				return err
			}
			if err := c.events(ctx, explain.Subject{Kind: explain.KindNode, Name: name}); err != nil {
				return err
			}
		}
	}
	return nil
}
