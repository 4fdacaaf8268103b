package csi

import (
	"context"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/rpc/status"
)

// capacityInterval is how often a starting node reads its capacity in the AzDriverNode.
const capacityInterval = 500 * time.Millisecond

// NodeGetInfo implements csi.NodeServer.
func (s *Server) NodeGetInfo(ctx context.Context, _ *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	limit, err := s.volumeLimit(ctx)
	if err != nil {
		return nil, status.From(err)
	}
	return &csi.NodeGetInfoResponse{
		NodeId:             s.options.NodeName,
		MaxVolumesPerNode:  limit,
		AccessibleTopology: &csi.Topology{Segments: s.topology()},
	}, nil
}

// topology has the V1 driver's keys. On a node without a zone the driver's own key has an empty
// value.
func (s *Server) topology() map[string]string {
	key := apiv1.ZoneLabel(s.options.DriverName)
	if s.options.Instance.Zone == "" {
		return map[string]string{key: ""}
	}
	zone := s.options.Instance.Location + "-" + s.options.Instance.Zone
	return map[string]string{key: zone, corev1.LabelTopologyZone: zone}
}

// volumeLimit is the number of data disks of the VM's size, less the disks that were attached
// outside the driver. Replicas are not subtracted, because the controller evicts them; volumes in
// use are not, because the scheduler counts them itself. The kubelet calls when the driver
// registers, in the interval that the CSIDriver sets, and when an attach fails because the node is
// full. For a VM size that Azure does not list, the fallback counts. First volumeLimit waits until
// the controller has found the VM's size, because 0 would mean no limit.
func (s *Server) volumeLimit(ctx context.Context) (int64, error) {
	if s.options.Limit.Volumes > 0 {
		return s.options.Limit.Volumes, nil
	}
	ticker := s.options.Clock.NewTicker(capacityInterval)
	defer ticker.Stop()
	patience := s.options.Clock.NewTimer(s.options.Limit.Patience)
	defer patience.Stop()
	for {
		capacity, err := s.options.Report.Capacity(ctx)
		if err != nil {
			return 0, err
		}
		if capacity != nil {
			most := int64(capacity.MaxDataDisks)
			if most <= 0 { // Azure does not list the size
				most = s.options.Limit.Fallback
			}
			outside := max(int64(capacity.ForeignDisks), s.options.Limit.Reserved)
			// At least 1, because 0 means no limit.
			return max(1, most-outside), nil
		}
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-patience.C():
			logr.FromContextOrDiscard(ctx).Info("the controller has not written the node's capacity in time; using the fallback",
				"assumed", s.options.Limit.Fallback)
			return s.options.Limit.Fallback, nil
		case <-ticker.C():
		}
	}
}
