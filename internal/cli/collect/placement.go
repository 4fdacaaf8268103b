package collect

import (
	"context"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/azuredisk-csi/azuredisk/internal/cli/explain"
)

// mostTerms bounds the alternatives that are asked for. A volume has one for each zone, and pods
// have few.
const mostTerms = 8

// placement finds out, for a pod without a node, whether the cluster has nodes for its volumes, and
// whether the pod's own selectors leave one of them.
func (c *collection) placement(ctx context.Context) error {
	p := c.facts.Pod
	if p.Spec.NodeName != "" {
		return nil
	}
	var steps []step
	for _, v := range c.facts.Volumes {
		if v.PersistentVolume == nil || v.PersistentVolume.Spec.NodeAffinity == nil ||
			v.PersistentVolume.Spec.NodeAffinity.Required == nil {
			continue
		}
		steps = append(steps, func(ctx context.Context) error { return c.reachability(ctx, p, v) })
	}
	return together(steps...)(ctx)
}

func (c *collection) reachability(ctx context.Context, p *corev1.Pod, v *explain.Volume) error {
	volume, exact := selectors(v.PersistentVolume.Spec.NodeAffinity.Required)
	if !exact {
		return nil
	}
	found := &explain.Reachability{Rule: rule(volume)}
	var err error
	if found.Nodes, err = c.any(ctx, volume); err != nil {
		return err
	}
	if !found.Nodes {
		if !c.isUnread(explain.NodesResource) {
			v.Reachability = found
		}
		return nil
	}
	own := []labels.Selector{labels.SelectorFromSet(p.Spec.NodeSelector)}
	if a := p.Spec.Affinity; a != nil && a.NodeAffinity != nil &&
		a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		terms, exact := selectors(a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution)
		if !exact {
			return nil
		}
		own = both(own, terms)
	}
	combined := both(volume, own)
	if len(combined) > mostTerms {
		return nil
	}
	if found.Selected, err = c.any(ctx, combined); err == nil {
		v.Reachability = found
	}
	return err
}

// any reports whether a node meets one of the selectors.
func (c *collection) any(ctx context.Context, all []labels.Selector) (bool, error) {
	for _, selector := range all {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NodeList"))
		if err := c.list(ctx, explain.NodesResource, list, client.MatchingLabelsSelector{Selector: selector},
			client.Limit(1)); err != nil {
			return false, err
		}
		if len(list.Items) > 0 {
			return true, nil
		}
	}
	return false, nil
}

// selectors returns the terms of a node selector as selectors of labels. exact is false if one of
// them is more than that: it compares numbers or names.
func selectors(s *corev1.NodeSelector) (all []labels.Selector, exact bool) {
	operators := map[corev1.NodeSelectorOperator]selection.Operator{
		corev1.NodeSelectorOpIn:           selection.In,
		corev1.NodeSelectorOpNotIn:        selection.NotIn,
		corev1.NodeSelectorOpExists:       selection.Exists,
		corev1.NodeSelectorOpDoesNotExist: selection.DoesNotExist,
	}
	if len(s.NodeSelectorTerms) > mostTerms {
		return nil, false
	}
	for _, term := range s.NodeSelectorTerms {
		if len(term.MatchFields) > 0 {
			return nil, false
		}
		selector := labels.NewSelector()
		for _, e := range term.MatchExpressions {
			operator, ok := operators[e.Operator]
			if !ok {
				return nil, false
			}
			r, err := labels.NewRequirement(e.Key, operator, e.Values)
			if err != nil {
				return nil, false
			}
			selector = selector.Add(*r)
		}
		if len(term.MatchExpressions) > 0 { // a term without anything matches no node
			all = append(all, selector)
		}
	}
	return all, true
}

// both returns the selectors that require one of a and one of b.
func both(a, b []labels.Selector) []labels.Selector {
	var all []labels.Selector
	for _, x := range a {
		for _, y := range b {
			requirements, _ := y.Requirements()
			all = append(all, x.DeepCopySelector().Add(requirements...))
		}
	}
	return all
}

// rule is a text for selectors.
func rule(all []labels.Selector) string {
	texts := make([]string, 0, len(all))
	for _, s := range all {
		texts = append(texts, s.String())
	}
	return strings.Join(texts, " or ")
}
