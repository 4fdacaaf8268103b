package checks

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/azuredisk-csi/azuredisk/internal/cli/explain"
)

// oldestMinor and newestMinor are the versions of Kubernetes that the driver is tested with.
const oldestMinor, newestMinor = 34, 37

// hostPorts are the ports that the chart takes on each node by default: health and metrics of the
// node plug-in.
var hostPorts = []int32{29703, 29705}

// snapshotDefinitions are those of csi-snapshotter.
var snapshotDefinitions = []string{
	"volumesnapshots.snapshot.storage.k8s.io", "volumesnapshotcontents.snapshot.storage.k8s.io",
	"volumesnapshotclasses.snapshot.storage.k8s.io",
}

var preflight = []Check{
	{ID: "Kubernetes", Asks: fmt.Sprintf("Kubernetes has a version from 1.%d to 1.%d.", oldestMinor, newestMinor),
		Next:  "upgrade the cluster, or use a version of the driver that is tested with this one",
		needs: []string{ServerVersion}, find: Facts.kubernetes},
	{ID: "Nodes", Asks: "The nodes are VMs of Azure with Linux.",
		Next:  "keep the node plug-in off nodes that are no VMs of Azure (node.nodeSelector), and disks off Windows nodes",
		needs: []string{explain.NodesResource}, find: Facts.nodes},
	{ID: "SnapshotDefinitions", Asks: "The cluster has the custom resources of snapshots.",
		Next:  "install them from kubernetes-csi/external-snapshotter, or go without snapshots",
		needs: []string{Definitions}, find: Facts.snapshots},
	{ID: "StoredPreview", Asks: "The cluster stores no custom resource of the preview of V2.",
		Next:  "follow \"CRDs of the first V2\" in the guide to moving from V1",
		needs: []string{Definitions}, find: Facts.previewDefinitions},
	{ID: "OtherDriver", Asks: "No other driver has the name.",
		Next: "switch AKS's driver off (az aks update --disable-disk-driver), or scale V1 down, as the guide to moving from V1 says; " +
			"a CSIDriver that is left is taken over with helm install --take-ownership",
		needs: []string{explain.CSIDrivers, explain.AllPods}, find: Facts.otherDriver},
	{ID: "VolumesAttached", Asks: "No VolumeAttachment of the driver's name exists.",
		Next:  "install with --set csiDriver.attachRequired=true while there are any",
		needs: []string{explain.Attachments}, find: Facts.attachedBefore},
	{ID: "HostPorts", Asks: "The ports that the node plug-in takes on each node are free, as far as pods say it.",
		Next:  "set node.healthPort and node.metricsPort of the chart to other ports",
		needs: []string{explain.AllPods}, find: Facts.ports},
	{ID: "PodSecurity", Asks: "Pod security admission allows privileged pods in the namespace.",
		Next:  "label the namespace pod-security.kubernetes.io/enforce=privileged",
		needs: []string{NamespaceOfChart}, find: Facts.podSecurity},
	{ID: "Policies", Asks: "No policy that is enforced in the namespace speaks of privileged pods or of the host.",
		Next: "exclude the namespace from what is named; for AKS's Deployment Safeguards: " +
			"az aks safeguards update --excluded-ns. Expressions are not evaluated: a policy that is named may allow the pods",
		needs: []string{Policies, Bindings, Constraints}, find: Facts.policies},
	failClosed,
	{ID: "Lockdown", Asks: "The node resource group has no lockdown, as AKS Automatic has it.",
		Next: "go on only if it prints Unrestricted or nothing: with ReadOnly, which AKS Automatic always has, no other driver " +
			"than AKS's own can attach disks",
		command: lockdown},
	{ID: "AzurePermissions", Asks: "The identity of the controller has the role of the driver.",
		Next: "compare the roles with what azuredisk azure-role prints, in the groups of the nodes and of the disks",
		command: func(f Facts) string {
			return fmt.Sprintf("az role assignment list --assignee CLIENT_ID --all --subscription %s --output table", f.subscription())
		}},
	{ID: "PoolIdentity", Asks: "The identity of the node pools' kubelets has no role of the driver.",
		Next: "remove the assignments of roles that attach or delete disks, and let the controller use a workload identity: " +
			"each pod that reaches the instance metadata of a node has the rights of the node's identities",
		command: func(f Facts) string {
			return fmt.Sprintf("az role assignment list --assignee $(az aks show -g GROUP -n CLUSTER --query identityProfile.kubeletidentity.objectId -o tsv) --all --subscription %s --output table",
				f.subscription())
		}},
	{ID: "SKUs", Asks: "The region offers the SKUs, also the zone-redundant ones.",
		Next: "use SKUs that are listed without a restriction in your StorageClasses",
		command: func(f Facts) string {
			return fmt.Sprintf("az vm list-skus --location %s --resource-type disks --output table", f.region())
		}},
	{ID: "AzureQuota", Asks: "The subscription has quota for the disks.",
		Next: "ask Azure for a larger quota where the current value is near the limit",
		command: func(f Facts) string {
			return fmt.Sprintf("az vm list-usage --location %s --query \"[?contains(name.value,'Disk')]\" --output table", f.region())
		}},
}

func (f Facts) kubernetes() []problem {
	major, rest, _ := strings.Cut(strings.TrimPrefix(f.Kubernetes, "v"), ".")
	minor, _, _ := strings.Cut(rest, ".")
	n, err := strconv.Atoi(strings.TrimRight(minor, "+"))
	switch {
	case err != nil || major != "1":
		return []problem{warning("the API server has the version %q", f.Kubernetes)}
	case n < oldestMinor:
		return []problem{failed("the API server has the version %s, and the driver needs 1.%d", f.Kubernetes, oldestMinor)}
	case n > newestMinor:
		return []problem{warning("the API server has the version %s, with which the driver has not been tested", f.Kubernetes)}
	}
	return nil
}

func (f Facts) nodes() []problem {
	with := map[string][]string{}
	for _, n := range f.Nodes {
		switch {
		case n.Labels[corev1.LabelOSStable] == "windows":
			with["has Windows"] = append(with["has Windows"], n.Name)
		case !strings.HasPrefix(n.Spec.ProviderID, "azure://"):
			with["is no VM of Azure by its providerID"] = append(with["is no VM of Azure by its providerID"], n.Name)
		}
	}
	var found []problem
	for _, what := range slices.Sorted(maps.Keys(with)) {
		found = append(found, warning("%s %s", few(with[what]), what))
	}
	return found
}

func (f Facts) snapshots() []problem {
	var missing []string
	for _, name := range snapshotDefinitions {
		if f.definition(name) == nil {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		return []problem{warning("the cluster has no %s", strings.Join(missing, ", "))}
	}
	return nil
}

// labelApp is the label of the pods of V1, which AKS installs as its own driver.
const labelApp = "app"

func (f Facts) otherDriver() []problem {
	var found []problem
	pods := map[string]string{}
	for _, p := range f.Pods {
		if app := p.Labels[labelApp]; app == "csi-azuredisk-node" || app == "csi-azuredisk-controller" {
			pods[p.Namespace] = app
		}
	}
	for _, namespace := range slices.Sorted(maps.Keys(pods)) {
		found = append(found, failed("pods of V1 run in namespace %s (app=%s)", namespace, pods[namespace]))
	}
	switch d := f.CSIDriver; {
	case d == nil:
	case d.Labels[explain.LabelPartOf] == "azuredisk":
		found = append(found, warning("this driver is installed already: run kubectl azuredisk doctor"))
	case len(found) == 0:
		found = append(found, warning("the CSIDriver %s of another driver is left", d.Name))
	}
	return found
}

func (f Facts) attachedBefore() []problem {
	n := 0
	for _, a := range f.VolumeAttachments {
		if a.Spec.Attacher == f.DriverName {
			n++
		}
	}
	if n > 0 && (f.CSIDriver == nil || !f.attachRequired() || f.CSIDriver.Labels[explain.LabelPartOf] != "azuredisk") {
		return []problem{warning("there are %d VolumeAttachments of %s", n, f.DriverName)}
	}
	return nil
}

func (f Facts) ports() []problem {
	users := map[string][]string{}
	for _, p := range f.Pods {
		if p.Labels[explain.LabelPartOf] == "azuredisk" {
			continue
		}
		for _, c := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
			for _, port := range c.Ports {
				number := port.HostPort
				if p.Spec.HostNetwork {
					number = port.ContainerPort
				}
				if slices.Contains(hostPorts, number) {
					key := fmt.Sprintf("port %d is taken", number)
					users[key] = append(users[key], cmp.Or(p.Spec.NodeName, "a node")+" by "+p.Namespace+"/"+p.Name)
				}
			}
		}
	}
	var found []problem
	for _, key := range slices.Sorted(maps.Keys(users)) {
		found = append(found, failed("%s on %s", key, few(users[key])))
	}
	return found
}

func (f Facts) podSecurity() []problem {
	if f.Namespace == nil {
		return nil
	}
	if level := f.Namespace.Labels["pod-security.kubernetes.io/enforce"]; level == "baseline" || level == "restricted" {
		return []problem{failed("namespace %s enforces the level %s", f.DriverNamespace, level)}
	}
	return nil
}

func (f Facts) policies() []problem {
	var found []problem
	for _, b := range f.Bindings {
		named := func(p *admissionv1.ValidatingAdmissionPolicy) bool { return p.Name == b.Spec.PolicyName }
		i := slices.IndexFunc(f.Policies, named)
		if i < 0 || !slices.Contains(b.Spec.ValidationActions, admissionv1.Deny) {
			continue
		}
		if p := f.Policies[i]; f.reaches(p, b) && ofTheHost(p) {
			found = append(found, warning("ValidatingAdmissionPolicy %s is enforced by %s", p.Name, b.Name))
		}
	}
	for _, c := range f.Constraints {
		enforced := c.Action == "" || c.Action == "deny"
		applies := !slices.ContainsFunc(c.Excluded, f.isNamespace) &&
			(len(c.Only) == 0 || slices.ContainsFunc(c.Only, f.isNamespace))
		if enforced && applies {
			found = append(found, failed("the constraint %s %s of Gatekeeper is enforced", c.Kind, c.Name))
		}
	}
	return found
}

// isNamespace reports whether a pattern of Gatekeeper names the namespace.
func (f Facts) isNamespace(pattern string) bool {
	begin, prefix := strings.CutSuffix(pattern, "*")
	end, suffix := strings.CutPrefix(pattern, "*")
	return pattern == f.DriverNamespace || prefix && strings.HasPrefix(f.DriverNamespace, begin) ||
		suffix && strings.HasSuffix(f.DriverNamespace, end)
}

// reaches reports whether a policy may be asked about pods of the namespace. A condition that names
// the namespace is taken for one that excludes it.
func (f Facts) reaches(p *admissionv1.ValidatingAdmissionPolicy, b *admissionv1.ValidatingAdmissionPolicyBinding) bool {
	match := p.Spec.MatchConstraints
	if match == nil || !slices.ContainsFunc(match.ResourceRules, ofPods) {
		return false
	}
	if !f.selects(match.NamespaceSelector) ||
		b.Spec.MatchResources != nil && !f.selects(b.Spec.MatchResources.NamespaceSelector) {
		return false
	}
	return !f.excluded(p.Spec.MatchConditions)
}

func ofPods(r admissionv1.NamedRuleWithOperations) bool {
	return slices.ContainsFunc(r.Resources, func(name string) bool { return name == "*" || name == "pods" || name == "*/*" })
}

// ofTheHost reports whether a policy speaks of what the node plug-in needs.
func ofTheHost(p *admissionv1.ValidatingAdmissionPolicy) bool {
	texts := []string{}
	for _, v := range p.Spec.Validations {
		texts = append(texts, v.Expression)
	}
	for _, v := range p.Spec.Variables {
		texts = append(texts, v.Expression)
	}
	return slices.ContainsFunc(texts, func(text string) bool {
		return slices.ContainsFunc([]string{"privileged", "hostPath", "hostNetwork", "hostPort"}, func(word string) bool {
			return strings.Contains(text, word)
		})
	})
}

// labelNodeGroup is the label by which AKS names the node resource group.
const labelNodeGroup = "kubernetes.azure.com/cluster"

func lockdown(f Facts) string {
	for _, n := range f.Nodes {
		if group := n.Labels[labelNodeGroup]; group != "" {
			return fmt.Sprintf("az aks list --subscription %s --query \"[?nodeResourceGroup=='%s'].nodeResourceGroupProfile.restrictionLevel\"",
				f.subscription(), group)
		}
	}
	return "az aks show --resource-group GROUP --name CLUSTER --query nodeResourceGroupProfile.restrictionLevel"
}

// subscription of the nodes, or a word for it.
func (f Facts) subscription() string {
	for _, n := range f.Nodes {
		_, rest, ok := strings.Cut(n.Spec.ProviderID, "/subscriptions/")
		if id, _, _ := strings.Cut(rest, "/"); ok && id != "" {
			return id
		}
	}
	return "SUBSCRIPTION"
}

// region of the nodes, or a word for it.
func (f Facts) region() string {
	for _, n := range f.Nodes {
		if region := n.Labels[corev1.LabelTopologyRegion]; region != "" {
			return region
		}
	}
	return "REGION"
}
