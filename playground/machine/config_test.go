package machine

import (
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/azuredisk-csi/azuredisk/playground/topology"
)

func testSpec(t *testing.T) (Spec, topology.Plan) {
	t.Helper()
	plan, err := topology.New(2, netip.MustParsePrefix(topology.DefaultSubnet))
	if err != nil {
		t.Fatal(err)
	}
	n, dir := plan.Nodes[1], t.TempDir()
	credential := filepath.Join(dir, "credential")
	if err := os.WriteFile(credential, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	return Spec{
		Name: n.Name, Address: n.Address, PodNet: n.PodNet, DNS: plan.DNS(), ProviderID: n.ProviderID(), Labels: n.Labels(),
		Root: filepath.Join(dir, "root"), Disk: filepath.Join(dir, "disk"), Logs: filepath.Join(dir, "logs"),
		AzureDisks: filepath.Join(dir, "azure"), Kubeconfig: credential, ProxyKubeconfig: credential, CA: credential,
		Snapshotter: "overlayfs", PauseImage: "azuredisk.local/pause:1",
	}, plan
}

func TestADiskThatWasWrittenHoldsTheSpecificationAndTheConfigurations(t *testing.T) {
	spec, plan := testSpec(t)
	for range 2 { // writing again, as at the next start, is fine
		if err := spec.Write(plan); err != nil {
			t.Fatal(err)
		}
	}
	got, err := ReadSpec(spec.Disk)
	if err != nil {
		t.Fatal(err)
	}
	if got.Name != "node-2" || got.Address != spec.Address {
		t.Errorf("got %+v, want got.Name = %v, got.Address = %v", got, "node-2", spec.Address)
	}
	read := func(name string) []byte {
		data, err := os.ReadFile(filepath.Join(spec.Disk, name))
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	var kubelet struct{ ProviderID, ClusterDomain, CgroupRoot string }
	if err := yaml.Unmarshal(read("etc/kubernetes/kubelet.yaml"), &kubelet); err != nil {
		t.Fatal(err)
	}
	if kubelet.ProviderID != spec.ProviderID || kubelet.CgroupRoot != "/" {
		t.Errorf("kubelet: %+v, want kubelet.ProviderID = %v, kubelet.CgroupRoot = %v", kubelet, spec.ProviderID, "/")
	}
	var cni struct {
		Plugins []struct {
			IPAM struct {
				Ranges [][]struct{ Subnet string }
			}
		}
	}
	if err := json.Unmarshal(read("etc/cni/net.d/10-pods.conflist"), &cni); err != nil {
		t.Fatal(err)
	}
	if got := cni.Plugins[0].IPAM.Ranges[0][0].Subnet; got != "10.231.2.0/24" {
		t.Errorf("pods get addresses of %s, want %s", got, "10.231.2.0/24")
	}
}

func TestLabelsAreInOrder(t *testing.T) {
	spec, _ := testSpec(t)
	const want = "node.kubernetes.io/instance-type=Standard_D8s_v5,topology.kubernetes.io/region=eastus,topology.kubernetes.io/zone=eastus-2"
	if got := spec.labels(); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
