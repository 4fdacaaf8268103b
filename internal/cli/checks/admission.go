package checks

import (
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cli/explain"
)

// Trial is a write that was tried without effect, in the driver's namespace.
type Trial struct {
	// What was to be written, as in "a lease".
	What string
	// Err is the answer; nil if the write would have succeeded.
	Err error
}

// trials judges the writes that were tried.
func (f Facts) trials() []problem {
	var found []problem
	for _, t := range f.Trials {
		switch {
		case t.Err == nil:
		case apierrors.IsBadRequest(t.Err): // by a webhook that has side effects
			found = append(found, problem{CannotTell, fmt.Sprintf("%s cannot be tried without effect: %s", t.What, t.Err)})
		default:
			found = append(found, failed("the API server refuses to write %s: %s", t.What, t.Err))
		}
	}
	return found
}

// hook is a webhook of either kind.
type hook struct {
	kind, configuration, name string
	namespaces, objects       *metav1.LabelSelector
	conditions                []admissionv1.MatchCondition
	rules                     []admissionv1.RuleWithOperations
	policy                    *admissionv1.FailurePolicyType
}

func (f Facts) hooks() []hook {
	var all []hook
	for _, c := range f.Validating {
		for _, w := range c.Webhooks {
			all = append(all, hook{"ValidatingWebhookConfiguration", c.Name, w.Name, w.NamespaceSelector, w.ObjectSelector,
				w.MatchConditions, w.Rules, w.FailurePolicy})
		}
	}
	for _, c := range f.Webhooks {
		if c.Labels[explain.LabelPartOf] == chart {
			continue
		}
		for _, w := range c.Webhooks {
			all = append(all, hook{"MutatingWebhookConfiguration", c.Name, w.Name, w.NamespaceSelector, w.ObjectSelector,
				w.MatchConditions, w.Rules, w.FailurePolicy})
		}
	}
	return all
}

// chart is the value of the label by which the chart marks its objects.
const chart = "azuredisk"

// written are the objects that the driver cannot do without, with their labels.
var written = []struct {
	group, resource string
	labels          labels.Set
}{
	{"coordination.k8s.io", "leases", nil},
	{apiv1.GroupName, "azvolumes", nil},
	{"", "events", nil},
	{"", "pods", labels.Set{explain.LabelPartOf: chart}},
}

// failClosed is in both registries.
var failClosed = Check{ID: "FailClosedWebhooks",
	Asks: "No webhook of others that fails closed is asked about the driver's leases, records, events or pods: while it does not " +
		"answer, no controller leads, and no failover happens.",
	Next: "exclude the driver's namespace from what is named (namespaceSelector), or let it fail open (failurePolicy: Ignore). " +
		"Conditions are not evaluated: one that names the namespace counts as an exclusion",
	needs: []string{Webhooks, Validating}, find: Facts.closed}

// closed lists the webhooks without whose answer the driver cannot write.
func (f Facts) closed() []problem {
	var found []problem
	for _, h := range f.hooks() {
		ignores := h.policy != nil && *h.policy == admissionv1.Ignore
		if ignores || !f.selects(h.namespaces) || f.excluded(h.conditions) {
			continue
		}
		var asked []string
		for _, w := range written {
			if matches(h.objects, w.labels) && slices.ContainsFunc(h.rules, func(r admissionv1.RuleWithOperations) bool {
				return ruledBy(r, w.group, w.resource)
			}) {
				asked = append(asked, w.resource)
			}
		}
		if len(asked) > 0 {
			found = append(found, warning("the webhook %s of %s %s fails closed, and is asked about %s", h.name, h.kind,
				h.configuration, strings.Join(asked, ", ")))
		}
	}
	return found
}

// ruledBy reports whether a rule is about writes of a resource.
func ruledBy(r admissionv1.RuleWithOperations, group, resource string) bool {
	has := func(list []string, names ...string) bool {
		return slices.ContainsFunc(list, func(s string) bool { return slices.Contains(names, s) })
	}
	writes := slices.ContainsFunc(r.Operations, func(o admissionv1.OperationType) bool {
		return o == admissionv1.OperationAll || o == admissionv1.Create || o == admissionv1.Update
	})
	return writes && has(r.APIGroups, "*", group) && has(r.Resources, "*", "*/*", resource) &&
		(r.Scope == nil || *r.Scope != admissionv1.ClusterScope)
}

// selects reports whether a selector of namespaces matches the driver's.
func (f Facts) selects(s *metav1.LabelSelector) bool {
	own := labels.Set{corev1.LabelMetadataName: f.DriverNamespace}
	if f.Namespace != nil {
		own = labels.Merge(own, f.Namespace.Labels)
	}
	return matches(s, own)
}

func matches(s *metav1.LabelSelector, own labels.Set) bool {
	if s == nil {
		return true
	}
	selector, err := metav1.LabelSelectorAsSelector(s)
	return err != nil || selector.Matches(own)
}

// excluded reports whether a condition names the driver's namespace: it is taken for one that excludes
// it.
func (f Facts) excluded(conditions []admissionv1.MatchCondition) bool {
	return slices.ContainsFunc(conditions, func(c admissionv1.MatchCondition) bool {
		return strings.Contains(c.Expression, "'"+f.DriverNamespace+"'") ||
			strings.Contains(c.Expression, `"`+f.DriverNamespace+`"`)
	})
}
