package topology

import (
	"net/netip"
	"testing"
)

func TestPlanGivesEveryMachineAnAddressOfItsOwn(t *testing.T) {
	p, err := New(maxNodes, netip.MustParsePrefix(DefaultSubnet))
	if err != nil {
		t.Fatal(err)
	}
	seen := map[netip.Addr]string{p.ControlPlane(): "control plane", p.Cloud(): "cloud"}
	for _, n := range p.Nodes {
		if other, ok := seen[n.Address]; ok {
			t.Errorf("%s has the address %s of %s", n.Name, n.Address, other)
		}
		seen[n.Address] = n.Name
		if !p.Subnet.Contains(n.Address) {
			t.Errorf("%s of %s is outside of %s", n.Address, n.Name, p.Subnet)
		}
		if !p.PodNet.Contains(n.PodNet.Addr()) || n.PodNet.Bits() != 24 {
			t.Errorf("pods of %s have %s, which is no part of %s", n.Name, n.PodNet, p.PodNet)
		}
		for _, other := range p.Nodes {
			if other.Name != n.Name && other.PodNet.Overlaps(n.PodNet) {
				t.Errorf("pods of %s and %s share addresses", n.Name, other.Name)
			}
		}
	}
	for _, service := range []netip.Addr{p.APIService(), p.DNS(), p.Extender()} {
		if !p.ServiceNet.Contains(service) {
			t.Errorf("Service %s is outside of %s", service, p.ServiceNet)
		}
	}
	if p.PodNet.Overlaps(p.ServiceNet) || p.PodNet.Overlaps(p.Subnet) || p.ServiceNet.Overlaps(p.Subnet) {
		t.Error("networks overlap")
	}
}

func TestPlanSpreadsNodesOverTwoZones(t *testing.T) {
	p, err := New(4, netip.MustParsePrefix(DefaultSubnet))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"eastus-1", "eastus-2", "eastus-1", "eastus-2"}
	for i, n := range p.Nodes {
		if n.ZoneLabel() != want[i] {
			t.Errorf("%s is in %s, want %s", n.Name, n.ZoneLabel(), want[i])
		}
	}
	n := p.Nodes[0]
	if got, want := n.ProviderID(), "azure:///subscriptions/"+SubscriptionID+"/resourceGroups/playground/providers/Microsoft.Compute/virtualMachines/node-1"; got != want {
		t.Errorf("provider ID %s, want %s", got, want)
	}
}

func TestPlanRefusesWhatCannotBe(t *testing.T) {
	cases := map[string]struct {
		nodes  int
		subnet string
	}{
		"no node":                             {0, DefaultSubnet},
		"more nodes than addresses":           {maxNodes + 1, DefaultSubnet},
		"a subnet of another size":            {4, "10.230.0.0/16"},
		"an address inside of a subnet":       {4, "10.230.0.7/24"},
		"IPv6":                                {4, "fd00::/24"},
		"no room for the two networks beside": {4, "10.255.0.0/24"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if p, err := New(c.nodes, netip.MustParsePrefix(c.subnet)); err == nil {
				t.Errorf("got the plan %+v, want an error", p)
			}
		})
	}
}
