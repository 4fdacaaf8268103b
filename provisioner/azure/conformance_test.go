package azure_test

import (
	"testing"

	"github.com/azuredisk-csi/azuredisk/provisioner/conformance"
)

func TestAzureConformsOverAzuresim(t *testing.T) {
	for name, goalState := range map[string]string{"VMs list what they have": "off", "VMs list what they are to have": "on"} {
		t.Run(name, func(t *testing.T) {
			s := startSimulator(t)
			s.call(t, "PUT", "/admin/goal-state?value="+goalState, nil, nil)
			conformance.Run(t, func(t *testing.T) conformance.Harness { return s.harness(t) })
			var state struct{ Consistent bool }
			s.call(t, "GET", "/admin/check", nil, &state)
			if !state.Consistent {
				t.Error("azuresim is not consistent")
			}
		})
	}
}
