package collect

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cli/explain"
	"github.com/azuredisk-csi/azuredisk/internal/cluster"
	"github.com/azuredisk-csi/azuredisk/internal/kube"
	"github.com/azuredisk-csi/azuredisk/internal/plan/lostnode"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
	"github.com/azuredisk-csi/azuredisk/internal/volumehandle"
)

// podVolume is a volume of a pod with its objects.
type podVolume struct {
	claim  *corev1.PersistentVolumeClaim
	pv     *corev1.PersistentVolume
	volume *apiv1.AzVolume
}

// failover reads what the decision about the failover of a lost node needs: its pods with their
// volumes. With volumes, it is limited to the pods that can decide about them: those that use one of
// them, those that share a volume with such a pod, and so on.
func (c *collection) failover(ctx context.Context, name string, volumes []*explain.Volume) error {
	var list corev1.PodList
	here := client.MatchingFields{"spec.nodeName": name}
	err := c.list(ctx, explain.AllPods, &list, here)
	if err == nil && c.isUnread(explain.AllPods) && c.Subject.Namespace != "" {
		err = c.list(ctx, explain.Pods, &list, here, client.InNamespace(c.Subject.Namespace))
	}
	if err != nil {
		return err
	}
	pods := slices.DeleteFunc(kube.Pointers(list.Items), ended)
	if volumes != nil {
		pods = connected(pods, volumes)
	}
	n, held := c.facts.Nodes[name], map[string]bool{}
	known := map[string]podVolume{}
	for _, p := range pods {
		of := lostnode.Pod{Pod: p}
		for _, source := range cluster.PodVolumes(p) {
			found, err := c.podVolume(ctx, known, p, source)
			if err != nil {
				return err
			}
			pv := lostnode.PodVolumeOf(p, source, found.claim, found.pv, nameOf(found.pv, c.DriverName))
			if pv.Volume != "" && found.volume != nil && holds(name, found.volume) && !held[pv.Volume] {
				held[pv.Volume] = true
				n.Held = append(n.Held, c.held(n, name, found.volume))
			}
			if pv.Volume != "" && !held[pv.Volume] {
				pv.Unrecorded = ownership.Unrecorded(found.volume)
			}
			of.Volumes = append(of.Volumes, pv)
		}
		n.Pods = append(n.Pods, of)
	}
	for _, v := range volumes { // also one that no pod there uses any more
		if v.AzVolume != nil && holds(name, v.AzVolume) && !held[v.Name] {
			held[v.Name] = true
			n.Held = append(n.Held, c.held(n, name, v.AzVolume))
		}
	}
	return nil
}

func nameOf(pv *corev1.PersistentVolume, driverName string) string {
	if pv == nil {
		return ""
	}
	return cluster.VolumeOf(pv, driverName)
}

// holds reports whether a node has a volume as the failover sees it.
func holds(node string, az *apiv1.AzVolume) bool {
	return az.Spec.Access == apiv1.AccessMultiNode || ownership.OwnedBy(az, node)
}

// held is a volume of the node, with the attachment that the node or the question has of it.
func (c *collection) held(n *explain.Node, node string, az *apiv1.AzVolume) lostnode.Volume {
	attachments := slices.Clone(n.Attachments)
	for _, v := range c.facts.Volumes {
		attachments = append(attachments, v.Attachments...)
	}
	found := lostnode.Volume{Volume: az}
	for _, a := range attachments {
		if a.Spec.NodeName == node && a.Spec.VolumeName == az.Name {
			found.Attachment = a
		}
	}
	if n.Node != nil {
		found.InUse = len(cluster.InUseNames(n.Node.Status.VolumesInUse, c.DriverName, volumehandle.Of(az.Spec.Disk))) > 0
	}
	return found
}

// connected returns the pods that use one of the volumes, or a claim of a pod that does, and so on.
func connected(pods []*corev1.Pod, volumes []*explain.Volume) []*corev1.Pod {
	wanted := map[string]bool{}
	for _, v := range volumes {
		wanted[v.Namespace+"/"+v.ClaimName] = true
	}
	chosen := map[*corev1.Pod]bool{}
	for again := true; again; {
		again = false
		for _, p := range pods {
			claims := claimsOf(p)
			if chosen[p] || !slices.ContainsFunc(claims, func(claim string) bool { return wanted[p.Namespace+"/"+claim] }) {
				continue
			}
			chosen[p], again = true, true
			for _, claim := range claims {
				wanted[p.Namespace+"/"+claim] = true
			}
		}
	}
	return slices.DeleteFunc(pods, func(p *corev1.Pod) bool { return !chosen[p] })
}

// podVolume reads the objects of one volume of a pod, once.
func (c *collection) podVolume(ctx context.Context, known map[string]podVolume, p *corev1.Pod, source corev1.Volume) (podVolume,
	error) {
	if source.PersistentVolumeClaim == nil {
		return podVolume{}, nil
	}
	key := p.Namespace + "/" + source.PersistentVolumeClaim.ClaimName
	if found, ok := known[key]; ok {
		return found, nil
	}
	for _, v := range c.facts.Volumes {
		if v.Namespace+"/"+v.ClaimName == key {
			known[key] = podVolume{v.Claim, v.PersistentVolume, v.AzVolume}
			return known[key], nil
		}
	}
	v := &explain.Volume{Namespace: p.Namespace, ClaimName: source.PersistentVolumeClaim.ClaimName}
	err := c.claimWithVolume(ctx, v)
	if err != nil {
		return podVolume{}, err
	}
	if name := nameOf(v.PersistentVolume, c.DriverName); name != "" {
		if v.AzVolume, err = get[apiv1.AzVolume](ctx, c.reader, explain.AzVolumes, c.DriverNamespace, name); err != nil {
			return podVolume{}, err
		}
		if v.AzVolume != nil && !cluster.IsOf(v.AzVolume, v.PersistentVolume) {
			v.AzVolume = nil
		}
	}
	known[key] = podVolume{v.Claim, v.PersistentVolume, v.AzVolume}
	return known[key], nil
}
