package main

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/azuredisk-csi/azuredisk/internal/rpc/server"
)

// inProcess implements attachdetach.Publisher by calls to the CSI server of this process. They pass
// the server's interceptors, so that they are logged, counted and traced like the calls of
// csi-attacher.
type inProcess struct {
	publish   func(context.Context, *csi.ControllerPublishVolumeRequest) (*csi.ControllerPublishVolumeResponse, error)
	unpublish func(context.Context, *csi.ControllerUnpublishVolumeRequest) (*csi.ControllerUnpublishVolumeResponse, error)
}

func newInProcess(endpoint *server.Server, calls csi.ControllerServer) inProcess {
	return inProcess{
		publish: server.InProcess(endpoint, csi.Controller_ControllerPublishVolume_FullMethodName,
			calls.ControllerPublishVolume),
		unpublish: server.InProcess(endpoint, csi.Controller_ControllerUnpublishVolume_FullMethodName,
			calls.ControllerUnpublishVolume),
	}
}

func (p inProcess) ControllerPublishVolume(ctx context.Context,
	r *csi.ControllerPublishVolumeRequest) (*csi.ControllerPublishVolumeResponse, error) {
	return p.publish(ctx, r)
}

func (p inProcess) ControllerUnpublishVolume(ctx context.Context,
	r *csi.ControllerUnpublishVolumeRequest) (*csi.ControllerUnpublishVolumeResponse, error) {
	return p.unpublish(ctx, r)
}
