package topology

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// NodeGroup is the node resource group that AKS makes for its VMs.
const NodeGroup = "MC_playground_playground_" + Region

// Pool is a node pool of AKS.
type Pool struct {
	Name string
	// Mode is system or user.
	Mode string
	// NAP says that node auto-provisioning (Karpenter) makes the nodes, as VMs of their own. The
	// nodes of other pools are instances of a uniform scale set.
	NAP bool
	// StartupTaints are the taints with which nodes register, until something removes them.
	StartupTaints []corev1.Taint
}

// The node pools of a playground with AKS. The first two nodes are in the system pool, the next two
// in the user pool, and NAP has made the others.
var (
	SystemPool = Pool{Name: "nodepool1", Mode: "system"}
	UserPool   = Pool{Name: "trial", Mode: "user"}
	NAPPool    = Pool{
		Name: "default", Mode: "user", NAP: true,
		StartupTaints: []corev1.Taint{{Key: "disk.csi.azure.com/agent-not-ready", Effect: corev1.TaintEffectNoExecute}},
	}
)

const (
	nodesOfPool = 2
	// firstNAP makes a suffix of five letters and digits, as Karpenter does.
	firstNAP = 36 * 36 * 36 * 36 * 21
)

// OnAKS returns the plan with the node pools and the names of nodes that AKS gives.
func (p Plan) OnAKS() Plan {
	nodes := slices.Clone(p.Nodes)
	for i := range nodes {
		n := &nodes[i]
		n.Group, n.Instance = NodeGroup, i%nodesOfPool
		switch i / nodesOfPool {
		case 0:
			n.Pool, n.Name = &SystemPool, SystemPool.computerName(n.Instance)
		case 1:
			n.Pool, n.Name = &UserPool, UserPool.computerName(n.Instance)
		default:
			n.Pool, n.Name = &NAPPool, fmt.Sprintf("aks-%s-%s", NAPPool.Name, strconv.FormatInt(int64(firstNAP+i), 36))
		}
	}
	p.Nodes = nodes
	return p
}

// InPool returns the nodes of a pool.
func (p Plan) InPool(name string) []Node {
	return slices.DeleteFunc(slices.Clone(p.Nodes), func(n Node) bool { return n.Pool == nil || n.Pool.Name != name })
}

// ScaleSet is the name of the pool's scale set.
func (p Pool) ScaleSet() string { return fmt.Sprintf("aks-%s-28842295-vmss", p.Name) }

// ScaleSetID is the resource ID of the pool's scale set.
func (p Pool) ScaleSetID() string { return p.scaleSetID(NodeGroup) }

func (p Pool) scaleSetID(group string) string {
	return groupID(group) + "/providers/Microsoft.Compute/virtualMachineScaleSets/" + p.ScaleSet()
}

// computerName is the name of an instance, and of its node: six digits of base 36 after the name of
// the scale set.
func (p Pool) computerName(instance int) string {
	suffix := strconv.FormatInt(int64(instance), 36)
	return p.ScaleSet() + strings.Repeat("0", 6-len(suffix)) + suffix
}

func (p Pool) labels(group string) map[string]string {
	labels := map[string]string{
		"agentpool":                             p.Name,
		"kubernetes.azure.com/agentpool":        p.Name,
		"kubernetes.azure.com/cluster":          group,
		"kubernetes.azure.com/mode":             p.Mode,
		"kubernetes.azure.com/role":             "agent",
		"kubernetes.azure.com/os-sku":           "Ubuntu",
		"kubernetes.azure.com/storageprofile":   "managed",
		"kubernetes.azure.com/storagetier":      "Premium_LRS",
		"kubernetes.azure.com/nodepool-type":    "VirtualMachineScaleSets",
		"kubernetes.azure.com/scalesetpriority": "regular",
	}
	if p.NAP {
		delete(labels, "agentpool")
		for _, of := range []string{"agentpool", "nodepool-type", "scalesetpriority"} {
			delete(labels, "kubernetes.azure.com/"+of)
		}
		labels["karpenter.sh/nodepool"] = p.Name
		labels["karpenter.sh/capacity-type"] = "on-demand"
	}
	return labels
}
