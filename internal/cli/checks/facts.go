package checks

import (
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

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cli/explain"
)

// Facts are the objects that the checks are about, as they were read.
type Facts struct {
	// Now is the API server's time.
	Now time.Time
	// DriverName is the CSI driver's, DriverNamespace the namespace of its objects.
	DriverName, DriverNamespace string
	// Program is the version of the program that asks, and Kubernetes that of the API server, as in
	// "v1.37.2"; "" if it is not known.
	Program, Kubernetes string

	CSIDriver   *storagev1.CSIDriver
	Definitions []*apiextensionsv1.CustomResourceDefinition
	// Deployments and DaemonSets are those of the driver's chart.
	Deployments []*appsv1.Deployment
	DaemonSets  []*appsv1.DaemonSet
	// Leases and Slices are those of the driver's release.
	Leases []*coordinationv1.Lease
	Slices []*discoveryv1.EndpointSlice
	// Webhooks and Validating are those of the cluster.
	Webhooks   []*admissionv1.MutatingWebhookConfiguration
	Validating []*admissionv1.ValidatingWebhookConfiguration
	// Namespace is the driver's, or the one in which it would run; nil if it does not exist.
	Namespace *corev1.Namespace
	// Trials are writes that were tried in an installation.
	Trials []Trial

	Nodes             []*corev1.Node
	CSINodes          []*storagev1.CSINode
	PersistentVolumes []*corev1.PersistentVolume
	VolumeAttachments []*storagev1.VolumeAttachment
	DriverNodes       []*apiv1.AzDriverNode
	Volumes           []*apiv1.AzVolume
	Attachments       []*apiv1.AzVolumeAttachment
	// Refusals are the events about writes of the driver that the cluster has refused.
	Refusals []*corev1.Event
	// Uncreated are the events about pods of the driver's namespace that the cluster did not create.
	Uncreated []*corev1.Event

	// Pods and what follows are read only before an installation. Pods are those in the network of
	// their node, or with ports there.
	Pods     []*corev1.Pod
	Policies []*admissionv1.ValidatingAdmissionPolicy
	Bindings []*admissionv1.ValidatingAdmissionPolicyBinding
	// Constraints are Gatekeeper's about privileged pods and the host.
	Constraints []Constraint

	Unread []explain.Unread
}

// Constraint is a constraint of Gatekeeper.
type Constraint struct {
	Kind, Name string
	// Action is its enforcementAction; "" is deny.
	Action string
	// Excluded are the namespaces that it does not apply to, and Only those that it applies to; all
	// if there are none.
	Excluded, Only []string
}

// The resources, as Unread names them, beside those of package explain.
const (
	Definitions      = "customresourcedefinitions.apiextensions.k8s.io"
	DaemonSets       = "daemonsets.apps"
	Slices           = "endpointslices.discovery.k8s.io"
	Webhooks         = "mutatingwebhookconfigurations.admissionregistration.k8s.io"
	Validating       = "validatingwebhookconfigurations.admissionregistration.k8s.io"
	TrialWrites      = "trial writes"
	Policies         = "validatingadmissionpolicies.admissionregistration.k8s.io"
	Bindings         = "validatingadmissionpolicybindings.admissionregistration.k8s.io"
	Constraints      = "constraints.gatekeeper.sh"
	NamespaceOfChart = "namespaces"
	ServerVersion    = "version"
)

// Deployment returns the Deployment of a component of the chart, nil if there is none.
func (f Facts) Deployment(of string) *appsv1.Deployment {
	return explain.DeploymentOf(f.Deployments, of, f.DriverName)
}

// nodePlugins are the DaemonSets of the node plug-in.
func (f Facts) nodePlugins() []*appsv1.DaemonSet {
	var found []*appsv1.DaemonSet
	for _, d := range f.DaemonSets {
		if strings.HasPrefix(d.Labels[explain.LabelComponent], "node") && explain.IsDrivers(d.Spec.Template.Spec, f.DriverName) {
			found = append(found, d)
		}
	}
	return found
}

func (f Facts) node(name string) *corev1.Node {
	i := slices.IndexFunc(f.Nodes, func(n *corev1.Node) bool { return n.Name == name })
	if i < 0 {
		return nil
	}
	return f.Nodes[i]
}

func (f Facts) definition(plural string) *apiextensionsv1.CustomResourceDefinition {
	i := slices.IndexFunc(f.Definitions, func(d *apiextensionsv1.CustomResourceDefinition) bool { return d.Name == plural })
	if i < 0 {
		return nil
	}
	return f.Definitions[i]
}

func (f Facts) attachRequired() bool {
	return f.CSIDriver != nil && (f.CSIDriver.Spec.AttachRequired == nil || *f.CSIDriver.Spec.AttachRequired)
}
