package explain

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/nodehealth"
	"github.com/azuredisk-csi/azuredisk/internal/volumehandle"
)

// chain is what there is on the way from the subject to the disk.
func (f Facts) chain() []Link {
	var links []Link
	if p := f.Pod; p != nil && f.Subject.Kind == KindPod {
		says := string(p.Status.Phase)
		if p.Spec.NodeName != "" {
			says += " on node " + p.Spec.NodeName
		}
		links = append(links, Link{Object: "pod", Name: p.Name, Says: says, Since: moment(p.CreationTimestamp)})
	}
	for _, v := range f.Volumes {
		links = append(links, f.volumeChain(v)...)
	}
	for _, name := range slices.Sorted(maps.Keys(f.Nodes)) {
		links = append(links, f.nodeChain(name)...)
	}
	return links
}

func (f Facts) volumeChain(v *Volume) []Link {
	var links []Link
	if c := v.Claim; c != nil {
		says := string(c.Status.Phase)
		if c.Spec.VolumeName != "" {
			says += " to PersistentVolume " + c.Spec.VolumeName
		}
		links = append(links, Link{Object: "claim", Name: c.Name, Says: says, Since: moment(c.CreationTimestamp)})
	}
	az := v.AzVolume
	if az == nil {
		return links
	}
	links = append(links, Link{Object: "AzVolume", Name: az.Name, Says: volumeSays(v), Since: sinceOf(az.Status.Primary)})
	if last := az.Status.LastRelease; last != nil {
		links = append(links, Link{
			Object: "last release",
			Says:   fmt.Sprintf("by node %s, epoch %d, proof %s", last.NodeName, last.Proof.Epoch, last.Proof.Type),
			Since:  moment(last.Proof.ProvenTime),
		})
	}
	attachments := slices.SortedFunc(slices.Values(v.Attachments), func(a, b *apiv1.AzVolumeAttachment) int {
		return cmp.Or(cmp.Compare(a.Spec.Role, b.Spec.Role), cmp.Compare(a.Spec.NodeName, b.Spec.NodeName))
	})
	for _, a := range attachments {
		links = append(links, attachmentLink(a))
	}
	return links
}

func sinceOf(o *apiv1.Ownership) *time.Time {
	if o == nil || o.LastTransitionTime == nil {
		return nil
	}
	return &o.LastTransitionTime.Time
}

func volumeSays(v *Volume) string {
	az := v.AzVolume
	parts := []string{"disk " + string(az.Status.State)}
	if p := az.Status.Primary; p != nil && p.State != apiv1.OwnershipReleased {
		parts = append(parts, fmt.Sprintf("primary %s (%s, epoch %d)", p.NodeName, p.State, p.Epoch))
	} else if p != nil {
		parts = append(parts, fmt.Sprintf("no primary (epoch %d)", p.Epoch))
	}
	if r := az.Status.Replicas; r != nil {
		parts = append(parts, fmt.Sprintf("replicas %d/%d", r.Ready, r.Wanted))
	}
	if az.Status.Fencing != "" {
		parts = append(parts, "fencing "+string(az.Status.Fencing))
	}
	return strings.Join(parts, ", ")
}

func attachmentLink(a *apiv1.AzVolumeAttachment) Link {
	c := meta.FindStatusCondition(a.Status.Conditions, apiv1.AttachmentConditionAttached)
	says := fmt.Sprintf("%s, %s", a.Spec.Role, cmp.Or(a.Status.State, apiv1.AttachmentPending))
	if a.Spec.Role == apiv1.RolePrimary {
		says = fmt.Sprintf("%s (epoch %d), %s", a.Spec.Role, a.Spec.Epoch, cmp.Or(a.Status.State, apiv1.AttachmentPending))
	}
	if a.Status.LUN != nil {
		says += fmt.Sprintf(", LUN %d", *a.Status.LUN)
	}
	if p := a.Status.Proof; p != nil {
		says += fmt.Sprintf(", proof %s of epoch %d", p.Type, p.Epoch)
	}
	if a.DeletionTimestamp != nil {
		says += ", being deleted"
	}
	link := Link{Object: "attachment", Name: a.Spec.NodeName, Says: says}
	if c != nil {
		link.Since = moment(c.LastTransitionTime)
		took := c.LastTransitionTime.Sub(a.CreationTimestamp.Time)
		if a.Status.State == apiv1.AttachmentAttached && took > 0 && took < time.Hour {
			link.Says += fmt.Sprintf(", attached in %s", took.Round(time.Second))
		}
	}
	return link
}

func (f Facts) nodeChain(name string) []Link {
	n := f.node(name)
	if n.Node == nil && n.DriverNode == nil {
		return nil
	}
	var parts []string
	link := Link{Object: "node", Name: name}
	switch {
	case n.Node == nil:
		parts = append(parts, "no Node")
	case nodehealth.KubeletReady(n.Node):
		parts = append(parts, "kubelet Ready")
	default:
		at := nodehealth.NotReadySince(n.Node)
		parts, link.Since = append(parts, "kubelet not Ready"), &at
	}
	if d := n.DriverNode; d != nil {
		if c := meta.FindStatusCondition(d.Status.Conditions, apiv1.NodeConditionReachable); c != nil {
			parts = append(parts, fmt.Sprintf("Reachable %s (%s)", c.Status, c.Reason))
			if link.Since == nil && c.Status != "True" {
				link.Since = moment(c.LastTransitionTime)
			}
		}
		if c := meta.FindStatusCondition(d.Status.Conditions, apiv1.NodeConditionPluginReady); c != nil {
			parts = append(parts, "node plug-in "+c.Reason)
		}
		if id := f.identity(name); id.Zone != "" {
			parts = append(parts, place(id.Location, id.Zone))
		}
	} else if !f.unread(AzDriverNodes) {
		parts = append(parts, "no AzDriverNode")
	}
	link.Says = strings.Join(parts, ", ")
	return []Link{link}
}

// azure are the disks and VMs at Azure.
func (f Facts) azure() []Resource {
	var all []Resource
	add := func(what, id, command string) {
		if id != "" {
			all = append(all, Resource{
				What: what, ID: id, Portal: "https://portal.azure.com/#@/resource" + id, Command: command + " --ids " + id,
			})
		}
	}
	for _, v := range f.Volumes {
		if v.AzVolume != nil {
			add("disk "+v.AzVolume.Spec.Disk.Name, volumehandle.Of(v.AzVolume.Spec.Disk).String(), "az disk show")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(f.Nodes)) {
		vm := f.identity(name).VMID
		command := "az vm show"
		if strings.Contains(strings.ToLower(vm), "/virtualmachinescalesets/") {
			command = "az resource show" // of an instance
		}
		add("VM of node "+name, vm, command)
	}
	return all
}
