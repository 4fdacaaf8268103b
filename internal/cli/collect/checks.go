package collect

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cli/checks"
	"github.com/azuredisk-csi/azuredisk/internal/cli/explain"
	"github.com/azuredisk-csi/azuredisk/internal/kube"
)

// CheckOptions say what is checked.
type CheckOptions struct {
	// DriverName is the CSI driver's, DriverNamespace the namespace of its objects.
	DriverName, DriverNamespace string
	// Program is the version of the program that asks.
	Program string
	// Now returns the API server's time. It is called after the first answer.
	Now func() time.Time
	// Writer is used for writes without effect (dry run) only.
	Writer client.Writer
	// Kubernetes asks for the version of the API server.
	Kubernetes func(context.Context) (string, error)
}

func (o CheckOptions) facts() checks.Facts {
	return checks.Facts{DriverName: o.DriverName, DriverNamespace: o.DriverNamespace, Program: o.Program}
}

// ofChart selects the objects of the driver's chart.
var ofChart = client.MatchingLabels{explain.LabelPartOf: "azuredisk"}

// Installation reads with eighteen requests what the checks of an installation need, and tries two
// writes without effect.
func Installation(ctx context.Context, from client.Reader, o CheckOptions) (checks.Facts, error) {
	r, f, ours := &reader{Reader: from}, o.facts(), client.InNamespace(o.DriverNamespace)
	err := together(
		r.csiDriver(&f),
		listInto(r, explain.NodesResource, &corev1.NodeList{}, &f.Nodes),
		r.definitions(&f),
		r.deployments(&f.Deployments, o.DriverNamespace),
		listInto(r, checks.DaemonSets, &appsv1.DaemonSetList{}, &f.DaemonSets, ofChart),
		r.webhooks(&f),
		r.namespace(&f),
		r.try(&f, o.Writer),
		listInto(r, explain.CSINodes, &storagev1.CSINodeList{}, &f.CSINodes),
		listInto(r, explain.Volumes, &corev1.PersistentVolumeList{}, &f.PersistentVolumes),
		listInto(r, explain.Attachments, &storagev1.VolumeAttachmentList{}, &f.VolumeAttachments),
		listInto(r, explain.AzDriverNodes, &apiv1.AzDriverNodeList{}, &f.DriverNodes, ours),
		listInto(r, explain.AzVolumes, &apiv1.AzVolumeList{}, &f.Volumes, ours),
		listInto(r, explain.AzAttachments, &apiv1.AzVolumeAttachmentList{}, &f.Attachments, ours),
		listInto(r, explain.EventResource, &corev1.EventList{}, &f.Refusals,
			client.MatchingFields{"reason": apiv1.ReasonWriteRefused}, client.Limit(eventLimit)),
	)(ctx)
	if err != nil {
		return f, err
	}
	release := client.InNamespace(o.DriverNamespace)
	if d := f.Deployment(explain.ControllerComponent); d != nil {
		release = client.InNamespace(d.Namespace)
	}
	err = together(
		listInto(r, explain.Leases, &coordinationv1.LeaseList{}, &f.Leases, release),
		listInto(r, checks.Slices, &discoveryv1.EndpointSliceList{}, &f.Slices, release),
		listInto(r, explain.EventResource, &corev1.EventList{}, &f.Uncreated, release,
			client.MatchingFields{"reason": "FailedCreate"}, client.Limit(eventLimit)),
	)(ctx)
	f.Now, f.Unread = o.Now(), r.unread
	return f, err
}

// Cluster reads with eleven requests, and one for each kind of constraint of Gatekeeper that matters,
// what the checks before an installation need.
func Cluster(ctx context.Context, from client.Reader, o CheckOptions) (checks.Facts, error) {
	r, f := &reader{Reader: from}, o.facts()
	var pods []*corev1.Pod
	err := together(
		r.kubernetes(&f, o),
		r.csiDriver(&f),
		listInto(r, explain.NodesResource, &corev1.NodeList{}, &f.Nodes),
		r.definitions(&f),
		listInto(r, explain.Attachments, &storagev1.VolumeAttachmentList{}, &f.VolumeAttachments),
		listInto(r, explain.AllPods, &corev1.PodList{}, &pods),
		listInto(r, checks.Policies, &admissionv1.ValidatingAdmissionPolicyList{}, &f.Policies),
		listInto(r, checks.Bindings,
			&admissionv1.ValidatingAdmissionPolicyBindingList{}, &f.Bindings),
		r.webhooks(&f),
		r.namespace(&f),
	)(ctx)
	if err != nil {
		return f, err
	}
	f.Pods = slices.DeleteFunc(pods, ended)
	err = r.constraints(ctx, &f)
	f.Now, f.Unread = o.Now(), r.unread
	return f, err
}

// Versions reads with three requests which versions there are. If the cluster does not answer, Unread says
// so.
func Versions(ctx context.Context, from client.Reader, o CheckOptions) checks.Facts {
	r, f := &reader{Reader: from}, o.facts()
	err := together(
		r.kubernetes(&f, o),
		r.deployments(&f.Deployments, o.DriverNamespace),
		listInto(r, explain.AzDriverNodes, &apiv1.AzDriverNodeList{}, &f.DriverNodes, client.InNamespace(o.DriverNamespace)),
	)(ctx)
	if err != nil {
		r.unread = append(r.unread, unread(checks.ServerVersion, err))
	}
	f.Now, f.Unread = o.Now(), r.unread
	return f
}

func (r *reader) kubernetes(f *checks.Facts, o CheckOptions) step {
	return func(ctx context.Context) (err error) {
		f.Kubernetes, err = o.Kubernetes(ctx)
		return r.missed(checks.ServerVersion, err)
	}
}

func (r *reader) csiDriver(f *checks.Facts) step {
	return func(ctx context.Context) (err error) {
		f.CSIDriver, err = get[storagev1.CSIDriver](ctx, r, explain.CSIDrivers, "", f.DriverName)
		return err
	}
}

func (r *reader) namespace(f *checks.Facts) step {
	return func(ctx context.Context) (err error) {
		f.Namespace, err = get[corev1.Namespace](ctx, r, checks.NamespaceOfChart, "", f.DriverNamespace)
		return err
	}
}

func (r *reader) webhooks(f *checks.Facts) step {
	return together(
		listInto(r, checks.Webhooks, &admissionv1.MutatingWebhookConfigurationList{}, &f.Webhooks),
		listInto(r, checks.Validating, &admissionv1.ValidatingWebhookConfigurationList{}, &f.Validating),
	)
}

// deployments reads those of the chart: of all namespaces, or, with one more request if that is not
// allowed, of the driver's namespace.
func (r *reader) deployments(into *[]*appsv1.Deployment, namespace string) step {
	return func(ctx context.Context) error {
		var list appsv1.DeploymentList
		err := r.List(ctx, &list, ofChart)
		if apierrors.IsForbidden(err) {
			err = r.List(ctx, &list, ofChart, client.InNamespace(namespace))
		}
		*into = kube.Pointers(list.Items)
		return r.missed(explain.Deployments, err)
	}
}

func (r *reader) definitions(f *checks.Facts) step {
	return listInto(r, checks.Definitions, &apiextensionsv1.CustomResourceDefinitionList{},
		&f.Definitions)
}

// constraintOfHost are the kinds of constraints about privileged pods and the host.
var constraintOfHost = regexp.MustCompile(`(?i)privilege|host`)

// mostConstraints bounds the kinds of constraints that are read.
const mostConstraints = 12

// constraints reads the constraints of Gatekeeper that may refuse the node plug-in.
func (r *reader) constraints(ctx context.Context, f *checks.Facts) error {
	kinds := 0
	for _, d := range f.Definitions {
		if d.Spec.Group != constraintGroup || !constraintOfHost.MatchString(d.Spec.Names.Kind) || kinds == mostConstraints {
			continue
		}
		kinds++
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(schema.GroupVersionKind{
			Group: constraintGroup, Version: d.Spec.Versions[0].Name, Kind: d.Spec.Names.Kind + "List",
		})
		if err := r.list(ctx, checks.Constraints, list); err != nil {
			return err
		}
		for _, o := range list.Items {
			c := checks.Constraint{Kind: o.GetKind(), Name: o.GetName()}
			c.Action, _, _ = unstructured.NestedString(o.Object, "spec", "enforcementAction")
			c.Action = strings.ToLower(c.Action)
			c.Excluded, _, _ = unstructured.NestedStringSlice(o.Object, "spec", "match", "excludedNamespaces")
			c.Only, _, _ = unstructured.NestedStringSlice(o.Object, "spec", "match", "namespaces")
			f.Constraints = append(f.Constraints, c)
		}
	}
	return nil
}
