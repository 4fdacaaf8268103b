package azure_test

import (
	"testing"

	"github.com/azuredisk-csi/azuredisk/provisioner/conformance"
)

func TestAzureConformsOverAzuresim(t *testing.T) {
	s := startSimulator(t)
	conformance.Run(t, func(t *testing.T) conformance.Harness { return s.harness(t) })
	var state struct{ Consistent bool }
	s.call(t, "GET", "/admin/check", nil, &state)
	if !state.Consistent {
		t.Error("azuresim is not consistent")
	}
}
