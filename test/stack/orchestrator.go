package stack

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

// callTimeout is what one call may take, as the sidecars bound theirs.
const callTimeout = 20 * time.Second

// retryDelay is the pause between two tries of a call, where a sidecar backs off.
const retryDelay = 50 * time.Millisecond

// Connect opens a connection to a CSI socket that survives restarts of the server.
func Connect(socket string) (*grpc.ClientConn, error) {
	conn, err := grpc.NewClient("unix://"+socket,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{
				BaseDelay:  20 * time.Millisecond,
				Multiplier: 1.5,
				MaxDelay:   200 * time.Millisecond,
			},
			MinConnectTimeout: time.Second,
		}))
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", socket, err)
	}
	return conn, nil
}

// persistently repeats a call until it succeeds or ctx ends, as the sidecars and
// the kubelet do. Codes that the caller says are final end it.
func persistently(ctx context.Context, what string, call func(context.Context) error, final ...codes.Code) error {
	for {
		bounded, cancel := context.WithTimeout(ctx, callTimeout)
		err := call(bounded)
		cancel()
		if err == nil {
			return nil
		}
		for _, code := range final {
			if status.Code(err) == code {
				return fmt.Errorf("%s: %w", what, err)
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %w, last: %w", what, ctx.Err(), err)
		case <-time.After(retryDelay):
		}
	}
}

// MountCapability is a filesystem volume that one node writes.
func MountCapability(fsType string) *csi.VolumeCapability {
	return &csi.VolumeCapability{
		AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: fsType}},
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
	}
}

// CreateVolume creates a volume with the parameters of a StorageClass, in the zone of the first
// node.
func (s *Stack) CreateVolume(ctx context.Context, name string, sizeBytes int64, parameters map[string]string) (*csi.Volume,
	error) {
	var volume *csi.Volume
	err := persistently(ctx, "create "+name, func(ctx context.Context) error {
		topology := &csi.Topology{Segments: map[string]string{TopologyKey: s.Zone}}
		response, err := s.controller.CreateVolume(ctx, &csi.CreateVolumeRequest{
			Name:               name,
			CapacityRange:      &csi.CapacityRange{RequiredBytes: sizeBytes},
			VolumeCapabilities: []*csi.VolumeCapability{MountCapability("")},
			Parameters:         parameters,
			AccessibilityRequirements: &csi.TopologyRequirement{
				Requisite: []*csi.Topology{topology},
				Preferred: []*csi.Topology{topology},
			},
		})
		volume = response.GetVolume()
		return err
	}, codes.InvalidArgument, codes.AlreadyExists)
	return volume, err
}

// DeleteVolume deletes a volume that no node uses.
func (s *Stack) DeleteVolume(ctx context.Context, id string) error {
	return persistently(ctx, "delete "+id, func(ctx context.Context) error {
		_, err := s.controller.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: id})
		return err
	}, codes.InvalidArgument)
}

// Modify changes a disk by the parameters of a VolumeAttributesClass.
func (s *Stack) Modify(ctx context.Context, id string, class map[string]string) error {
	return persistently(ctx, "modify "+id, func(ctx context.Context) error {
		request := &csi.ControllerModifyVolumeRequest{VolumeId: id, MutableParameters: class}
		_, err := s.controller.ControllerModifyVolume(ctx, request)
		return err
	}, codes.InvalidArgument, codes.FailedPrecondition)
}

// Expand grows a disk.
func (s *Stack) Expand(ctx context.Context, id string, sizeBytes int64) error {
	return persistently(ctx, "expand "+id, func(ctx context.Context) error {
		_, err := s.controller.ControllerExpandVolume(ctx, &csi.ControllerExpandVolumeRequest{
			VolumeId:         id,
			CapacityRange:    &csi.CapacityRange{RequiredBytes: sizeBytes},
			VolumeCapability: MountCapability(""),
		})
		return err
	}, codes.InvalidArgument, codes.FailedPrecondition)
}

// Snapshot takes a snapshot of a volume and deletes it.
func (s *Stack) Snapshot(ctx context.Context, name, id string) error {
	var snapshot *csi.Snapshot
	err := persistently(ctx, "snapshot "+name, func(ctx context.Context) error {
		response, err := s.controller.CreateSnapshot(ctx, &csi.CreateSnapshotRequest{Name: name, SourceVolumeId: id})
		snapshot = response.GetSnapshot()
		return err
	}, codes.InvalidArgument, codes.FailedPrecondition, codes.AlreadyExists)
	if err != nil {
		return err
	}
	return persistently(ctx, "delete snapshot "+name, func(ctx context.Context) error {
		_, err := s.controller.DeleteSnapshot(ctx, &csi.DeleteSnapshotRequest{SnapshotId: snapshot.GetSnapshotId()})
		return err
	}, codes.InvalidArgument)
}

// Use publishes, stages and publishes a volume on a node, as Kubernetes does for
// a pod, and returns the directory in which the pod would see it.
func (s *Stack) Use(ctx context.Context, volume *csi.Volume, node *Node) (string, error) {
	err := persistently(ctx, "publish to "+node.Name, func(ctx context.Context) error {
		_, err := s.controller.ControllerPublishVolume(ctx, &csi.ControllerPublishVolumeRequest{
			VolumeId:         volume.VolumeId,
			NodeId:           node.Name,
			VolumeCapability: MountCapability(""),
			VolumeContext:    volume.VolumeContext,
		})
		return err
	}, codes.InvalidArgument)
	if err != nil {
		return "", err
	}
	staging, target := node.paths(volume.VolumeId)
	err = persistently(ctx, "stage on "+node.Name, func(ctx context.Context) error {
		if err := os.MkdirAll(staging, 0o750); err != nil {
			return err
		}
		_, err := node.client.NodeStageVolume(ctx, &csi.NodeStageVolumeRequest{
			VolumeId:          volume.VolumeId,
			StagingTargetPath: staging,
			VolumeCapability:  MountCapability(""),
			VolumeContext:     volume.VolumeContext,
		})
		return err
	}, codes.InvalidArgument)
	if err != nil {
		return "", err
	}
	return target, persistently(ctx, "node publish on "+node.Name, func(ctx context.Context) error {
		if err := os.MkdirAll(filepath.Dir(target), 0o750); err != nil {
			return err
		}
		_, err := node.client.NodePublishVolume(ctx, &csi.NodePublishVolumeRequest{
			VolumeId:          volume.VolumeId,
			StagingTargetPath: staging,
			TargetPath:        target,
			VolumeCapability:  MountCapability(""),
			VolumeContext:     volume.VolumeContext,
		})
		return err
	}, codes.InvalidArgument)
}

// Release undoes Use.
func (s *Stack) Release(ctx context.Context, volume *csi.Volume, node *Node) error {
	staging, target := node.paths(volume.VolumeId)
	if err := persistently(ctx, "node unpublish on "+node.Name, func(ctx context.Context) error {
		_, err := node.client.NodeUnpublishVolume(ctx, &csi.NodeUnpublishVolumeRequest{
			VolumeId:   volume.VolumeId,
			TargetPath: target,
		})
		return err
	}); err != nil {
		return err
	}
	if err := persistently(ctx, "unstage on "+node.Name, func(ctx context.Context) error {
		_, err := node.client.NodeUnstageVolume(ctx, &csi.NodeUnstageVolumeRequest{
			VolumeId:          volume.VolumeId,
			StagingTargetPath: staging,
		})
		return err
	}); err != nil {
		return err
	}
	return persistently(ctx, "unpublish from "+node.Name, func(ctx context.Context) error {
		_, err := s.controller.ControllerUnpublishVolume(ctx, &csi.ControllerUnpublishVolumeRequest{
			VolumeId: volume.VolumeId,
			NodeId:   node.Name,
		})
		return err
	})
}
