package checks

import (
	"crypto/x509"
	"encoding/pem"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cli/explain"
)

// definitionsOfDriver are the names of the driver's definitions.
var definitionsOfDriver = []string{explain.AzVolumes, explain.AzAttachments, explain.AzDriverNodes}

func (f Facts) definitions() []problem {
	var found []problem
	for _, name := range definitionsOfDriver {
		d := f.definition(name)
		serves := func(v apiextensionsv1.CustomResourceDefinitionVersion) bool {
			return v.Name == apiv1.GroupVersion.Version && v.Served
		}
		switch {
		case d == nil:
			found = append(found, failed("%s does not exist", name))
		case !slices.ContainsFunc(d.Spec.Versions, serves):
			found = append(found, failed("%s is not served in the version %s", name, apiv1.GroupVersion.Version))
		}
	}
	return found
}

func (f Facts) previewDefinitions() []problem {
	var found []problem
	for _, name := range definitionsOfDriver {
		d := f.definition(name)
		if d == nil {
			continue
		}
		for _, version := range d.Status.StoredVersions {
			if version != apiv1.GroupVersion.Version {
				found = append(found, failed("%s is stored in the version %s", name, version))
			}
		}
	}
	return found
}

func (f Facts) mode() []problem {
	if f.CSIDriver == nil {
		return []problem{failed("there is no CSIDriver %s", f.DriverName)}
	}
	var found []problem
	compare := func(what string, pod corev1.PodSpec) {
		if set, ok := explain.Flag(pod, "attach-required"); ok && (set == "true") != f.attachRequired() {
			found = append(found, failed("%s is set to attachRequired %s, and the CSIDriver says %t", what, set,
				f.attachRequired()))
		}
	}
	if d := f.Deployment("controller"); d != nil {
		compare("the controller", d.Spec.Template.Spec)
	}
	for _, d := range f.nodePlugins() {
		compare("DaemonSet "+d.Name, d.Spec.Template.Spec)
	}
	return found
}

// noVersion is that of a program that was built without one.
const noVersion = "dev"

func (f Facts) versions() []problem {
	var found []problem
	if controller := f.Deployment("controller"); controller != nil {
		for _, d := range f.nodePlugins() {
			of, than := imageOf(d.Spec.Template.Spec, "node"), imageOf(controller.Spec.Template.Spec, "controller")
			if of != than {
				found = append(found, warning("DaemonSet %s has the image %s, and the controller %s", d.Name, of, than))
			}
		}
	}
	nodes := f.nodesByVersion()
	if len(nodes) > 1 {
		var parts []string
		for version, names := range nodes {
			parts = append(parts, version+" on "+few(names))
		}
		slices.Sort(parts)
		found = append(found, warning("node plug-ins run %s", strings.Join(parts, ", ")))
	}
	for version := range nodes {
		if len(nodes) == 1 && version != f.Program && version != noVersion && f.Program != noVersion {
			found = append(found, warning("node plug-ins run %s, and this program is %s", version, f.Program))
		}
	}
	return found
}

func imageOf(pod corev1.PodSpec, container string) string {
	for _, c := range pod.Containers {
		if c.Name == container {
			return c.Image
		}
	}
	return ""
}

// few names the first of some objects.
func few(names []string) string {
	slices.Sort(names)
	text := strings.Join(names[:min(len(names), mostProblems)], ", ")
	if len(names) > mostProblems {
		text += " and others"
	}
	return text
}

func (f Facts) controller() []problem {
	d := f.Deployment("controller")
	if d == nil {
		return []problem{failed("there is no Deployment of the controller")}
	}
	return f.ready("Deployment", d.Name, d.Status.ReadyReplicas, replicas(d.Spec.Replicas))
}

func replicas(wanted *int32) int32 {
	if wanted == nil {
		return 1
	}
	return *wanted
}

func (f Facts) ready(kind, name string, ready, wanted int32) []problem {
	switch refused := f.uncreated(kind, name); {
	case ready == 0 && wanted > 0:
		return []problem{failed("%s %s has no ready pod%s", kind, name, refused)}
	case ready < wanted:
		return []problem{warning("%s %s has %d of %d pods ready%s", kind, name, ready, wanted, refused)}
	}
	return nil
}

// uncreated is why the cluster last refused to create a pod of a Deployment or DaemonSet, to be
// appended; "" if it did not.
func (f Facts) uncreated(kind, name string) string {
	var last *corev1.Event
	for _, e := range f.Uncreated {
		of := e.InvolvedObject
		own := of.Kind == kind && of.Name == name
		if kind == "Deployment" {
			own = of.Kind == "ReplicaSet" && strings.HasPrefix(of.Name, name+"-")
		}
		if own && (last == nil || explain.EventTime(last).Time.Before(explain.EventTime(e).Time)) {
			last = e
		}
	}
	if last == nil {
		return ""
	}
	return ": " + last.Message
}

func (f Facts) lease(name string) *coordinationv1.Lease {
	i := slices.IndexFunc(f.Leases, func(l *coordinationv1.Lease) bool { return l.Name == name })
	if i < 0 {
		return nil
	}
	return f.Leases[i]
}

func (f Facts) leader() []problem {
	if says, expired := explain.LeaseExpired(f.lease(explain.LeaseController), f.Now); expired {
		return []problem{failed("the lease %s %s", explain.LeaseController, says)}
	}
	return nil
}

func (f Facts) sidecars() []problem {
	d := f.Deployment("controller")
	if d == nil {
		return []problem{failed("there is no Deployment of the controller")}
	}
	needed := []string{"csi-provisioner"}
	if f.attachRequired() {
		needed = append(needed, "csi-attacher")
	}
	var found []problem
	for _, name := range needed {
		if imageOf(d.Spec.Template.Spec, name) == "" {
			found = append(found, failed("the controller's pods have no container %s", name))
		}
	}
	for _, c := range d.Spec.Template.Spec.Containers {
		lease := explain.LeaseOf(c.Name, f.DriverName)
		if lease == "" {
			continue
		}
		if says, expired := explain.LeaseExpired(f.lease(lease), f.Now); expired {
			found = append(found, failed("%s does not lead: the lease %s %s", c.Name, lease, says))
		}
	}
	return found
}

func (f Facts) plugins() []problem {
	all := f.nodePlugins()
	if len(all) == 0 {
		return []problem{failed("there is no DaemonSet of the node plug-in")}
	}
	var found []problem
	for _, d := range all {
		found = append(found, f.ready("DaemonSet", d.Name, d.Status.NumberReady, d.Status.DesiredNumberScheduled)...)
	}
	return found
}

func (f Facts) steering() []problem {
	d := f.Deployment("scheduler")
	if d == nil {
		return []problem{warning("none is deployed, so pods reach their replicas by chance")}
	}
	found := f.ready("Deployment", d.Name, d.Status.ReadyReplicas, replicas(d.Spec.Replicas))
	for _, configuration := range f.Webhooks {
		if configuration.Labels[explain.LabelPartOf] != chart {
			continue
		}
		for _, w := range configuration.Webhooks {
			if w.Name != "steer-pods."+f.DriverName {
				continue
			}
			if why := f.untrusted(w.ClientConfig.CABundle); why != "" {
				found = append(found, failed("the API server cannot trust the webhook %s: %s", configuration.Name, why))
			}
			if s := w.ClientConfig.Service; s != nil && !f.answers(s.Name) {
				found = append(found, failed("the Service %s of the webhook has no ready endpoint", s.Name))
			}
		}
	}
	return found
}

// untrusted says why no certificate is valid by a bundle of authorities, or "".
func (f Facts) untrusted(bundle []byte) string {
	why := "its caBundle is empty"
	for block, rest := pem.Decode(bundle); block != nil; block, rest = pem.Decode(rest) {
		authority, err := x509.ParseCertificate(block.Bytes)
		switch {
		case err != nil:
			why = "its caBundle cannot be read"
		case f.Now.After(authority.NotAfter):
			why = "its authority was valid until " + authority.NotAfter.Format(time.RFC3339)
		default:
			return ""
		}
	}
	return why
}

// answers reports whether a Service has a ready endpoint.
func (f Facts) answers(service string) bool {
	for _, s := range f.Slices {
		if s.Labels["kubernetes.io/service-name"] != service {
			continue
		}
		for _, e := range s.Endpoints {
			if e.Conditions.Ready == nil || *e.Conditions.Ready {
				return true
			}
		}
	}
	return false
}
