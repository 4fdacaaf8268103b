package collect

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/yaml"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cli/explain"
	"github.com/azuredisk-csi/azuredisk/internal/cluster"
	"github.com/azuredisk-csi/azuredisk/internal/plan/claimstatus"
)

const (
	// mostReports, mostLogs and mostEvents bound a bundle, whatever the size of the cluster.
	mostReports = 50
	mostLogs    = 50
	mostEvents  = 2000
)

// BundleOptions say what a bundle has.
type BundleOptions struct {
	// DriverName is the CSI driver's, DriverNamespace the namespace of its objects.
	DriverName, DriverNamespace string
	// Now returns the API server's time. It is called after the first answer.
	Now func() time.Time
	// Log reads the end of the log of a container, or of the one before it.
	Log func(ctx context.Context, pod *corev1.Pod, container string, previous bool) ([]byte, error)
	// Subscriptions keeps the IDs of subscriptions and tenants.
	Subscriptions bool
}

// File is a file of a bundle.
type File struct {
	Name    string
	Content []byte
}

// bundle is a bundle while it is collected.
type bundle struct {
	*reader
	BundleOptions
	files []File
	// failed has what could not be read for another reason than rights.
	failed []error

	volumes     apiv1.AzVolumeList
	attachments apiv1.AzVolumeAttachmentList
	nodes       apiv1.AzDriverNodeList
	pods        corev1.PodList
	claims      []corev1.PersistentVolumeClaim
}

// Bundle collects what the driver's support needs: the driver's objects, the objects of Kubernetes
// that belong to its volumes and nodes, events, what is wrong with volumes and nodes, and the logs of the
// driver's pods. Secrets are removed from each file; objects of kind Secret are not read. What cannot
// be read is left out, and named in the file contents.txt. Errors: nothing could be read.
func Bundle(ctx context.Context, from client.Reader, options BundleOptions) ([]File, error) {
	b := &bundle{reader: &reader{Reader: from}, BundleOptions: options}
	b.driverObjects(ctx)
	b.storage(ctx)
	b.workloads(ctx)
	b.events(ctx)
	b.reports(ctx)
	if len(b.files) == 0 && len(b.failed) > 0 {
		return nil, errors.Join(b.failed...)
	}
	b.logs(ctx)
	b.contents()
	redact(b.files, options.Subscriptions)
	return b.files, nil
}

// need lists objects. If that fails, the list stays empty and the failure is noted.
func (b *bundle) need(ctx context.Context, what string, into client.ObjectList, options ...client.ListOption) {
	b.note(b.list(ctx, what, into, options...))
}

func (b *bundle) note(err error) {
	if err != nil {
		b.failed = append(b.failed, err)
	}
}

// add adds a file with objects, unless there are none.
func add[T any, Object interface {
	*T
	client.Object
}](b *bundle, name string, objects []T, trim ...func(Object)) {
	var file bytes.Buffer
	for i := range objects {
		o := Object(&objects[i])
		o.SetManagedFields(nil)
		annotations := o.GetAnnotations()
		delete(annotations, corev1.LastAppliedConfigAnnotation)
		o.SetAnnotations(annotations)
		for _, t := range trim {
			t(o)
		}
		kind, err := apiutil.GVKForObject(o, scheme())
		b.note(err)
		o.GetObjectKind().SetGroupVersionKind(kind)
		text, err := yaml.Marshal(o)
		b.note(err)
		file.WriteString("---\n")
		file.Write(text)
	}
	if len(objects) > 0 {
		b.files = append(b.files, File{Name: "objects/" + name + ".yaml", Content: file.Bytes()})
	}
}

func (b *bundle) driverObjects(ctx context.Context) {
	here := client.InNamespace(b.DriverNamespace)
	b.need(ctx, explain.AzVolumes, &b.volumes, here)
	b.need(ctx, explain.AzAttachments, &b.attachments, here)
	b.need(ctx, explain.AzDriverNodes, &b.nodes, here)
	add(b, "azvolumes", b.volumes.Items)
	add(b, "azvolumeattachments", b.attachments.Items)
	add(b, "azdrivernodes", b.nodes.Items)
}

// storage adds what belongs to the driver's volumes and nodes.
func (b *bundle) storage(ctx context.Context) {
	driver, err := get[storagev1.CSIDriver](ctx, b.reader, explain.CSIDrivers, "", b.DriverName)
	if b.note(err); driver != nil {
		add(b, "csidriver", []storagev1.CSIDriver{*driver})
	}
	var classes storagev1.StorageClassList
	b.need(ctx, explain.Classes, &classes)
	ours := slices.DeleteFunc(classes.Items, func(c storagev1.StorageClass) bool { return c.Provisioner != b.DriverName })
	add(b, "storageclasses", ours)

	var volumes corev1.PersistentVolumeList
	b.need(ctx, explain.Volumes, &volumes)
	bound := map[string]bool{}
	volumes.Items = slices.DeleteFunc(volumes.Items, func(pv corev1.PersistentVolume) bool {
		return cluster.VolumeOf(&pv, b.DriverName) == ""
	})
	for i := range volumes.Items {
		for _, claim := range cluster.PersistentVolumeClaimKeys(&volumes.Items[i]) {
			bound[claim] = true
		}
	}
	add(b, "persistentvolumes", volumes.Items)
	var claims corev1.PersistentVolumeClaimList
	b.need(ctx, explain.Claims, &claims)
	b.claims = slices.DeleteFunc(claims.Items, func(c corev1.PersistentVolumeClaim) bool {
		pending := c.Spec.VolumeName == "" && slices.ContainsFunc(ours, func(class storagev1.StorageClass) bool {
			return c.Spec.StorageClassName != nil && *c.Spec.StorageClassName == class.Name
		})
		return !pending && !bound[c.Namespace+"/"+c.Name]
	})
	add(b, "persistentvolumeclaims", b.claims)
	var attachments storagev1.VolumeAttachmentList
	b.need(ctx, explain.Attachments, &attachments)
	add(b, "volumeattachments", slices.DeleteFunc(attachments.Items, func(a storagev1.VolumeAttachment) bool {
		return a.Spec.Attacher != b.DriverName
	}))

	var csiNodes storagev1.CSINodeList
	b.need(ctx, explain.CSINodes, &csiNodes)
	csiNodes.Items = slices.DeleteFunc(csiNodes.Items, func(n storagev1.CSINode) bool {
		return !slices.ContainsFunc(n.Spec.Drivers, func(d storagev1.CSINodeDriver) bool { return d.Name == b.DriverName })
	})
	add(b, "csinodes", csiNodes.Items)
	var nodes corev1.NodeList
	b.need(ctx, explain.NodesResource, &nodes)
	add(b, "nodes", slices.DeleteFunc(nodes.Items, func(n corev1.Node) bool {
		return !slices.ContainsFunc(b.nodes.Items, func(d apiv1.AzDriverNode) bool { return d.Name == n.Name }) &&
			!slices.ContainsFunc(csiNodes.Items, func(c storagev1.CSINode) bool { return c.Name == n.Name })
	}), func(n *corev1.Node) { n.Status.Images = nil })
}

// workloads adds the driver's own programs.
func (b *bundle) workloads(ctx context.Context) {
	ours := client.MatchingLabels{"app.kubernetes.io/name": "azuredisk"}
	var deployments appsv1.DeploymentList
	var daemonSets appsv1.DaemonSetList
	b.need(ctx, explain.Deployments, &deployments, ours)
	b.need(ctx, "daemonsets.apps", &daemonSets, ours)
	b.need(ctx, explain.AllPods, &b.pods, ours)
	add(b, "deployments", deployments.Items, func(d *appsv1.Deployment) { redactPodSpec(&d.Spec.Template.Spec) })
	add(b, "daemonsets", daemonSets.Items, func(d *appsv1.DaemonSet) { redactPodSpec(&d.Spec.Template.Spec) })
	add(b, "pods", b.pods.Items, func(p *corev1.Pod) { redactPodSpec(&p.Spec) })
	var leases []coordinationv1.Lease
	for _, namespace := range b.namespaces() {
		var list coordinationv1.LeaseList
		b.need(ctx, explain.Leases, &list, client.InNamespace(namespace))
		leases = append(leases, list.Items...)
	}
	add(b, "leases", leases)
}

// namespaces are those of the driver's objects and pods.
func (b *bundle) namespaces() []string {
	all := []string{b.DriverNamespace}
	for _, p := range b.pods.Items {
		all = append(all, p.Namespace)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// events adds those of the driver's namespaces, and of nodes, and what the driver and Kubernetes say of
// volumes on claims and pods.
func (b *bundle) events(ctx context.Context) {
	queries := [][]client.ListOption{
		{client.InNamespace(corev1.NamespaceDefault), client.MatchingFields{"involvedObject.kind": "Node"}},
		{client.MatchingFields{"involvedObject.kind": string(explain.KindClaim)}},
	}
	for _, namespace := range b.namespaces() {
		queries = append(queries, []client.ListOption{client.InNamespace(namespace)})
	}
	for _, reason := range []string{apiv1.ReasonWaitingForVolume, apiv1.ReasonFailedAttachVolume, apiv1.ReasonFailedMount,
		apiv1.ReasonFailoverHeldBack} {
		queries = append(queries, []client.ListOption{client.MatchingFields{"reason": reason}})
	}
	seen := map[string]bool{}
	var all []corev1.Event
	for _, q := range queries {
		var list corev1.EventList
		b.need(ctx, explain.EventResource, &list, append(q, client.Limit(mostEvents))...)
		for _, e := range list.Items {
			if key := e.Namespace + "/" + e.Name; !seen[key] && b.concerns(e) {
				seen[key] = true
				all = append(all, e)
			}
		}
	}
	slices.SortStableFunc(all, func(a, c corev1.Event) int { return a.LastTimestamp.Compare(c.LastTimestamp.Time) })
	add(b, "events", all)
}

// concerns reports whether an event is not about the claim of another driver.
func (b *bundle) concerns(e corev1.Event) bool {
	return e.InvolvedObject.Kind != string(explain.KindClaim) ||
		slices.ContainsFunc(b.claims, func(c corev1.PersistentVolumeClaim) bool {
			return c.Namespace == e.InvolvedObject.Namespace && c.Name == e.InvolvedObject.Name
		})
}

// reports adds the answers of `why` about what is not as it should be.
func (b *bundle) reports(ctx context.Context) {
	subjects := b.subjects()
	var file strings.Builder
	for _, s := range subjects[:min(len(subjects), mostReports)] {
		facts, err := Collect(ctx, b.Reader, Options{
			Subject: s, DriverName: b.DriverName, DriverNamespace: b.DriverNamespace, Now: b.Now,
		})
		if err != nil {
			b.note(fmt.Errorf("explain %s: %w", s, err))
			continue
		}
		fmt.Fprintf(&file, "%s\n", explain.Explain(facts).Text())
	}
	if left := len(subjects) - mostReports; left > 0 {
		fmt.Fprintf(&file, "%d more are not explained here.\n", left)
	}
	if file.Len() > 0 {
		b.files = append(b.files, File{Name: "why.txt", Content: []byte(file.String())})
	}
}

// subjects are the volumes that wait for something, the claims that have none, and the nodes that are
// not reachable.
func (b *bundle) subjects() (all []explain.Subject) {
	nodes := map[string]*apiv1.AzDriverNode{}
	for i := range b.nodes.Items {
		n := &b.nodes.Items[i]
		nodes[n.Name] = n
		if slices.ContainsFunc(n.Status.Conditions, func(c metav1.Condition) bool {
			return c.Type == apiv1.NodeConditionReachable && c.Status != metav1.ConditionTrue
		}) {
			all = append(all, explain.Subject{Kind: explain.KindNode, Name: n.Name})
		}
	}
	of := map[string][]*apiv1.AzVolumeAttachment{}
	for i := range b.attachments.Items {
		a := &b.attachments.Items[i]
		of[a.Spec.VolumeName] = append(of[a.Spec.VolumeName], a)
	}
	for i := range b.volumes.Items {
		v := &b.volumes.Items[i]
		in := claimstatus.Input{Volume: v, Attachments: of[v.Name]}
		if p := v.Status.Primary; p != nil {
			in.Holder = nodes[p.NodeName]
		}
		if claimstatus.WaitOf(in).Cause != "" && v.Status.PersistentVolume != "" {
			all = append(all, explain.Subject{Kind: explain.KindVolume, Name: v.Status.PersistentVolume})
		}
	}
	for _, c := range b.claims {
		if c.Spec.VolumeName == "" || c.DeletionTimestamp != nil {
			all = append(all, explain.Subject{Kind: explain.KindClaim, Namespace: c.Namespace, Name: c.Name})
		}
	}
	return all
}

// logs adds the logs of the driver's pods: of those that are not one for each node first, and then of
// those that are not ready or were started again.
func (b *bundle) logs(ctx context.Context) {
	rank := func(p corev1.Pod) int {
		switch {
		case !slices.ContainsFunc(p.OwnerReferences, func(o metav1.OwnerReference) bool { return o.Kind == "DaemonSet" }):
			return 0
		case slices.ContainsFunc(p.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool {
			return !c.Ready || c.RestartCount > 0
		}):
			return 1
		}
		return 2
	}
	pods := slices.SortedStableFunc(slices.Values(b.pods.Items), func(p, q corev1.Pod) int {
		return cmp.Or(cmp.Compare(rank(p), rank(q)), cmp.Compare(p.Name, q.Name))
	})
	for i := range pods[:min(len(pods), mostLogs)] {
		p := &pods[i]
		for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
			b.log(ctx, p, c.Name, false)
			if c.RestartCount > 0 {
				b.log(ctx, p, c.Name, true)
			}
		}
	}
	if left := len(pods) - mostLogs; left > 0 {
		b.note(fmt.Errorf("the logs of %d more pods are left out", left))
	}
}

func (b *bundle) log(ctx context.Context, p *corev1.Pod, container string, previous bool) {
	text, err := b.Log(ctx, p, container, previous)
	if err != nil {
		b.note(fmt.Errorf("read the log of container %s of pod %s/%s: %w", container, p.Namespace, p.Name, err))
		return
	}
	name := container + ".log"
	if previous {
		name = container + ".previous.log"
	}
	b.files = append(b.files, File{Name: path.Join("logs", p.Namespace, p.Name, name), Content: text})
}

// contents adds what was read, and what was not.
func (b *bundle) contents() {
	var file strings.Builder
	fmt.Fprintf(&file, "Driver %s, objects in namespace %s, at %s.\n", b.DriverName, b.DriverNamespace,
		b.Now().UTC().Format(time.RFC3339))
	for _, f := range b.files {
		fmt.Fprintf(&file, "%s\n", f.Name)
	}
	for _, u := range b.unread {
		fmt.Fprintf(&file, "Not read: %s: %s\n", u.What, u.Why)
	}
	for _, err := range b.failed {
		fmt.Fprintf(&file, "Failed: %v\n", err)
	}
	b.files = append(b.files, File{Name: "contents.txt", Content: []byte(file.String())})
}
