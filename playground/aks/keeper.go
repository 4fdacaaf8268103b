package aks

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
)

// Event is a maintenance event that Azure has announced to a VM.
type Event struct {
	Type      string    `json:"type"`
	NotBefore time.Time `json:"notBefore"`
}

// Settings of a node pool, as az aks nodepool sets them.
type Settings struct {
	Labels map[string]string `json:"labels,omitempty"`
	Taints []corev1.Taint    `json:"taints,omitempty"`
}

// Of reports whether a node has the settings.
func (s Settings) Of(node *corev1.Node) bool { return !configure(node.DeepCopy(), s) }

// ParseTaint reads a taint as in key=value:effect.
func ParseTaint(text string) (corev1.Taint, error) {
	rest, effect, ok := strings.Cut(text, ":")
	if !ok {
		return corev1.Taint{}, fmt.Errorf("read the taint %q: it must be key=value:effect", text)
	}
	key, value, _ := strings.Cut(rest, "=")
	return corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffect(effect)}, nil
}

// Keeper is AKS's controllers in and beside a cluster. Each of its looks repairs what is not as it
// should be.
type Keeper struct {
	Profile Profile
	Client  kubernetes.Interface
	// Events are the events of the node's VM.
	Events func(ctx context.Context, node string) ([]Event, error)
	// Pool are the settings of a node pool.
	Pool func(name string) Settings
	Log  *slog.Logger
}

// interval between two looks. AKS takes longer: it looks for a Freeze each minute.
const interval = time.Second

// Keep looks again and again until the context ends.
func (k *Keeper) Keep(ctx context.Context) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		if err := k.Look(ctx); err != nil && ctx.Err() == nil {
			k.Log.Warn("the cluster is not as AKS keeps it", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// Look looks once. What has changed meanwhile is left for the next look.
func (k *Keeper) Look(ctx context.Context) error {
	var failures []error
	for _, look := range []func(context.Context) error{k.keepStorageClasses, k.keepWebhooks, k.keepNodes} {
		if err := look(ctx); !apierrors.IsConflict(err) {
			failures = append(failures, err)
		}
	}
	return errors.Join(failures...)
}

// keepStorageClasses is the add-on manager with the mode EnsureExists.
func (k *Keeper) keepStorageClasses(ctx context.Context) error {
	classes, err := k.Profile.StorageClasses()
	if err != nil {
		return err
	}
	list, err := k.Client.StorageV1().StorageClasses().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, object := range classes {
		there := func(c storagev1.StorageClass) bool { return c.Name == object.GetName() }
		if slices.ContainsFunc(list.Items, there) {
			continue
		}
		class := &storagev1.StorageClass{}
		if err := convert(object, class); err != nil {
			return err
		}
		_, err := k.Client.StorageV1().StorageClasses().Create(ctx, class, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("create the StorageClass %s: %w", class.Name, err)
		}
	}
	return nil
}

func convert(object *unstructured.Unstructured, into any) error {
	return runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, into)
}

// enforcer is the manager of the fields that the admissions enforcer changes.
const enforcer = "admissionsenforcer"

// keepWebhooks is the admissions enforcer.
func (k *Keeper) keepWebhooks(ctx context.Context) error {
	client, options := k.Client.AdmissionregistrationV1(), metav1.UpdateOptions{FieldManager: enforcer}
	mutating, err := client.MutatingWebhookConfigurations().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, c := range mutating.Items {
		if restrictAll(c.ObjectMeta, c.Webhooks, mutatingSelector) {
			if _, err := client.MutatingWebhookConfigurations().Update(ctx, &c, options); err != nil {
				return err
			}
		}
	}
	validating, err := client.ValidatingWebhookConfigurations().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, c := range validating.Items {
		if restrictAll(c.ObjectMeta, c.Webhooks, validatingSelector) {
			if _, err := client.ValidatingWebhookConfigurations().Update(ctx, &c, options); err != nil {
				return err
			}
		}
	}
	return nil
}

func mutatingSelector(w *admissionv1.MutatingWebhook) **metav1.LabelSelector {
	return &w.NamespaceSelector
}

func validatingSelector(w *admissionv1.ValidatingWebhook) **metav1.LabelSelector {
	return &w.NamespaceSelector
}

// restriction is what the admissions enforcer adds to each webhook.
var restriction = []metav1.LabelSelectorRequirement{
	{Key: "control-plane", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"true"}},
	{Key: "kubernetes.azure.com/managedby", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"aks"}},
}

// restrictAll keeps the webhooks of a configuration out of AKS's namespaces, and reports whether it
// changed a selector.
func restrictAll[W any](meta metav1.ObjectMeta, webhooks []W, selector func(*W) **metav1.LabelSelector) bool {
	const disabled = "admissions.enforcer/disabled"
	if meta.Annotations[disabled] == "true" || meta.Labels[disabled] == "true" {
		return false
	}
	changed := false
	for i := range webhooks {
		changed = restrict(selector(&webhooks[i])) || changed
	}
	return changed
}

func restrict(selector **metav1.LabelSelector) bool {
	if *selector == nil {
		*selector = &metav1.LabelSelector{}
	}
	changed := false
	for _, r := range restriction {
		same := func(have metav1.LabelSelectorRequirement) bool {
			return have.Key == r.Key && have.Operator == r.Operator && slices.Equal(have.Values, r.Values)
		}
		if !slices.ContainsFunc((*selector).MatchExpressions, same) {
			(*selector).MatchExpressions = append((*selector).MatchExpressions, r)
			changed = true
		}
	}
	return changed
}

// keepNodes is the settings of the node pools, and the node problem detector.
func (k *Keeper) keepNodes(ctx context.Context) error {
	list, err := k.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range list.Items {
		node := &list.Items[i]
		if configure(node, k.Pool(node.Labels["kubernetes.azure.com/agentpool"])) {
			if node, err = k.Client.CoreV1().Nodes().Update(ctx, node, metav1.UpdateOptions{}); err != nil {
				return err
			}
		}
		events, err := k.Events(ctx, node.Name)
		if err != nil {
			return fmt.Errorf("events of %s: %w", node.Name, err)
		}
		if detect(node, events, metav1.Now()) {
			if _, err := k.Client.CoreV1().Nodes().UpdateStatus(ctx, node, metav1.UpdateOptions{}); err != nil {
				return err
			}
		}
	}
	return nil
}

// configure gives a node the labels and taints of its pool, and reports whether it lacked one.
func configure(node *corev1.Node, settings Settings) bool {
	changed := false
	for key, value := range settings.Labels {
		if node.Labels[key] != value {
			node.Labels = maps.Clone(node.Labels)
			node.Labels[key] = value
			changed = true
		}
	}
	for _, taint := range settings.Taints {
		if !has(node.Spec.Taints, taint) {
			node.Spec.Taints = append(node.Spec.Taints, taint)
			changed = true
		}
	}
	return changed
}

// healthy are the conditions of AKS's node problem detector besides VMEventScheduled: the type, the
// reason and the message while there is no problem.
var healthy = [][3]string{
	{"FilesystemCorruptionProblem", "FilesystemIsOK", "Filesystem is healthy"},
	{"KubeletProblem", "KubeletIsUp", "kubelet service is up"},
	{"ContainerRuntimeProblem", "ContainerRuntimeIsUp", "container runtime service is up"},
	{"FrequentUnregisterNetDevice", "NoFrequentUnregisterNetDevice", "node is functioning properly"},
	{"FrequentKubeletRestart", "NoFrequentKubeletRestart", "kubelet is functioning properly"},
	{"FrequentContainerdRestart", "NoFrequentContainerdRestart", "containerd is functioning properly"},
	{"FrequentDockerRestart", "NoFrequentDockerRestart", "docker is functioning properly"},
	{"KernelDeadlock", "KernelHasNoDeadlock", "kernel has no deadlock"},
	{"ReadonlyFilesystem", "FilesystemIsNotReadOnly", "Filesystem is not read-only"},
}

// vmEventScheduled is the condition of a node whose VM has an event.
const vmEventScheduled = "VMEventScheduled"

// detect sets the conditions of the node problem detector, and reports whether one has changed.
func detect(node *corev1.Node, events []Event, now metav1.Time) bool {
	wanted := corev1.NodeCondition{
		Type: vmEventScheduled, Status: corev1.ConditionFalse, Reason: "No" + vmEventScheduled,
		Message: "VM has no scheduled event",
	}
	var messages []string
	for _, e := range events {
		messages = append(messages, fmt.Sprintf("%s Scheduled: %s", e.Type, e.NotBefore.UTC().Format(time.RFC1123)))
	}
	if len(events) > 0 {
		wanted.Status, wanted.Reason, wanted.Message = corev1.ConditionTrue, vmEventScheduled, strings.Join(messages, "; ")
	}
	changed := setCondition(node, wanted, now)
	for _, h := range healthy {
		changed = setCondition(node, corev1.NodeCondition{
			Type: corev1.NodeConditionType(h[0]), Status: corev1.ConditionFalse, Reason: h[1], Message: h[2],
		}, now) || changed
	}
	return changed
}

func setCondition(node *corev1.Node, wanted corev1.NodeCondition, now metav1.Time) bool {
	wanted.LastHeartbeatTime, wanted.LastTransitionTime = now, now
	at := slices.IndexFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == wanted.Type })
	if at < 0 {
		node.Status.Conditions = append(node.Status.Conditions, wanted)
		return true
	}
	have := &node.Status.Conditions[at]
	if have.Status == wanted.Status && have.Message == wanted.Message {
		return false
	}
	if have.Status == wanted.Status {
		wanted.LastTransitionTime = have.LastTransitionTime
	}
	*have = wanted
	return true
}
