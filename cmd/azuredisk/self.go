package main

import (
	"context"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/azuredisk-csi/azuredisk/internal/unixsocket"
)

// self makes calls to this process' own CSI endpoint. It goes the way that csi-attacher's calls would, so that they are logged,
// counted and traced like all others.
type self struct{ calls csi.ControllerClient }

// dialSelf returns a client of the endpoint. It waits for the endpoint at each call and not here; the connection is closed when ctx ends.
func dialSelf(ctx context.Context, endpoint string) (self, error) {
	path, err := unixsocket.Path(endpoint)
	if err != nil {
		return self{}, err
	}
	connection, err := grpc.NewClient("unix:"+path, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	if err != nil {
		return self{}, fmt.Errorf("dial the own endpoint: %w", err)
	}
	context.AfterFunc(ctx, func() { _ = connection.Close() })
	return self{csi.NewControllerClient(connection)}, nil
}

// ControllerPublishVolume implements attachdetach.Publisher.
func (s self) ControllerPublishVolume(ctx context.Context, request *csi.ControllerPublishVolumeRequest) (*csi.ControllerPublishVolumeResponse, error) {
	return s.calls.ControllerPublishVolume(ctx, request)
}

// ControllerUnpublishVolume implements attachdetach.Publisher.
func (s self) ControllerUnpublishVolume(ctx context.Context, request *csi.ControllerUnpublishVolumeRequest) (*csi.ControllerUnpublishVolumeResponse, error) {
	return s.calls.ControllerUnpublishVolume(ctx, request)
}
