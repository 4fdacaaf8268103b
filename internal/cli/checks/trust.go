package checks

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/azuredisk-csi/azuredisk/internal/cli/explain"
)

// controlPlane is the label of nodes of the control plane.
const controlPlane = "node-role.kubernetes.io/control-plane"

// nodeIdentity finds a controller that signs in with an identity of its VM, outside of a control
// plane: it has no credential of its own, or the file of an AKS node.
func (f Facts) nodeIdentity() []problem {
	d := f.Deployment(explain.ControllerComponent)
	if d == nil {
		return nil // the check of the controller has it
	}
	pod := d.Spec.Template.Spec
	_, apart := pod.NodeSelector[controlPlane]
	if apart || d.Spec.Template.Labels["azure.workload.identity/use"] == "true" {
		return nil
	}
	file, said := explain.Flag(pod, "cloud-config")
	secret, _ := explain.Flag(pod, "cloud-config-secret-name")
	ofHost := slices.ContainsFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == "cloud" && v.HostPath != nil })
	ofAKS := slices.ContainsFunc(f.Nodes, func(n *corev1.Node) bool { return n.Labels["kubernetes.azure.com/cluster"] != "" })
	switch {
	case said && file == "" && secret == "" && !hasCredential(pod):
		return []problem{warning("the controller has no credential of its own, so it uses an identity of its node")}
	case ofHost && ofAKS:
		return []problem{warning("the controller uses %s of its node, where AKS names the identity of the node pools", file)}
	}
	return nil
}

// hasCredential reports whether the environment of the controller has a credential, or may have one.
func hasCredential(pod corev1.PodSpec) bool {
	return slices.ContainsFunc(pod.Containers, func(c corev1.Container) bool {
		return len(c.EnvFrom) > 0 || slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool {
			return e.Name == "AZURE_CLIENT_SECRET" || e.Name == "AZURE_CLIENT_CERTIFICATE_PATH" ||
				e.Name == "AZURE_FEDERATED_TOKEN_FILE"
		})
	})
}

// replicaNodes finds volumes with replicas in a cluster whose nodes are told apart, if the replicas
// are not.
func (f Facts) replicaNodes() []problem {
	d := f.Deployment(explain.ControllerComponent)
	if d == nil {
		return nil
	}
	if label, _ := explain.Flag(d.Spec.Template.Spec, "replica-node-label"); label != "" {
		return nil
	}
	var keys []string
	for _, n := range f.Nodes {
		for key := range n.Labels {
			if strings.HasPrefix(key, corev1.LabelNamespaceNodeRestriction+"/") && key != forController &&
				!slices.Contains(keys, key) {
				keys = append(keys, key)
			}
		}
	}
	replicated := 0
	for _, v := range f.Volumes {
		if v.Spec.MaxMountReplicaCount > 0 {
			replicated++
		}
	}
	if len(keys) == 0 || replicated == 0 {
		return nil
	}
	slices.Sort(keys)
	return []problem{warning("%d volumes may have replicas on all nodes, and nodes have the labels %s", replicated, few(keys))}
}

// forController is the label of the nodes that the chart prefers for the controller.
const forController = corev1.LabelNamespaceNodeRestriction + "/azuredisk"
