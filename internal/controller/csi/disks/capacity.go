package disks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/bits"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/go-logr/logr"
	"google.golang.org/protobuf/types/known/wrapperspb"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cluster"
	"github.com/azuredisk-csi/azuredisk/internal/controller/csi/call"
	"github.com/azuredisk-csi/azuredisk/internal/controller/csi/topology"
	"github.com/azuredisk-csi/azuredisk/internal/parameters/volumeparams"
	"github.com/azuredisk-csi/azuredisk/internal/rpc/status"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// plenty is the capacity that is reported where nothing limits it: 1 EiB.
const plenty = int64(1) << 60

// GetCapacity says how many bytes of disks with the parameters of a StorageClass a place can have:
// none if Azure does not offer the SKU there, otherwise what the subscription's quota leaves in the
// region, in disks of the largest size. A small number is exact, and a large one is rounded. The
// quota and the list of SKUs are read at intervals, and not with each call. For parameters that
// CreateVolume refuses there is room everywhere: otherwise the scheduler would say that storage is
// missing, and CreateVolume could not say on the claim what is wrong.
func (s *Provisioner) GetCapacity(ctx context.Context, request *csi.GetCapacityRequest) (*csi.GetCapacityResponse, error) {
	ctx, cancel := s.Bound(ctx)
	defer cancel()
	response, err := s.capacity(ctx, request)
	return response, status.From(err)
}

func (s *Provisioner) capacity(ctx context.Context, request *csi.GetCapacityRequest) (*csi.GetCapacityResponse, error) {
	p, err := volumeparams.Parse(withoutReserved(request.GetParameters()))
	var low int64
	if err == nil {
		low, _, err = sizes(p, 0)
	}
	if err != nil {
		logr.FromContextOrDiscard(ctx).V(1).Info("the parameters are refused", "reason", err.Error())
		return &csi.GetCapacityResponse{AvailableCapacity: plenty}, nil
	}
	if len(request.GetVolumeCapabilities()) > 0 {
		_, fault, err := call.AccessOf(request.GetVolumeCapabilities(), p.Shares())
		if err != nil {
			return nil, err
		}
		if fault != "" {
			return nothing(ctx, fault), nil
		}
	}
	where, named, err := s.Topology.Of(request.GetAccessibleTopology())
	if err != nil {
		return nil, err
	}
	if where.Location == "" {
		where.Location = cmp.Or(p.Location, s.Location)
	}
	if p.Location != "" && p.Location != where.Location {
		return nothing(ctx, fmt.Sprintf("disks are made in %s, and cannot be used in %s", p.Location, where.Location)), nil
	}
	o, err := s.offer(ctx, where, need{skuName: p.SKU(), sizeBytes: low})
	switch {
	case err != nil:
		return nil, err
	case o.refused != "" && (named || o.nowhere):
		return nothing(ctx, o.refused), nil
	case o.unknown != nil && !errors.Is(o.unknown, provisioner.Unauthorized):
		return nil, o.unknown
	}
	if named {
		if can, err := s.nodesSupport(ctx, where, p.SKU()); err != nil || !can {
			return nothing(ctx, fmt.Sprintf("no VM in %s can have %s disks attached", where, p.SKU())), err
		}
	}
	left, err := s.SKUs.Quota(ctx, p.SubscriptionID, where.Location, p.SKU())
	if err != nil {
		// Pods are scheduled without a known quota: Azure decides when the disk is created.
		if !errors.Is(err, provisioner.Unauthorized) && !errors.Is(err, provisioner.NotFound) {
			return nil, err
		}
		logr.FromContextOrDiscard(ctx).V(1).Info("the quota is not known", "reason", err.Error())
		left = provisioner.DiskQuota{Disks: provisioner.Unlimited, SizeBytes: provisioner.Unlimited}
	}
	return room(ctx, p, o.limits.MaxSizeBytes, left)
}

// nodesSupport reports whether a node in a place has a VM that can have disks of the SKU, or
// whether no node of the place is known yet.
func (s *Provisioner) nodesSupport(ctx context.Context, p topology.Place, skuName string) (bool, error) {
	var nodes apiv1.AzDriverNodeList
	if err := s.Client.List(ctx, &nodes, client.InNamespace(s.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return false, fmt.Errorf("list nodes: %w", err)
	}
	identities, err := cluster.Identities(ctx, s.Client, s.Namespace)
	if err != nil {
		return false, err
	}
	known := false
	for i := range nodes.Items {
		d := &nodes.Items[i]
		if at := identities[d.Name]; at.VMID == "" || at.Zone != p.Zone || !strings.EqualFold(at.Location, p.Location) {
			continue
		}
		if d.Capacity().Takes(skuName) {
			return true, nil
		}
		known = true
	}
	return !known, nil
}

// withoutReserved returns the parameters of a StorageClass without the parameters that
// csi-provisioner reads itself.
func withoutReserved(parameters map[string]string) map[string]string {
	kept := maps.Clone(parameters)
	maps.DeleteFunc(kept, func(key, _ string) bool { return strings.HasPrefix(key, "csi.storage.k8s.io/") })
	return kept
}

// room returns the answer from the largest disk of the SKU, 0 if that is not known, and the quota.
func room(ctx context.Context, p volumeparams.Parameters, maxSize int64, left provisioner.DiskQuota) (*csi.GetCapacityResponse,
	error) {
	low, high, err := sizes(p, maxSize)
	if err != nil {
		return nil, err
	}
	available := plenty
	if left.SizeBytes != provisioner.Unlimited {
		available, high = min(available, rounded(left.SizeBytes, manyBytes)), min(high, left.SizeBytes)
	}
	if left.Disks == 0 || high < low {
		return nothing(ctx, fmt.Sprintf("the quota for %s disks is used up", p.SKU())), nil
	}
	if disks := rounded(left.Disks, manyDisks); disks != provisioner.Unlimited && disks < plenty/high {
		available = min(available, disks*high)
	}
	return &csi.GetCapacityResponse{
		AvailableCapacity: available,
		MaximumVolumeSize: wrapperspb.Int64(high),
		MinimumVolumeSize: wrapperspb.Int64(low),
	}, nil
}

// The rest of a quota is reported exactly up to these numbers, and above them as the next lower
// power of two. Otherwise every new disk of the subscription would change every CSIStorageCapacity
// object.
const (
	manyDisks = 64
	manyBytes = 64 << 40
)

func rounded(n, many int64) int64 {
	if n <= many {
		return n
	}
	return 1 << (bits.Len64(uint64(n)) - 1)
}

// nothing is the answer for a place that cannot have the disk. The largest size is 0 too, because
// schedulers read that first.
func nothing(ctx context.Context, why string) *csi.GetCapacityResponse {
	logr.FromContextOrDiscard(ctx).V(1).Info("no capacity", "reason", why)
	return &csi.GetCapacityResponse{MaximumVolumeSize: wrapperspb.Int64(0)}
}

// steps are sizes in GiB at which what a disk may have changes: the sizes of Azure's performance
// tiers and the next.
var steps = []int64{4, 5, 8, 9, 16, 17, 32, 33, 64, 65, 128, 129, 256, 257, 512, 513, 1024, 1025, 2048, 2049, 4096, 4097, 8192,
	8193, 16384, 16385, 32767}

// sizes returns the smallest and the largest of these sizes that disks with the parameters can
// have; maxSize is the SKU's largest, 0 if that is not known. The error is an InvalidArgument: no
// disk has such parameters.
func sizes(p volumeparams.Parameters, maxSize int64) (low, high int64, err error) {
	smallest, err := p.Size(0, 0)
	if err != nil {
		return 0, 0, err
	}
	candidates := []int64{smallest}
	for _, step := range steps {
		if size := step * volumeparams.GiB; size > smallest && (maxSize == 0 || size < maxSize) {
			candidates = append(candidates, size)
		}
	}
	if maxSize > smallest {
		candidates = append(candidates, maxSize)
	}
	for _, size := range candidates {
		switch fault := p.CheckSize(size); {
		case fault != nil && err == nil:
			err = fault
		case fault == nil && low == 0:
			low, high = size, size
		case fault == nil:
			high = size
		}
	}
	if low == 0 {
		return 0, 0, err
	}
	return low, high, nil
}
