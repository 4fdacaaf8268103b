package lostnode

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/annotation"
)

// Pod is a pod on the node and its volumes.
type Pod struct {
	Pod     *corev1.Pod
	Volumes []PodVolume
}

// PodVolume is a volume of a pod that another node could use as well.
type PodVolume struct {
	// Volume is the name of the AzVolume; "" if it is not this driver's, or not known.
	Volume string
	// Name for the user, as in "claim shop/cart".
	Name string
	// ReadOnly says that the pod cannot write to it.
	ReadOnly bool
	// OptOut is the annotation by which its PersistentVolumeClaim opts out of failover; see annotation.Failover.
	OptOut string
	// Unknown says that its PersistentVolumeClaim or its PersistentVolume was not found.
	Unknown bool
	// Unrecorded says that the node may use it without a record of this driver; see
	// ownership.Unrecorded.
	Unrecorded bool
}

// PodVolumeOf says what a volume of a pod is, except for Unrecorded. claim is nil if it was not
// found; pv is nil if it was not found or if no claim names it. volume is the name of pv's AzVolume,
// "" if pv is another driver's.
func PodVolumeOf(
	pod *corev1.Pod, v corev1.Volume, claim *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume, volume string,
) PodVolume {
	if v.PersistentVolumeClaim == nil {
		return PodVolume{Name: "volume " + v.Name, ReadOnly: inlineReadOnly(v.VolumeSource)}
	}
	found := PodVolume{
		Name:     "claim " + pod.Namespace + "/" + v.PersistentVolumeClaim.ClaimName,
		ReadOnly: v.PersistentVolumeClaim.ReadOnly,
		Unknown:  pv == nil,
	}
	if claim != nil {
		found.OptOut = annotation.Failover.Switched(claim.Annotations)
	}
	if found.Unknown {
		return found
	}
	found.Volume = volume
	found.ReadOnly = found.ReadOnly || pv.Spec.CSI != nil && pv.Spec.CSI.ReadOnly
	return found
}

// inlineReadOnly reports whether a pod cannot write to a volume that it names without a
// PersistentVolumeClaim. If that is unknown, the pod can.
func inlineReadOnly(s corev1.VolumeSource) bool {
	switch {
	case s.NFS != nil:
		return s.NFS.ReadOnly
	case s.AzureFile != nil:
		return s.AzureFile.ReadOnly
	case s.AzureDisk != nil:
		return s.AzureDisk.ReadOnly != nil && *s.AzureDisk.ReadOnly
	case s.ISCSI != nil:
		return s.ISCSI.ReadOnly
	case s.CephFS != nil:
		return s.CephFS.ReadOnly
	case s.CSI != nil:
		return s.CSI.ReadOnly != nil && *s.CSI.ReadOnly
	default:
		return false
	}
}

// LeaveReasons returns the causes for which a pod is left alone.
func LeaveReasons() []string {
	return []string{apiv1.ReasonOptedOut, apiv1.ReasonNoOwner, apiv1.ReasonDaemonSet, apiv1.ReasonForeignVolume,
		apiv1.ReasonUnknownVolume, apiv1.ReasonSharedVolume, apiv1.ReasonVolumePaused, apiv1.ReasonFencingHeldBack}
}

// OptOutEnds says, for the user, why a volume is fenced although its PersistentVolumeClaim opts out
// of failover.
const OptOutEnds = "the annotation " + apiv1.AnnotationFailover + ": " + apiv1.FailoverDisabled +
	" of its claim keeps the driver from deleting a pod, and from taking the volume from a pod; " +
	"no pod on that node uses the volume any more"

// optOutAdvice ends the message about a pod that opted out.
const optOutAdvice = "; to have its volumes moved, delete it by force (kubectl delete pod --force), after which the driver fences the node from them"

// massLossAdvice ends the message about a pod that the guard holds back.
const massLossAdvice = ", so the fault may be in the controller's network and no further volume is fenced; the driver continues when enough nodes answer again, " +
	"or for each node whose VM is stopped at Azure (az vm stop)"

// LeftPod is a pod that is left alone, together with its volumes.
type LeftPod struct {
	Pod     *corev1.Pod
	Reason  string
	Message string
	// Volumes of this driver that it uses and that the node keeps.
	Volumes []string
}

// ours are the names of the pod's AzVolumes.
func (p Pod) ours() []string {
	var names []string
	for _, v := range p.Volumes {
		if v.Volume != "" && !slices.Contains(names, v.Volume) {
			names = append(names, v.Volume)
		}
	}
	return names
}

// leave says why a pod must be left alone because of itself. off is as in nodehealth.Judgement.Off.
func (p Pod) leave(off bool) (string, string) {
	if optOut := annotation.Failover.Switched(p.Pod.Annotations); optOut != "" {
		return apiv1.ReasonOptedOut, "it has " + optOut + optOutAdvice
	}
	for _, v := range p.Volumes {
		if v.OptOut != "" {
			return apiv1.ReasonOptedOut, v.Name + " has " + v.OptOut + optOutAdvice
		}
	}
	if off {
		return "", ""
	}
	if p.Pod.DeletionTimestamp == nil { // a pod that is being deleted needs no owner
		owner := controllerOf(p.Pod)
		switch owner {
		case "", "Node":
			return apiv1.ReasonNoOwner, "no controller would re-create it"
		case "DaemonSet":
			return apiv1.ReasonDaemonSet, "its DaemonSet would re-create it on the same node"
		}
	}
	for _, v := range p.Volumes {
		switch {
		case v.Unrecorded:
			return apiv1.ReasonForeignVolume, v.Name + " was not published by this driver, which cannot fence a node from it before that"
		case v.Volume != "" || v.ReadOnly:
		case v.Unknown:
			return apiv1.ReasonUnknownVolume, v.Name + " was not found"
		default:
			return apiv1.ReasonForeignVolume, v.Name +
				" is writable and belongs to another driver, so this driver cannot fence a node from it"
		}
	}
	return "", ""
}

func controllerOf(p *corev1.Pod) string {
	if owner := metav1.GetControllerOfNoCopy(p); owner != nil {
		return owner.Kind
	}
	return ""
}

// optedOut reports whether anything on the node opted out.
func (f *decision) optedOut() bool {
	return f.optOut != "" || slices.ContainsFunc(f.in.Pods, func(p Pod) bool {
		reason, _ := p.leave(true)
		return reason == apiv1.ReasonOptedOut
	})
}

// judgePods finds the pods that must be left alone. Their volumes remain with the node. Then other
// pods that use these volumes must be left alone too, with all of their volumes, and so on.
func (f *decision) judgePods() {
	f.leave = make([]string, len(f.in.Pods))
	messages := make([]string, len(f.in.Pods))
	for i, p := range f.in.Pods {
		if f.leave[i], messages[i] = p.leave(f.in.Health.Off()); f.leave[i] == "" {
			f.leave[i], messages[i] = f.leaveOfNode(p)
		}
		if f.leave[i] != "" {
			f.keep(p)
		}
	}
	for again := true; again; {
		again = false
		for i, p := range f.in.Pods {
			shared := slices.IndexFunc(p.ours(), func(name string) bool { return f.kept[name] })
			if f.leave[i] != "" || shared < 0 {
				continue
			}
			f.leave[i] = apiv1.ReasonSharedVolume
			messages[i] = fmt.Sprintf("it uses volume %s together with a pod that is left alone", p.ours()[shared])
			f.keep(p)
			again = true
		}
	}
	for i, p := range f.in.Pods {
		switch {
		case f.leave[i] != "" && f.concerned(p):
			f.step.LeftAlone = append(f.step.LeftAlone, LeftPod{
				Pod:     p.Pod,
				Reason:  f.leave[i],
				Message: messages[i],
				Volumes: f.keptOf(p),
			})
		case f.leave[i] == "" && f.in.Health.Guarded() && len(f.undecided(p)) > 0:
			f.step.LeftAlone = append(f.step.LeftAlone, LeftPod{
				Pod:     p.Pod,
				Reason:  apiv1.ReasonFencingHeldBack,
				Message: f.in.Health.HeldBack + massLossAdvice,
				Volumes: f.undecided(p),
			})
		}
	}
}

// undecided returns the volumes of a pod that the node holds and that have no decision yet.
func (f *decision) undecided(p Pod) []string {
	return slices.DeleteFunc(p.ours(), func(name string) bool {
		_, held := f.held[name]
		return !held || f.decided[name] || f.proven[name]
	})
}

// leaveOfNode says why a pod must be left alone because of its Node, or because a volume of it is paused.
func (f *decision) leaveOfNode(p Pod) (reason, message string) {
	kept := slices.DeleteFunc(p.ours(), func(name string) bool { return !f.kept[name] })
	if len(kept) == 0 {
		return "", ""
	}
	if f.optOut != "" {
		return apiv1.ReasonOptedOut, "its Node has " + f.optOut + optOutAdvice
	}
	for _, name := range kept {
		if paused := f.held[name].waitsForAzure(); paused != "" {
			return apiv1.ReasonVolumePaused, "AzVolume " + name + " has " + paused + ", and only Azure can fence the node from it"
		}
	}
	return "", ""
}

// keep records that the volumes of a pod remain with the node, except those for which a fence was
// decided before.
func (f *decision) keep(p Pod) {
	for _, name := range p.ours() {
		if _, held := f.held[name]; held && !f.decided[name] {
			f.kept[name] = true
		}
	}
}

func (f *decision) keptOf(p Pod) []string {
	return slices.DeleteFunc(p.ours(), func(name string) bool { return !f.kept[name] })
}

// concerned reports whether the failover is about the pod: it uses a volume that is being fenced,
// or the node is lost now.
func (f *decision) concerned(p Pod) bool {
	ours := p.ours()
	return len(ours) > 0 && (f.begins || slices.ContainsFunc(ours, func(name string) bool { return f.decided[name] }))
}

// pods decides which pods are deleted: those whose volumes of this driver are all free.
func (f *decision) pods() {
	for i, p := range f.in.Pods {
		if !f.concerned(p) || f.leave[i] != "" {
			continue
		}
		ours := p.ours()
		if !slices.ContainsFunc(ours, func(name string) bool { return !f.free(name) }) {
			f.step.Delete = append(f.step.Delete, PodDeletion{
				Pod:     p.Pod,
				Force:   true,
				Volumes: ours,
			})
			continue
		}
		// The node is Ready again before the fence of all of the pod's volumes was complete. The
		// pod has lost some of them permanently; its kubelet ends it, and unmounts the others.
		if f.alive && p.Pod.DeletionTimestamp == nil &&
			!slices.ContainsFunc(ours, func(name string) bool { return f.decided[name] && !f.proven[name] }) {
			f.step.Delete = append(f.step.Delete, PodDeletion{Pod: p.Pod, Volumes: ours})
		}
	}
}
