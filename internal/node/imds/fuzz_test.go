package imds

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/azuredisk-csi/azuredisk/internal/plan/resourceid"
)

// FuzzInstanceMetadata reads any answer as that of the instance metadata service. What is taken
// names a VM.
func FuzzInstanceMetadata(f *testing.F) {
	for _, seed := range []string{
		`{"resourceId":"/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/vm","vmSize":"Standard_D4s_v5","location":"EastUS","zone":"1"}`,
		`{"resourceId":"/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/set/virtualMachines/0","zone":null}`,
		`{"resourceId":"/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks/d"}`,
		`{"resourceId":"/subscriptions//resourceGroups/"}`,
		`{"resourceId":7}`, `{}`, `[]`, `null`, ``, `<html>proxy</html>`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		spec, err := parse(body)
		if err == nil && (!resourceid.IsVM(spec.VMID) || spec.Location != strings.ToLower(spec.Location)) {
			t.Errorf("taken: %+v", spec)
		}
	})
}

// FuzzNodeLabels reads any labels as those of a Node. What is taken names a VM, and only
// `<region>-<zone>` is a zone.
func FuzzNodeLabels(f *testing.F) {
	f.Add("azure:///subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/vm", "eastus", "eastus-1",
		"Standard_D4s_v5")
	f.Add("azure:///subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/set/virtualMachines/0",
		"eastus", "0", "")
	f.Add("aws:///i-1", "", "-1", "")
	f.Fuzz(func(t *testing.T, provider, region, zone, size string) {
		spec, err := FromNode(&corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{
				corev1.LabelTopologyRegion: region, corev1.LabelTopologyZone: zone, corev1.LabelInstanceTypeStable: size,
			}},
			Spec: corev1.NodeSpec{ProviderID: provider},
		})
		otherZone := spec.Zone != "" && strings.ToLower(zone) != spec.Location+"-"+spec.Zone
		if err == nil && (!resourceid.IsVM(spec.VMID) || otherZone) {
			t.Errorf("taken: %+v", spec)
		}
	})
}
