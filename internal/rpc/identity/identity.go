// Package identity is the CSI Identity server. The controller plug-in and the
// node plug-in both serve it, in addition to their own service.
package identity

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// Options of a Server.
type Options struct {
	// DriverName as in "disk.csi.azure.com".
	DriverName string
	// Version of the driver.
	Version string
	// Ready reports whether the plug-in can serve; nil for always. If it returns an error, the
	// probe does not fail: it says that the plug-in is running and not ready.
	Ready func(context.Context) error
	// Expansion lists the ways in which volumes can grow, if the plug-in grows any.
	Expansion []csi.PluginCapability_VolumeExpansion_Type
}

// Server serves csi.v1.Identity.
type Server struct {
	csi.UnimplementedIdentityServer
	options Options
}

// New returns a Server.
func New(options Options) *Server { return &Server{options: options} }

// GetPluginInfo returns the driver's name and version.
func (s *Server) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	if s.options.DriverName == "" || s.options.Version == "" {
		return nil, status.Error(codes.Unavailable, "the driver has no name or no version")
	}
	return &csi.GetPluginInfoResponse{Name: s.options.DriverName, VendorVersion: s.options.Version}, nil
}

// GetPluginCapabilities says that the driver has a controller service, and that volumes and snapshots
// are accessible only from a part of the cluster.
func (s *Server) GetPluginCapabilities(context.Context, *csi.GetPluginCapabilitiesRequest) (*csi.GetPluginCapabilitiesResponse,
	error) {
	capabilities := []*csi.PluginCapability{
		service(csi.PluginCapability_Service_CONTROLLER_SERVICE),
		service(csi.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS),
		service(csi.PluginCapability_Service_SNAPSHOT_ACCESSIBILITY_CONSTRAINTS),
	}
	for _, kind := range s.options.Expansion {
		capabilities = append(capabilities, &csi.PluginCapability{Type: &csi.PluginCapability_VolumeExpansion_{
			VolumeExpansion: &csi.PluginCapability_VolumeExpansion{Type: kind},
		}})
	}
	return &csi.GetPluginCapabilitiesResponse{Capabilities: capabilities}, nil
}

// Probe returns whether the plug-in is ready. It never fails, because a plug-in that waits for the
// API server must not be restarted.
func (s *Server) Probe(ctx context.Context, _ *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	ready := s.options.Ready == nil || s.options.Ready(ctx) == nil
	return &csi.ProbeResponse{Ready: wrapperspb.Bool(ready)}, nil
}

func service(kind csi.PluginCapability_Service_Type) *csi.PluginCapability {
	return &csi.PluginCapability{Type: &csi.PluginCapability_Service_{
		Service: &csi.PluginCapability_Service{Type: kind},
	}}
}
