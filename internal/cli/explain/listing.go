package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/attaching"
	"github.com/azuredisk-csi/azuredisk/internal/plan/nodehealth"
)

// VolumeRow is one volume in the list of all.
type VolumeRow struct {
	// Namespace and Claim name the claim that the volume was provisioned for; "" for none.
	Namespace string `json:"namespace,omitempty"`
	Claim     string `json:"claim,omitempty"`
	// PersistentVolume and AzVolume are the names of the volume's objects.
	PersistentVolume string `json:"persistentVolume,omitempty"`
	AzVolume         string `json:"azVolume"`
	// State is the disk's, as in "Created".
	State string `json:"state"`
	// Reasons are the reasons of the conditions that say what is missing or under way.
	Reasons []string `json:"reasons,omitempty"`
	// Primaries are the nodes that have the volume. A raw block volume can have several.
	Primaries []string `json:"primaryNodes,omitempty"`
	// Ownership is the state of the only primary of a volume, as in "Held".
	Ownership string `json:"ownership,omitempty"`
	Epoch     int64  `json:"epoch,omitempty"`
	// ReplicasReady and ReplicasWanted count the replicas.
	ReplicasReady  int32 `json:"replicasReady"`
	ReplicasWanted int32 `json:"replicasWanted"`
	// Warm are the nodes with an attached replica, which a pod reaches without an attach.
	Warm []string `json:"warmNodes,omitempty"`
	// Fencing is how the volume is taken from a lost node.
	Fencing string `json:"fencing,omitempty"`
}

// VolumeRows returns a row for each volume, by claim. Without a namespace, it returns also the
// volumes that were provisioned for no claim.
func VolumeRows(volumes []*apiv1.AzVolume, attachments []*apiv1.AzVolumeAttachment, namespace string) []VolumeRow {
	of := map[string][]*apiv1.AzVolumeAttachment{}
	for _, a := range attachments {
		of[a.Spec.VolumeName] = append(of[a.Spec.VolumeName], a)
	}
	rows := []VolumeRow{}
	for _, v := range volumes {
		row := volumeRow(v, of[v.Name])
		if namespace == "" || row.Namespace == namespace {
			rows = append(rows, row)
		}
	}
	slices.SortFunc(rows, func(a, b VolumeRow) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Claim, b.Claim), cmp.Compare(a.AzVolume, b.AzVolume))
	})
	return rows
}

func volumeRow(az *apiv1.AzVolume, attachments []*apiv1.AzVolumeAttachment) VolumeRow {
	row := VolumeRow{
		PersistentVolume: az.Status.PersistentVolume,
		AzVolume:         az.Name,
		State:            string(cmp.Or(az.Status.State, apiv1.VolumePending)),
		Reasons:          volumeReasons(az),
		ReplicasWanted:   az.WantedReplicas(),
		Fencing:          string(az.Status.Fencing),
	}
	row.Namespace, row.Claim = az.Claim().Namespace, az.Claim().Name
	if r := az.Status.Replicas; r != nil {
		row.ReplicasReady, row.ReplicasWanted = r.Ready, r.Wanted
	}
	if p := az.Status.Primary; p != nil {
		row.Ownership, row.Epoch = string(p.State), p.Epoch
		if p.State != apiv1.OwnershipReleased {
			row.Primaries = []string{p.NodeName}
		}
	}
	for _, a := range attachments {
		switch {
		case a.DeletionTimestamp != nil || a.Status.State != apiv1.AttachmentAttached:
		case a.Spec.Role == apiv1.RoleReplica:
			row.Warm = append(row.Warm, a.Spec.NodeName)
		case az.Spec.Access == apiv1.AccessMultiNode:
			row.Primaries = append(row.Primaries, a.Spec.NodeName)
		}
	}
	slices.Sort(row.Primaries)
	slices.Sort(row.Warm)
	return row
}

// volumeReasons are the reasons of the conditions that are not True, and of Paused if that is.
func volumeReasons(az *apiv1.AzVolume) []string {
	var reasons []string
	switch {
	case az.Leaving():
		reasons = append(reasons, apiv1.ReasonDiskDeleting)
	case az.DeletionTimestamp != nil:
		reasons = append(reasons, apiv1.ReasonVolumeDeletionHeld)
	}
	for _, kind := range []string{
		apiv1.VolumeConditionUsable, apiv1.VolumeConditionWritesKept, apiv1.VolumeConditionReady, apiv1.VolumeConditionUpdated,
		apiv1.VolumeConditionReplicasAttached, apiv1.VolumeConditionPublished, apiv1.VolumeConditionDiskAsRecorded,
	} {
		c := meta.FindStatusCondition(az.Status.Conditions, kind)
		if c != nil && c.Status != metav1.ConditionTrue && !slices.Contains(reasons, c.Reason) {
			reasons = append(reasons, c.Reason)
		}
	}
	if meta.IsStatusConditionTrue(az.Status.Conditions, apiv1.VolumeConditionPaused) {
		reasons = append(reasons, apiv1.ReasonVolumePaused)
	}
	return reasons
}

// NodeRow is one node in the list of all.
type NodeRow struct {
	Name   string `json:"name"`
	Zone   string `json:"zone,omitempty"`
	VMSize string `json:"vmSize,omitempty"`
	// Kubelet is whether Kubernetes sees the node as Ready; "" if that is not readable.
	Kubelet string `json:"kubelet,omitempty"`
	// State is how the driver sees the node, as in "Healthy".
	State string `json:"state"`
	// Reasons are the reasons of the conditions that say what is wrong with it.
	Reasons []string `json:"reasons,omitempty"`
	// Primaries and Replicas count the disks that are attached, or are to be, in each role.
	Primaries int `json:"primaries"`
	Replicas  int `json:"replicas"`
	// SlotsFree and Slots count the data disks that the VM can take from the driver; nil if that is
	// not known.
	SlotsFree *int32 `json:"slotsFree,omitempty"`
	Slots     *int32 `json:"slots,omitempty"`
}

// The values of NodeRow.Kubelet.
const (
	kubeletReady    = "Ready"
	kubeletNotReady = "NotReady"
	kubeletNoNode   = "NoNode"
)

// NodeRows returns a row for each node that a node plug-in has reported from, by name. nodes is nil
// if they are not readable.
func NodeRows(drivers []*apiv1.AzDriverNode, nodes []*corev1.Node, attachments []*apiv1.AzVolumeAttachment) []NodeRow {
	on := map[string][]*apiv1.AzVolumeAttachment{}
	for _, a := range attachments {
		on[a.Spec.NodeName] = append(on[a.Spec.NodeName], a)
	}
	kubelet := map[string]string{}
	for _, n := range nodes {
		kubelet[n.Name] = kubeletNotReady
		if nodehealth.KubeletReady(n) {
			kubelet[n.Name] = kubeletReady
		}
	}
	rows := []NodeRow{}
	for _, d := range drivers {
		row := nodeRow(d, on[d.Name])
		if nodes != nil {
			row.seenBy(cmp.Or(kubelet[row.Name], kubeletNoNode))
		}
		rows = append(rows, row)
	}
	slices.SortFunc(rows, func(a, b NodeRow) int { return cmp.Compare(a.Name, b.Name) })
	return rows
}

// seenBy records how Kubernetes sees the node. One that is not Ready is not known to be healthy, although
// its node plug-in reports.
func (r *NodeRow) seenBy(kubelet string) {
	r.Kubelet = kubelet
	if kubelet == kubeletReady || r.State != string(nodehealth.Healthy) {
		return
	}
	r.State = stateUnknown
	if kubelet == kubeletNoNode {
		r.Reasons = append(r.Reasons, apiv1.ReasonNodeGone)
	} else {
		r.Reasons = append(r.Reasons, apiv1.ReasonNodeNotReady)
	}
}

func nodeRow(d *apiv1.AzDriverNode, attachments []*apiv1.AzVolumeAttachment) NodeRow {
	row := NodeRow{
		Name:   d.Name,
		Zone:   d.Spec.Zone,
		VMSize: d.Spec.VMSize,
		State:  string(nodehealth.PublishedJudgement(d).State),
	}
	if d.Spec.Zone != "" && d.Spec.Location != "" {
		row.Zone = d.Spec.Location + "-" + d.Spec.Zone
	}
	for _, kind := range []string{
		apiv1.NodeConditionReachable, apiv1.NodeConditionPluginReady, apiv1.NodeConditionVMKnown, apiv1.NodeConditionUndisturbed,
		apiv1.NodeConditionFailoverEnabled,
	} {
		if c := meta.FindStatusCondition(d.Status.Conditions, kind); c != nil && c.Status != metav1.ConditionTrue {
			row.Reasons = append(row.Reasons, c.Reason)
		}
	}
	for _, a := range attachments {
		if a.Spec.Role == apiv1.RolePrimary {
			row.Primaries++
		} else {
			row.Replicas++
		}
	}
	if slots := attaching.SlotLimit(d.Capacity()); slots >= 0 {
		free := attaching.FreeSlots(d.Capacity(), attachments)
		row.Slots, row.SlotsFree = &slots, &free
	}
	return row
}

// Columns of the tables.
var (
	VolumeColumns = []string{"NAMESPACE", "CLAIM", "STATE", "PRIMARY", "REPLICAS", "WARM ON", "FENCING"}
	NodeColumns   = []string{"NODE", "ZONE", "VM SIZE", "KUBELET", "STATE", "PRIMARIES", "REPLICAS", "SLOTS FREE"}
)

func (VolumeRow) columns() []string { return VolumeColumns }

func (NodeRow) columns() []string { return NodeColumns }

// Cells are the row for a terminal.
func (r VolumeRow) Cells() []string {
	primary := strings.Join(r.Primaries, ",")
	if primary != "" && r.Ownership != "" && r.Ownership != string(apiv1.OwnershipHeld) {
		primary += " (" + r.Ownership + ")"
	}
	return []string{
		r.Namespace, cmp.Or(r.Claim, r.PersistentVolume, r.AzVolume), state(r.State, r.Reasons), primary,
		fmt.Sprintf("%d/%d", r.ReplicasReady, r.ReplicasWanted), strings.Join(r.Warm, ","), r.Fencing,
	}
}

// Cells are the row for a terminal.
func (r NodeRow) Cells() []string {
	free := ""
	if r.SlotsFree != nil {
		free = fmt.Sprintf("%d/%d", *r.SlotsFree, *r.Slots)
	}
	return []string{
		r.Name, r.Zone, r.VMSize, r.Kubelet, state(r.State, r.Reasons), fmt.Sprint(r.Primaries), fmt.Sprint(r.Replicas), free,
	}
}

// state is a state with the reasons, if there are any.
func state(name string, reasons []string) string {
	if len(reasons) == 0 {
		return name
	}
	return name + " (" + strings.Join(reasons, ",") + ")"
}
