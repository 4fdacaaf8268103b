package identity_test

import (
	"context"
	"errors"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/azuredisk-csi/azuredisk/internal/rpc/identity"
)

func TestPluginInfo(t *testing.T) {
	server := identity.New(identity.Options{DriverName: "disk.csi.azure.com", Version: "v2.0.0"})
	info, err := server.GetPluginInfo(t.Context(), &csi.GetPluginInfoRequest{})
	if err != nil || info.GetName() != "disk.csi.azure.com" || info.GetVendorVersion() != "v2.0.0" {
		t.Errorf("GetPluginInfo = %v, %v", info, err)
	}
	_, err = identity.New(identity.Options{DriverName: "disk.csi.azure.com"}).GetPluginInfo(t.Context(),
		&csi.GetPluginInfoRequest{})
	if status.Code(err) != codes.Unavailable {
		t.Errorf("without a version: %v, want Unavailable", err)
	}
}

func TestPluginCapabilities(t *testing.T) {
	server := identity.New(
		identity.Options{Expansion: []csi.PluginCapability_VolumeExpansion_Type{csi.PluginCapability_VolumeExpansion_OFFLINE}},
	)
	got, err := server.GetPluginCapabilities(t.Context(), &csi.GetPluginCapabilitiesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	want := map[csi.PluginCapability_Service_Type]bool{
		csi.PluginCapability_Service_CONTROLLER_SERVICE:                 true,
		csi.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS:   true,
		csi.PluginCapability_Service_SNAPSHOT_ACCESSIBILITY_CONSTRAINTS: true,
	}
	expansion := 0
	for _, capability := range got.GetCapabilities() {
		if service := capability.GetService(); service != nil {
			delete(want, service.GetType())
		}
		if capability.GetVolumeExpansion().GetType() == csi.PluginCapability_VolumeExpansion_OFFLINE {
			expansion++
		}
	}
	if len(want) != 0 || expansion != 1 {
		t.Errorf("missing %v, offline expansion named %d times", want, expansion)
	}
}

func TestProbe(t *testing.T) {
	tests := map[string]struct {
		ready func(context.Context) error
		want  bool
	}{
		"a plug-in with nothing to wait for is ready": {nil, true},
		"a plug-in that is ready says so":             {func(context.Context) error { return nil }, true},
		"a plug-in that waits answers not ready":      {func(context.Context) error { return errors.New("not yet") }, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := identity.New(identity.Options{Ready: test.ready}).Probe(t.Context(), &csi.ProbeRequest{})
			if err != nil || got.GetReady().GetValue() != test.want {
				t.Errorf("Probe = %v, %v, want %v", got, err, test.want)
			}
		})
	}
}
