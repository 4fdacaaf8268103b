package whatif

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cli/explain"
	"github.com/azuredisk-csi/azuredisk/internal/cluster"
	"github.com/azuredisk-csi/azuredisk/internal/plan/cause"
	"github.com/azuredisk-csi/azuredisk/internal/plan/lostnode"
	"github.com/azuredisk-csi/azuredisk/internal/plan/nodehealth"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
	"github.com/azuredisk-csi/azuredisk/internal/scheduler"
	"github.com/azuredisk-csi/azuredisk/internal/volumehandle"
)

// world is the cluster after the loss. Each pod that is placed changes it.
type world struct {
	Facts
	claims  map[string]*corev1.PersistentVolumeClaim
	pvs     map[string]*corev1.PersistentVolume
	volumes map[string]*apiv1.AzVolume
	nodes   map[string]*corev1.Node
	reports map[string]*apiv1.AzDriverNode
	// at are the attachments of each volume, and lists the extender's view of the nodes.
	at    map[string][]*apiv1.AzVolumeAttachment
	lists *scheduler.Lists
	// on are the pods, attached the attachments, and owned the single-node volumes of each node.
	on       map[string][]*corev1.Pod
	attached map[string][]*apiv1.AzVolumeAttachment
	owned    map[string][]*apiv1.AzVolume
	// used is what the pods of each node request.
	used map[string]corev1.ResourceList
	// health is the judgement of the nodes that are lost.
	health nodehealth.Judgement
}

func newWorld(f Facts) *world {
	w := &world{
		Facts:   f,
		claims:  map[string]*corev1.PersistentVolumeClaim{},
		pvs:     map[string]*corev1.PersistentVolume{},
		volumes: map[string]*apiv1.AzVolume{},
		nodes:   map[string]*corev1.Node{},
		reports: map[string]*apiv1.AzDriverNode{},

		at:       map[string][]*apiv1.AzVolumeAttachment{},
		on:       map[string][]*corev1.Pod{},
		attached: map[string][]*apiv1.AzVolumeAttachment{},
		owned:    map[string][]*apiv1.AzVolume{},
		used:     map[string]corev1.ResourceList{},
		health:   f.judgement(),
	}
	for _, c := range f.Claims {
		w.claims[c.Namespace+"/"+c.Name] = c
	}
	for _, pv := range f.PersistentVolumes {
		w.pvs[pv.Name] = pv
	}
	for _, v := range f.Volumes {
		w.volumes[v.Name] = v
		if p := v.Status.Primary; p != nil && v.Spec.Access != apiv1.AccessMultiNode && ownership.OwnedBy(v, p.NodeName) {
			w.owned[p.NodeName] = append(w.owned[p.NodeName], v)
		}
	}
	for _, n := range f.Nodes {
		w.nodes[n.Name] = n
	}
	for _, d := range f.DriverNodes {
		w.reports[d.Name] = d
	}
	for _, name := range f.Gone {
		w.nodes[name], w.reports[name] = f.gone(w.nodes[name], w.reports[name])
	}
	for _, a := range f.Attachments {
		w.at[a.Spec.VolumeName] = append(w.at[a.Spec.VolumeName], a)
		w.attached[a.Spec.NodeName] = append(w.attached[a.Spec.NodeName], a)
	}
	w.lists = scheduler.NewLists(f.DriverName, w.reports, f.Attachments)
	w.Pods = slices.Clone(f.Pods)
	for _, p := range w.Pods {
		w.on[p.Spec.NodeName] = append(w.on[p.Spec.NodeName], p)
		w.use(p, (*resource.Quantity).Add)
	}
	return w
}

// podVolume is a volume of a pod with its objects.
type podVolume struct {
	source corev1.Volume
	claim  *corev1.PersistentVolumeClaim
	pv     *corev1.PersistentVolume
	// name is the AzVolume's; "" for a volume that is not the driver's.
	name string
}

func (w *world) volumesOf(p *corev1.Pod) []podVolume {
	var found []podVolume
	for _, source := range cluster.PodVolumes(p) {
		v := podVolume{source: source}
		if disk, ok := cluster.DiskOf(&source); ok {
			v.name = disk.VolumeName()
		}
		if c := source.PersistentVolumeClaim; c != nil {
			v.claim = w.claims[p.Namespace+"/"+c.ClaimName]
		}
		if v.claim != nil {
			v.pv = w.pvs[v.claim.Spec.VolumeName]
		}
		if v.pv != nil {
			v.name = cluster.VolumeOf(v.pv, w.DriverName)
		}
		found = append(found, v)
	}
	return found
}

// isOurs reports whether a pod has a volume of the driver.
func (w *world) isOurs(p *corev1.Pod) bool {
	return slices.ContainsFunc(w.volumesOf(p), func(v podVolume) bool { return v.name != "" })
}

// leave returns the pods that leave a node, and rows for those that do not.
func (w *world) leave(node string) (stuck []Row, moving []*corev1.Pod) {
	kept := w.kept(node)
	for _, p := range w.on[node] {
		if !w.isOurs(p) {
			continue
		}
		if why, ok := kept[p.UID]; ok {
			row := Row{Namespace: p.Namespace, Pod: p.Name, From: node, Result: Stuck, Cause: why.cause, Why: why.says}
			row.Next = cause.Of(row.Cause).Next
			stuck = append(stuck, row)
			continue
		}
		moving = append(moving, p)
	}
	return stuck, moving
}

type reason struct {
	cause string
	says  string
}

// kept says which pods do not leave a node, and why.
func (w *world) kept(node string) map[types.UID]reason {
	all := map[types.UID]reason{}
	if value, known := explain.Setting(w.Controller, "failover-enabled"); known && value == "false" && !w.Drained {
		for _, p := range w.on[node] {
			all[p.UID] = reason{apiv1.ReasonFailoverDisabled, "failover is switched off"}
		}
		return all
	}
	if w.Drained {
		for _, p := range w.on[node] {
			if why, ok := undrained(p); ok {
				all[p.UID] = why
			}
		}
		return all
	}
	for _, k := range lostnode.Next(w.failover(node)).LeftAlone {
		all[k.Pod.UID] = reason{k.Reason, k.Message}
	}
	return all
}

// undrained is about pods that kubectl drain leaves or refuses.
func undrained(p *corev1.Pod) (reason, bool) {
	if owner := metav1.GetControllerOfNoCopy(p); owner != nil {
		return reason{apiv1.ReasonDaemonSet, "a drain leaves the pods of DaemonSets on the node"},
			owner.Kind == apiv1.ReasonDaemonSet
	}
	return reason{apiv1.ReasonNoOwner, "no controller would create it again, so kubectl drain refuses it without --force"}, true
}

// failover is the input of the driver's decision about a lost node.
func (w *world) failover(node string) lostnode.Input {
	in := lostnode.Input{
		NodeName: node, Health: w.health, Heard: true, Node: w.nodes[node], DriverNode: w.reports[node],
	}
	held, attachments := map[string]bool{}, map[string]*apiv1.AzVolumeAttachment{}
	volumes := slices.Clone(w.owned[node])
	for _, a := range w.attached[node] {
		attachments[a.Spec.VolumeName] = a
		v := w.volumes[a.Spec.VolumeName]
		if v != nil && a.Spec.Role == apiv1.RolePrimary && v.Spec.Access == apiv1.AccessMultiNode {
			volumes = append(volumes, v)
		}
	}
	for _, v := range volumes {
		held[v.Name] = true
		found := lostnode.Volume{Volume: v, Attachment: attachments[v.Name]}
		if n := w.nodes[node]; n != nil {
			found.InUse = len(cluster.InUseNames(n.Status.VolumesInUse, w.DriverName, volumehandle.Of(v.Spec.Disk))) > 0
		}
		in.Volumes = append(in.Volumes, found)
	}
	for _, p := range w.on[node] {
		of := lostnode.Pod{Pod: p}
		for _, v := range w.volumesOf(p) {
			found := lostnode.PodVolumeOf(p, v.source, v.claim, v.pv, v.name)
			az := w.volumes[v.name]
			if az != nil && v.pv != nil && !cluster.IsOf(az, v.pv) {
				az = nil // another disk's
			}
			if v.name != "" && (!held[v.name] || az == nil) {
				found.Unrecorded = ownership.Unrecorded(az)
			}
			of.Volumes = append(of.Volumes, found)
		}
		in.Pods = append(in.Pods, of)
	}
	return in
}
