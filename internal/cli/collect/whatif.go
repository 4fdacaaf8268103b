package collect

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cli/explain"
	"github.com/azuredisk-csi/azuredisk/internal/cli/whatif"
	"github.com/azuredisk-csi/azuredisk/internal/cluster"
)

// WhatIfOptions say what is asked.
type WhatIfOptions struct {
	// Subject is what is gone, a node or a zone.
	Subject explain.Subject
	// Drained asks for a drain, and not for a loss.
	Drained bool
	// DriverName is the CSI driver's, DriverNamespace the namespace of its objects.
	DriverName, DriverNamespace string
	// Now returns the API server's time. It is called after the first answer.
	Now func() time.Time
}

// WhatIf reads with nine requests what decides where the pods of a node or of a zone would go.
func WhatIf(ctx context.Context, from client.Reader, o WhatIfOptions) (whatif.Facts, error) {
	r := &reader{Reader: from}
	f := whatif.Facts{DriverName: o.DriverName, Drained: o.Drained, Namespaces: map[string]labels.Set{}}
	var namespaces []*corev1.Namespace
	var deployments []*appsv1.Deployment
	ours := client.InNamespace(o.DriverNamespace)
	err := together(
		listInto(r, explain.NodesResource, &corev1.NodeList{}, &f.Nodes),
		listInto(r, explain.AzDriverNodes, &apiv1.AzDriverNodeList{}, &f.DriverNodes, ours),
		listInto(r, explain.AllPods, &corev1.PodList{}, &f.Pods),
		listInto(r, explain.Claims, &corev1.PersistentVolumeClaimList{}, &f.Claims),
		listInto(r, explain.Volumes, &corev1.PersistentVolumeList{}, &f.PersistentVolumes),
		listInto(r, explain.AzVolumes, &apiv1.AzVolumeList{}, &f.Volumes, ours),
		listInto(r, explain.AzAttachments, &apiv1.AzVolumeAttachmentList{}, &f.Attachments, ours),
		listInto(r, namespacesResource, &corev1.NamespaceList{}, &namespaces),
		r.deployments(&deployments, o.DriverNamespace),
	)(ctx)
	if err = errors.Join(err, r.needed(explain.NodesResource, explain.AzDriverNodes, explain.AllPods, explain.Claims,
		explain.Volumes, explain.AzVolumes, explain.AzAttachments)); err != nil {
		return f, err
	}
	for _, n := range namespaces {
		f.Namespaces[n.Name] = n.Labels
	}
	for _, pv := range f.PersistentVolumes {
		if in := pv.Spec.AzureDisk; in != nil {
			pv.Spec.CSI = cluster.AsCSI(in)
		}
	}
	f.Now, f.Unread = o.Now(), r.unread
	f.Controller = explain.DeploymentOf(deployments, explain.ControllerComponent, o.DriverName)
	f.Unsteered = explain.DeploymentOf(deployments, "scheduler", o.DriverName) == nil && !r.isUnread(explain.Deployments)
	f.Pods = slices.DeleteFunc(f.Pods, ended)
	return f, o.choose(&f)
}

// namespacesResource is the resource, as explain.Unread names it.
const namespacesResource = "namespaces"

// choose finds the nodes that are asked about.
func (o WhatIfOptions) choose(f *whatif.Facts) error {
	f.Subject = o.Subject
	zones := map[string]string{}
	for _, d := range f.DriverNodes {
		zones[d.Name] = d.Spec.Zone
	}
	for _, n := range f.Nodes {
		gone := n.Name == f.Subject.Name
		if f.Subject.Kind == whatif.KindZone {
			gone = strings.EqualFold(n.Labels[corev1.LabelTopologyZone], f.Subject.Name) || zones[n.Name] == f.Subject.Name
		}
		if gone {
			f.Gone = append(f.Gone, n.Name)
		}
	}
	if len(f.Gone) == 0 {
		return NotFoundError{What: f.Subject.String()}
	}
	return nil
}
