// Package topology is the plan of a playground: which machines there are, where
// they are said to be in Azure, and which addresses they have. It is computed
// from a few numbers and never stored.
package topology

import (
	"encoding/binary"
	"fmt"
	"maps"
	"net/netip"
	"strings"
)

// What Azure would call the place where the playground is.
const (
	Region = "eastus"
	// InstanceType takes 16 data disks: enough for a node with ten volumes, and few enough
	// to be filled.
	InstanceType   = "Standard_D8s_v5"
	ResourceGroup  = "playground"
	SubscriptionID = "00000000-0000-0000-0000-0000000000a2"
	TenantID       = "00000000-0000-0000-0000-0000000000a1"
)

// ClusterDomain is the domain of the cluster's Services.
const ClusterDomain = "cluster.local"

// Plan is the plan of one playground.
type Plan struct {
	// Subnet joins the control plane, the cloud and the nodes.
	Subnet netip.Prefix
	// PodNet is cut into one /24 per node.
	PodNet netip.Prefix
	// ServiceNet holds the addresses of Services.
	ServiceNet netip.Prefix
	Nodes      []Node
}

// Node is one worker.
type Node struct {
	// Name is the node's, the machine's and the VM's.
	Name    string
	Address netip.Addr
	PodNet  netip.Prefix
	// Zone is Azure's number of the availability zone: "1" to "3".
	Zone string
	// Group is the resource group of the VM.
	Group string
	// Pool is the node pool of AKS; nil without AKS.
	Pool *Pool
	// Instance is the number of the VM in its scale set.
	Instance int
}

// DefaultSubnet is a corner of 10.0.0.0/8 that few networks use; the pods' and
// Services' networks are the two that follow it.
const DefaultSubnet = "10.230.0.0/24"

const (
	maxNodes = 64
	// DefaultZones is how many availability zones the nodes are in.
	DefaultZones = 2
	// maxZones is how many a region of Azure has.
	maxZones = 3
)

// New plans a playground with that many nodes, one after the other in the zones; DefaultZones if
// zones is 0. The subnet must be an IPv4 /24 of a /16 of its own; the following two /16 become the
// pods' and the Services' network.
func New(nodes, zones int, subnet netip.Prefix) (Plan, error) {
	if zones == 0 {
		zones = DefaultZones
	}
	if zones < 1 || zones > maxZones {
		return Plan{}, fmt.Errorf("%d zones: there may be 1 to %d", zones, maxZones)
	}
	if nodes < 1 || nodes > maxNodes {
		return Plan{}, fmt.Errorf("%d nodes: there may be 1 to %d", nodes, maxNodes)
	}
	if !subnet.Addr().Is4() || subnet.Bits() != 24 || subnet != subnet.Masked() {
		return Plan{}, fmt.Errorf("subnet %s: it must be an IPv4 network with a prefix of 24 bits, like %s", subnet,
			DefaultSubnet)
	}
	if top := subnet.Addr().As4(); top[1] > 253 {
		return Plan{}, fmt.Errorf("subnet %s: the two networks of 16 bits that follow it must be in the same network of 8 bits",
			subnet)
	}
	p := Plan{
		Subnet:     subnet,
		PodNet:     following(subnet, 1),
		ServiceNet: following(subnet, 2),
	}
	for i := 1; i <= nodes; i++ {
		p.Nodes = append(p.Nodes, Node{
			Name:    fmt.Sprintf("node-%d", i),
			Address: nth(subnet, 10+i),
			PodNet:  netip.PrefixFrom(nth(p.PodNet, i<<8), 24),
			Zone:    fmt.Sprint(1 + (i-1)%zones),
			Group:   ResourceGroup,
		})
	}
	return p, nil
}

// ControlPlane is the address of the control plane.
func (p Plan) ControlPlane() netip.Addr { return nth(p.Subnet, 2) }

// Cloud is the address at which Azure's stand-in answers.
func (p Plan) Cloud() netip.Addr { return nth(p.Subnet, 3) }

// APIService is the address of the Service kubernetes.default.
func (p Plan) APIService() netip.Addr { return nth(p.ServiceNet, 1) }

// DNS is the address of the cluster's name server.
func (p Plan) DNS() netip.Addr { return nth(p.ServiceNet, 10) }

// Extender is the address of the Service of the driver's scheduler extender.
func (p Plan) Extender() netip.Addr { return nth(p.ServiceNet, 20) }

// Node returns the node of that name.
func (p Plan) Node(name string) (Node, error) {
	for _, n := range p.Nodes {
		if n.Name == name {
			return n, nil
		}
	}
	return Node{}, fmt.Errorf("no node %q; there are %s to %s", name, p.Nodes[0].Name, p.Nodes[len(p.Nodes)-1].Name)
}

// NodeOfVM returns the node whose VM has that name.
func (p Plan) NodeOfVM(name string) (Node, bool) {
	for _, n := range p.Nodes {
		if n.VM() == name {
			return n, true
		}
	}
	return Node{}, false
}

// ZoneLabel is the value of topology.kubernetes.io/zone.
func (n Node) ZoneLabel() string { return Region + "-" + n.Zone }

// ResourceID is the ID of the node's VM at Azure.
func (n Node) ResourceID() string { return n.id(n.Group) }

func (n Node) id(group string) string {
	if n.Pool != nil && !n.Pool.NAP {
		return fmt.Sprintf("%s/virtualMachines/%d", n.Pool.scaleSetID(group), n.Instance)
	}
	return groupID(group) + "/providers/Microsoft.Compute/virtualMachines/" + n.Name
}

func groupID(group string) string {
	return fmt.Sprintf("/subscriptions/%s/resourceGroups/%s", SubscriptionID, group)
}

// VM is the name of the node's VM at Azure.
func (n Node) VM() string {
	if n.Pool != nil && !n.Pool.NAP {
		return fmt.Sprintf("%s_%d", n.Pool.ScaleSet(), n.Instance)
	}
	return n.Name
}

// ProviderID is the Node's spec.providerID. Azure's cloud provider writes the resource group in
// lower case.
func (n Node) ProviderID() string { return "azure://" + n.id(strings.ToLower(n.Group)) }

// Labels are those that a cloud would give the Node.
func (n Node) Labels() map[string]string {
	labels := map[string]string{
		"topology.kubernetes.io/region":    Region,
		"topology.kubernetes.io/zone":      n.ZoneLabel(),
		"node.kubernetes.io/instance-type": InstanceType,
	}
	if n.Pool != nil {
		maps.Copy(labels, n.Pool.labels(n.Group))
	}
	return labels
}

func nth(p netip.Prefix, n int) netip.Addr {
	b := p.Masked().Addr().As4()
	binary.BigEndian.PutUint32(b[:], binary.BigEndian.Uint32(b[:])+uint32(n))
	return netip.AddrFrom4(b)
}

// following is the n-th network of 16 bits after the one that holds p.
func following(p netip.Prefix, n int) netip.Prefix {
	b := p.Addr().As4()
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{b[0], b[1] + byte(n), 0, 0}), 16)
}
