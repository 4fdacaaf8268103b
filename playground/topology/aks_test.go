package topology

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestNodesOnAKSAreInstancesOfScaleSetsAndVMsOfNAP(t *testing.T) {
	t.Parallel()
	plan, err := New(5, 3, netip.MustParsePrefix(DefaultSubnet))
	if err != nil {
		t.Fatal(err)
	}
	plan = plan.OnAKS()
	got := map[string][3]string{}
	for _, n := range plan.Nodes {
		got[n.Name] = [3]string{n.VM(), n.Zone, n.ProviderID()[len("azure:///subscriptions/"+SubscriptionID+"/resourceGroups/"):]}
		if back, ok := plan.NodeOfVM(n.VM()); !ok || back.Name != n.Name {
			t.Errorf("node of the VM %s: got %q", n.VM(), back.Name)
		}
	}
	const compute = "mc_playground_playground_eastus/providers/Microsoft.Compute/virtualMachine"
	want := map[string][3]string{
		"aks-nodepool1-28842295-vmss000000": {
			"aks-nodepool1-28842295-vmss_0", "1", compute + "ScaleSets/aks-nodepool1-28842295-vmss/virtualMachines/0"},
		"aks-nodepool1-28842295-vmss000001": {
			"aks-nodepool1-28842295-vmss_1", "2", compute + "ScaleSets/aks-nodepool1-28842295-vmss/virtualMachines/1"},
		"aks-trial-28842295-vmss000000": {
			"aks-trial-28842295-vmss_0", "3", compute + "ScaleSets/aks-trial-28842295-vmss/virtualMachines/0"},
		"aks-trial-28842295-vmss000001": {
			"aks-trial-28842295-vmss_1", "1", compute + "ScaleSets/aks-trial-28842295-vmss/virtualMachines/1"},
		"aks-default-l0004": {"aks-default-l0004", "2", compute + "s/aks-default-l0004"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("VM, zone and provider ID of each node (-want +got):\n%s", diff)
	}
	if plan.Nodes[0].ResourceID() == plan.Nodes[0].ProviderID()[len("azure://"):] {
		t.Error("the resource ID has the spelling of the provider ID, want the group as Azure spells it")
	}
}
