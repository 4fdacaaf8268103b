package inventory

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cluster"
	"github.com/azuredisk-csi/azuredisk/internal/pagetoken"
	"github.com/azuredisk-csi/azuredisk/internal/plan/nodehealth"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
	"github.com/azuredisk-csi/azuredisk/internal/rpc/status"
	"github.com/azuredisk-csi/azuredisk/internal/volumehandle"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// +kubebuilder:rbac:groups="",resources=persistentvolumes,verbs=get;list;watch

// ListVolumes lists the driver's volumes: its AzVolumes, and the disks of PersistentVolumes that it
// has not adopted yet. It reads the cache, and, while there are disks that are not adopted, one
// list of disks from Azure per resource group every few minutes. A volume has the ID that its
// PersistentVolume has, to the letter, because the attacher looks it up by that.
func (s *Lister) ListVolumes(ctx context.Context, request *csi.ListVolumesRequest) (*csi.ListVolumesResponse, error) {
	ctx, cancel := s.Bound(ctx)
	defer cancel()
	all, err := s.inventory(ctx)
	if err != nil {
		return nil, status.From(err)
	}
	page, next, err := pagetoken.Cut(pagetoken.Page{
		Of:            "volumes",
		StartingToken: request.GetStartingToken(),
		MaxEntries:    request.GetMaxEntries(),
	}, all, func(l listed) string { return l.id })
	if err != nil {
		return nil, status.From(err)
	}
	look, err := s.newLook(ctx)
	if err != nil {
		return nil, status.From(err)
	}
	response := &csi.ListVolumesResponse{NextToken: next}
	for _, l := range page {
		entry, err := look.entry(ctx, l)
		if err != nil {
			return nil, status.From(err)
		}
		response.Entries = append(response.Entries, entry)
	}
	return response, nil
}

// listed is a volume in a list.
type listed struct {
	id     string
	handle volumehandle.Handle
	// volume is nil if the disk has not been adopted.
	volume *apiv1.AzVolume
}

// inventory returns all volumes in the cache, in no order. The objects are the cache's own.
func (s *Lister) inventory(ctx context.Context) ([]listed, error) {
	var volumes apiv1.AzVolumeList
	if err := s.Client.List(ctx, &volumes, client.InNamespace(s.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list AzVolumes: %w", err)
	}
	var pvs corev1.PersistentVolumeList
	if err := s.Client.List(ctx, &pvs, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list PersistentVolumes: %w", err)
	}
	byName := make(map[string]*apiv1.AzVolume, len(volumes.Items))
	for i := range volumes.Items {
		byName[volumes.Items[i].Name] = &volumes.Items[i]
	}
	var all []listed
	ids, listedNames := map[string]bool{}, map[string]bool{}
	for i := range pvs.Items {
		id := cluster.DiskNamedBy(&pvs.Items[i], s.DriverName)
		handle, err := volumehandle.Parse(id)
		if err != nil || ids[id] { // such a handle was never that of a disk
			continue
		}
		ids[id] = true
		l := listed{id: id, handle: handle}
		if v := byName[handle.VolumeName()]; v != nil && volumehandle.Of(v.Spec.Disk).Same(handle) {
			l.volume = v
			listedNames[v.Name] = true
		}
		all = append(all, l)
	}
	for name, v := range byName {
		id := v.Status.DiskID
		if id != "" && v.Spec.Origin == apiv1.OriginAdopted {
			id = volumehandle.Of(v.Spec.Disk).String() // a pod that names the disk itself was published with this ID
		}
		if id != "" && !listedNames[name] && !ids[id] {
			all = append(all, listed{
				id:     id,
				handle: volumehandle.Of(v.Spec.Disk),
				volume: v,
			})
		}
	}
	return all, nil
}

// look makes the entries of one call.
type look struct {
	*Lister
	nodeOf map[string]string // node by VM ID in lower case
}

func (s *Lister) newLook(ctx context.Context) (*look, error) {
	l := &look{Lister: s, nodeOf: map[string]string{}}
	identities, err := cluster.Identities(ctx, s.Client, s.Namespace)
	if err != nil {
		return nil, err
	}
	for name, identity := range identities {
		if identity.VMID != "" {
			l.nodeOf[strings.ToLower(identity.VMID)] = name
		}
	}
	return l, nil
}

// reachable returns a function that reports whether a node that was lost is reachable again.
func (s *Lister) reachable(ctx context.Context) func(node string) bool {
	return func(node string) bool {
		d := &apiv1.AzDriverNode{}
		if err := s.Client.Get(ctx, s.Key(node), d); err != nil {
			return false
		}
		state, _ := nodehealth.Published(d)
		return state == nodehealth.Healthy || state == nodehealth.Unknown
	}
}

// attachedTo returns the nodes whose VMs Azure names.
func (l *look) attachedTo(disk provisioner.Disk) []string {
	var nodes []string
	for _, vm := range disk.AttachedTo {
		if node := l.nodeOf[strings.ToLower(vm)]; node != "" {
			nodes = append(nodes, node)
		}
	}
	slices.Sort(nodes)
	return nodes
}

func (l *look) entry(ctx context.Context, v listed) (*csi.ListVolumesResponse_Entry, error) {
	if v.volume == nil {
		return l.notAdopted(ctx, v)
	}
	attachments, err := l.Attachments(ctx, l.Client, v.volume.Name)
	if err != nil {
		return nil, err
	}
	return l.render(v.id, v.volume.Status.SizeBytes, l.Topology.Accessible(v.volume.Spec.Disk),
		ownership.PublishedTo(v.volume, attachments, l.reachable(ctx))), nil
}

// notAdopted is the entry of a disk without an AzVolume: Azure says where it is attached.
func (l *look) notAdopted(ctx context.Context, v listed) (*csi.ListVolumesResponse_Entry, error) {
	disks, err := l.cached.group(ctx, v.handle)
	if errors.Is(err, provisioner.Unauthorized) {
		logr.FromContextOrDiscard(ctx).Error(err, "cannot list the disks of a resource group", "resourceGroup",
			v.handle.ResourceGroup)
		return l.render(v.id, 0, nil, nil), nil
	}
	if err != nil {
		// After an entry without its nodes the attacher would publish every volume of the V1 driver
		// again.
		return nil, fmt.Errorf("list disks: %w", err)
	}
	return l.entryOfDisk(v.id, disks[strings.ToLower(v.handle.String())]), nil
}

// entryOfDisk is the entry of a disk that has not been adopted. The entry of a disk that does not
// exist has the ID only.
func (l *look) entryOfDisk(id string, disk provisioner.Disk) *csi.ListVolumesResponse_Entry {
	if disk.ID == "" {
		return l.render(id, 0, nil, nil)
	}
	accessible := l.Topology.Accessible(apiv1.DiskParameters{
		Location:     disk.Location,
		Zone:         disk.Zone,
		DiskSettings: apiv1.DiskSettings{SKUName: disk.SKUName},
	})
	return l.render(id, disk.SizeBytes, accessible, l.attachedTo(disk))
}

func (l *look) render(id string, size int64, accessible []*csi.Topology, nodes []string) *csi.ListVolumesResponse_Entry {
	return &csi.ListVolumesResponse_Entry{
		Volume: &csi.Volume{
			VolumeId:           id,
			CapacityBytes:      size,
			AccessibleTopology: accessible,
		},
		Status: &csi.ListVolumesResponse_VolumeStatus{PublishedNodeIds: nodes},
	}
}
